"""Upload bodies (packed bits), checked and joined many at a time, because each call costs microseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Protocol

import numpy as np

from sstq.aggregation.sums import VectorAggregator
from sstq.mechanisms import Mechanism
from sstq.messages.batch import Messages

__all__ = ["MessagePacking", "Packed", "Packing", "check", "checked", "join"]

Packed = tuple[int, bytes]
"""A number of messages and their bits."""

# The most bytes joined at a time: shifting their bits takes eight times as much memory.
_JOINED_BYTES = 1 << 20


def check(mechanism: Mechanism, body: bytes, count: int) -> Messages:
    """Return the messages of a body; ValueError unless all of them can be added to the sums."""
    messages = mechanism.messages_from_bytes(body, count)
    if _adds_vectors(mechanism):
        # Their fields can hold numbers that no honest client sends; only the sums detect these.
        mechanism.aggregator().update(messages)
    return messages


@lru_cache(maxsize=256)
def _adds_vectors(mechanism: Mechanism) -> bool:
    return isinstance(mechanism.aggregator(), VectorAggregator)


class Packing(Protocol):
    """How a store checks and joins the upload bodies of one campaign."""

    def checked(self, packed: Sequence[Packed]) -> tuple[list[Packed], dict[int, str]]:
        """Return all valid bodies, joined, and what is wrong with the others, by position."""

    def join(self, packed: Sequence[Packed]) -> list[Packed]:
        """Join the bodies into fewer with the same content."""


@dataclass(frozen=True)
class MessagePacking:
    """Checks and joins bodies of plain messages."""

    mechanism: Mechanism

    def checked(self, packed: Sequence[Packed]) -> tuple[list[Packed], dict[int, str]]:
        """Return the messages of all valid bodies, and what is wrong with the others."""
        return checked(self.mechanism, packed)

    def join(self, packed: Sequence[Packed]) -> list[Packed]:
        """Join the bodies into fewer with the same messages."""
        return join(self.mechanism, packed)


def checked(mechanism: Mechanism, packed: Sequence[Packed]) -> tuple[list[Packed], dict[int, str]]:
    """Return the messages of all valid bodies, joined, and what is wrong with the others, by position."""
    joined: list[Packed] = []
    wrong: dict[int, str] = {}
    for places in _alike(packed):
        _check_alike(mechanism, packed, places, joined, wrong)
    return joined, wrong


def _check_alike(
    mechanism: Mechanism, packed: Sequence[Packed], places: list[int], joined: list[Packed], wrong: dict[int, str]
) -> None:
    try:
        count, body = _joined(mechanism, packed, places)
        check(mechanism, body, count)
        joined.append((count, body))
    except ValueError as error:
        if len(places) == 1:
            wrong[places[0]] = str(error)
            return
        half = len(places) // 2
        _check_alike(mechanism, packed, places[:half], joined, wrong)
        _check_alike(mechanism, packed, places[half:], joined, wrong)


def join(mechanism: Mechanism, packed: Sequence[Packed]) -> list[Packed]:
    """Join bodies with equal numbers of messages; ValueError for a body of the wrong length."""
    return [_joined(mechanism, packed, places) for places in _alike(packed)]


def _alike(packed: Sequence[Packed]) -> Iterator[list[int]]:
    """Iterate over the positions of bodies with equal numbers of messages, in groups that are joined at once."""
    counts = [count for count, _ in packed]
    for _, group in groupby(sorted(range(len(packed)), key=counts.__getitem__), counts.__getitem__):
        places = list(group)
        most = max(1, _JOINED_BYTES // max(1, len(packed[places[0]][1])))
        for start in range(0, len(places), most):
            yield places[start : start + most]


def _joined(mechanism: Mechanism, packed: Sequence[Packed], places: list[int]) -> Packed:
    """Join bodies with equal numbers of messages, dropping the padding bits of their last bytes."""
    if len(places) == 1:
        return packed[places[0]]
    count = packed[places[0]][0]
    bits = count * mechanism.message_bits
    bodies = [packed[place][1] for place in places]
    if set(map(len, bodies)) != {-(-bits // 8)}:
        raise ValueError(f"{count} messages take {bits} bits")
    joined = b"".join(bodies)
    if bits % 8:
        whole = np.frombuffer(joined, dtype=np.uint8).reshape(len(bodies), -1)
        if np.any(whole[:, -1] >> bits % 8):
            raise ValueError("the padding bits of a body must be zero")
        joined = np.packbits(np.unpackbits(whole, axis=1, count=bits, bitorder="little"), bitorder="little").tobytes()
    return count * len(places), joined
