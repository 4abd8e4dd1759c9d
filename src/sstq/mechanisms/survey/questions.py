"""The questions of a survey: its mechanism, how a column becomes the mechanism's input, how estimates become results.

A person's record has some numbers per question, its `width`: the number of the label, a mark per label, the value, or
the vector. Missing values, unknown labels and nan are “no answer”, which is a category of its own; a missing vector is
zero.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from sstq.aggregation import Estimate
from sstq.array_types import Floats, Words
from sstq.checks import ArgumentError, check_argument, check_number
from sstq.inputs import Column
from sstq.inputs.cells import Label, as_label, vector_of
from sstq.inputs.csv_files import number_in
from sstq.inputs.tables import writable
from sstq.mechanisms.base import Mechanism, Rows
from sstq.mechanisms.frequencies import FrequencyEstimate
from sstq.mechanisms.groupunit.group_estimates import GroupEstimate
from sstq.mechanisms.survey.question_estimates import GroupMeans, NumberEstimate, QuestionEstimate
from sstq.randomness.secret import unit_interval

NO_ANSWER = "no answer"
_MOST_BINS = 512
_LARGEST = 1e100
_MOST_QUESTIONS = 1000
_LONGEST_NAME = 200

Candidates = list[tuple[str, dict[str, Any], int]]
"""The name of a mechanism, its options beside ε, and the number of items of which one is drawn."""


class AnyQuestion(ABC):
    """What people are asked, with public bounds."""

    type: ClassVar[str]

    @abstractmethod
    def _candidates(self) -> Candidates:
        """The mechanisms that can answer the question."""

    @abstractmethod
    def _records(self, held: Mapping[str, Rows], name: str, items: int) -> Rows:
        """What the mechanism encodes, from the records of all columns; one of `items` items is drawn."""

    def _drawn(self, records: Rows, words: Words) -> Rows:  # noqa: ARG002 (chances need the words)
        """What the mechanism encodes, where the records are chances."""
        return records

    def _estimated(self, inner: Mechanism, records: Rows) -> Rows:
        """What the mechanism's messages estimate of these records."""
        return inner.input.truth(records)

    def row_error(self, inner: Mechanism, records: Rows) -> tuple[Floats, Floats]:
        """The mean of a message's estimate and its variance, per record."""
        return inner.row_error(records)

    def _notes(self, estimates: list[Estimate]) -> list[str]:
        """What whoever reads the result should know."""
        return sorted({each.note for each in estimates if each.note})

    @abstractmethod
    def _result(self, name: str, estimates: list[Estimate], aggregator: Any) -> QuestionEstimate:
        """The result, from the estimates of all items and the aggregator of the first one."""


class SurveyQuestion(AnyQuestion, Column):
    """A question that has a column."""

    def _records(self, held: Mapping[str, Rows], name: str, items: int) -> Rows:  # noqa: ARG002 (marks need the items)
        return held[name]


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

    def parsed(self, text: str) -> Any:
        """The label of a field; where labels are integers 1.0 is one, because missing values turn 1 into it."""
        return text if self.kind is str else as_label(_number_of(text), int)


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

    def examples(self) -> list[Any]:
        """Some labels, the first and the last among them, and no answer."""
        places = np.unique(np.linspace(0, len(self.labels), 4).astype(np.int64))
        return [(*self.labels, None)[place] for place in places]

    def record(self, value: Any, strict: bool) -> int:  # noqa: ARG002
        """The number of the label; that of no answer is the last one."""
        label = as_label(value, self.kind)
        if label is not None and type(label) is not self.kind:
            raise TypeError(f"labels of type {self.kind.__name__}")
        return self.numbers.get(label, len(self.labels))

    def unknown_labels(self, value: Any) -> list[str]:
        """The label, if it is none of the question's."""
        label = as_label(value, self.kind)
        return [] if label in self.numbers or label == NO_ANSWER else [str(label)]

    def _result(self, name: str, estimates: list[Estimate], aggregator: Any) -> QuestionEstimate:
        between = aggregator.estimator.covariance_with(aggregator.counted(), len(self.labels))[:-1]
        return _shares(name, self.labels, estimates[0].value, estimates[0], between)


@dataclass(frozen=True)
class MultiChoice(_Labelled):
    """Any number of labels, also none of them; a column has a list of labels per person.

    Examples:
        >>> MultiChoice(["search", "export"])
        MultiChoice(labels=('search', 'export'))
    """

    type = "multichoice"
    holds_lists = True

    @property
    def width(self) -> int:
        """A mark per label and one for no answer."""
        return len(self.labels) + 1

    def _candidates(self) -> Candidates:
        """One mark that is drawn, or all of them as a vertex of the cube [−1/2, 1/2]^width."""
        cube = {"dim": self.width, "clip": math.sqrt(self.width) / 2}
        return [("frequencies", {"categories": 2}, self.width), ("frameunit", cube, 1)]

    def examples(self) -> list[Any]:
        """No label, all, one, and no answer."""
        return [[], list(self.labels), [self.labels[0]], None]

    def record(self, value: Any, strict: bool) -> Floats:
        """A mark per label; a list of unknown labels only is no answer."""
        listed = isinstance(value, list | tuple | set | frozenset | np.ndarray) and getattr(value, "ndim", 1) > 0
        if not listed and value is not None:
            raise TypeError("lists of labels")
        chosen = [as_label(label, self.kind) for label in (value if listed else [None])]
        marks = np.zeros(self.width)
        if strict and any(label is not None and type(label) is not self.kind for label in chosen):
            raise TypeError(f"lists of labels of type {self.kind.__name__}")
        known = [self.numbers[label] for label in chosen if type(label) is self.kind and label in self.numbers]
        marks[known or ([-1] if chosen else [])] = 1.0
        return marks

    def parsed(self, text: str) -> Any:
        """The labels of a field, which semicolons separate."""
        return [super(MultiChoice, self).parsed(part) for part in text.split(";")]

    def unknown_labels(self, value: Any) -> list[str]:
        """Those of the labels that are none of the question's."""
        labels = [as_label(label, self.kind) for label in value]
        plain = [label if isinstance(label, str | int) else type(label).__name__ for label in labels]
        return [str(label) for label in plain if label not in self.numbers]

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
        count = min(e.count for e in estimates)
        drawn = replace(known, value=values, stderr=errors, count=count, directions=None)
        return _shares(name, self.labels, values, drawn, 0.0)


class Ranged(SurveyQuestion):
    """A question for a number from `low` to `high`, in categories; values beyond are moved to the ends."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The middle of the bounds."""
        return (self.low + self.high) / 2

    @property
    @abstractmethod
    def edges(self) -> Floats:
        """The ends of the categories."""

    @property
    @abstractmethod
    def _items(self) -> list[str]:
        """The names of the categories."""

    def _candidates(self) -> Candidates:
        return [("frequencies", {"categories": len(self.edges)}, 1)]

    def record(self, value: Any, strict: bool) -> float:  # noqa: ARG002
        """The number within the bounds; nan for no answer. Python compares integers of any size."""
        if value is None:
            return math.nan
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError("numbers")
        return float(min(max(value, self.low), self.high))

    def parsed(self, text: str) -> float:
        """The number of a field."""
        return _number_of(text)

    def is_beyond(self, value: Any) -> bool:
        """Whether the number is moved to the bounds."""
        return not self.low <= value <= self.high

    def _result(self, name: str, estimates: list[Estimate], aggregator: Any) -> NumberEstimate:
        shares = _shares(name, self._items, estimates[0].value, estimates[0], 0.0)
        # To first order the errors of the ratios are these sums of the errors of all shares.
        sums = np.column_stack([np.eye(len(self._items)), shares.estimate]) / shares.answered[0]
        counted = aggregator.estimator
        covariance = sums @ counted.covariance(aggregator.counted()) @ sums.T
        more = {"stderr": np.sqrt(np.maximum(np.diagonal(covariance), 0.0)), "edges": self.edges}
        law = counted.sets.law
        exact = isinstance(self, Count)
        return NumberEstimate(**(vars(shares) | more), covariance=covariance, law=law, exact=exact)


@dataclass(frozen=True)
class Number(Ranged):
    """A number from `low` to `high`, counted in bins of equal width; values beyond are moved to the ends.

    The bounds must be public knowledge, not those of the data. A mean of bins is known up to half a bin; ask `Mean`
    beside it for one without that, and `Count` for whole numbers.

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
    def _items(self) -> list[str]:
        return [f"{low:.6g}–{high:.6g}" for low, high in pairwise(self.edges)]

    def examples(self) -> list[Any]:
        """The ends, the middle, and no answer."""
        return [self.low, self.high, self.middle, None]

    def _records(self, held: Mapping[str, Rows], name: str, items: int) -> Rows:  # noqa: ARG002
        values = held[name]
        with np.errstate(invalid="ignore"):
            place = np.floor((values - self.low) / (self.high - self.low) * self.bins)
        return np.where(np.isnan(values), self.bins, np.minimum(place, self.bins - 1))


@dataclass(frozen=True)
class Count(Ranged):
    """A whole number from 0 to `most`, which is public knowledge; larger ones are moved to it.

    Each has a category of its own, so that the mean and the quantiles have no error but the noise.

    Examples:
        >>> Count(10).edges[[0, 1, -1]]
        array([-0.5,  0.5, 10.5])
    """

    type = "count"
    most: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", check_number("most", self.most, 1, _MOST_BINS - 1, integer=True))

    @property
    def low(self) -> float:  # type: ignore[override]
        """The least number."""
        return 0.0

    @property
    def high(self) -> float:  # type: ignore[override]
        """The largest number."""
        return float(self.most)

    @property
    def edges(self) -> Floats:
        """The ends of bars around the numbers."""
        return np.linspace(-0.5, self.most + 0.5, self.most + 2)

    @property
    def _items(self) -> list[str]:
        return [str(number) for number in range(self.most + 1)]

    def examples(self) -> list[Any]:
        """The ends, the middle, and no answer."""
        return [0, self.most, self.most // 2, None]

    def record(self, value: Any, strict: bool) -> float:
        """The number, of those that are whole within the bounds."""
        number = super().record(value, strict)
        if not math.isnan(number) and number != math.floor(number):
            raise TypeError("whole numbers")
        return number

    def _records(self, held: Mapping[str, Rows], name: str, items: int) -> Rows:  # noqa: ARG002
        return np.where(np.isnan(held[name]), self.most + 1, held[name])


@dataclass(frozen=True)
class Vector(SurveyQuestion):
    """A vector of `dim` numbers; those longer than `clip` are scaled down. Missing ones are zero.

    Examples:
        >>> Vector(384, clip=2.0)
        Vector(dim=384, clip=2.0)
    """

    type = "vector"
    holds_lists = True
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

    def examples(self) -> list[Any]:
        """Opposites, a long vector, and no answer."""
        direction = np.cos(np.arange(self.dim)) * self.clip
        direction *= self.clip / np.linalg.norm(direction)
        return [direction, -direction, 10 * direction, None]

    def record(self, value: Any, strict: bool) -> Floats:  # noqa: ARG002
        """The vector; zero for a missing one and for one with nan."""
        vector = np.zeros(self.dim) if value is None else vector_of(value, self.dim)
        if vector is None:
            raise TypeError(f"lists of {self.dim} numbers")
        return vector if np.isfinite(vector).all() else np.zeros(self.dim)

    def parsed(self, text: str) -> Any:
        """The numbers of a field, which semicolons separate."""
        return [_number_of(part) for part in text.split(";")]

    def _result(self, name: str, estimates: list[Estimate], aggregator: Any) -> QuestionEstimate:  # noqa: ARG002
        axes = tuple(map(str, range(self.dim)))
        first = estimates[0]
        return QuestionEstimate(name, axes, first.value, first.stderr, first.count, "people", raw=first)


@dataclass(frozen=True)
class Mean(AnyQuestion):
    """The mean of a Number or a Count, named as in the survey; it has no column of its own.

    Who draws this question rounds the number to one of the ends of its range, at random and so that its mean is that of
    the numbers (clamped to the range). Its standard error from n answers is at ε = 1 about 1.2/√n of the range.

    Examples:
        >>> Mean("age")
        Mean(value='age')
    """

    type = "mean"
    value: str
    measured: Ranged = field(init=False, repr=False, compare=False)

    def within(self, questions: Mapping[str, "Question"]) -> "Mean":
        """The question with the one that it names."""
        value = questions.get(self.value)
        made = Mean(self.value)
        if not isinstance(value, Ranged):
            raise ArgumentError("value", f"must name a Number or a Count of the survey, got {self.value!r}")
        vars(made).update(measured=value)
        return made

    def _candidates(self) -> Candidates:
        """The high end, the low one, and no answer."""
        return [("frequencies", {"categories": 3}, 1)]

    def _records(self, held: Mapping[str, Rows], name: str, items: int) -> Rows:  # noqa: ARG002
        """The chances of the categories."""
        place = (held[self.value] - self.measured.low) / (self.measured.high - self.measured.low)
        none = np.isnan(place)
        return np.hstack([np.where(none, 0.0, place), np.where(none, 0.0, 1.0 - place), none])

    def _drawn(self, records: Rows, words: Words) -> Rows:
        """A category, rounded by one word."""
        low = unit_interval(words) >= records[:, 0]
        return np.where(records[:, 2] > 0, 2.0, low)[:, None]

    def _estimated(self, inner: Mechanism, records: Rows) -> Rows:  # noqa: ARG002
        return records

    def row_error(self, inner: Mechanism, records: Rows) -> tuple[Floats, Floats]:
        """The mean and the variance of the estimate of each row."""
        # All categories have one variance; rounding adds that of a category that is drawn.
        _, variance = inner.row_error(records[:, :1])
        return records, variance + 1 - np.einsum("ij,ij->i", records, records)

    def _result(self, name: str, estimates: list[Estimate], aggregator: Any) -> QuestionEstimate:
        between = aggregator.estimator.covariance_with(aggregator.counted(), 2)[:-1]
        shares = _shares(name, ("mean", "low end"), estimates[0].value, estimates[0], between)
        low = self.measured.low
        high = self.measured.high
        mean = low + (high - low) * shares.estimate[:1]
        stderr = (high - low) * shares.stderr[:1]
        return replace(shares, items=("mean",), estimate=mean, stderr=stderr, limits=(low, high))


@dataclass(frozen=True)
class By(AnyQuestion):
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
    measured: Ranged | Vector = field(init=False, repr=False, compare=False)

    def within(self, questions: Mapping[str, "Question"]) -> "By":
        """The question with the two that it names."""
        group = questions.get(self.group)
        value = questions.get(self.value)
        made = By(self.group, self.value)
        if not isinstance(group, Choice):
            raise ArgumentError("group", f"must name a Choice of the survey, got {self.group!r}")
        if not isinstance(value, Ranged | Vector):
            raise ArgumentError("value", f"must name a Number, a Count or a Vector of the survey, got {self.value!r}")
        vars(made).update(choice=group, measured=value)
        return made

    def _candidates(self) -> Candidates:
        """GroupUnit with one group more; numbers are centred."""
        value = self.measured
        clip = value.clip if isinstance(value, Vector) else (value.high - value.low) / 2
        return [("groupunit", {"groups": len(self.choice.labels) + 1, "dim": value.width, "clip": clip}, 1)]

    def _records(self, held: Mapping[str, Rows], name: str, items: int) -> Rows:  # noqa: ARG002
        """The group and the vector; no answer with zero if either is missing."""
        group = held[self.group]
        values = held[self.value]
        if isinstance(self.measured, Ranged):
            values = values - self.measured.middle
        none = np.isnan(values).any(axis=1, keepdims=True) | (group == len(self.choice.labels))
        return np.where(none, [len(self.choice.labels)] + [0.0] * values.shape[1], np.hstack([group, values]))

    def _notes(self, estimates: list[Estimate]) -> list[str]:
        """Of the labels only: that nobody is without an answer is no problem."""
        first = estimates[0]
        few = int(first.too_few[:-1].sum()) if isinstance(first, GroupEstimate) else 0
        if not few:
            return []
        problem = f"{few} of {len(self.choice.labels)} groups have too few people for a mean"
        return [f"{problem}: the share is not clearly above zero; merge labels or collect more messages"]

    def _result(self, name: str, estimates: list[Estimate], aggregator: Any) -> QuestionEstimate:  # noqa: ARG002
        value = self.measured
        first = estimates[0]
        places = [""] if isinstance(value, Ranged) else [f" [{place}]" for place in range(value.dim)]
        items = tuple(f"{label}{place}" for label in self.choice.labels for place in places)
        if not isinstance(first, GroupEstimate):
            unknown = np.full(len(items), np.nan)
            return QuestionEstimate(name, items, unknown, unknown, 0, "answers")
        middle = 0.0
        limits = (-math.inf, math.inf)
        if isinstance(value, Ranged):
            middle = value.middle
            limits = (value.low, value.high)
        means = middle + first.means[:-1].ravel()
        errors = first.means_stderr[:-1].ravel()
        answered = 1 - float(first.shares[-1]), float(first.shares_stderr[-1])
        known = name, items, means, errors, first.count, "answers", answered, limits
        return GroupMeans(*known, raw=first, middle=middle)


Question = SurveyQuestion | Mean | By
KINDS: dict[str, type[Any]] = {kind.type: kind for kind in (Choice, MultiChoice, Number, Count, Vector, Mean, By)}


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
            wanted = ", ".join(kind.__name__ for kind in KINDS.values())
            raise ArgumentError("questions", f"must be of {wanted}, got {question!r}")
    derived = [question for question in questions.values() if isinstance(question, Mean | By)]
    if twice := [question for question in derived if derived.count(question) > 1]:
        raise ArgumentError("questions", f"must differ, got the same {type(twice[0]).__name__} twice")
    return {
        name: asked.within(questions) if isinstance(asked, Mean | By) else asked for name, asked in questions.items()
    }


def _shares(name: str, labels: Sequence[Label], values: Floats, raw: Estimate, between: Any) -> QuestionEstimate:
    """The shares of labels over those who have an answer, from those of labels and of no answer, which is the last.

    A ratio s/(1 − s₀) has to first order the variance of s + r·s₀, over (1 − s₀)²; `between` are the covariances of s
    and s₀. Where too few people have an answer for a ratio, it is nan.
    """
    answered = float(1 - values[-1])
    error = float(raw.stderr[-1])
    divisor = answered if answered > 2 * error else math.nan
    shares = values[:-1] / divisor
    variance = raw.stderr[:-1] ** 2 + (shares * error) ** 2 + 2 * shares * between
    stderr = np.sqrt(np.maximum(variance, 0.0)) / divisor
    items = tuple(map(str, labels))
    return QuestionEstimate(name, items, shares, stderr, raw.count, "answers", (answered, error), (0.0, 1.0), raw)


def _number_of(text: str) -> float:
    number = number_in(text)
    if number is None:
        raise ValueError(f"{text!r} is no number")
    return number


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
