"""Partial states in pieces of bounded size, which add up to the state of a campaign in any order.

A state is an array of integers, one row per number: all numbers below a limit (dense), or those that occurred (sparse,
the number in the first column). A piece holds rows of one range of numbers, [first, first + width) with a power of two
as width; the state is the sum of all pieces, those of different widths included. Two pieces of the same range add up to
one, and one that is too large falls into halves. Pieces are added when their sizes have the same power of two (their
level): then a row is written again only as often as the size of its piece doubles or its range is halved.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation import Aggregator
from sstq.aggregation.frame_sums import condensed

MOST_BYTES = 1 << 26
"""The size of a piece in memory; it takes at most as much in the database. Databases stop at a gigabyte."""

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
    """All rows of a range as little-endian 64-bit integers. The messages are counted by the pieces with number 0."""

    def __init__(self, aggregator: Aggregator[Any]) -> None:
        self.root = _power_of_two(aggregator.numbers)
        self._columns = aggregator.sums().shape[1]

    def encode(self, sums: Sums, first: int) -> bytes:  # noqa: ARG002 (the sparse form needs it)
        """The sums as bytes."""
        return sums.astype("<i8", copy=False).tobytes()

    def decode(self, raw: bytes, first: int) -> Sums:  # noqa: ARG002
        """The sums that `encode` wrote."""
        return np.frombuffer(raw, dtype="<i8").reshape(-1, self._columns)

    def add(self, one: Sums, other: Sums) -> Sums:
        """The sums of two pieces of one range."""
        return one + other

    def halves(self, sums: Sums, first: int, width: int, messages: int) -> list[tuple[int, Sums, int]]:
        """The lower and the upper half of a range: where each begins, its sums and messages; none if it is empty."""
        middle = width // 2
        halves = [(first, sums[:middle], messages), (first + middle, sums[middle:], 0)]
        return [half for half in halves if len(half[1])]


class SparseForm:
    """The rows that occurred, column by column in the narrowest unsigned type each; three bytes say which."""

    def __init__(self, aggregator: Aggregator[Any]) -> None:
        self.root = _power_of_two(aggregator.numbers)

    def encode(self, sums: Sums, first: int) -> bytes:
        """The sums as bytes; numbers are counted from the beginning of the range."""
        columns = [sums[:, 0] - first, sums[:, 1], sums[:, 2]]
        types = [np.min_scalar_type(column.max(initial=0)).newbyteorder("<") for column in columns]
        packed = [column.astype(kind).tobytes() for column, kind in zip(columns, types, strict=True)]
        return b"".join([bytes(kind.itemsize for kind in types), *packed])

    def decode(self, raw: bytes, first: int) -> Sums:
        """The sums that `encode` wrote."""
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
        """The sums of two pieces of one range."""
        return condensed(np.concatenate([one, other]))

    def halves(self, sums: Sums, first: int, width: int, messages: int) -> list[tuple[int, Sums, int]]:
        """The lower and the upper half of a range: where each begins, its sums and messages; none if it is empty."""
        middle = first + width // 2
        cut = int(np.searchsorted(sums[:, 0], middle))
        lower = int(sums[:cut, 1:].sum())
        halves = [(first, sums[:cut], lower), (middle, sums[cut:], messages - lower)]
        return [half for half in halves if len(half[1])]


Form = DenseForm | SparseForm


def form_of(aggregator: Aggregator[Any]) -> Form:
    """How the sums of such aggregators are kept."""
    return SparseForm(aggregator) if aggregator.sparse else DenseForm(aggregator)


def cut(form: Form, sums: Sums, first: int, width: int, messages: int, most_bytes: int = MOST_BYTES) -> list[Piece]:
    """The sums of a range in pieces of at most so many bytes."""
    if sums.nbytes <= most_bytes or width == 1:
        return [Piece(first, width, sums.nbytes.bit_length(), messages, form.encode(sums, first))]
    pieces = []
    for begin, half, own in form.halves(sums, first, width, messages):
        pieces += cut(form, half, begin, width // 2, own, most_bytes)
    return pieces


def added(form: Form, one: Piece, other: Piece, most_bytes: int = MOST_BYTES) -> list[Piece]:
    """What two pieces of one range add up to."""
    sums = form.add(form.decode(one.sums, one.first), form.decode(other.sums, other.first))
    return cut(form, sums, one.first, one.width, one.messages + other.messages, most_bytes)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
