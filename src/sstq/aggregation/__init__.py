"""Aggregation: exact, mergeable, resumable sums of messages, and the mean with its error bar."""

from sstq.aggregation.aggregator import Aggregator, StateInfo, describe_state
from sstq.aggregation.estimates import Estimate, Region
from sstq.aggregation.estimator import Estimator, Sums
from sstq.aggregation.sparse_counts import SparseEstimator
from sstq.aggregation.sums import DenseEstimator, FrameEstimator
from sstq.aggregation.vector_sums import VectorEstimator

__all__ = [
    "Aggregator",
    "DenseEstimator",
    "Estimate",
    "Estimator",
    "FrameEstimator",
    "Region",
    "SparseEstimator",
    "StateInfo",
    "Sums",
    "VectorEstimator",
    "describe_state",
]
