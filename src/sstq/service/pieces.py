"""Partial states in pieces of bounded size, which add up to a campaign's state in any order.

A state is an array of integers, one row per number: all numbers below a limit (dense), or those that occur (sparse,
the number in the first column). A piece holds rows of one range of numbers, [first, first + width) with a power of two
as width. The state is the sum of all pieces, including pieces of different widths. Two pieces of the same range add up
to one, and a piece that is too large is halved. Pieces are added when their sizes have the same power of two (their
level), so a row is rewritten only as often as the size of its piece doubles or its range is halved.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation import Aggregator
from sstq.aggregation.sparse_counts import condensed

MOST_BYTES = 1 << 26
"""The maximum size of a piece in memory, and so in the database, where values are limited to one gigabyte."""

Sums = NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """Sums of one range of numbers, as the database has them; `messages` of all pieces add up to the campaign's."""

    first: int
    width: int
    level: int
    messages: int
    sums: bytes


class DenseForm:
    """All rows of a range as little-endian 64-bit integers. The pieces with number 0 count the messages."""

    def __init__(self, aggregator: Aggregator[Any]) -> None:
        self.root = _power_of_two(aggregator.numbers)
        self._columns = aggregator.sums().shape[1]

    def encode(self, sums: Sums, first: int) -> bytes:  # noqa: ARG002 (the sparse form needs it)
        """Encode the sums as bytes."""
        return sums.astype("<i8", copy=False).tobytes()

    def decode(self, raw: bytes, first: int) -> Sums:  # noqa: ARG002
        """Decode what `encode` wrote."""
        return np.frombuffer(raw, dtype="<i8").reshape(-1, self._columns)

    def add(self, one: Sums, other: Sums) -> Sums:
        """Add the sums of two pieces of one range."""
        return one + other

    def halves(self, sums: Sums, first: int, width: int, messages: int) -> list[tuple[int, Sums, int]]:
        """Split a range in halves: the start, sums and messages of each half that is not empty."""
        middle = width // 2
        halves = [(first, sums[:middle], messages), (first + middle, sums[middle:], 0)]
        return [half for half in halves if len(half[1])]


class SparseForm:
    """The rows that occur, each column in its narrowest unsigned type; three bytes name the types."""

    def __init__(self, aggregator: Aggregator[Any]) -> None:
        self.root = _power_of_two(aggregator.numbers)

    def encode(self, sums: Sums, first: int) -> bytes:
        """Encode the sums as bytes; numbers are relative to the start of the range."""
        columns = [sums[:, 0] - first, sums[:, 1], sums[:, 2]]
        types = [np.min_scalar_type(column.max(initial=0)).newbyteorder("<") for column in columns]
        packed = [column.astype(kind).tobytes() for column, kind in zip(columns, types, strict=True)]
        return b"".join([bytes(kind.itemsize for kind in types), *packed])

    def decode(self, raw: bytes, first: int) -> Sums:
        """Decode what `encode` wrote."""
        sizes = list(raw[:3])
        rows = (len(raw) - 3) // sum(sizes)
        sums = np.empty((rows, 3), dtype=np.int64)
        place = 3
        for column, size in enumerate(sizes):
            sums[:, column] = np.frombuffer(raw, dtype=f"<u{size}", count=rows, offset=place)
            place += rows * size
        sums[:, 0] += first
        return sums

    def add(self, one: Sums, other: Sums) -> Sums:
        """Add the sums of two pieces of one range."""
        return condensed(np.concatenate([one, other]))

    def halves(self, sums: Sums, first: int, width: int, messages: int) -> list[tuple[int, Sums, int]]:
        """Split a range in halves: the start, sums and messages of each half that is not empty."""
        middle = first + width // 2
        cut = int(np.searchsorted(sums[:, 0], middle))
        lower = int(sums[:cut, 1:].sum())
        halves = [(first, sums[:cut], lower), (middle, sums[cut:], messages - lower)]
        return [half for half in halves if len(half[1])]


Form = DenseForm | SparseForm


def form_of(aggregator: Aggregator[Any]) -> Form:
    """Return the layout for the sums of such aggregators."""
    return SparseForm(aggregator) if aggregator.sparse else DenseForm(aggregator)


def cut(form: Form, sums: Sums, first: int, width: int, messages: int, most_bytes: int = MOST_BYTES) -> list[Piece]:
    """Cut the sums of a range into pieces of at most this many bytes."""
    if sums.nbytes <= most_bytes or width == 1:
        return [Piece(first, width, sums.nbytes.bit_length(), messages, form.encode(sums, first))]
    pieces = []
    for begin, half, own in form.halves(sums, first, width, messages):
        pieces += cut(form, half, begin, width // 2, own, most_bytes)
    return pieces


def added(form: Form, one: Piece, other: Piece, most_bytes: int = MOST_BYTES) -> list[Piece]:
    """Add two pieces of one range."""
    sums = form.add(form.decode(one.sums, one.first), form.decode(other.sums, other.first))
    return cut(form, sums, one.first, one.width, one.messages + other.messages, most_bytes)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
