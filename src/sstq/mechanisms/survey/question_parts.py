"""The parts of a survey: the mechanism that answers each question, and how often each question is drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import numpy as np

from sstq.array_types import Ints, Words
from sstq.checks import ArgumentError, check_number, check_option
from sstq.exactness import TOTAL
from sstq.mechanisms.agreement import Solved
from sstq.mechanisms.agreement import WordList as Integers
from sstq.mechanisms.base import Batch, Mechanism, Rows
from sstq.mechanisms.registry import from_values, mechanism, options_of
from sstq.mechanisms.survey.question import Precision, Question
from sstq.mechanisms.survey.question_estimates import NO_ANSWER
from sstq.mechanisms.survey.questions import (
    check_questions,
    question_from_dict,
    question_to_dict,
)
from sstq.messages.batch import Messages
from sstq.randomness import streams


@dataclass(frozen=True)
class Part:
    """A question and the mechanism that answers it, for one of `items` items that is drawn.

    A message of it is one number below `size`: the place of the item and the mechanism's fields in an array of `shape`.
    `share` is how often the question is drawn.
    """

    name: str
    question: Question
    mechanism: Mechanism
    items: int
    share: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of items, and of values that each field of a message about one can have."""
        return self.items, *(field.limit for field in self.mechanism.layout.fields)

    @property
    def size(self) -> int:
        """The number of messages."""
        return math.prod(self.shape)

    @property
    def dim(self) -> int:
        """The length of an estimate of all items."""
        return self.items * self.mechanism.estimate_dim

    @property
    def coordinates(self) -> list[str]:
        """The names of the numbers of an estimate of all items."""
        names = [*map(str, self.question.items), NO_ANSWER]
        if len(names) == self.mechanism.estimate_dim:
            return names * self.items
        return [str(place) for place in range(self.dim)]

    @property
    def often(self) -> float:
        """How often one of its items is drawn."""
        return self.share / self.items

    def records(self, columns: Mapping[str, Rows]) -> list[Rows]:
        """What the mechanism encodes of each item, from the records of all columns."""
        records = self.question._records(columns, self.name, self.items)
        return [records] if self.items == 1 else np.split(records, self.items, axis=1)

    def encode(
        self, columns: Mapping[str, Rows], words: Words, item_words: Any
    ) -> Ints:
        """The numbers of these people's messages, each about one item that is drawn."""
        item = streams.multiply_shift(item_words, self.items)
        records = np.stack(self.records(columns))[item, np.arange(len(item))]
        records = self.question._drawn(records, item_words)
        batch = Batch(records, words[:, : self.mechanism.words_each], None)
        answer = (
            column.astype(np.int64) for column in self.mechanism.encode_batch(batch)
        )
        return np.ravel_multi_index((item, *answer), self.shape)

    def messages(self, answers: Ints, simulated: bool) -> tuple[Ints, Messages]:
        """The items and messages of answers; ValueError for what is never sent."""
        items, *places = np.unravel_index(answers, self.shape)
        fields = zip(self.mechanism.layout.fields, places, strict=True)
        columns = tuple(column.astype(field.dtype) for field, column in fields)
        return items, self.mechanism.messages_from_columns(columns, simulated)

    def aggregators(self, answers: Ints, counts: Ints, simulated: bool) -> list[Any]:
        """An aggregator of each item, with these answers."""
        items, messages = self.messages(answers, simulated)
        aggregators = [self.mechanism.aggregator() for _ in range(self.items)]
        for item, aggregator in enumerate(aggregators):
            here = items == item
            columns = {
                field.name: messages.column(field.name)[here]
                for field in messages.layout.fields
            }
            aggregator.update_counts(columns, counts[here], simulated=simulated)
        return aggregators

    def precision(self, answers: int = 1) -> Precision:
        """How well each of so many messages tells."""
        return self.question._precision(self.mechanism, self.items, answers)

    def check(self, epsilon: float) -> None:
        """ValueError unless the mechanism is one of the question's candidates, with this ε."""
        inner = self.mechanism
        common = {"epsilon": epsilon, "messages": 1, "bounds": None}
        if not any(
            (inner.name, self.items) == (name, items)
            and all(
                getattr(inner, key) == value
                for key, value in (options | common).items()
            )
            for name, options, items in self.question._candidates()
        ):
            made = (
                f"be made for it, with epsilon = {epsilon}, one message and no bounds"
            )
            raise ValueError(
                f"the part of question {self.name!r} must {made}, got {inner!r}"
            )


def best_part(name: str, question: Question, epsilon: float, people: int) -> Part:
    """The candidate with the least variance."""
    candidates = []
    for kind, options, items in question._candidates():
        frames = {"clients": people} if "clients" in options_of(kind) else {}
        candidates.append(
            Part(
                name,
                question,
                mechanism(kind, epsilon=epsilon, **options, **frames),
                items,
            )
        )
    return min(candidates, key=lambda part: part.precision().item)


def drawn_by_weight(
    parts: Sequence[Part], weights: Mapping[str, float] | None
) -> tuple[int, ...]:
    """How often each question is drawn, as integers that sum to 2^62; by default for the least sum of variances."""
    if weights is not None and weights.keys() != {part.name for part in parts}:
        raise ArgumentError(
            "weights", f"must name every question, got {', '.join(weights)}"
        )
    wanted = [
        math.sqrt(part.precision().item) if weights is None else weights[part.name]
        for part in parts
    ]
    total = sum(map(Fraction, wanted))
    draws = [max(1, math.floor(Fraction(weight) / total * TOTAL)) for weight in wanted]
    draws[0] += TOTAL - sum(draws)
    return tuple(draws)


def checked_weights(weights: Any) -> dict[str, float]:
    """Weights as numbers."""
    if not isinstance(weights, Mapping):
        raise ArgumentError(
            "weights", f"must be numbers by the name of the question, got {weights!r}"
        )
    return {
        question: float(check_number("weights", value, 1e-9, 1e9))
        for question, value in weights.items()
    }


def _read_questions(entries: Any) -> dict[str, Question]:
    try:
        return check_questions(
            {
                entry.pop("name"): question_from_dict(entry)
                for entry in map(dict, entries)
            }
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"questions must be a list of questions: {error!r}") from error


def _read_answerers(entries: Any) -> tuple[tuple[int, Mechanism], ...]:
    try:
        answerers = []
        for entry in map(dict, entries):
            items = check_number("items", entry.pop("items"), 1, 2**20, integer=True)
            check_option(
                "mechanism",
                entry.get("mechanism"),
                ("frequencies", "frameunit", "groupunit"),
            )
            answerers.append((items, from_values(entry)))
        return tuple(answerers)
    except (KeyError, TypeError) as error:
        raise ValueError(f"parts must be a list of mechanisms: {error!r}") from error


Asked = Annotated[
    dict[str, Question],
    _read_questions,
    # A list, because the questions have an order.
    lambda asked: [
        {"name": name} | question_to_dict(question) for name, question in asked.items()
    ],
]
Answerers = Annotated[
    tuple[tuple[int, Mechanism], ...],
    _read_answerers,
    lambda parts: [
        {"items": n, "mechanism": inner.name} | inner.solved.to_dict()
        for n, inner in parts
    ],
]


@dataclass(frozen=True, eq=False, kw_only=True)
class SurveySolved(Solved):
    """The values of a survey: how often each question is drawn, of 2^62, its items and its mechanism."""

    epsilon: float
    questions: Asked
    people: int
    draws: Integers
    parts: Answerers
    weights: Annotated[dict[str, float], checked_weights, dict] | None = None
    messages: int = 1
