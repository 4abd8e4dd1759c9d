"""Surveys: a mechanism that is a composite of others, one per question."""

import math
import warnings
from collections.abc import Mapping, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from sstq.checks import ArgumentError, check_argument, check_number, check_option
from sstq.exactness import TOTAL
from sstq.mechanisms.base import (
    ClippedWarning,
    Columns,
    EncoderInput,
    Floats,
    Ints,
    Mechanism,
    Rows,
    Unbiased,
    Words,
)
from sstq.mechanisms.frequencies import Frequencies
from sstq.mechanisms.laws import EitherLaw, Law, TwoLevelLaw
from sstq.mechanisms.parameters import Parameters, integer_of
from sstq.mechanisms.records import RecordMechanism
from sstq.mechanisms.registry import from_values, mechanism
from sstq.mechanisms.survey.estimates import SurveyAggregator
from sstq.mechanisms.survey.planning import SurveyPlan, plan_survey
from sstq.mechanisms.survey.questions import By, Number, Question, Vector, cells_of, question_from_dict, writable
from sstq.messages.batch import Messages
from sstq.messages.layouts import Field, Layout
from sstq.randomness import streams
from sstq.randomness.secret import BitSource, channel_words

_MOST_BITS, _MOST_QUESTIONS, _LONGEST_NAME = 62, 1000, 200
# Where the question and the item are in a message's secret words; those before are the mechanism's own.
_OWN_WORDS = 4
_DRAW_TOLERANCE = 1e-6


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

    def encode(self, records: Rows, words: Words) -> Ints:
        """The answers of some people."""
        item = streams.multiply_shift(words[:, _OWN_WORDS + 1], self.items)
        if self.items > 1:
            records = np.take_along_axis(records, item[:, None], axis=1)
        own = EncoderInput(np.ascontiguousarray(records), words[:, : self.mechanism.words_each], None, None)
        answer = item
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

    def to_dict(self) -> dict[str, Any]:
        """The part as JSON values."""
        return {"items": self.items, "mechanism": self.mechanism.name, **self.mechanism.to_dict()}


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
            questions = {entry["name"]: _without_name(entry) for entry in data["questions"]}
            parts = tuple(_read_part(dict(entry)) for entry in data["parts"])
            draws = tuple(integer_of("draws", draw) for draw in data["draws"])
            weights = None if data.get("weights") is None else _numbers(dict(data["weights"]))
            known: Any = {"epsilon": data["epsilon"], "people": data["people"], "messages": data.get("messages", 1)}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the JSON of a survey is incomplete or malformed: {error!r}") from error
        for name in ("epsilon", "messages"):
            check_argument(name, known[name])
        check_argument("people", known["people"], of="clients")
        known["epsilon"] = float(known["epsilon"])
        made = cls(**known, questions=questions, draws=draws, parts=parts, weights=weights)
        if made.to_dict() != dict(data):
            raise ValueError("the JSON of a survey has unknown or inconsistent fields")
        return made


def _without_name(entry: Any) -> Question:
    return question_from_dict({key: value for key, value in entry.items() if key != "name"})


def _read_part(entry: dict[str, Any]) -> Part:
    check_option("mechanism", entry.get("mechanism"), ("frequencies", "frameunit", "groupunit"))
    items = check_number("items", entry.pop("items"), 1, 2**20, integer=True)
    return Part(from_values(entry), items)


def _numbers(weights: dict[str, Any]) -> dict[str, float]:
    return {name: float(check_number("weights", value, 1e-9, 1e9)) for name, value in weights.items()}


class _Draw:
    """The draws of all questions."""

    def __init__(self, parts: tuple[Part, ...], draws: tuple[int, ...]) -> None:
        self.parts, self.draws = parts, draws

    def law(self) -> EitherLaw:
        """The laws of all parts; a message tells its question."""
        laws: list[Law] = []
        shares: list[Fraction] = []
        for part, draw in zip(self.parts, self.draws, strict=True):
            law, share = part.mechanism.law(), Fraction(draw, TOTAL)
            inner = law.shares or [Fraction(1)] if isinstance(law, EitherLaw) else [Fraction(1)]
            laws += law.parts if isinstance(law, EitherLaw) else [law]
            shares += [share * own for own in inner]
        return EitherLaw([law for law in laws if isinstance(law, TwoLevelLaw)], shares)


class Survey(RecordMechanism):
    """Several questions in one private message: each person answers one of them, with the whole ε.

    Which one is drawn by the device, before any value is looked at, and is never drawn again. The answer comes from the
    question's own mechanism: Frequencies for `Choice` and `Number`, FrameUnit for `Vector`, GroupUnit for `By`, and the
    better of one sampled label and FrameUnit for `MultiChoice`. A message is the number of the question and the answer,
    in as many bits for every question. Its privacy is that of the worst part, by their exact laws.

    Estimates divide by the messages that answered a question. That is far better than to split ε, or to send one long
    vector: with m choices at ε = 3 about (0.22 + f(1 − f))·m/n per share f, and 0.74·m/n for the long vector.

    Args:
        epsilon: the ε of a person's message, whatever it answers.
        questions: the questions by name; a name is that of the column, except for `By`.
        weights: how often each question is drawn, relative to each other. By default in proportion to the root of its
            variance (of one of its items, in units of its range), which has the least sum of variances.
        people: about how many people will answer; vectors get as many frames as that many people need.
        messages: as in `FrameUnit`, for a shuffler.

    Examples:
        >>> from sstq import Choice, Number
        >>> survey = Survey(epsilon=2.0, questions={"country": Choice(["AT", "CH"]), "age": Number(0, 110, bins=22)})
        >>> survey.message_bits
        9
        >>> rng = np.random.default_rng(1)
        >>> people = {"country": rng.choice(["AT", "CH"], 20_000), "age": rng.normal(45, 15, 20_000)}
        >>> result = survey.aggregator().update(survey.encode(people, rng=1)).mean()
        >>> result["country"].shares.round(1), 40 < result["age"].quantile(0.5).value < 50
        (array([0.5, 0.5]), True)
    """

    name = "survey"
    exact = True
    aggregator_class = SurveyAggregator
    parameters_class = SurveyParameters
    words_each = _OWN_WORDS + 2
    _draws_by = "secret_draw"

    parameters: SurveyParameters
    questions: dict[str, Question]
    draws: tuple[int, ...]
    parts: tuple[Part, ...]

    def __init__(
        self,
        epsilon: float,
        questions: Mapping[str, Question],
        *,
        weights: Mapping[str, float] | None = None,
        people: int = 100_000,
        messages: int = 1,
    ) -> None:
        common = self._checked(epsilon=epsilon, messages=messages)
        people = check_argument("people", people, of="clients")
        asked = _check_questions(questions)
        parts = tuple(_solve(asked, question, common["epsilon"], people) for question in asked.values())
        given = None if weights is None else _numbers(dict(weights))
        self._note(questions=asked, **({} if weights is None else {"weights": given}))
        draws = _draws(asked, parts, given)
        self._hold(SurveyParameters(**common, questions=asked, people=people, draws=draws, parts=parts, weights=given))

    def _check_solved(self) -> None:
        asked = _check_questions(self.questions)
        if not len(asked) == len(self.parts) == len(self.draws):
            raise ValueError(f"parts and draws must be one per question, got {len(self.parts)} and {len(self.draws)}")
        for (name, question), part in zip(asked.items(), self.parts, strict=True):
            if not any(
                (part.mechanism.name, part.items) == (kind, items)
                and all(getattr(part.mechanism, key) == value for key, value in options.items())
                for kind, options, items in question.candidates(asked)
            ):
                raise ValueError(f"the part of question {name!r} must be made for it, got {part.mechanism!r}")
            if part.mechanism.epsilon != self.epsilon:
                raise ValueError(f"the part of question {name!r} must have epsilon = {self.epsilon}")
            if part.mechanism.messages != 1 or part.mechanism.coin != "private" or part.mechanism.bounds is not None:
                raise ValueError(f"the part of question {name!r} must have one message and a private coin")
        if min(self.draws) < 1 or sum(self.draws) != TOTAL:
            raise ValueError("draws must be positive and sum to 2^62")
        # Two machines compute variances alike to about 1e-12; the JSON's draws are what both use.
        wanted = _draws(asked, self.parts, self.parameters.weights)
        if any(abs(draw - own) > _DRAW_TOLERANCE * own for draw, own in zip(self.draws, wanted, strict=True)):
            raise ValueError(f"draws must be those of the weights, got {self.draws}")
        if self.message_bits > _MOST_BITS:
            sizes = {name: part.size.bit_length() for name, part in zip(asked, self.parts, strict=True)}
            raise ValueError(f"a message must have at most {_MOST_BITS} bits, got {self.message_bits}: {sizes}")

    @property
    def secret_draw(self) -> _Draw:
        """The draws of all questions."""
        return _Draw(self.parts, self.draws)

    @property
    def unbiased(self) -> Unbiased:
        """Over frames, if there are vectors."""
        always = all(part.mechanism.unbiased for part in self.parts)
        return Unbiased.ALWAYS if always else Unbiased.OVER_FRAMES

    @cached_property
    def layout(self) -> Layout:
        """The answer, and the question if there are several."""
        limits = {"answer": max(part.size for part in self.parts), "question": len(self.parts)}
        wanted = {name: limit for name, limit in limits.items() if name == "answer" or limit > 1}
        return Layout(tuple(Field(name, max(1, (limit - 1).bit_length()), limit) for name, limit in wanted.items()))

    @property
    def starts(self) -> list[int]:
        """The first number of each question's messages, and the total."""
        return [sum(part.size for part in self.parts[:place]) for place in range(len(self.parts) + 1)]

    @property
    def dim(self) -> int:  # type: ignore[override]
        """The numbers of a person's record."""
        return sum(question.width for question in self.questions.values())

    @property
    def estimate_dim(self) -> int:
        """The length of the estimates of all questions, as they are encoded."""
        return sum(part.dim for part in self.parts)

    @property
    def clip(self) -> float:  # type: ignore[override]
        """The largest norm of a record as it is encoded."""
        return math.sqrt(sum(part.items * part.mechanism.clip**2 for part in self.parts))

    def _shares(self) -> list[float]:
        return [draw / TOTAL for draw in self.draws]

    def _columns(self, X: Any, strict: bool) -> Rows:
        """The records of a table: pandas, Polars, Arrow or a dict of columns."""
        names = getattr(X, "column_names", getattr(X, "columns", X))
        if isinstance(X, np.ndarray | str) or not hasattr(X, "__getitem__") or (isinstance(names, list) and X is names):
            raise ValueError(f"X must be a table or a dict of columns, got {type(X).__name__}")
        asked = {name: question for name, question in self.questions.items() if not isinstance(question, By)}
        missing = [name for name in asked if name not in list(names)]
        if missing and strict:
            raise ValueError(f"X must have the columns {', '.join(asked)}, got none called {', '.join(missing)}")
        twice = [name for name in asked if list(names).count(name) > 1]
        if twice:
            raise ValueError(f"X must have every column once, got several called {twice[0]}")
        given = {name: X[name] for name in asked if name not in missing}
        for name, values in given.items():
            # Whatever the values are: texts and sets have other items than one per person, in order.
            if (
                not hasattr(values, "__len__")
                or isinstance(values, str | bytes | Mapping | Set)
                or not getattr(values, "shape", True)
            ):
                raise ValueError(f"column {name!r} must have one value per person, got {type(values).__name__}")
        known = {name: asked[name].read(values, name, strict) for name, values in given.items()}
        lengths = {name: len(rows) for name, rows in known.items()}
        if len(set(lengths.values())) > 1 or not lengths:
            raise ValueError(f"X must have columns of one length, got {lengths}")
        count = next(iter(lengths.values()))
        nothing: list[Any] = [None] * count
        known |= {name: asked[name].read(nothing, name, False) for name in missing}
        return np.concatenate([known[name] for name in asked], axis=1)

    def _check_vectors(self, X: ArrayLike) -> Rows:
        rows = self._columns(X, strict=True)
        self._warn_if_beyond(X)
        return rows

    def _warn_if_beyond(self, X: Any) -> None:
        """Say on the device how many values were clamped, and to nobody else."""
        for name, question in self.questions.items():
            if isinstance(question, Number):
                values = cells_of(X[name])
                beyond = sum(v is not None and not question.low <= v <= question.high for v in values)
                if beyond:
                    told = f"{beyond} of {len(values)} values of {name!r} are beyond its bounds and were moved to them"
                    warnings.warn(f"{told}. This line depends on the data: keep it local", ClippedWarning, stacklevel=4)

    def _held(self, rows: Rows, groups: ArrayLike | None) -> Rows:
        if groups is not None:
            raise ValueError("groups must be left out: ask with By instead")
        if rows.ndim != 2 or rows.shape[1] != self.dim:
            raise ValueError(f"X must be a table or a dict of columns, got an array of shape {rows.shape}")
        return rows

    def _mended(self, X: Any, source: BitSource) -> Rows:  # noqa: ARG002 (nothing is drawn)
        """No answer in the place of whatever cannot be encoded."""
        return self._columns(X, strict=False)

    def some_people(self, count: int, rng: np.random.Generator) -> dict[str, Any]:
        """Random columns with nulls."""
        return {name: q.some(count, rng) for name, q in self.questions.items() if not isinstance(q, By)}

    def _trials(self) -> dict[str, Rows]:
        some = [question.trials() for question in self.questions.values()]
        rows = [
            np.concatenate([each[place % len(each)] for each in some])[None] for place in range(max(map(len, some)))
        ]
        return {f"record {place}": row for place, row in enumerate(rows)}

    def _by_question(self, rows: Rows) -> dict[str, Rows]:
        ends = np.cumsum([question.width for question in self.questions.values()])[:-1]
        return dict(zip(self.questions, np.split(rows, ends, axis=1), strict=True))

    def _encode(self, batch: EncoderInput) -> Columns:
        question = self._question(batch.words[:, _OWN_WORDS])
        answers = np.zeros(len(batch.rows), dtype=np.int64)
        for place, ((name, asked), part) in enumerate(zip(self.questions.items(), self.parts, strict=True)):
            who = np.flatnonzero(question == place)
            if len(who):
                held = self._by_question(batch.rows[who])
                records = asked.records(held, name, self.questions, part.items)
                answers[who] = part.encode(records, batch.words[who])
        return (answers, question) if len(self.parts) > 1 else (answers,)

    def _question(self, words: Words) -> Ints:
        """The question that each person answers: drawn from one word, before anything is looked at."""
        ends = np.cumsum(np.array(self.draws, dtype=np.uint64))
        return np.searchsorted(ends, channel_words(words), side="right")

    def numbers_of(self, messages: Messages) -> tuple[Ints, Ints]:
        """The question and the answer of every message."""
        answer = messages.column("answer").astype(np.int64)
        if len(self.parts) == 1:
            return np.zeros(len(answer), dtype=np.int64), answer
        return messages.column("question").astype(np.int64), answer

    def _check_messages(self, messages: Messages) -> None:
        question, answer = self.numbers_of(messages)
        for place, part in enumerate(self.parts):
            given = answer[question == place]
            if np.any(given >= part.size):
                raise ValueError(f"the answer to question {place} must be below {part.size}, got {given.max()}")
            part.messages(given, messages.simulated)

    def _decode(self, messages: Messages) -> Floats:
        question, answer = self.numbers_of(messages)
        estimates, start = np.zeros((len(messages), self.estimate_dim)), 0
        for place, (part, share) in enumerate(zip(self.parts, self._shares(), strict=True)):
            who = np.flatnonzero(question == place)
            item, own = part.messages(answer[who], messages.simulated)
            dim = part.mechanism.estimate_dim
            at = start + item[:, None] * dim + np.arange(dim)
            estimates[who[:, None], at] = part.mechanism.decode(own) * (part.items / share)
            start += part.dim
        return estimates

    def _moments(self, rows: Rows) -> list[tuple[Floats, Floats, Floats]]:
        held = self._by_question(rows)
        asked = zip(self.questions.items(), self.parts, strict=True)
        return [
            part.moments(question.records(held, name, self.questions, part.items)) for (name, question), part in asked
        ]

    def _estimated(self, rows: Rows) -> Rows:
        return np.concatenate([truth for truth, _, _ in self._moments(rows)], axis=1)

    def _row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        found, total = self._moments(rows), np.zeros(len(rows))
        for (_, mean, variance), share in zip(found, self._shares(), strict=True):
            total += (variance + (1 - share) * np.einsum("ij,ij->i", mean, mean)) / share
        return np.concatenate([mean for _, mean, _ in found], axis=1), total

    @property
    def _row_cost(self) -> int:
        return max(self.estimate_dim, *(part.mechanism._row_cost for part in self.parts))

    @property
    def _row_memory(self) -> int:
        return self.dim + max(part.mechanism._row_memory for part in self.parts)

    def largest_message(self) -> float:
        """That of the question with the largest one, over how often it is drawn."""
        parts = zip(self.parts, self._shares(), strict=True)
        return max(part.mechanism.largest_message() * part.items / share for part, share in parts)

    def _largest_biased_mean(self) -> float:
        return math.sqrt(sum(part.items * part.mechanism.largest_honest_mean() ** 2 for part in self.parts))

    def plan(self, clients: int) -> SurveyPlan:
        """Return the expected error of every question from so many people, and which cannot work.

        Examples:
            >>> from sstq import Choice
            >>> print(Survey(epsilon=1.0, questions={"os": Choice(["a", "b"])}).plan(clients=1000))
            question  people  error  works  people needed
            os        1000    ...    yes    ...
        """
        return plan_survey(self, check_argument("clients", clients))


def _check_questions(questions: Any) -> dict[str, Question]:
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
    for question in questions.values():
        question.candidates(questions)
    return dict(questions)


def _solve(questions: dict[str, Question], question: Question, epsilon: float, people: int) -> Part:
    """The best part for a question."""
    found = []
    for name, options, items in question.candidates(questions):
        frames = {} if name == "frequencies" else {"clients": people}
        part = Part(mechanism(name, epsilon=epsilon, **options, **frames), items)
        found.append((item_variance(question, part), part))
    return min(found, key=lambda pair: pair[0])[1]


def item_variance(question: Question, part: Part) -> float:
    """The variance of one message's estimate of one item, on average, in units of its range; shares being 1/2."""
    if isinstance(part.mechanism, Frequencies):
        return part.items * part.mechanism.variance_at(0.5)
    scale = 1.0 if not isinstance(question, By | Vector) else 2 * part.mechanism.clip
    return part.mechanism.typical_error().total / part.dim / scale**2


def _draws(
    questions: dict[str, Question], parts: tuple[Part, ...], weights: dict[str, float] | None
) -> tuple[int, ...]:
    """How often each question is drawn, as integers that sum to 2^62."""
    if weights is not None and weights.keys() != questions.keys():
        raise ArgumentError("weights", f"must name every question, got {', '.join(weights)}")
    named = zip(questions.items(), parts, strict=True)
    wanted = [
        math.sqrt(item_variance(question, part)) if weights is None else weights[name]
        for (name, question), part in named
    ]
    draws = [max(1, math.floor(Fraction(weight) / sum(map(Fraction, wanted)) * TOTAL)) for weight in wanted]
    draws[0] += TOTAL - sum(draws)
    return tuple(draws)
