"""The law of a message's secret draw: every probability that it can have, as integers.

Whatever an encoder computes from its vector ends in a token, or in which candidates are well aligned; one or two 62-bit
words then decide what is sent. The kinds of such draws are described here by their integers alone, apart from the
code that samples them, so that `sstq.audit` and reviewers can check one against the other.

A law has *cases*, which the data choose among (a row of a matrix, or how many candidates are inside), and a case has
*cells*: boxes of words with one outcome each. Different cells of a case have different outcomes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import Any, ClassVar, Self

from sstq.exactness import TOTAL
from sstq.mechanisms.parameters import table_of
from sstq.scalar.channels import Channel, FlatChannel

Box = tuple[tuple[int, int], ...]
"""The least and the largest value of each word, both included."""


class Law(ABC):
    """All probabilities of a draw, whatever the data are.

    Attributes:
        kind: the name of the rule.
        words: which of a message's random words make the draw; the others are for an index, rounding or flipping.
        size: the number of tokens, candidates or signs.
    """

    kind: ClassVar[str]
    words: ClassVar[tuple[int, ...]] = (-1,)
    size: int

    def law(self) -> Self:
        """A draw that is nothing but its law."""
        return self

    @property
    @abstractmethod
    def weights(self) -> Sequence[Sequence[int]]:
        """The integers that describe each case."""

    @property
    def cases(self) -> int:
        """The number of cases."""
        return len(self.weights)

    @abstractmethod
    def ratio(self) -> Fraction:
        """The largest ratio of the probabilities of one outcome, over all pairs of cases and outcomes."""

    def cells(self, case: int) -> int:  # noqa: ARG002 (mostly all cases are alike)
        """The number of cells of a case."""
        return self.size

    @abstractmethod
    def boxes(self, case: int, places: Iterable[int]) -> list[Box]:
        """The cells at the given places of a case."""

    def to_dict(self) -> dict[str, Any]:
        """Return kind, size and integers as JSON values; integers are decimal strings, as they may exceed 2^53."""
        return {
            "kind": self.kind,
            "size": self.size,
            "weights": [[str(weight) for weight in row] for row in self.weights],
        }


def mass(box: Box) -> Fraction:
    """The probability that uniform words fall into a box."""
    return math.prod((Fraction(high - low + 1, TOTAL) for low, high in box), start=Fraction(1))


@dataclass(frozen=True)
class FlatLaw(Law):
    """Randomized response: the token itself with weight `own` of 2^62, each of the `size` − 1 others with `other`.

    It has one case: which token it is does not change the steps of the word.

    Examples:
        >>> FlatLaw(4, TOTAL - 3 * 2**59, 2**59).ratio()
        Fraction(5, 1)
    """

    kind = "flat"
    _sum: ClassVar[str] = "own + (size − 1)·other"

    size: int
    own: int
    other: int

    def __post_init__(self) -> None:
        _check_positive(size=self.size, own=self.own, other=self.other)
        total = self.own + (self.cells(0) - 1) * self.other
        if total != TOTAL:
            raise ValueError(f"{self._sum} must be 2^62, got {total}")

    @property
    def weights(self) -> Sequence[Sequence[int]]:
        """The two weights."""
        return [[self.own, self.other]]

    def ratio(self) -> Fraction:
        """The ratio of the two weights."""
        return Fraction(max(self.own, self.other), min(self.own, self.other))

    def boxes(self, case: int, places: Iterable[int]) -> list[Box]:  # noqa: ARG002
        """The cell of the token itself comes first, then the others in order."""
        starts = [(self.own + (place - 1) * self.other, self.other) if place else (0, self.own) for place in places]
        return [((start, start + width - 1),) for start, width in starts]


@dataclass(frozen=True)
class HalfSpaceLaw(FlatLaw):
    """A uniform vector z of `size` signs, turned to one side of the secret v: ⟨z, v⟩ > 0 with weight `own` of 2^62.

    A vector that is orthogonal to v stays. So z has probability 2·own, 2·other or 2^62, over 2^(62+size), and the ratio
    is that of the two sides.
    """

    kind = "half-space"
    _sum = "own + other"

    def cells(self, case: int) -> int:  # noqa: ARG002
        """The two sides, the side of v first."""
        return 2


@dataclass(frozen=True)
class TableLaw(Law):
    """A matrix of weights: a row for each token, summing to 2^62, and a column for each code."""

    kind = "table"

    rows: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(tuple(row) for row in self.rows))
        if not self.rows or len({len(row) for row in self.rows}) != 1:
            raise ValueError("rows must be a table with rows of one length")
        for number, row in enumerate(self.rows):
            if any(type(weight) is not int or weight < 0 for weight in row) or sum(row) != TOTAL:
                raise ValueError(f"row {number} must be non-negative integers that sum to 2^62")
        for code, column in enumerate(zip(*self.rows, strict=True)):
            if min(column) == 0 < max(column):
                raise ValueError(
                    f"code {code} has weight zero for some tokens and not for others, which no finite ε allows"
                )

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of tokens."""
        return len(self.rows)

    @property
    def weights(self) -> Sequence[Sequence[int]]:
        """The matrix."""
        return self.rows

    def ratio(self) -> Fraction:
        """The largest ratio within a column."""
        return max(Fraction(max(column), min(column)) for column in zip(*self.rows, strict=True) if max(column))

    def cells(self, case: int) -> int:
        """The number of codes that occur."""
        return sum(weight > 0 for weight in self.rows[case])

    def boxes(self, case: int, places: Iterable[int]) -> list[Box]:
        """The cells in the order of the codes."""
        ends = [0, *accumulate(weight for weight in self.rows[case] if weight)]
        return [((ends[place], ends[place + 1] - 1),) for place in places]


@dataclass(frozen=True)
class TwoLevelLaw(Law):
    """One of `size` candidates: the first word decides inside or outside, the second picks uniformly on that side.

    A first word below T means inside; a side with i members gives place ⌊word·i/2^62⌋, so that each has ⌊2^62/i⌋ or
    ⌈2^62/i⌉ of the second words. The data decide which candidates are inside and which has one word more: the ratio is
    over all of it. `size` is M, and `levels` are the pairs (i, T) that occur.
    """

    kind = "two-level"
    words = (1, 2)

    size: int
    levels: Sequence[tuple[int, int]]

    def __post_init__(self) -> None:
        _check_positive(size=self.size)
        if self.size > TOTAL:
            raise ValueError("size must be at most 2^62, so that each member has a word")
        object.__setattr__(self, "levels", tuple((inside, threshold) for inside, threshold in self.levels))
        if not self.levels:
            raise ValueError("levels must not be empty")
        for inside, threshold in self.levels:
            if type(inside) is not int or type(threshold) is not int or not 0 <= inside <= self.size:
                raise ValueError(f"levels must be pairs of integers, at most {self.size} inside")
            least, most = {0: (0, 0), self.size: (TOTAL, TOTAL)}.get(inside, (1, TOTAL - 1))
            if not least <= threshold <= most:
                raise ValueError(f"the threshold of {inside} inside must be in [{least}, {most}], got {threshold}")

    def ratio(self) -> Fraction:
        """The ratio of the largest to the least probability that any candidate can have."""
        sides = [side for case in range(self.cases) for side in self._sides(case)]
        largest = max(weight * -(-TOTAL // members) for _, members, weight in sides)
        return Fraction(largest, TOTAL**2) / self.least()

    def least(self) -> Fraction:
        """The least probability that any candidate can have."""
        sides = [side for case in range(self.cases) for side in self._sides(case)]
        return Fraction(min(weight * (TOTAL // members) for _, members, weight in sides), TOTAL**2)

    @property
    def weights(self) -> Sequence[Sequence[int]]:
        """The pairs (i, T)."""
        return self.levels

    def boxes(self, case: int, places: Iterable[int]) -> list[Box]:
        """The cells of candidates inside come first."""
        inside, sides = self.levels[case][0], self._sides(case)
        boxes: list[Box] = []
        for place in places:
            (start, members, weight), first = (sides[0], 0) if place < inside else (sides[-1], inside)
            low, high = (-(-TOTAL * position // members) for position in (place - first, place - first + 1))
            boxes.append(((start, start + weight - 1), (low, high - 1)))
        return boxes

    def _sides(self, case: int) -> list[tuple[int, int, int]]:
        """Where the first words of a side begin, its members and its weight; empty sides are left out."""
        inside, threshold = self.levels[case]
        sides = [(0, inside, threshold), (threshold, self.size - inside, TOTAL - threshold)]
        return [side for side in sides if side[1]]


@dataclass(frozen=True)
class EitherLaw(Law):
    """One of several draws of a kind; which one is drawn without looking at the data, and everybody can tell it.

    A message tells its draw, so the ratio is the largest of those within one draw. How often each is drawn does not
    matter for that, and is no part of the JSON form; `shares` says it where it is known, for shuffled messages.
    """

    kind = "either"
    words = TwoLevelLaw.words

    parts: Sequence[Law]
    shares: Sequence[Fraction] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts or not all(isinstance(part, TwoLevelLaw) for part in self.parts):
            raise ValueError("parts must be laws of kind 'two-level'")
        if self.shares is not None and (
            len(self.shares) != len(self.parts) or min(self.shares) < 0 or sum(self.shares) != 1
        ):
            raise ValueError(f"shares must be one for each part and sum to 1, got {self.shares}")

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of draws."""
        return len(self.parts)

    @property
    def weights(self) -> Sequence[Any]:
        """The draws, as JSON values."""
        return [part.to_dict() for part in self.parts]

    @property
    def cases(self) -> int:
        """The number of cases of all draws."""
        return sum(part.cases for part in self.parts)

    def part_of(self, case: int) -> tuple[int, int]:
        """The draw to which a case belongs, and its number there."""
        for number, part in enumerate(self.parts):
            if case < part.cases:
                return number, case
            case -= part.cases
        raise IndexError("case is out of range")

    def ratio(self) -> Fraction:
        """The largest ratio of all draws."""
        return max(part.ratio() for part in self.parts)

    def cells(self, case: int) -> int:
        """Those of its draw."""
        number, place = self.part_of(case)
        return self.parts[number].cells(place)

    def boxes(self, case: int, places: Iterable[int]) -> list[Box]:
        """Those of its draw."""
        number, place = self.part_of(case)
        return self.parts[number].boxes(place, places)

    def to_dict(self) -> dict[str, Any]:
        """The kind, the number of draws, and the draws."""
        return {"kind": self.kind, "size": self.size, "weights": self.weights}


def channel_law(channel: Channel) -> Law:
    """The law of a channel, from its integers."""
    if isinstance(channel, FlatChannel):
        return FlatLaw(channel.size, channel.own, channel.other)
    return TableLaw(channel.matrix.tolist())


def law_from_dict(data: Any) -> Law:
    """Read a law from its `to_dict` and check its integers; ValueError for anything else."""
    if not isinstance(data, dict) or set(data) != {"kind", "size", "weights"}:
        raise ValueError("a law must have the fields kind, size and weights")
    kind, size, weights = data["kind"], data["size"], data["weights"]
    try:
        if kind == EitherLaw.kind and size == len(weights):
            return EitherLaw([law_from_dict(part) for part in weights])
        weights = table_of("a weight", weights)
        if kind != TableLaw.kind and any(len(pair) != 2 for pair in weights):
            raise ValueError(f"the weights of a law of kind {kind!r} must be pairs")
        if kind in (FlatLaw.kind, HalfSpaceLaw.kind) and len(weights) == 1:
            return (FlatLaw if kind == FlatLaw.kind else HalfSpaceLaw)(size, *weights[0])
        if kind == TableLaw.kind and size == len(weights):
            return TableLaw(weights)
        if kind == TwoLevelLaw.kind:
            return TwoLevelLaw(size, weights)
    except TypeError as error:
        raise ValueError(f"the law is malformed: {error}") from error
    raise ValueError(f"kind and size must be those of a known law, got {kind!r} and {size!r}")


def _check_positive(**values: Any) -> None:
    for name, value in values.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
