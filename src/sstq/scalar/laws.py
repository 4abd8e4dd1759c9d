"""The law of a message's secret draw: every probability that it can have, as integers.

Whatever an encoder computes from its vector ends in a token, or in which candidates are well aligned; one or two 62-bit
words then decide what is sent. The kinds of such draws are described here by their integers alone, apart from the
code that samples them, so that `sstq.audit` and reviewers can check one against the other.

A law has *cases*, which the data choose among (a row of a matrix, or how many candidates are inside), and a case has
*cells*: boxes of words with one outcome each. Different cells of a case have different outcomes.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import Any, ClassVar, Literal, Self, get_args

from sstq.exactness import TOTAL, log_upper

_FIELDS = {"kind", "size", "weights"}
Kind = Literal["flat", "half-space", "table", "two-level"]
Box = tuple[tuple[int, int], ...]
"""The least and the largest value of each word, both included."""


def mass(box: Box) -> Fraction:
    """The probability that uniform words fall into a box."""
    return math.prod(
        (Fraction(high - low + 1, TOTAL) for low, high in box), start=Fraction(1)
    )


@dataclass(frozen=True)
class Law:
    """All probabilities of a draw of one of four kinds, whatever the data are.

    - "flat" is randomized response: one case (own, other), the weights of 2^62 of the token itself and of each of the
      `size` − 1 others. Which token it is does not change the steps of the word.
    - "half-space": a uniform vector z of `size` signs, turned to one side of the secret v: ⟨z, v⟩ > 0 with weight own
      of 2^62, the other side with weight other. A vector that is orthogonal to v stays. So z has probability 2·own,
      2·other or 2^62, over 2^(62+size), and the ratio is that of the two sides.
    - "table": a row of weights for each of `size` tokens, summing to 2^62, and a column for each code.
    - "two-level": one of `size` candidates, with one case (i, T): a first word below T means inside, which are i of
      them, and a second word picks uniformly on that side. A side with i members gives place ⌊word·i/2^62⌋, so that
      each has ⌊2^62/i⌋ or ⌈2^62/i⌉ of the second words. The data decide which candidates are inside and which has one
      word more: the ratio is over all of it.

    Attributes:
        kind: the name of the rule.
        size: the number of tokens, candidates or signs.
        weights: the integers that describe each case.

    Examples:
        >>> Law("flat", 4, [(TOTAL - 3 * 2**59, 2**59)]).ratio()
        Fraction(5, 1)
    """

    kind: Kind
    size: int
    weights: Sequence[Sequence[int]]
    shares: ClassVar[None] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(map(tuple, self.weights)))
        integers = all(
            type(weight) is int and weight >= 0
            for case in self.weights
            for weight in case
        )
        if (
            type(self.size) is not int
            or not 1 <= self.size <= TOTAL
            or not self.weights
            or not integers
        ):
            raise ValueError(
                f"a law of kind {self.kind!r} must have a size and weights that are integers"
            )
        if self.kind == "table":
            self._check_table()
            return
        if self.kind not in get_args(Kind) or [len(case) for case in self.weights] != [
            2
        ]:
            raise ValueError(
                f"kind and weights must be those of a known law, got {self.kind!r}"
            )
        runs = self._runs(0)
        if self.kind == "two-level":
            good = all(members > 0 < weight for members, weight in runs)
        else:
            good = (
                0 not in self.weights[0]
                and sum(members * weight for members, weight in runs) == TOTAL
            )
        if not good:
            raise ValueError(
                f"the weights of all outcomes must be positive and share out 2^62, got {self.weights[0]}"
            )

    def _check_table(self) -> None:
        if (
            self.size != len(self.weights)
            or len({len(row) for row in self.weights}) != 1
        ):
            raise ValueError(
                "weights must be a table with a row for each token, all of one length"
            )
        for number, row in enumerate(self.weights):
            if sum(row) != TOTAL:
                raise ValueError(f"row {number} must sum to 2^62")
        for code, column in enumerate(zip(*self.weights, strict=True)):
            if min(column) == 0 < max(column):
                raise ValueError(
                    f"code {code} has weight zero for some tokens and not for others, which no finite ε allows"
                )

    def _runs(self, case: int) -> list[tuple[int, int]]:
        """How many cells of one weight there are, and the weight; of both together with two levels."""
        if self.kind == "table":
            return [(1, weight) for weight in self.weights[case] if weight]
        first, second = self.weights[case]
        if self.kind == "two-level":
            return [(first, second), (self.size - first, TOTAL - second)]
        return [(1, first), (1 if self.kind == "half-space" else self.size - 1, second)]

    @property
    def parts(self) -> Sequence["Law"]:
        """The law itself is the only part."""
        return (self,)

    def part_of(self, case: int) -> tuple[int, int]:
        """The only part, and the case."""
        return 0, case

    def law(self) -> Self:
        """A draw that is nothing but its law."""
        return self

    def privacy_loss(self) -> float:
        """The logarithm of the largest ratio, rounded up to a double."""
        return log_upper(self.ratio())

    @property
    def words(self) -> tuple[int, ...]:
        """Which of a message's random words make the draw; the others are for an index, rounding or flipping."""
        return (1, 2) if self.kind == "two-level" else (-1,)

    @property
    def cases(self) -> int:
        """The number of cases."""
        return len(self.weights)

    def ratio(self) -> Fraction:
        """The largest ratio of the probabilities of one outcome, over all pairs of cases and outcomes."""
        if self.kind == "two-level":
            return self._extreme(max, ceil=True) / self.least()
        columns = (
            zip(*self.weights, strict=True) if self.kind == "table" else self.weights
        )
        return max(
            Fraction(max(column), min(column)) for column in columns if max(column)
        )

    def least(self) -> Fraction:
        """The least probability that a candidate of a draw with two levels can have."""
        return self._extreme(min, ceil=False)

    def _extreme(self, choose: Any, ceil: bool) -> Fraction:
        return Fraction(
            choose(
                weight * ((TOTAL + ceil * (n - 1)) // n) for n, weight in self._runs(0)
            ),
            TOTAL**2,
        )

    def cells(self, case: int) -> int:
        """The number of cells of a case."""
        return sum(members for members, _ in self._runs(case))

    def boxes(self, case: int, places: Iterable[int]) -> list[Box]:
        """The cells at the given places of a case: the token itself, its side or those inside first; codes in order."""
        runs = self._runs(case)
        two_level = self.kind == "two-level"
        firsts = [0, *accumulate(members for members, _ in runs)]
        starts = [
            0,
            *accumulate(
                weight if two_level else members * weight for members, weight in runs
            ),
        ]
        boxes: list[Box] = []
        for place in places:
            run = bisect_right(firsts, place) - 1
            (members, weight) = runs[run]
            within = place - firsts[run]
            start = starts[run]
            if two_level:
                low, high = (
                    -(-TOTAL * position // members) for position in (within, within + 1)
                )
                boxes.append(((start, start + weight - 1), (low, high - 1)))
            else:
                boxes.append(
                    ((start + within * weight, start + (within + 1) * weight - 1),)
                )
        return boxes

    def to_dict(self) -> dict[str, Any]:
        """Return kind, size and integers as JSON values; integers are decimal strings, as they may exceed 2^53."""
        return {
            "kind": self.kind,
            "size": self.size,
            "weights": [[*map(str, case)] for case in self.weights],
        }


@dataclass(frozen=True)
class EitherLaw:
    """One of several draws with two levels, made without looking at the data, and everybody can tell which.

    A message tells its draw, so the ratio is the largest of those within one draw. How often each is drawn does not
    matter for that, and is no part of the JSON form; `shares` says it where it is known, for shuffled messages. All
    else is as in `Law`; the cases are those of all draws, one after the other.
    """

    parts: Sequence[Law]
    shares: Sequence[Fraction] | None = field(default=None, compare=False)
    kind = "either"
    words = (1, 2)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts or not all(part.kind == "two-level" for part in self.parts):
            raise ValueError("parts must be laws of kind 'two-level'")
        if self.shares is not None and (
            len(self.shares) != len(self.parts)
            or min(self.shares) < 0
            or sum(self.shares) != 1
        ):
            raise ValueError(
                f"shares must be one for each part and sum to 1, got {self.shares}"
            )

    def law(self) -> Self:
        """A draw that is nothing but its law."""
        return self

    def privacy_loss(self) -> float:
        """The logarithm of the largest ratio, rounded up to a double."""
        return log_upper(self.ratio())

    @property
    def cases(self) -> int:
        """The number of cases of all draws."""
        return sum(part.cases for part in self.parts)

    def part_of(self, case: int) -> tuple[int, int]:
        """The draw to which a case belongs, and its number there."""
        return [
            (number, inner)
            for number, part in enumerate(self.parts)
            for inner in range(part.cases)
        ][case]

    def ratio(self) -> Fraction:
        """The largest ratio of all draws."""
        return max(part.ratio() for part in self.parts)

    def cells(self, case: int) -> int:
        """The number of cells of a case of its draw."""
        number, inner = self.part_of(case)
        return self.parts[number].cells(inner)

    def boxes(self, case: int, places: Iterable[int]) -> list[Box]:
        """The cells at the given places of a case of its draw."""
        number, inner = self.part_of(case)
        return self.parts[number].boxes(inner, places)

    def to_dict(self) -> dict[str, Any]:
        """The kind, the number of draws, and the draws."""
        return {
            "kind": self.kind,
            "size": len(self.parts),
            "weights": [part.to_dict() for part in self.parts],
        }


def law_from_dict(data: Any) -> Law | EitherLaw:
    """Read a law from its `to_dict` and check its integers; ValueError for anything else."""
    if not isinstance(data, dict) or data.get("kind") != EitherLaw.kind:
        return _read_law(data)
    parts = data.get("weights")
    if (
        set(data) != _FIELDS
        or not isinstance(parts, list)
        or data["size"] != len(parts)
    ):
        raise ValueError(
            "a law of kind 'either' must have a list of laws and their number"
        )
    return EitherLaw([_read_law(part) for part in parts])


def _read_law(data: Any) -> Law:
    if not isinstance(data, dict) or set(data) != _FIELDS:
        raise ValueError("a law must have the fields kind, size and weights")
    return Law(
        data["kind"],
        data["size"],
        [[*map(_word, row)] for row in _lists(data["weights"])],
    )


def _lists(rows: Any) -> list[list[Any]]:
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ValueError(f"weights must be a list of lists, got {rows!r}")
    return rows


def _word(text: Any) -> int:
    plain = isinstance(text, str) and re.fullmatch("0|[1-9][0-9]{0,19}", text)
    if not plain or int(text) >= 1 << 64:
        wanted = "a decimal string of an integer below 2^64"
        raise ValueError(f"a weight must be {wanted}, got {text!r}")
    return int(text)
