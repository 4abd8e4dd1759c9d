"""Questions for labels: one of several, or any number of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sstq.array_types import Floats
from sstq.checks import ArgumentError
from sstq.inputs.cells import Label, as_label
from sstq.inputs.tables import writable
from sstq.mechanisms.base import Rows
from sstq.mechanisms.survey.question import (
    Candidates,
    ColumnQuestion,
    Precision,
    mean_of,
    number_of,
    shares_of_answers,
)
from sstq.mechanisms.survey.question_estimates import NO_ANSWER, QuestionEstimate


@dataclass(frozen=True)
class _Labelled(ColumnQuestion):
    error_of = "share"
    labels: Sequence[Label]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", _labels(self.labels))

    @property
    def items(self) -> Sequence[Label]:
        """The labels."""
        return self.labels

    @cached_property
    def numbers(self) -> dict[Any, int]:
        """The number of each label."""
        return {label: number for number, label in enumerate(self.labels)}

    @property
    def kind(self) -> Any:
        """The type of the labels."""
        return type(self.labels[0])

    def for_devices(self) -> dict[str, Any]:
        """The labels and their number."""
        return {"labels": len(self.labels), "label_names": self.labels}

    def _precision(self, inner: Any, items: int, answers: int) -> Precision:
        variance_at = inner.sets.rates.variance_at
        average = 1 / inner.categories
        return Precision(
            items * variance_at(0.5), items * variance_at(average), average / 2
        )

    def parsed(self, text: str) -> Any:
        """The label of a field; where labels are integers 1.0 is one, because missing values turn 1 into it."""
        return text if self.kind is str else as_label(number_of(text), int)

    def is_blank(self, text: str) -> bool:
        """Whether a field of a CSV file is a missing value; the empty text may be a label."""
        return super().is_blank(text) and text not in self.numbers


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

    def record(self, value: Any, strict: bool) -> int:
        """The number of the label; that of no answer is the last one."""
        label = as_label(value, self.kind)
        if label is not None and type(label) is not self.kind:
            raise TypeError(f"labels of type {self.kind.__name__}")
        return self.numbers.get(label, len(self.labels))

    def unknown_labels(self, value: Any) -> list[str]:
        """The label, if it is none of the question's."""
        label = as_label(value, self.kind)
        return [] if label in self.numbers or label == NO_ANSWER else [str(label)]

    def _result(
        self, name: str, estimates: list[Any], aggregator: Any
    ) -> QuestionEstimate:
        between = aggregator.estimator.covariance_with(
            aggregator.counted(), len(self.labels)
        )[:-1]
        return shares_of_answers(
            name, self.labels, estimates[0].value, estimates[0], between
        )

    def truth(
        self, columns: Mapping[str, Rows], name: str
    ) -> Iterable[tuple[Any, float]]:
        """The shares of the labels among those who have one."""
        numbers = columns[name]
        marks = numbers[numbers < len(self.labels)][:, None] == range(len(self.labels))
        return zip(self.labels, mean_of(marks), strict=True)


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

    def _precision(self, inner: Any, items: int, answers: int) -> Precision:
        if items > 1:
            return super()._precision(inner, items, answers)
        variance = inner.typical_error(answers).total * answers
        # The share of half the people, who differ by 1/4, over those who answered: the errors of both add up.
        planned = 1.5**2 * (variance / inner.clip**2 / 4 + 0.25)
        return Precision(variance / self.width, planned, 0.25)

    def examples(self) -> list[Any]:
        """No label, all, one, and no answer."""
        return [[], list(self.labels), [self.labels[0]], None]

    def record(self, value: Any, strict: bool) -> Floats:
        """A mark per label; a list of unknown labels only is no answer."""
        listed = (
            isinstance(value, list | tuple | set | frozenset | np.ndarray)
            and getattr(value, "ndim", 1) > 0
        )
        if not listed and value is not None:
            raise TypeError("lists of labels")
        chosen = [as_label(label, self.kind) for label in (value if listed else [None])]
        marks = np.zeros(self.width)
        if strict and any(
            label is not None and type(label) is not self.kind for label in chosen
        ):
            raise TypeError(f"lists of labels of type {self.kind.__name__}")
        numbers = [
            self.numbers[label]
            for label in chosen
            if type(label) is self.kind and label in self.numbers
        ]
        marks[numbers or ([-1] if chosen else [])] = 1.0
        return marks

    def parsed(self, text: str) -> Any:
        """The labels of a field, which semicolons separate; a semicolon alone is a list without labels."""
        parts = [part for part in text.split(";") if not self.is_blank(part)]
        return [super(MultiChoice, self).parsed(part) for part in parts]

    def unknown_labels(self, value: Any) -> list[str]:
        """The labels that the question does not have."""
        labels = [as_label(label, self.kind) for label in value]
        plain = [
            label if isinstance(label, str | int) else type(label).__name__
            for label in labels
        ]
        return [str(label) for label in plain if label not in self.numbers]

    def _records(self, columns: Mapping[str, Rows], name: str, items: int) -> Rows:
        return columns[name] if items > 1 else columns[name] - 0.5

    def _result(
        self,
        name: str,
        estimates: list[Any],
        aggregator: Any,
    ) -> QuestionEstimate:
        if len(estimates) == 1:
            first = estimates[0]
            # All marks come from one vector; their errors are correlated by at most 1.
            between = (
                np.sign(first.value + 0.5)[:-1] * first.stderr[:-1] * first.stderr[-1]
            )
            return shares_of_answers(
                name, self.labels, first.value + 0.5, first, between
            )
        # Labels that are drawn come from different people.
        values, errors = (
            np.array([getattr(each, which)[-1] for each in estimates])
            for which in ("value", "stderr")
        )
        counts = [each.count for each in estimates]
        most = estimates[int(np.argmax(counts))]
        drawn = replace(
            most, value=values, stderr=errors, count=min(counts), directions=None
        )
        return shares_of_answers(name, self.labels, values, drawn)

    def truth(
        self, columns: Mapping[str, Rows], name: str
    ) -> Iterable[tuple[Any, float]]:
        """The shares of the labels among those who have an answer."""
        marks = columns[name]
        answers = marks[marks[:, -1] == 0, :-1]
        return zip(self.labels, mean_of(answers), strict=True)


def _labels(labels: Any) -> tuple[Label, ...]:
    """Distinct labels of one type."""
    listed = isinstance(labels, Sequence) and not isinstance(labels, str)
    plain = tuple(as_label(label, object) for label in labels) if listed else ()
    of_one_type = {type(label) for label in plain} in ({str}, {int}) and all(
        map(writable, plain)
    )
    if (
        not of_one_type
        or len({*plain} - {NO_ANSWER}) < len(plain)
        or len(plain) >= 1 << 20
    ):
        raise ArgumentError(
            "labels",
            "must be a list of 1 to 2^20 − 1 texts in UTF-8, or of integers of at most 2^53 − 1, all distinct "
            f"({NO_ANSWER!r} is added), got {labels!r:.100}",
        )
    return plain
