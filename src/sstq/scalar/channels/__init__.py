"""Channels: random maps from tokens to codes that are ε-LDP exactly as implemented.

A channel is a matrix of non-negative integers; row k holds the weights of the codes given token k and sums to 2^62. One
draw of 62 uniform bits against the cumulative weights picks the code. Every column is positive in all rows with
max/min ≤ e^ε in rational arithmetic, or zero in all rows and never sent. Both are checked, exactly, whenever a channel
is built, also from JSON; there is no other way to obtain one.

Examples:
    >>> import numpy as np
    >>> channel = flat_channel(bits=2, epsilon=3.0)
    >>> channel.privacy_loss() <= 3.0
    True
    >>> tokens = np.array([0, 1, 2, 3])
    >>> channel.sample(tokens, np.array([0, 2**60, 2**61, 2**62 - 1], dtype=np.uint64))
    array([0, 1, 2, 2])
"""

from sstq.scalar.channels.base import Channel
from sstq.scalar.channels.decoders import identity_decoder, unbiased_decoder
from sstq.scalar.channels.flat import FlatChannel, flat_channel, flat_channel_of_size
from sstq.scalar.channels.metric_aware import metric_aware_channel
from sstq.scalar.channels.optimal import optimal_channel, solving_progress
from sstq.scalar.channels.optimal_exact import OPTIMAL, OptimalChannel, check_unbiased, decoded_second_moment
from sstq.scalar.channels.serial import channel_from_dict
from sstq.scalar.channels.table import TableChannel

__all__ = [
    "OPTIMAL",
    "Channel",
    "FlatChannel",
    "OptimalChannel",
    "TableChannel",
    "channel_from_dict",
    "check_unbiased",
    "decoded_second_moment",
    "flat_channel",
    "flat_channel_of_size",
    "identity_decoder",
    "metric_aware_channel",
    "optimal_channel",
    "solving_progress",
    "unbiased_decoder",
]
