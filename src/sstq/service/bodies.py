"""Upload bodies (packed bits), checked and joined many at a time, because each call costs microseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

import numpy as np

from sstq.aggregation.sums import VectorAggregator
from sstq.mechanisms import Mechanism
from sstq.messages.batch import Messages

Packed = tuple[int, bytes]
"""A number of messages and their bits."""

Checked = tuple[list[Packed], dict[int, str]]
"""The valid bodies, joined, and what is wrong with the others, by position."""

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


def checked(mechanism: Mechanism, packed: Sequence[Packed]) -> Checked:
    """Check bodies and join the valid ones."""
    joined: list[Packed] = []
    wrong: dict[int, str] = {}
    left = list(_alike(packed))[::-1]
    while left:
        places = left.pop()
        try:
            count, body = _joined(mechanism, packed, places)
            check(mechanism, body, count)
            joined.append((count, body))
        except ValueError as error:
            if len(places) == 1:
                wrong[places[0]] = str(error)
            else:  # which of them?
                half = len(places) // 2
                left += [places[half:], places[:half]]
    return joined, wrong


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
