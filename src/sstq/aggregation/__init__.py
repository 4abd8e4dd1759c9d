"""Aggregation: exact, mergeable, resumable sums of messages, and the mean with its error bar."""

from sstq.aggregation.base import Aggregator, StateInfo, describe_state
from sstq.aggregation.estimates import Estimate, Region
from sstq.aggregation.sparse_counts import SparseAggregator
from sstq.aggregation.sums import BoundedAggregator, FrameAggregator, VectorAggregator

__all__ = [
    "Aggregator",
    "BoundedAggregator",
    "Estimate",
    "FrameAggregator",
    "Region",
    "SparseAggregator",
    "StateInfo",
    "VectorAggregator",
    "describe_state",
]
