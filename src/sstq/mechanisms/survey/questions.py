"""The questions of a survey: its mechanism, how a column becomes the mechanism's input, how estimates become results.

A person's record has some numbers per question, its `width`: the number of the label, a mark per label, the value, or
the vector. Missing values, unknown labels and nan are “no answer”, which is a category of its own; a missing vector is
zero.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from sstq.aggregation import Estimate
from sstq.checks import ArgumentError, check_argument, check_number
from sstq.mechanisms.base import ClippedWarning, Floats, Rows
from sstq.mechanisms.frequencies import FrequencyEstimate
from sstq.mechanisms.groupunit.estimates import GroupEstimate
from sstq.mechanisms.survey.columns import Label, cells_of, labels_of, vector_of, writable
from sstq.mechanisms.survey.estimates import NumberEstimate, QuestionEstimate, over_answers, sums_over_answers

NO_ANSWER = "no answer"
_MOST_BINS, _LARGEST = 512, 1e100

Candidates = list[tuple[str, dict[str, Any], int]]
"""The name of a mechanism, its options beside ε, and the number of items of which one is drawn."""
Questions = Mapping[str, "Question"]


class Question(ABC):
    """A question: what people are asked, with public bounds."""

    type: ClassVar[str]
    width: int

    def to_dict(self) -> dict[str, Any]:
        """The question as JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"type": self.type} | {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @abstractmethod
    def candidates(self, questions: Questions) -> Candidates:
        """The mechanisms that can answer the question."""

    def examples(self) -> list[Any]:
        """Values of its column that differ as much as they can."""
        raise NotImplementedError("there is no column")

    def read(self, values: Any, name: str, strict: bool) -> Floats:
        """The column as records, (n, width); ValueError for values of a wrong type if `strict`, else no answer."""
        raise NotImplementedError("there is no column")

    def records(self, held: Mapping[str, Rows], name: str, questions: Questions, items: int) -> Rows:  # noqa: ARG002
        """What the mechanism encodes, from the records of all questions; one of `items` items is drawn."""
        return held[name]

    @abstractmethod
    def result(self, name: str, questions: Questions, found: list[Estimate], aggregators: list[Any]) -> Any:
        """The `QuestionEstimate`, from the estimates of all items and their aggregators."""


@dataclass(frozen=True)
class _Labelled(Question):
    labels: Sequence[Label]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", _labels(self.labels))

    @property
    def numbers(self) -> dict[Any, int]:
        """The number of each label."""
        return {label: number for number, label in enumerate(self.labels)}

    @property
    def kind(self) -> type:
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
    width = 1

    def candidates(self, questions: Questions) -> Candidates:  # noqa: ARG002
        """Frequencies with one category more."""
        return [("frequencies", {"categories": len(self.labels) + 1}, 1)]

    def examples(self) -> list[Any]:
        """Some labels, and no answer."""
        places = np.unique(np.linspace(0, len(self.labels), 4).astype(np.int64))
        return [(*self.labels, None)[place] for place in places]

    def read(self, values: Any, name: str, strict: bool) -> Floats:
        """The number of each label; that of no answer is the last one."""
        kind, numbers = self.kind, self.numbers
        cells = labels_of(cells_of(values), kind)
        for row, value in enumerate(cells):
            if strict and value is not None and type(value) is not kind:
                raise _wrong(name, f"labels of type {kind.__name__}", value, row)
        none = len(self.labels)
        found = [numbers.get(value, none) if type(value) is kind else none for value in cells]
        return np.array(found, dtype=np.float64).reshape(-1, 1)

    def result(self, name: str, questions: Questions, found: list[Estimate], aggregators: list[Any]) -> Any:  # noqa: ARG002
        """The shares of the labels."""
        between = aggregators[0].covariance_with(len(self.labels))[:-1]
        return _shares(name, self.labels, found[0].value, found[0], between)


@dataclass(frozen=True)
class MultiChoice(_Labelled):
    """Any number of labels, also none of them; a column has a list of labels per person.

    Examples:
        >>> MultiChoice(["search", "export"])
        MultiChoice(labels=('search', 'export'))
    """

    type = "multichoice"

    @property
    def width(self) -> int:  # type: ignore[override]
        """A mark per label and one for no answer."""
        return len(self.labels) + 1

    def candidates(self, questions: Questions) -> Candidates:  # noqa: ARG002
        """One mark that is drawn, or all of them as a vertex of the cube [−1/2, 1/2]^width."""
        cube = {"dim": self.width, "clip": math.sqrt(self.width) / 2}
        return [("frequencies", {"categories": 2}, self.width), ("frameunit", cube, 1)]

    def examples(self) -> list[Any]:
        """Nothing, everything, the first label, and no answer."""
        return [[], list(self.labels), [self.labels[0]], None]

    def read(self, values: Any, name: str, strict: bool) -> Floats:
        """A mark per label; a list of unknown labels only is no answer."""
        kind, numbers = self.kind, self.numbers
        cells = cells_of(values)
        marks = np.zeros((len(cells), self.width))
        for row, value in enumerate(cells):
            listed = isinstance(value, list | tuple | set | frozenset | np.ndarray) and getattr(value, "ndim", 1) > 0
            if strict and not listed and value is not None:
                raise _wrong(name, "lists of labels", value, row)
            chosen = labels_of(list(value), kind) if listed else [None]
            wrong = [label for label in chosen if label is not None and type(label) is not kind]
            if strict and wrong:
                raise _wrong(name, f"lists of labels of type {kind.__name__}", wrong[0], row)
            known = [numbers[label] for label in chosen if type(label) is kind and label in numbers]
            marks[row, known or ([] if not chosen else [-1])] = 1.0
        return marks

    def records(self, held: Mapping[str, Rows], name: str, questions: Questions, items: int) -> Rows:  # noqa: ARG002
        """The marks, or the vertex of the cube."""
        return held[name] if items > 1 else held[name] - 0.5

    def result(self, name: str, questions: Questions, found: list[Estimate], aggregators: list[Any]) -> Any:  # noqa: ARG002
        """The share of people who chose each label."""
        first = found[0]
        if len(found) == 1:
            # All marks come from one vector; their errors are correlated by at most 1.
            between = np.sign(first.value + 0.5)[:-1] * first.stderr[:-1] * first.stderr[-1]
            return _shares(name, self.labels, first.value + 0.5, first, between)
        # Labels that are drawn come from different people.
        values, errors = (np.array([getattr(e, which)[-1] for e in found]) for which in ("value", "stderr"))
        known = next((e for e in found if isinstance(e, FrequencyEstimate)), first)
        drawn = replace(known, value=values, stderr=errors, count=min(e.count for e in found))
        return _shares(name, self.labels, values, drawn, 0.0)


@dataclass(frozen=True)
class Number(Question):
    """A number from `low` to `high`, counted in bins of equal width; values beyond are moved to the ends.

    The bounds must be public knowledge, not those of the data.

    Examples:
        >>> Number(0, 110, bins=22).edges[:3]
        array([ 0.,  5., 10.])
    """

    type = "number"
    width = 1
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

    def candidates(self, questions: Questions) -> Candidates:  # noqa: ARG002
        """Frequencies of bins, and of no answer."""
        return [("frequencies", {"categories": self.bins + 1}, 1)]

    def examples(self) -> list[Any]:
        """Both ends, the middle, and no answer."""
        return [self.low, self.high, (self.low + self.high) / 2, None]

    def read(self, values: Any, name: str, strict: bool) -> Floats:
        """The numbers within the bounds; nan for no answer. Their owner is told how many were beyond the bounds."""
        cells = cells_of(values)
        numbers = [v if isinstance(v, int | float) and not isinstance(v, bool) else None for v in cells]
        beyond = 0
        for row, (value, number) in enumerate(zip(cells, numbers, strict=True)):
            if strict and number is None and value is not None:
                raise _wrong(name, "numbers", value, row)
            beyond += number is not None and not self.low <= number <= self.high
        if strict and beyond:
            told = f"{beyond} of {len(cells)} values of {name!r} are beyond its bounds and were moved to them"
            warnings.warn(f"{told}. This line depends on the data: keep it local", ClippedWarning, stacklevel=5)
        # Python compares integers of any size.
        inside = [math.nan if v is None else float(min(max(v, self.low), self.high)) for v in numbers]
        return np.array(inside, dtype=np.float64).reshape(-1, 1)

    def records(self, held: Mapping[str, Rows], name: str, questions: Questions, items: int) -> Rows:  # noqa: ARG002
        """The bin of each number."""
        values = held[name]
        with np.errstate(invalid="ignore"):
            place = np.floor((values - self.low) / (self.high - self.low) * self.bins)
        return np.where(np.isnan(values), self.bins, np.minimum(place, self.bins - 1))

    def result(self, name: str, questions: Questions, found: list[Estimate], aggregators: list[Any]) -> Any:  # noqa: ARG002
        """The histogram, the distribution function and the mean, which are sums of shares."""
        edges, bins = self.edges, self.bins
        weights = np.vstack([np.eye(bins), np.tri(bins), (edges[1:] + edges[:-1]) / 2])
        ratios, sums = sums_over_answers(weights, found[0].value, found[0].stderr[-1])
        covariance = sums @ aggregators[0].covariance() @ sums.T
        errors = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
        labels = [f"{low:.6g}–{high:.6g}" for low, high in pairwise(edges)]
        shares = _shares(name, labels, found[0].value, found[0], 0.0)
        own = {"estimate": ratios[:bins], "stderr": errors[:bins], "centre": (float(ratios[-1]), float(errors[-1]))}
        cumulated = slice(bins, 2 * bins)
        of_cdf = {"raw_cdf": ratios[cumulated], "cdf_covariance": covariance[cumulated, cumulated], "edges": edges}
        sums = sums[cumulated]
        of_one = np.sum(sums @ aggregators[0]._mechanism.uniform_covariance * sums, axis=1)
        of_cdf["cdf_of_one"] = np.maximum(of_one, 0.0)
        return NumberEstimate(**(vars(shares) | own | of_cdf))


@dataclass(frozen=True)
class Vector(Question):
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
    def width(self) -> int:  # type: ignore[override]
        """The numbers of the vector."""
        return self.dim

    def candidates(self, questions: Questions) -> Candidates:  # noqa: ARG002
        """FrameUnit."""
        return [("frameunit", {"dim": self.dim, "clip": self.clip}, 1)]

    def examples(self) -> list[Any]:
        """Two opposite vectors of norm clip, a long one and zero."""
        direction = np.cos(np.arange(self.dim)) * self.clip
        direction *= self.clip / np.linalg.norm(direction)
        return [direction, -direction, 10 * direction, None]

    def read(self, values: Any, name: str, strict: bool) -> Floats:
        """The vectors; zero for missing ones and for those with nan."""
        plain = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
        cells: Any = values if plain and values.dtype.kind in "fiu" else cells_of(values)
        rows = np.zeros((len(cells), self.dim))
        for row, value in enumerate(cells):
            vector = None if value is None else vector_of(value, self.dim)
            if strict and vector is None and value is not None:
                wanted = f"must be a list of {self.dim} numbers, got {str(value)[:40]}"
                raise ValueError(f"column {name!r}, row {row}, {wanted}")
            if vector is not None:
                rows[row] = vector
        rows[~np.isfinite(rows).all(axis=1)] = 0.0
        return rows

    def result(self, name: str, questions: Questions, found: list[Estimate], aggregators: list[Any]) -> Any:  # noqa: ARG002
        """The mean vector, over all people."""
        axes, first = tuple(map(str, range(self.dim))), found[0]
        return QuestionEstimate(name, axes, first.value, first.stderr, first.count, "people", raw=first)


@dataclass(frozen=True)
class By(Question):
    """The mean of a Number or a Vector per label of a Choice; both are named as in the survey, and both are private.

    Examples:
        >>> By("country", "age")
        By(group='country', value='age')
    """

    type = "by"
    width = 0
    group: str
    value: str

    def _parts(self, questions: Questions) -> tuple[Choice, Number | Vector]:
        group, value = questions.get(self.group), questions.get(self.value)
        if not isinstance(group, Choice):
            raise ArgumentError("group", f"must name a Choice of the survey, got {self.group!r}")
        if not isinstance(value, Number | Vector):
            raise ArgumentError("value", f"must name a Number or a Vector of the survey, got {self.value!r}")
        return group, value

    def candidates(self, questions: Questions) -> Candidates:
        """GroupUnit with one group more; numbers are centred."""
        group, value = self._parts(questions)
        clip = value.clip if isinstance(value, Vector) else (value.high - value.low) / 2
        return [("groupunit", {"groups": len(group.labels) + 1, "dim": value.width, "clip": clip}, 1)]

    def records(self, held: Mapping[str, Rows], name: str, questions: Questions, items: int) -> Rows:  # noqa: ARG002
        """The group and the vector; no answer with zero if either is missing."""
        choice, question = self._parts(questions)
        group, values = held[self.group], held[self.value]
        if isinstance(question, Number):
            values = values - (question.low + question.high) / 2
            group = np.where(np.isnan(values), len(choice.labels), group)
        none = group == len(choice.labels)
        return np.concatenate([group, np.where(none, 0.0, values)], axis=1)

    def result(self, name: str, questions: Questions, found: list[Estimate], aggregators: list[Any]) -> Any:  # noqa: ARG002
        """The means of all groups, in the units of the value."""
        group, value = self._parts(questions)
        dim, first = value.width, found[0]
        items = tuple(str(g) if dim == 1 else f"{g} [{place}]" for g in group.labels for place in range(dim))
        if not isinstance(first, GroupEstimate):
            unknown = np.full(len(items), np.nan)
            return QuestionEstimate(name, items, unknown, unknown, 0, "answers")
        means, errors = first.means[:-1].ravel(), first.means_stderr[:-1].ravel()
        answered = (1 - float(first.shares[-1]), float(first.shares_stderr[-1]))
        limits = (-math.inf, math.inf)
        if isinstance(value, Number):
            means, limits = means + (value.low + value.high) / 2, (value.low, value.high)
        return QuestionEstimate(name, items, means, errors, first.count, "answers", answered, limits)


KINDS: dict[str, type[Any]] = {kind.type: kind for kind in (Choice, MultiChoice, Number, Vector, By)}


def question_from_dict(data: Any) -> Question:
    """Read a question from its `to_dict`; ValueError for anything else."""
    if not isinstance(data, dict) or not isinstance(data.get("type"), str) or data["type"] not in KINDS:
        raise ValueError(f"type of a question must be one of {', '.join(KINDS)}, got {data!r}")
    kind = KINDS[data["type"]]
    try:
        made: Question = kind(**{name: value for name, value in data.items() if name != "type"})
    except TypeError as error:
        raise ValueError(f"a question of type {data['type']!r} is malformed: {error}") from error
    if made.to_dict() != data:
        raise ValueError(f"a question must be written as {made.to_dict()}, got {data}")
    return made


def _shares(name: str, labels: Sequence[Label], values: Floats, raw: Estimate, between: Any) -> QuestionEstimate:
    """The shares of labels over those who have an answer, from those of labels and of no answer."""
    shares, stderr = over_answers(values, raw.stderr, between)
    answered = (float(1 - values[-1]), float(raw.stderr[-1]))
    return QuestionEstimate(
        name, tuple(map(str, labels)), shares, stderr, raw.count, "answers", answered, (0.0, 1.0), raw
    )


def _wrong(name: str, wanted: str, value: Any, row: int) -> ValueError:
    return ValueError(f"column {name!r} must be {wanted}, got {type(value).__name__} in row {row}")


def _labels(labels: Any) -> tuple[Label, ...]:
    """Distinct labels of one type."""
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise ArgumentError("labels", f"must be a list of texts or integers, got {labels!r}")
    plain = tuple(labels_of(labels, object))
    if not plain or {type(label) for label in plain} not in ({str}, {int}):
        raise ArgumentError("labels", f"must be texts, or integers, at least one, got {labels!r}")
    if not all(map(writable, plain)):
        raise ArgumentError("labels", f"must be UTF-8 texts, or integers of at most 2^53 − 1, got {labels!r}")
    if len(set(plain)) != len(plain) or NO_ANSWER in plain:
        raise ArgumentError("labels", f"must be distinct, and {NO_ANSWER!r} is added, got {labels!r}")
    check_number("labels", len(plain), 1, 2**20 - 1, integer=True)
    return plain
