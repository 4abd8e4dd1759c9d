"""What all questions of a survey share: their mechanisms, what these encode, and how estimates become results.

A person's record has some numbers per question that has a column: the number of the label, a mark per label, the value,
or the vector. Missing values, unknown labels and nan are “no answer”, which is a category of its own; a missing vector
is zero.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sstq.aggregation import Estimate
from sstq.array_types import Floats, Words
from sstq.inputs import Column
from sstq.inputs.csv_files import number_in
from sstq.mechanisms.base import Mechanism, Rows
from sstq.mechanisms.survey.question_estimates import QuestionEstimate

Candidates = list[tuple[str, dict[str, Any], int]]
"""The name of a mechanism, its options beside ε, and the number of items of which one is drawn."""


class Precision(NamedTuple):
    """How well a message tells.

    Attributes:
        item: the variance of an item's estimate, on average, in units of its range; shares being 1/2.
        variance: the variance of the estimate that a plan is for.
        useful: the largest error of that estimate that is useful.
    """

    item: float
    variance: float
    useful: float


class Question(ABC):
    """What people are asked, with public bounds."""

    type: ClassVar[str]

    @property
    @abstractmethod
    def items(self) -> Sequence[Any]:
        """The names of what is estimated."""

    @property
    @abstractmethod
    def error_of(self) -> str:
        """What a plan states the error of, in words."""

    @abstractmethod
    def _candidates(self) -> Candidates:
        """The mechanisms that can answer the question."""

    @abstractmethod
    def _records(self, columns: Mapping[str, Rows], name: str, items: int) -> Rows:
        """What the mechanism encodes, from the records of all columns; one of `items` items is drawn."""

    def _drawn(self, records: Rows, words: Words) -> Rows:
        """What the mechanism encodes, where the records are chances."""
        return records

    def _estimated(self, inner: Mechanism, records: Rows) -> Rows:
        """What the mechanism's messages estimate of these records."""
        return inner.input.truth(records)

    def row_error(self, inner: Mechanism, records: Rows) -> tuple[Floats, Floats]:
        """The mean of a message's estimate and its variance, per record."""
        return inner.row_error(records)

    @abstractmethod
    def _precision(self, inner: Any, items: int, answers: int) -> Precision:
        """How well each of so many messages tells."""

    def _telling(self, inner: Any, answers: float) -> tuple[float, float]:
        """How many times these answers tell nine of ten items of one size, and how likely an item is told."""
        return 0.0, 1.0

    def for_devices(self) -> dict[str, Any]:
        """What a device needs beside the mechanism: bounds, labels and their number, names of other questions."""
        return {}

    def _notes(self, estimates: list[Any]) -> list[str]:
        """What whoever reads the result should know."""
        return sorted({each.note for each in estimates if each.note})

    @abstractmethod
    def _result(
        self, name: str, estimates: list[Any], aggregator: Any
    ) -> QuestionEstimate:
        """The result, from the estimates of all items and the aggregator of the first one."""

    @abstractmethod
    def truth(
        self, columns: Mapping[str, Rows], name: str
    ) -> Iterable[tuple[Any, float]]:
        """The items of the result with the true values of these people, for a simulation."""


class ColumnQuestion(Question, Column):
    """A question that has a column."""

    def _records(self, columns: Mapping[str, Rows], name: str, items: int) -> Rows:
        return columns[name]


class MeasuredQuestion(ColumnQuestion):
    """A question for numbers or vectors, of which groups may have means.

    Attributes:
        middle: what is subtracted.
        reach: the largest norm of what is left.
        reach_name: what the reach is, in words.
        limits: the least and the largest number that there can be.
    """

    middle: float
    reach: float
    reach_name: ClassVar[str]
    limits: tuple[float, float]

    @property
    @abstractmethod
    def axes(self) -> Sequence[str]:
        """How the name of each coordinate ends."""


def mean_of(values: Rows) -> Floats:
    """The mean of the rows; nan, without a warning, if there are none."""
    total: Floats = values.sum(axis=0)
    return total / (len(values) or math.nan)


def shares_of_answers(
    name: str, items: Sequence[Any], values: Floats, raw: Estimate, between: Any = 0.0
) -> QuestionEstimate:
    """The shares of items over those who have an answer, from those of items and of no answer, which is the last.

    A ratio s/(1 − s₀) has to first order the variance of s + r·s₀, over (1 − s₀)²; `between` are the covariances of s
    and s₀. Where too few people have an answer for a ratio, it is nan.
    """
    answered = float(1 - values[-1])
    error = float(raw.stderr[-1])
    divisor = answered if answered > 2 * error else math.nan
    shares = values[:-1] / divisor
    variance = raw.stderr[:-1] ** 2 + (shares * error) ** 2 + 2 * shares * between
    stderr = np.sqrt(np.maximum(variance, 0.0)) / divisor
    names = tuple(map(str, items))
    return QuestionEstimate(
        name,
        names,
        shares,
        stderr,
        raw.count,
        "answers",
        (answered, error),
        (0.0, 1.0),
        raw,
    )


def number_of(text: str) -> float:
    """The number of a field; ValueError if it is none."""
    number = number_in(text)
    if number is None:
        raise ValueError(f"{text!r} is no number")
    return number
