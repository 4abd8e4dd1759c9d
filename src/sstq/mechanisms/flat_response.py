"""What mechanisms built on one flat channel share: its gain, and the check that a channel is the one they need."""

from __future__ import annotations

from typing import Any

from sstq.exactness import TOTAL
from sstq.scalar.channels import Channel, FlatChannel, channel_from_dict

__all__ = ["check_flat", "flat_from_dict", "gain"]


def gain(channel: FlatChannel) -> float:
    """The gap p − q: the factor by which randomized response shrinks any function of the token that sums to zero.

    It comes from the two integers, and a division of integers is rounded correctly everywhere, so that two machines
    decode alike.

    Examples:
        >>> from sstq.scalar.channels import flat_channel_of_size
        >>> round(gain(flat_channel_of_size(2, 3.0)), 4)  # tanh(ε/2)
        0.9051
    """
    return (channel.own - channel.other) / TOTAL


def check_flat(channel: Channel, size: int, epsilon: float) -> FlatChannel:
    """The channel, if it is randomized response on `size` tokens for `epsilon` that favours the token itself."""
    if not isinstance(channel, FlatChannel) or channel.size != size:
        raise ValueError(f"the channel must be flat on {size} tokens, got {channel.name!r} on {channel.inputs}")
    if channel.epsilon != epsilon:
        raise ValueError(f"the channel is made for epsilon {channel.epsilon}, not {epsilon}")
    if channel.own <= channel.other:
        raise ValueError(f"the channel must favour the token itself, got own={channel.own}, other={channel.other}")
    return channel


def flat_from_dict(data: dict[str, Any], size: int, epsilon: float) -> FlatChannel:
    """The flat channel whose `to_dict` this is, its integers and its place in the mechanism checked again."""
    return check_flat(channel_from_dict(data), size, epsilon)
