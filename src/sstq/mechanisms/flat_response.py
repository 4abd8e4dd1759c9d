"""Randomized response with two weights: its channel, checked exactly, and its gain."""

from sstq.exactness import TOTAL
from sstq.scalar.channels import FlatChannel


def gain(channel: FlatChannel) -> float:
    """The gap p − q: the factor by which randomized response shrinks any function of the token that sums to zero.

    A division of integers is rounded correctly everywhere, so that two machines decode alike.
    """
    return (channel.own - channel.other) / TOTAL


def flat_response(size: int, epsilon: float, own: int, other: int) -> FlatChannel:
    """Randomized response on `size` tokens with these weights; ValueError unless it is ε-LDP and favours the token."""
    if own <= other:
        raise ValueError(f"own must be above other: the channel must favour the token itself, got {own} and {other}")
    return FlatChannel(epsilon, size, own, other)
