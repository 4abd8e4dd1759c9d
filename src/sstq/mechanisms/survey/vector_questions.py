"""Questions for vectors, and for the mean of a number or a vector per label."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from sstq.aggregation.estimates import student
from sstq.array_types import Floats
from sstq.checks import ArgumentError, check_argument
from sstq.inputs.cells import vector_of
from sstq.mechanisms.base import Rows
from sstq.mechanisms.survey.label_questions import Choice
from sstq.mechanisms.survey.question import (
    Candidates,
    MeasuredQuestion,
    Precision,
    Question,
    mean_of,
    number_of,
)
from sstq.mechanisms.survey.question_estimates import GroupMeans, QuestionEstimate

# How likely a group's mean must be told, and the confidence that tells it.
MOSTLY = 0.9
_LEVEL = 0.95


@dataclass(frozen=True)
class Vector(MeasuredQuestion):
    """A vector of `dim` numbers; those longer than `clip` are scaled down. Missing ones are zero.

    Examples:
        >>> Vector(384, clip=2.0)
        Vector(dim=384, clip=2.0)
    """

    type = "vector"
    holds_lists = True
    error_of = "mean / clip"
    reach_name = "clip"
    middle = 0.0
    limits = (-math.inf, math.inf)
    dim: int
    clip: float = 1.0

    def __post_init__(self) -> None:
        clip = check_argument("clip", self.clip)
        vars(self).update(dim=check_argument("dim", self.dim), clip=clip, reach=clip)

    @property
    def width(self) -> int:
        """The numbers of the vector."""
        return self.dim

    @property
    def items(self) -> Sequence[int]:
        """The coordinates."""
        return range(self.dim)

    @property
    def axes(self) -> Sequence[str]:
        """The coordinates in brackets."""
        return [f" [{place}]" for place in self.items]

    def _candidates(self) -> Candidates:
        return [("frameunit", {"dim": self.dim, "clip": self.clip}, 1)]

    def _precision(self, inner: Any, items: int, answers: int) -> Precision:
        variance = inner.typical_error(answers).total * answers / inner.clip**2
        return Precision(variance / self.dim / 4, variance, 1.0)

    def examples(self) -> list[Any]:
        """Opposites, a long vector, and no answer."""
        direction = np.cos(np.arange(self.dim)) * self.clip
        direction *= self.clip / np.linalg.norm(direction)
        return [direction, -direction, 10 * direction, None]

    def record(self, value: Any, strict: bool) -> Floats:
        """The vector; zero for a missing one and for one with nan."""
        vector = np.zeros(self.dim) if value is None else vector_of(value, self.dim)
        if vector is None:
            raise TypeError(f"lists of {self.dim} numbers")
        return vector if np.isfinite(vector).all() else np.zeros(self.dim)

    def parsed(self, text: str) -> Any:
        """The numbers of a field, which semicolons separate."""
        return [number_of(part) for part in text.split(";")]

    def _result(
        self,
        name: str,
        estimates: list[Any],
        aggregator: Any,
    ) -> QuestionEstimate:
        first = estimates[0]
        axes = tuple(map(str, self.items))
        return QuestionEstimate(
            name, axes, first.value, first.stderr, first.count, "people", raw=first
        )

    def truth(
        self, columns: Mapping[str, Rows], name: str
    ) -> Iterable[tuple[Any, float]]:
        """The means of the coordinates, over all people."""
        return zip(self.items, mean_of(columns[name]), strict=True)


@dataclass(frozen=True)
class By(Question):
    """The mean of a Number, a Count or a Vector per label of a Choice, both named as in the survey and both private.

    It has no column of its own.

    Examples:
        >>> By("country", "age")
        By(group='country', value='age')
    """

    type = "by"
    group: str
    value: str
    choice: Choice = field(init=False, repr=False, compare=False)
    measured: MeasuredQuestion = field(init=False, repr=False, compare=False)

    def within(self, questions: Mapping[str, Question]) -> "By":
        """The question with the two that it names."""
        group = questions.get(self.group)
        value = questions.get(self.value)
        made = By(self.group, self.value)
        if not isinstance(group, Choice):
            raise ArgumentError(
                "group", f"must name a Choice of the survey, got {self.group!r}"
            )
        if not isinstance(value, MeasuredQuestion):
            raise ArgumentError(
                "value",
                f"must name a Number, a Count or a Vector of the survey, got {self.value!r}",
            )
        vars(made).update(choice=group, measured=value)
        return made

    def for_devices(self) -> dict[str, Any]:
        """The names of both questions."""
        return {"group": self.group, "value": self.value}

    @property
    def items(self) -> Sequence[str]:
        """The coordinates of all labels."""
        return [
            f"{label}{axis}"
            for label in self.choice.labels
            for axis in self.measured.axes
        ]

    @property
    def error_of(self) -> str:
        """One coordinate of a group's mean."""
        return f"group mean / {self.measured.reach_name}"

    def _candidates(self) -> Candidates:
        """GroupUnit with one group more; numbers are centred."""
        value = self.measured
        return [
            (
                "groupunit",
                {
                    "groups": len(self.choice.labels) + 1,
                    "dim": value.width,
                    "clip": value.reach,
                },
                1,
            )
        ]

    def _precision(self, inner: Any, items: int, answers: int) -> Precision:
        """Of one coordinate of a group's mean, groups being alike: a sum over its share."""
        variance = (
            inner.typical_error(answers).total
            * answers
            / inner.clip**2
            / inner.estimate_dim
        )
        return Precision(variance / 4, variance * inner.groups**2, 0.5)

    def _telling(self, inner: Any, answers: float) -> tuple[float, float]:
        rates, part = inner.share_rates
        share = 1 / inner.groups
        beyond = share / math.sqrt(rates.variance_at(share) / (part * answers))
        limit = student(_LEVEL, inner.estimate_dim, max(2, round(answers)))
        normal = NormalDist()
        return ((limit + normal.inv_cdf(MOSTLY)) / beyond) ** 2, normal.cdf(
            beyond - limit
        )

    def _records(self, columns: Mapping[str, Rows], name: str, items: int) -> Rows:
        """The group and the vector; no answer with zero if either is missing."""
        group = columns[self.group]
        values = columns[self.value] - self.measured.middle
        none = np.isnan(values).any(axis=1, keepdims=True) | (
            group == len(self.choice.labels)
        )
        return np.where(
            none,
            [len(self.choice.labels)] + [0.0] * values.shape[1],
            np.hstack([group, values]),
        )

    def _notes(self, estimates: list[Any]) -> list[str]:
        """Of the labels only: that nobody is without an answer is no problem."""
        first = estimates[0]
        few = int(first.too_few[:-1].sum()) if first.count else 0
        if not few:
            return []
        problem = (
            f"{few} of {len(self.choice.labels)} groups have too few people for a mean"
        )
        return [
            f"{problem}: the share is not clearly above zero; merge labels or collect more messages"
        ]

    def _result(
        self,
        name: str,
        estimates: list[Any],
        aggregator: Any,
    ) -> QuestionEstimate:
        first = estimates[0]
        items = tuple(self.items)
        if not first.count:
            unknown = np.full(len(items), np.nan)
            return QuestionEstimate(name, items, unknown, unknown, 0, "answers")
        middle = self.measured.middle
        means = middle + first.means[:-1].ravel()
        errors = first.means_stderr[:-1].ravel()
        answered = 1 - float(first.shares[-1]), float(first.shares_stderr[-1])
        described = (
            name,
            items,
            means,
            errors,
            first.count,
            "answers",
            answered,
            self.measured.limits,
        )
        return GroupMeans(*described, raw=first, middle=middle)

    def truth(
        self, columns: Mapping[str, Rows], name: str
    ) -> Iterable[tuple[Any, float]]:
        """The mean of each label, of those who have both."""
        records = self._records(columns, name, 1)
        means = [
            self.measured.middle + mean_of(records[records[:, 0] == label, 1:])
            for label in range(len(self.choice.labels))
        ]
        return zip(self.items, np.concatenate(means), strict=True)
