"""The parts of a survey: the mechanism that answers each question, and how often each question is drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from sstq.aggregation import Estimate
from sstq.checks import ArgumentError, check_argument, check_number, check_option
from sstq.exactness import TOTAL
from sstq.mechanisms.base import EncoderInput, Floats, Ints, Mechanism, Rows, Words
from sstq.mechanisms.frequencies import Frequencies
from sstq.mechanisms.parameters import Parameters, integer_of
from sstq.mechanisms.registry import from_values, mechanism
from sstq.mechanisms.survey.questions import By, Question, Questions, Vector, question_from_dict
from sstq.messages.batch import Messages
from sstq.randomness import streams


@dataclass(frozen=True)
class Part:
    """The mechanism that answers a question, for one of `items` items that is drawn.

    A message of it is one number below `size`: the item, then the mechanism's fields, the first one being the highest.
    """

    mechanism: Mechanism
    items: int = 1

    @property
    def one(self) -> int:
        """The number of messages about one item."""
        return math.prod(field.limit for field in self.mechanism.layout.fields)

    @property
    def size(self) -> int:
        """The number of messages."""
        return self.items * self.one

    @property
    def dim(self) -> int:
        """The length of an estimate of all items."""
        return self.items * self.mechanism.estimate_dim

    def encode(self, records: Rows, words: Words, item_words: Any) -> Ints:
        """The answers of some people."""
        answer = streams.multiply_shift(item_words, self.items)
        if self.items > 1:
            records = np.take_along_axis(records, answer[:, None], axis=1)
        own = EncoderInput(np.ascontiguousarray(records), words[:, : self.mechanism.words_each], None, None)
        for field, column in zip(self.mechanism.layout.fields, self.mechanism._encode(own), strict=True):
            answer = answer * field.limit + column.astype(np.int64)
        return answer

    def messages(self, answers: Ints, simulated: bool) -> tuple[Ints, Messages]:
        """The items and messages of answers; ValueError for what is never sent."""
        columns = []
        for field in reversed(self.mechanism.layout.fields):
            answers, column = np.divmod(answers, field.limit)
            columns.append(column.astype(field.dtype))
        return answers, self.mechanism.messages_from_columns(tuple(columns[::-1]), None, simulated)

    def aggregators(self, answers: Ints, counts: Ints, simulated: bool) -> list[Any]:
        """The mechanism's own aggregator of each item, with these answers."""
        items, found = answers // self.one, []
        for item in range(self.items):
            own = items == item
            _, messages = self.messages(answers[own], simulated)
            columns = {field.name: messages.column(field.name) for field in messages.layout.fields}
            aggregator = self.mechanism.aggregator()
            if own.any():
                aggregator.update_counts(columns, counts[own], simulated=simulated)
            found.append(aggregator)
        return found

    def estimate(self, aggregator: Any) -> Estimate:
        """The estimate of an item; nan from no message."""
        if aggregator.count:
            found: Estimate = aggregator.mean()
            return found
        unknown = np.full(self.mechanism.estimate_dim, np.nan)
        return Estimate(unknown, unknown, 0)

    def moments(self, records: Rows) -> tuple[Floats, Floats, Floats]:
        """The truth, the expected estimate and the variance of it, of each record; all items side by side."""
        truths, means, variance = [], [], np.zeros(len(records))
        for item in range(self.items):
            own = records if self.items == 1 else records[:, item : item + 1]
            mean, spread = self.mechanism._row_error(own)
            truths.append(self.mechanism._estimated(own))
            means.append(mean)
            # Each item is answered by one of `items` people.
            variance += self.items * spread + (self.items - 1) * np.einsum("ij,ij->i", mean, mean)
        return np.concatenate(truths, axis=1), np.concatenate(means, axis=1), variance

    def item_variance(self, question: Question) -> float:
        """The variance of one message's estimate of an item, on average, in units of its range; shares being 1/2."""
        if isinstance(self.mechanism, Frequencies):
            return self.items * self.mechanism.sets.variance_at(0.5)
        scale = 2 * self.mechanism.clip if isinstance(question, By | Vector) else 1.0
        return self.mechanism.typical_error().total / self.dim / scale**2

    def to_dict(self) -> dict[str, Any]:
        """The part as JSON values."""
        return {"items": self.items, "mechanism": self.mechanism.name, **self.mechanism.parameters.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read `to_dict`."""
        check_option("mechanism", data.get("mechanism"), ("frequencies", "frameunit", "groupunit"))
        items = check_number("items", data["items"], 1, 2**20, integer=True)
        return cls(from_values({key: value for key, value in data.items() if key != "items"}), items)

    def is_for(self, question: Question, questions: Questions) -> bool:
        """Whether the part is one of the question's candidates."""
        return any(
            (self.mechanism.name, self.items) == (name, items)
            and all(getattr(self.mechanism, key) == value for key, value in options.items())
            for name, options, items in question.candidates(questions)
        )


def best_part(question: Question, questions: Questions, epsilon: float, people: int) -> Part:
    """The candidate with the least variance."""
    found = []
    for name, options, items in question.candidates(questions):
        frames = {} if name == "frequencies" else {"clients": people}
        found.append(Part(mechanism(name, epsilon=epsilon, **options, **frames), items))
    return min(found, key=lambda part: part.item_variance(question))


def drawn_by_weight(
    questions: Questions, parts: Sequence[Part], weights: Mapping[str, float] | None
) -> tuple[int, ...]:
    """How often each question is drawn, as integers that sum to 2^62; by default for the least sum of variances."""
    if weights is not None and weights.keys() != questions.keys():
        raise ArgumentError("weights", f"must name every question, got {', '.join(weights)}")
    wanted = [
        math.sqrt(part.item_variance(question)) if weights is None else weights[name]
        for (name, question), part in zip(questions.items(), parts, strict=True)
    ]
    total = sum(map(Fraction, wanted))
    draws = [max(1, math.floor(Fraction(weight) / total * TOTAL)) for weight in wanted]
    draws[0] += TOTAL - sum(draws)
    return tuple(draws)


def checked_weights(weights: Any) -> dict[str, float] | None:
    """Weights as numbers; None for none."""
    if weights is None:
        return None
    if not isinstance(weights, Mapping):
        raise ArgumentError("weights", f"must be numbers by the name of the question, got {weights!r}")
    return {name: float(check_number("weights", value, 1e-9, 1e9)) for name, value in weights.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class SurveyParameters(Parameters):
    """The parameters of a survey: how often each question is drawn, of 2^62, and its part."""

    epsilon: float
    questions: dict[str, Question]
    people: int
    draws: tuple[int, ...]
    parts: tuple[Part, ...]
    weights: dict[str, float] | None = None
    messages: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        data: dict[str, Any] = {"epsilon": self.epsilon, "people": self.people, "draws": [str(d) for d in self.draws]}
        # A list, because the questions have an order.
        data["questions"] = [{"name": name} | question.to_dict() for name, question in self.questions.items()]
        data["parts"] = [part.to_dict() for part in self.parts]
        more = {"weights": self.weights} if self.weights is not None else {}
        return data | more | ({"messages": self.messages} if self.messages != 1 else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the fields from JSON values; ValueError if they are not exactly what `to_dict` writes."""
        try:
            made = cls(
                epsilon=float(check_argument("epsilon", data["epsilon"])),
                people=check_argument("people", data["people"], of="clients"),
                messages=check_argument("messages", data.get("messages", 1)),
                questions={entry["name"]: question_from_dict(_without_name(entry)) for entry in data["questions"]},
                parts=tuple(Part.from_dict(entry) for entry in data["parts"]),
                draws=tuple(integer_of("draws", draw) for draw in data["draws"]),
                weights=checked_weights(data.get("weights")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the JSON of a survey is incomplete or malformed: {error!r}") from error
        if made.to_dict() != dict(data):
            raise ValueError("the JSON of a survey has unknown or inconsistent fields")
        return made


def _without_name(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "name"}
