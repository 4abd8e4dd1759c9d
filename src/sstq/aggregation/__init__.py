"""Aggregation: exact, mergeable, resumable sums of messages, and the mean with its error bar."""

from sstq.aggregation.base import Aggregator, Estimate, StateInfo, describe_state
from sstq.aggregation.frame_sums import FrameAggregator, FrameDecoding
from sstq.aggregation.group_sums import GroupAggregator, GroupDecoding
from sstq.aggregation.strata import StratifiedAggregator, StratifiedDecoding
from sstq.aggregation.vector_sums import VectorAggregator, VectorDecoding

__all__ = [
    "Aggregator",
    "Estimate",
    "FrameAggregator",
    "FrameDecoding",
    "GroupAggregator",
    "GroupDecoding",
    "StateInfo",
    "StratifiedAggregator",
    "StratifiedDecoding",
    "VectorAggregator",
    "VectorDecoding",
    "describe_state",
]
