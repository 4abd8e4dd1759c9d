"""The flat channel of a mechanism, from its options or its JSON form, and its gain."""

from collections.abc import Mapping
from typing import Any

from sstq.checks import stated_integer
from sstq.exactness import TOTAL
from sstq.scalar.channels import FlatChannel, flat_channel_of_size


def gain(channel: FlatChannel) -> float:
    """The gap p − q: the factor by which randomized response shrinks any function of the token that sums to zero.

    A division of integers is rounded correctly everywhere, so that two machines decode alike.
    """
    return (channel.own - channel.other) / TOTAL


def flat_response(size: int, epsilon: float, stated: Mapping[str, Any] | None) -> FlatChannel:
    """Randomized response on `size` tokens with the whole budget, or with the weights that a JSON form states."""
    if stated is None:
        return flat_channel_of_size(size, epsilon)
    own, other = (stated_integer(name, stated[name]) for name in ("own", "other"))
    if own <= other:
        raise ValueError(f"own must be above other: the channel must favour the token itself, got {own} and {other}")
    return FlatChannel(epsilon, size, own, other)


def weights_of(channel: FlatChannel) -> dict[str, Any]:
    """The two weights, as JSON values."""
    return {"own": str(channel.own), "other": str(channel.other)}
