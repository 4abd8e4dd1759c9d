"""Aggregation: exact, mergeable, resumable sums of messages, and the mean with its error bar."""

from sstq.aggregation.aggregator import Aggregator, StateInfo, describe_state
from sstq.aggregation.dense import DenseAggregator, DenseEstimator
from sstq.aggregation.estimates import Estimate, Region
from sstq.aggregation.estimator import Estimator, Sums
from sstq.aggregation.sparse_counts import SparseAggregator, SparseEstimator
from sstq.aggregation.sums import FrameEstimator, VectorEstimator

__all__ = [
    "Aggregator",
    "DenseAggregator",
    "DenseEstimator",
    "Estimate",
    "Estimator",
    "FrameEstimator",
    "Region",
    "SparseAggregator",
    "SparseEstimator",
    "StateInfo",
    "Sums",
    "VectorEstimator",
    "describe_state",
]
