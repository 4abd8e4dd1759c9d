"""Channels from their JSON form."""

from collections.abc import Mapping
from typing import Any

from sstq.scalar.channels.base import Channel
from sstq.scalar.channels.flat import FlatChannel
from sstq.scalar.channels.table import TableChannel


def channel_from_dict(fields: Mapping[str, Any]) -> Channel:
    """Return the channel that ``to_dict`` described, every integer checked again.

    Examples:
        >>> from sstq.scalar.channels import flat_channel
        >>> channel = flat_channel(4, 3.0)
        >>> channel_from_dict(channel.to_dict()) == channel
        True
        >>> channel_from_dict({"name": "flat", "epsilon": 3.0})
        Traceback (most recent call last):
        ...
        ValueError: a flat channel has the fields name, epsilon, size, own, other; not name, epsilon
    """
    name = fields.get("name")
    kind = "flat" if name == FlatChannel.name else "table"
    expected = ["name", "epsilon", "size", "own", "other"] if kind == "flat" else ["name", "epsilon", "matrix"]
    if set(fields) != set(expected):
        raise ValueError(f"a {kind} channel has the fields {', '.join(expected)}; not {', '.join(map(str, fields))}")
    epsilon = fields["epsilon"]
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
        raise ValueError(f"epsilon = {epsilon!r} is not a number")
    if kind == "flat":
        return FlatChannel(epsilon, fields["size"], fields["own"], fields["other"])
    return TableChannel(fields["name"], epsilon, fields["matrix"])
