"""Bounds for the columns of a table: a cohort tells the order of magnitude of one column, a second where it ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from sstq.aggregation import Aggregator, Estimate
from sstq.array_types import Floats
from sstq.checks import ArgumentError, check_argument
from sstq.files.strict_json import JsonObject
from sstq.inputs.cells import cells_of
from sstq.inputs.single_vectors import LARGEST
from sstq.mechanisms.survey import Number, Survey
from sstq.messages.batch import Messages
from sstq.studies.base import Study, StudyPlan, register_study
from sstq.studies.questions import Question, register_question, require
from sstq.studies.range import Range
from sstq.studies.results import BoundsResult

# Bins of a factor 2 from 1e-9 to 1e9, for each sign, and one for what is nearer to zero; then bins of equal width.
_SIZES = 1e-9 * 2.0 ** np.arange(61)
_FACTORS = np.concatenate([-_SIZES[::-1], _SIZES])
_FINE = 64
# The share of people who tell the order of magnitude, and what counts as surely there among all bins and their sums.
_ORDERS = 0.3
_SURE = 4.75
# The share of the people beyond each end, if it can be told so exactly.
_BEYOND = 0.005
# Orders beyond those that are surely there, where a tail may be.
_TAIL = 3


@register_question
@dataclass(frozen=True, eq=False, kw_only=True)
class ColumnsQuestion(Question):
    """In which bin the value of one column is, which the device draws.

    Attributes:
        columns: the names of the columns.
        ends: the least and the largest value of each column's bins; an empty list for bins of a factor 2.
    """

    kind = "columns"
    mechanism: Survey
    columns: Sequence[str]
    ends: Sequence[Sequence[float]]

    def check(self) -> None:
        """Check the fields."""
        named = (
            isinstance(self.columns, list)
            and isinstance(self.ends, list)
            and len(set(self.columns)) == len(self.columns) == len(self.ends)
        )
        require(named, "columns must be different, and ends a list as long")
        for pair in self.ends:
            fine = (
                isinstance(pair, list)
                and len(pair) in (0, 2)
                and all(type(end) in (int, float) for end in pair)
            )
            fine = fine and (not pair or -LARGEST <= pair[0] < pair[1] <= LARGEST)
            require(
                fine,
                f"ends must be pairs of numbers up to {LARGEST:g}, or empty, got {pair!r}",
            )
        require(
            self.mechanism.questions == _questions(self.edges),
            "mechanism must be a survey of the bins of these columns",
        )

    @cached_property
    def edges(self) -> dict[str, Floats]:
        """The ends of the bins of each column."""
        return _edges(self.columns, self.ends)

    def held(self, values: Sequence[Any]) -> dict[str, list[float | None]]:
        """The middle of each value's bin, by column; None for what is no finite number."""
        return {
            name: [self._place(value, name, edges) for value in values]
            for name, edges in self.edges.items()
        }

    def encode_file(self, path: Path, column: str | None = None) -> Messages:  # noqa: ARG002
        """Return one private message per row of a CSV or Parquet file with these columns."""
        records = []
        for piece in self.mechanism.input.open(path, answering=True).pieces():
            cells = [cells_of(piece.X[name]) for name in self.columns]
            records += [
                dict(zip(self.columns, row, strict=True))
                for row in zip(*cells, strict=True)
            ]
        return self.encode(records)

    @staticmethod
    def _place(record: Any, name: str, edges: Floats) -> float | None:
        value: Any = record.get(name) if isinstance(record, Mapping) else None
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or not abs(value) <= LARGEST:
            return None
        place = int(np.searchsorted(edges, float(value), side="right")) - 1
        return min(max(place, 0), len(edges) - 2) + 0.5


def _edges(
    columns: Sequence[str], ends: Sequence[Sequence[float]]
) -> dict[str, Floats]:
    """The ends of the bins of each column: within its ends, or of a factor 2."""
    return {
        name: np.linspace(pair[0], pair[1], _FINE + 1) if pair else _FACTORS
        for name, pair in zip(columns, ends, strict=True)
    }


def _questions(edges: dict[str, Floats]) -> dict[str, Number]:
    """A number per column, whose bins are these."""
    counts = {name: len(ends) - 1 for name, ends in edges.items()}
    return {name: Number(0, count, bins=count) for name, count in counts.items()}


@register_study
class ColumnRange(Range):
    """Find bounds for the columns of a table, so that nobody need know them.

    30 % of the people tell the order of magnitude of one column, which the device draws; the others in which of 64
    bins their value is, from the least to the largest order that is surely there. The result is `bounds=` for
    mechanisms, and the share of people beyond them.

    Args:
        epsilon: the ε of a person's only message, and so the person's total.
        columns: the names of the columns.

    Examples:
        >>> rng = np.random.default_rng(1)
        >>> people = [{"age": age} for age in rng.normal(45, 10, 20_000)]
        >>> found = Range(columns=["age"], epsilon=3.0).simulate(people, rng=1)
        >>> low, high = found.bounds["age"]
        >>> -5 < low < 30, 60 < high < 100
        (True, True)
    """

    kind = "columns"

    def __init__(self, epsilon: float, *, columns: Sequence[str]) -> None:
        names = list(columns)
        fine = (
            bool(names)
            and all(isinstance(name, str) for name in names)
            and len(set(names)) == len(names)
        )
        if not fine:
            problem = f"must be different names, got {names!r}"
            raise ArgumentError("columns", problem)
        Study.__init__(self, epsilon=check_argument("epsilon", epsilon), columns=names)

    @property
    def weights(self) -> dict[str, float]:
        """Orders of magnitude, then ends."""
        return self._left({"orders": _ORDERS, "ends": 1 - _ORDERS})

    def ask(self, cohort: str, people: int) -> ColumnsQuestion:  # noqa: ARG002
        """Ask for bins of a factor 2, or within what is surely there."""
        names = self.options["columns"]
        ends: list[Any] = [[] for _ in names]
        if self.learned:
            ends = [self.learned[0]["ends"][name] for name in names]
        numbers = _questions(_edges(names, ends))
        survey = Survey(self.options["epsilon"], numbers, people=people)
        return ColumnsQuestion(
            study=self.identifier, mechanism=survey, columns=names, ends=ends
        )

    def take(
        self, cohort: str, question: Any, aggregator: Aggregator[Estimate]
    ) -> JsonObject:
        """Keep the ends of what is surely there, or the ends that leave few people beyond."""
        result: Any = aggregator.mean()
        ends = {}
        left = {}
        find = _sure_ends if cohort == "orders" else _likely_ends
        for name, edges in question.edges.items():
            shares = result[name].estimate
            error = float(np.max(result[name].stderr))
            if not (np.all(np.isfinite(shares)) and math.isfinite(error)):
                shares = np.zeros(len(edges) - 1)
                error = 1.0
            first, end = find(shares, error)
            ends[name] = [float(edges[first]), float(edges[end])]
            left[name] = [
                float(1 - shares[first:end].sum()),
                error * math.sqrt(end - first),
            ]
        return {"people": aggregator.count, "ends": ends, "beyond": left}

    def conclude(self) -> Any:
        """Return the bounds."""
        first, last = self.learned
        # Those whom the first cohort left out are at the ends of the second one's bins.
        left = {
            name: np.transpose([first["beyond"][name], last["beyond"][name]])
            for name in last["ends"]
        }
        return BoundsResult(
            {name: (low, high) for name, (low, high) in last["ends"].items()},
            {name: float(shares.sum()) for name, (shares, _) in left.items()},
            {name: math.hypot(*errors) for name, (_, errors) in left.items()},
            first["people"] + last["people"],
            self.options["epsilon"],
        )

    def plan(self, people: int) -> StudyPlan:
        """Tell the error of the share of people beyond an end."""
        sizes = self.cohort_sizes(people)
        first: Any = self.ask("", 1).mechanism.parts[0].mechanism
        scatter = first.sets.rates.variance_at(0.0) * len(self.options["columns"])
        error = math.sqrt(scatter / max(1, next(iter(sizes.values()))))
        needed = math.ceil(people * (4 * _SURE * error) ** 2)
        problem = f"too few people to find the columns' orders; {needed:,} would do"
        return StudyPlan(
            people,
            sizes,
            error,
            "the error of the share of people in a bin",
            problem * (needed > people),
        )


def _sure_ends(shares: Floats, error: float) -> tuple[int, int]:
    """The likely bins near those that are surely there, alone or with their neighbours."""
    sure = np.zeros(len(shares), dtype=bool)
    for width in (1, 2, 4):
        sums = np.convolve(shares, np.ones(width), "valid")
        for place in np.flatnonzero(sums > _SURE * error * math.sqrt(width)):
            sure[place : place + width] = True
    if not sure.any():
        sure[int(np.argmax(shares))] = True
    places = np.flatnonzero(sure)
    start = max(0, int(places[0]) - _TAIL)
    stop = min(len(shares), int(places[-1]) + 1 + _TAIL)
    first, end = _likely_ends(shares[start:stop], error)
    return start + first, start + end


def _likely_ends(shares: Floats, error: float) -> tuple[int, int]:
    """The first bin and the end of those where nearly all people are, as far as the error tells; one more on each side.

    The error of a sum grows with its bins. Half of it keeps noise from widening the ends, and few people beyond them.
    """
    from scipy.optimize import isotonic_regression

    total = max(float(shares.sum()), 1e-9)
    beyond = [
        isotonic_regression(np.cumsum(side) / total).x
        for side in (shares, shares[::-1])
    ]
    least = np.maximum(_BEYOND, error / 2 * np.sqrt(np.arange(1, len(shares) + 1)))
    first, last = (max(0, int(np.argmax(sums > least)) - 1) for sums in beyond)
    # Of very few people the two sides may cross.
    return first, max(first + 1, len(shares) - last)
