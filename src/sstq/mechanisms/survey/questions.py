"""The questions of a survey: how a column is read, and which mechanism answers it.

A person's record has some numbers per question, its `width`: the number of the label, a mark per label, the value, or
the vector. Missing values, unknown labels and nan are “no answer”, which is a category of its own; a missing vector is
zero.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from sstq.checks import ArgumentError, check_argument, check_number
from sstq.mechanisms.base import Floats, Rows

NO_ANSWER = "no answer"
_MOST_BINS, _LARGEST = 512, 1e100

Label = str | int
Candidates = list[tuple[str, dict[str, Any], int]]
"""The name of a mechanism, its options beside ε, and the number of items of which one is drawn."""


class Question(ABC):
    """A question: what people are asked, with public bounds."""

    type: ClassVar[str]
    width: int

    def to_dict(self) -> dict[str, Any]:
        """The question as JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"type": self.type} | {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @abstractmethod
    def candidates(self, questions: Mapping[str, "Question"]) -> Candidates:
        """The mechanisms that can answer the question."""

    @abstractmethod
    def read(self, values: Any, name: str, strict: bool) -> Floats:
        """The column as records, (n, width); ValueError for values of a wrong type if `strict`, else no answer."""

    def records(self, held: Mapping[str, Rows], name: str, questions: Mapping[str, "Question"], items: int) -> Rows:  # noqa: ARG002
        """What the mechanism encodes, from the records of all questions; one of `items` items is drawn."""
        return held[name]

    @abstractmethod
    def trials(self) -> Floats:
        """Records that differ as much as they can, (n, width)."""

    @abstractmethod
    def some(self, count: int, rng: np.random.Generator) -> Any:
        """A random column."""


@dataclass(frozen=True)
class Choice(Question):
    """One of several labels, which are texts or integers.

    Examples:
        >>> Choice(["AT", "CH", "DE"])
        Choice(labels=('AT', 'CH', 'DE'))
    """

    type = "choice"
    width = 1
    labels: Sequence[Label]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", _labels(self.labels))

    def candidates(self, questions: Mapping[str, Question]) -> Candidates:  # noqa: ARG002
        """Frequencies with one category more."""
        return [("frequencies", {"categories": len(self.labels) + 1}, 1)]

    def read(self, values: Any, name: str, strict: bool) -> Floats:
        """The number of each label; that of no answer is the last one."""
        numbers, none = {label: place for place, label in enumerate(self.labels)}, len(self.labels)
        kind = type(self.labels[0])
        cells = _labels_of(cells_of(values), kind)
        if strict:
            for row, value in enumerate(cells):
                if value is not None and type(value) is not kind:
                    got = f"{type(value).__name__} in row {row}"
                    raise ValueError(f"column {name!r} must be labels of type {kind.__name__}, got {got}")
        found = [numbers.get(value, none) if type(value) is kind else none for value in cells]
        return np.array(found, dtype=np.float64).reshape(-1, 1)

    def trials(self) -> Floats:
        """Some labels, and no answer."""
        return np.unique(np.linspace(0, len(self.labels), 4).astype(np.int64))[:, None].astype(np.float64)

    def some(self, count: int, rng: np.random.Generator) -> list[Any]:
        """Uniform labels and nulls."""
        return [(*self.labels, None)[place] for place in rng.integers(len(self.labels) + 1, size=count)]


@dataclass(frozen=True)
class MultiChoice(Question):
    """Any number of labels, also none of them; a column has a list of labels per person.

    Examples:
        >>> MultiChoice(["search", "export"])
        MultiChoice(labels=('search', 'export'))
    """

    type = "multichoice"
    labels: Sequence[Label]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", _labels(self.labels))

    @property
    def width(self) -> int:  # type: ignore[override]
        """A mark per label and one for no answer."""
        return len(self.labels) + 1

    def candidates(self, questions: Mapping[str, Question]) -> Candidates:  # noqa: ARG002
        """One mark that is drawn, or all of them as a vertex of the cube [−1/2, 1/2]^width."""
        cube = {"dim": self.width, "clip": math.sqrt(self.width) / 2}
        return [("frequencies", {"categories": 2}, self.width), ("frameunit", cube, 1)]

    def read(self, values: Any, name: str, strict: bool) -> Floats:
        """A mark per label; a list of unknown labels only is no answer."""
        numbers, cells = {label: place for place, label in enumerate(self.labels)}, cells_of(values)
        kind = type(self.labels[0])
        marks = np.zeros((len(cells), self.width))
        for row, value in enumerate(cells):
            listed = isinstance(value, list | tuple | set | frozenset | np.ndarray) and getattr(value, "ndim", 1) > 0
            if strict and not listed and value is not None:
                raise ValueError(f"column {name!r} must be lists of labels, got {type(value).__name__} in row {row}")
            chosen = _labels_of(list(value), kind) if listed else [None]
            wrong = [label for label in chosen if label is not None and type(label) is not kind]
            if strict and wrong:
                got = f"{type(wrong[0]).__name__} in row {row}"
                raise ValueError(f"column {name!r} must be lists of labels of type {kind.__name__}, got {got}")
            known = [numbers[label] for label in chosen if type(label) is kind and label in numbers]
            marks[row, known or ([] if not chosen else [-1])] = 1.0
        return marks

    def records(self, held: Mapping[str, Rows], name: str, questions: Mapping[str, Question], items: int) -> Rows:  # noqa: ARG002
        """The marks, or the vertex of the cube."""
        return held[name] if items > 1 else held[name] - 0.5

    def trials(self) -> Floats:
        """Nothing, everything, the first label, and no answer."""
        marks = np.zeros((4, self.width))
        marks[1, :-1], marks[2, 0], marks[3, -1] = 1.0, 1.0, 1.0
        return marks

    def some(self, count: int, rng: np.random.Generator) -> list[Any]:
        """Every label with probability 1/2, and nulls."""
        marks = rng.random((count, len(self.labels))) < 0.5
        rows = [[label for label, mark in zip(self.labels, row, strict=True) if mark] for row in marks]
        return [None if rng.random() < 0.1 else row for row in rows]


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

    def candidates(self, questions: Mapping[str, Question]) -> Candidates:  # noqa: ARG002
        """Frequencies of bins, and of no answer."""
        return [("frequencies", {"categories": self.bins + 1}, 1)]

    def read(self, values: Any, name: str, strict: bool) -> Floats:
        """The numbers within the bounds; nan for no answer."""
        cells = cells_of(values)
        if strict:
            for row, value in enumerate(cells):
                if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                    raise ValueError(f"column {name!r} must be numbers, got {type(value).__name__} in row {row}")
        # Python compares integers of any size.
        plain = [v if isinstance(v, int | float) and not isinstance(v, bool) else None for v in cells]
        numbers = [np.nan if v is None else float(min(max(v, self.low), self.high)) for v in plain]
        return np.array(numbers, dtype=np.float64).reshape(-1, 1)

    def records(self, held: Mapping[str, Rows], name: str, questions: Mapping[str, Question], items: int) -> Rows:  # noqa: ARG002
        """The bin of each number."""
        values = held[name]
        with np.errstate(invalid="ignore"):
            place = np.floor((values - self.low) / (self.high - self.low) * self.bins)
        return np.where(np.isnan(values), self.bins, np.minimum(place, self.bins - 1))

    def trials(self) -> Floats:
        """Both ends, the middle, and no answer."""
        return np.array([[self.low], [self.high], [(self.low + self.high) / 2], [np.nan]])

    def some(self, count: int, rng: np.random.Generator) -> list[Any]:
        """Uniform numbers and nulls."""
        numbers = rng.uniform(self.low, self.high, size=count)
        return [None if rng.random() < 0.1 else float(number) for number in numbers]


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

    def candidates(self, questions: Mapping[str, Question]) -> Candidates:  # noqa: ARG002
        """FrameUnit."""
        return [("frameunit", {"dim": self.dim, "clip": self.clip}, 1)]

    def read(self, values: Any, name: str, strict: bool) -> Floats:
        """The vectors; zero for missing ones and for those with nan."""
        plain = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
        cells: Any = values if plain and values.dtype.kind in "fiu" else cells_of(values)
        rows = np.zeros((len(cells), self.dim))
        given = [row for row, value in enumerate(cells) if value is not None]
        try:
            found = np.asarray([cells[row] for row in given], dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            found = np.empty(0)
        # Nothing else: reshaped numbers could be those of several people.
        if found.shape == (len(given), self.dim):
            rows[given] = found
        else:
            for row in given:
                rows[row] = _vector(cells[row], self.dim, f"column {name!r}, row {row}," if strict else "")
        rows[~np.isfinite(rows).all(axis=1)] = 0.0
        return rows

    def trials(self) -> Floats:
        """Two opposite vectors of norm clip, a long one and zero."""
        direction = np.cos(np.arange(self.dim)) * self.clip
        direction *= self.clip / np.linalg.norm(direction)
        return np.stack([direction, -direction, 10 * direction, 0 * direction])

    def some(self, count: int, rng: np.random.Generator) -> list[Any]:
        """Gaussian vectors and nulls."""
        rows = rng.standard_normal((count, self.dim)) * (self.clip / math.sqrt(self.dim) / 2)
        return [None if rng.random() < 0.1 else row.tolist() for row in rows]


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

    def _parts(self, questions: Mapping[str, Question]) -> tuple[Choice, Number | Vector]:
        group, value = questions.get(self.group), questions.get(self.value)
        if not isinstance(group, Choice):
            raise ArgumentError("group", f"must name a Choice of the survey, got {self.group!r}")
        if not isinstance(value, Number | Vector):
            raise ArgumentError("value", f"must name a Number or a Vector of the survey, got {self.value!r}")
        return group, value

    def candidates(self, questions: Mapping[str, Question]) -> Candidates:
        """GroupUnit with one group more; numbers are centred."""
        group, value = self._parts(questions)
        of_number = {"dim": 1, "clip": (value.high - value.low) / 2} if isinstance(value, Number) else {}
        of_vector = {"dim": value.dim, "clip": value.clip} if isinstance(value, Vector) else {}
        return [("groupunit", {"groups": len(group.labels) + 1} | of_number | of_vector, 1)]

    def records(self, held: Mapping[str, Rows], name: str, questions: Mapping[str, Question], items: int) -> Rows:  # noqa: ARG002
        """The group and the vector; no answer with zero if either is missing."""
        choice, question = self._parts(questions)
        group, values = held[self.group], held[self.value]
        if isinstance(question, Number):
            values = values - (question.low + question.high) / 2
            group = np.where(np.isnan(values), len(choice.labels), group)
        none = group == len(choice.labels)
        return np.concatenate([group, np.where(none, 0.0, values)], axis=1)

    def read(self, values: Any, name: str, strict: bool) -> Floats:
        """There is no column."""
        raise NotImplementedError

    def trials(self) -> Floats:
        """Those of its parts."""
        return np.zeros((1, 0))

    def some(self, count: int, rng: np.random.Generator) -> Any:
        """There is no column."""
        raise NotImplementedError


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


def _labels(labels: Any) -> tuple[Label, ...]:
    """Distinct labels of one type."""
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise ArgumentError("labels", f"must be a list of texts or integers, got {labels!r}")
    plain = tuple(_plain(label) for label in labels)
    if not plain or {type(label) for label in plain} not in ({str}, {int}):
        raise ArgumentError("labels", f"must be texts, or integers, at least one, got {labels!r}")
    if not all(map(writable, plain)):
        raise ArgumentError("labels", f"must be UTF-8 texts, or integers of at most 2^53 − 1, got {labels!r}")
    if len(set(plain)) != len(plain) or NO_ANSWER in plain:
        raise ArgumentError("labels", f"must be distinct, and {NO_ANSWER!r} is added, got {labels!r}")
    check_number("labels", len(plain), 1, 2**20 - 1, integer=True)
    return plain


def writable(label: Label) -> bool:
    """Whether every reader of JSON gets this label as it is."""
    if isinstance(label, int):
        return abs(label) < 2**53
    return label.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in label)


def _labels_of(cells: Sequence[Any], kind: type) -> list[Any]:
    """Labels of a column; whole floats are integers, which a column with nulls turns into floats."""
    return [int(v) if kind is int and isinstance(v, float) and v.is_integer() else v for v in map(_plain, cells)]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _vector(value: Any, dim: int, place: str) -> Floats:
    """The numbers of one cell; zero for what is no vector, or an error that names the place."""
    try:
        vector = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        vector = np.empty(0)
    if vector.shape == (dim,):
        return vector
    if place:
        raise ValueError(f"{place} must be a list of {dim} numbers, got {str(value)[:40]}")
    return np.zeros(dim)


def cells_of(values: Any) -> list[Any]:
    """The values of a column as Python objects; None for what is missing: null, NaN, NaT, NA or masked."""
    if isinstance(values, np.ma.MaskedArray):
        cells = values.tolist()
    elif hasattr(values, "to_pylist"):  # Arrow
        cells = values.to_pylist()
    elif hasattr(values, "to_list"):  # pandas and Polars
        cells = values.to_list()
    else:
        cells = values.tolist() if isinstance(values, np.ndarray) else list(values)
    return [None if _missing(value) else _plain(value) for value in cells]


def _missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)
