"""The questions of a survey: its mechanism, how a column becomes the mechanism's input, how estimates become results.

A person's record has some numbers per question, its `width`: the number of the label, a mark per label, the value, or
the vector. Missing values, unknown labels and nan are “no answer”, which is a category of its own; a missing vector is
zero.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from sstq.aggregation import Estimate
from sstq.checks import ArgumentError, check_argument, check_number
from sstq.inputs.tables import Label, as_label, cells_of, vector_of, writable
from sstq.mechanisms.base import ClippedWarning, Floats, Rows
from sstq.mechanisms.frequencies import FrequencyEstimate
from sstq.mechanisms.groupunit.estimates import GroupEstimate
from sstq.mechanisms.survey.estimates import NumberEstimate, QuestionEstimate

NO_ANSWER = "no answer"
_MOST_BINS, _LARGEST = 512, 1e100
_MOST_QUESTIONS, _LONGEST_NAME = 1000, 200

Candidates = list[tuple[str, dict[str, Any], int]]
"""The name of a mechanism, its options beside ε, and the number of items of which one is drawn."""


class SurveyQuestion(ABC):
    """A question: what people are asked, with public bounds. It has a column."""

    type: ClassVar[str]

    @property
    def width(self) -> int:
        """How many numbers a record has."""
        return 1

    @property
    def kind(self) -> Any:
        """The type of its numbers or labels."""
        return float

    @abstractmethod
    def _candidates(self) -> Candidates:
        """The mechanisms that can answer the question."""

    @abstractmethod
    def _examples(self) -> list[Any]:
        """Values of its column that differ as much as they can."""

    @abstractmethod
    def _record(self, value: Any, strict: bool) -> Any:
        """The record of a value; TypeError with what it should be. A list may have other types, unless `strict`."""

    def _read(self, values: Any, name: str, strict: bool) -> Floats:
        """The column as records, (n, width); ValueError for values of a wrong type if `strict`, else no answer."""
        cells = cells_of(values)
        rows = np.empty((len(cells), self.width))
        for row, value in enumerate(cells):
            try:
                rows[row] = self._record(value, strict)
            except TypeError as wanted:
                if strict:
                    got = f"got {repr(value)[:40]} in row {row}"
                    raise ValueError(f"column {name!r} must be {wanted}, {got}") from wanted
                rows[row] = self._record(None, strict)
        return rows

    def _records(self, held: Mapping[str, Rows], name: str, items: int) -> Rows:  # noqa: ARG002 (marks need the items)
        """What the mechanism encodes, from the records of all columns; one of `items` items is drawn."""
        return held[name]

    @abstractmethod
    def _result(self, name: str, estimates: list[Estimate], aggregator: Any) -> QuestionEstimate:
        """The result, from the estimates of all items and the aggregator of the first one."""


@dataclass(frozen=True)
class _Labelled(SurveyQuestion):
    labels: Sequence[Label]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", _labels(self.labels))

    @cached_property
    def numbers(self) -> dict[Any, int]:
        """The number of each label."""
        return {label: number for number, label in enumerate(self.labels)}

    @property
    def kind(self) -> Any:
        """The type of the labels."""
        return type(self.labels[0])


@dataclass(frozen=True)
class Choice(_Labelled):
    """One of several labels, which are texts or integers.

    Examples:
        >>> Choice(["AT", "CH", "DE"])
        Choice(labels=('AT', 'CH', 'DE'))
    """

    type = "choice"

    def _candidates(self) -> Candidates:
        return [("frequencies", {"categories": len(self.labels) + 1}, 1)]

    def _examples(self) -> list[Any]:
        places = np.unique(np.linspace(0, len(self.labels), 4).astype(np.int64))
        return [(*self.labels, None)[place] for place in places]

    def _record(self, value: Any, strict: bool) -> int:  # noqa: ARG002
        """The number of the label; that of no answer is the last one."""
        label = as_label(value, self.kind)
        if label is not None and type(label) is not self.kind:
            raise TypeError(f"labels of type {self.kind.__name__}")
        return self.numbers.get(label, len(self.labels))

    def _result(self, name: str, estimates: list[Estimate], aggregator: Any) -> QuestionEstimate:
        between = aggregator.covariance_with(len(self.labels))[:-1]
        return _shares(name, self.labels, estimates[0].value, estimates[0], between)


@dataclass(frozen=True)
class MultiChoice(_Labelled):
    """Any number of labels, also none of them; a column has a list of labels per person.

    Examples:
        >>> MultiChoice(["search", "export"])
        MultiChoice(labels=('search', 'export'))
    """

    type = "multichoice"

    @property
    def width(self) -> int:
        """A mark per label and one for no answer."""
        return len(self.labels) + 1

    def _candidates(self) -> Candidates:
        """One mark that is drawn, or all of them as a vertex of the cube [−1/2, 1/2]^width."""
        cube = {"dim": self.width, "clip": math.sqrt(self.width) / 2}
        return [("frequencies", {"categories": 2}, self.width), ("frameunit", cube, 1)]

    def _examples(self) -> list[Any]:
        return [[], list(self.labels), [self.labels[0]], None]

    def _record(self, value: Any, strict: bool) -> Floats:
        """A mark per label; a list of unknown labels only is no answer."""
        listed = isinstance(value, list | tuple | set | frozenset | np.ndarray) and getattr(value, "ndim", 1) > 0
        if not listed and value is not None:
            raise TypeError("lists of labels")
        chosen, marks = [as_label(label, self.kind) for label in (value if listed else [None])], np.zeros(self.width)
        if strict and any(label is not None and type(label) is not self.kind for label in chosen):
            raise TypeError(f"lists of labels of type {self.kind.__name__}")
        known = [self.numbers[label] for label in chosen if type(label) is self.kind and label in self.numbers]
        marks[known or ([-1] if chosen else [])] = 1.0
        return marks

    def _records(self, held: Mapping[str, Rows], name: str, items: int) -> Rows:
        return held[name] if items > 1 else held[name] - 0.5

    def _result(self, name: str, estimates: list[Estimate], aggregator: Any) -> QuestionEstimate:  # noqa: ARG002
        first = estimates[0]
        if len(estimates) == 1:
            # All marks come from one vector; their errors are correlated by at most 1.
            between = np.sign(first.value + 0.5)[:-1] * first.stderr[:-1] * first.stderr[-1]
            return _shares(name, self.labels, first.value + 0.5, first, between)
        # Labels that are drawn come from different people.
        values, errors = (np.array([getattr(e, which)[-1] for e in estimates]) for which in ("value", "stderr"))
        known = next((e for e in estimates if isinstance(e, FrequencyEstimate)), first)
        drawn = replace(known, value=values, stderr=errors, count=min(e.count for e in estimates))
        return _shares(name, self.labels, values, drawn, 0.0)


@dataclass(frozen=True)
class Number(SurveyQuestion):
    """A number from `low` to `high`, counted in bins of equal width; values beyond are moved to the ends.

    The bounds must be public knowledge, not those of the data.

    Examples:
        >>> Number(0, 110, bins=22).edges[:3]
        array([ 0.,  5., 10.])
    """

    type = "number"
    low: float
    high: float
    bins: int = 16

    def __post_init__(self) -> None:
        low, high = (check_number(end, getattr(self, end), -_LARGEST, _LARGEST) for end in ("low", "high"))
        if not low < high:
            raise ArgumentError("low", f"must be below high, got {low:g} and {high:g}")
        bins = check_number("bins", self.bins, 2, _MOST_BINS, integer=True)
        for name, value in {"low": low, "high": high, "bins": bins}.items():
            object.__setattr__(self, name, value)

    @property
    def edges(self) -> Floats:
        """The ends of the bins."""
        return np.linspace(self.low, self.high, self.bins + 1)

    @property
    def middle(self) -> float:
        """The middle of the bounds."""
        return (self.low + self.high) / 2

    def _candidates(self) -> Candidates:
        return [("frequencies", {"categories": self.bins + 1}, 1)]

    def _examples(self) -> list[Any]:
        return [self.low, self.high, self.middle, None]

    def _record(self, value: Any, strict: bool) -> float:  # noqa: ARG002
        """The number within the bounds; nan for no answer. Python compares integers of any size."""
        if value is None:
            return math.nan
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError("numbers")
        return float(min(max(value, self.low), self.high))

    def _read(self, values: Any, name: str, strict: bool) -> Floats:
        """The owner of the data is told how many were beyond the bounds."""
        rows = super()._read(values, name, strict)
        if strict:
            beyond = sum(not self.low <= value <= self.high for value in cells_of(values) if value is not None)
            if beyond:
                told = f"{beyond} of {len(rows)} values of {name!r} are beyond its bounds and were moved to them"
                warnings.warn(f"{told}. This line depends on the data: keep it local", ClippedWarning, stacklevel=5)
        return rows

    def _records(self, held: Mapping[str, Rows], name: str, items: int) -> Rows:  # noqa: ARG002
        values = held[name]
        with np.errstate(invalid="ignore"):
            place = np.floor((values - self.low) / (self.high - self.low) * self.bins)
        return np.where(np.isnan(values), self.bins, np.minimum(place, self.bins - 1))

    def _result(self, name: str, estimates: list[Estimate], aggregator: Any) -> NumberEstimate:
        labels = [f"{low:.6g}–{high:.6g}" for low, high in pairwise(self.edges)]
        shares = _shares(name, labels, estimates[0].value, estimates[0], 0.0)
        # To first order the errors of the ratios are these sums of the errors of all shares.
        sums = np.column_stack([np.eye(self.bins), shares.estimate]) / shares.answered[0]
        errors = aggregator.covariance(), aggregator._mechanism.uniform_covariance
        covariance, of_one = (sums @ each @ sums.T for each in errors)
        more = {"stderr": np.sqrt(np.maximum(np.diagonal(covariance), 0.0)), "edges": self.edges}
        return NumberEstimate(**(vars(shares) | more), covariance=covariance, of_one=of_one)


@dataclass(frozen=True)
class Vector(SurveyQuestion):
    """A vector of `dim` numbers; those longer than `clip` are scaled down. Missing ones are zero.

    Examples:
        >>> Vector(384, clip=2.0)
        Vector(dim=384, clip=2.0)
    """

    type = "vector"
    dim: int
    clip: float = 1.0

    def __post_init__(self) -> None:
        for name in ("dim", "clip"):
            object.__setattr__(self, name, check_argument(name, getattr(self, name)))

    @property
    def width(self) -> int:
        """The numbers of the vector."""
        return self.dim

    def _candidates(self) -> Candidates:
        return [("frameunit", {"dim": self.dim, "clip": self.clip}, 1)]

    def _examples(self) -> list[Any]:
        direction = np.cos(np.arange(self.dim)) * self.clip
        direction *= self.clip / np.linalg.norm(direction)
        return [direction, -direction, 10 * direction, None]

    def _record(self, value: Any, strict: bool) -> Floats:  # noqa: ARG002
        """The vector; zero for a missing one and for one with nan."""
        vector = np.zeros(self.dim) if value is None else vector_of(value, self.dim)
        if vector is None:
            raise TypeError(f"lists of {self.dim} numbers")
        return vector if np.isfinite(vector).all() else np.zeros(self.dim)

    def _result(self, name: str, estimates: list[Estimate], aggregator: Any) -> QuestionEstimate:  # noqa: ARG002
        axes, first = tuple(map(str, range(self.dim))), estimates[0]
        return QuestionEstimate(name, axes, first.value, first.stderr, first.count, "people", raw=first)


@dataclass(frozen=True)
class By:
    """The mean of a Number or a Vector per label of a Choice; both are named as in the survey, and both are private.

    It has no column of its own.

    Examples:
        >>> By("country", "age")
        By(group='country', value='age')
    """

    type = "by"
    group: str
    value: str
    choice: Choice = field(init=False, repr=False, compare=False)
    measured: Number | Vector = field(init=False, repr=False, compare=False)

    def within(self, questions: Mapping[str, "Question"]) -> "By":
        """The question with the two that it names."""
        group, value, made = questions.get(self.group), questions.get(self.value), By(self.group, self.value)
        if not isinstance(group, Choice):
            raise ArgumentError("group", f"must name a Choice of the survey, got {self.group!r}")
        if not isinstance(value, Number | Vector):
            raise ArgumentError("value", f"must name a Number or a Vector of the survey, got {self.value!r}")
        vars(made).update(choice=group, measured=value)
        return made

    def _candidates(self) -> Candidates:
        """GroupUnit with one group more; numbers are centred."""
        value = self.measured
        clip = value.clip if isinstance(value, Vector) else (value.high - value.low) / 2
        return [("groupunit", {"groups": len(self.choice.labels) + 1, "dim": value.width, "clip": clip}, 1)]

    def _records(self, held: Mapping[str, Rows], name: str, items: int) -> Rows:  # noqa: ARG002
        """The group and the vector; no answer with zero if either is missing."""
        group, values = held[self.group], held[self.value]
        if isinstance(self.measured, Number):
            values = values - self.measured.middle
        none = np.isnan(values).any(axis=1, keepdims=True) | (group == len(self.choice.labels))
        return np.where(none, [len(self.choice.labels)] + [0.0] * values.shape[1], np.hstack([group, values]))

    def _result(self, name: str, estimates: list[Estimate], aggregator: Any) -> QuestionEstimate:  # noqa: ARG002
        value, first = self.measured, estimates[0]
        places = [""] if isinstance(value, Number) else [f" [{place}]" for place in range(value.dim)]
        items = tuple(f"{label}{place}" for label in self.choice.labels for place in places)
        if not isinstance(first, GroupEstimate):
            unknown = np.full(len(items), np.nan)
            return QuestionEstimate(name, items, unknown, unknown, 0, "answers")
        means, errors = first.means[:-1].ravel(), first.means_stderr[:-1].ravel()
        answered, limits = (1 - float(first.shares[-1]), float(first.shares_stderr[-1])), (-math.inf, math.inf)
        if isinstance(value, Number):
            means, limits = means + value.middle, (value.low, value.high)
        return QuestionEstimate(name, items, means, errors, first.count, "answers", answered, limits, first)


Question = SurveyQuestion | By
KINDS: dict[str, type[Any]] = {kind.type: kind for kind in (Choice, MultiChoice, Number, Vector, By)}


def question_to_dict(question: Question) -> dict[str, Any]:
    """The question as JSON values."""
    values = {each.name: getattr(question, each.name) for each in fields(question) if each.init}  # type: ignore[arg-type]
    return {"type": question.type} | {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def question_from_dict(data: Any) -> Question:
    """Read a question from its JSON values; ValueError for anything else."""
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"type of a question must be one of {', '.join(KINDS)}, got {data!r}")
    try:
        made: Question = KINDS[kind](**{name: value for name, value in data.items() if name != "type"})
    except TypeError as error:
        raise ValueError(f"a question of type {kind!r} is malformed: {error}") from error
    return made


def check_questions(questions: Any) -> dict[str, Question]:
    """The questions of a survey by name, each `By` with those that it names."""
    if not isinstance(questions, Mapping) or not 1 <= len(questions) <= _MOST_QUESTIONS:
        raise ArgumentError("questions", f"must be 1 to {_MOST_QUESTIONS} questions by name, got {questions!r}")
    for name, question in questions.items():
        if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME or not writable(name):
            raise ArgumentError("questions", f"must have names of 1 to {_LONGEST_NAME} characters, got {name!r}")
        if not isinstance(question, Question):
            raise ArgumentError("questions", f"must be Choice, MultiChoice, Number, Vector or By, got {question!r}")
    twice = [by for by in questions.values() if isinstance(by, By)]
    if len(set(twice)) < len(twice):
        raise ArgumentError("questions", "must differ, got the same By twice")
    return {name: asked.within(questions) if isinstance(asked, By) else asked for name, asked in questions.items()}


def _shares(name: str, labels: Sequence[Label], values: Floats, raw: Estimate, between: Any) -> QuestionEstimate:
    """The shares of labels over those who have an answer, from those of labels and of no answer, which is the last.

    A ratio s/(1 − s₀) has to first order the variance of s + r·s₀, over (1 − s₀)²; `between` are the covariances of s
    and s₀. Where too few people have an answer for a ratio, it is nan.
    """
    answered, error = float(1 - values[-1]), float(raw.stderr[-1])
    divisor = answered if answered > 2 * error else math.nan
    shares = values[:-1] / divisor
    variance = raw.stderr[:-1] ** 2 + (shares * error) ** 2 + 2 * shares * between
    stderr, items = np.sqrt(np.maximum(variance, 0.0)) / divisor, tuple(map(str, labels))
    return QuestionEstimate(name, items, shares, stderr, raw.count, "answers", (answered, error), (0.0, 1.0), raw)


def _labels(labels: Any) -> tuple[Label, ...]:
    """Distinct labels of one type."""
    listed = isinstance(labels, Sequence) and not isinstance(labels, str)
    plain = tuple(as_label(label, object) for label in labels) if listed else ()
    of_one_type = {type(label) for label in plain} in ({str}, {int}) and all(map(writable, plain))
    if not of_one_type or len({*plain} - {NO_ANSWER}) < len(plain) or len(plain) >= 1 << 20:
        raise ArgumentError(
            "labels",
            "must be a list of 1 to 2^20 − 1 texts in UTF-8, or of integers of at most 2^53 − 1, all distinct "
            f"({NO_ANSWER!r} is added), got {labels!r:.100}",
        )
    return plain
