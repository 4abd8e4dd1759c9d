"""Surveys: a mechanism that is a composite of others, one per question."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from sstq.aggregation import Aggregator, Estimate, SparseEstimator, Sums
from sstq.aggregation.sparse_counts import sent_codes
from sstq.array_types import Floats, Ints, Words
from sstq.checks import check_argument
from sstq.exactness import TOTAL
from sstq.inputs import Record
from sstq.mechanisms.agreement import Solved
from sstq.mechanisms.base import (
    Batch,
    Columns,
    ExpectedError,
    Mechanism,
    Rows,
    Unbiased,
)
from sstq.mechanisms.survey.question import ColumnQuestion, Question
from sstq.mechanisms.survey.question_estimates import SurveyEstimate
from sstq.mechanisms.survey.question_parts import (
    Part,
    SurveySolved,
    best_part,
    checked_weights,
    drawn_by_weight,
)
from sstq.mechanisms.survey.questions import check_questions
from sstq.mechanisms.survey.schema import survey_options
from sstq.mechanisms.survey.survey_plan import SurveyPlan, plan_survey
from sstq.messages.batch import Messages
from sstq.messages.layouts import Field, Layout
from sstq.randomness.secret import channel_words
from sstq.scalar.laws import EitherLaw, Law

_MOST_BITS = 62
# Where the question and the item are in a message's secret words; those before are for the question's mechanism.
_INNER_WORDS = 4
_DRAW_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class SurveyEstimator(SparseEstimator):
    """The results of all questions, from how often each message occurred.

    Attributes:
        parts: the mechanisms of the questions.
        starts: the number of the first message of each question, and the number of all messages.
    """

    averages = False
    estimate_class = SurveyEstimate

    parts: tuple[Part, ...]
    starts: tuple[int, ...]

    @property
    def limit(self) -> int:
        """The number of messages that there can be."""
        return self.starts[-1]

    def codes(self, messages: Messages) -> Ints:
        """The messages of all questions, one question after the other."""
        question, answer = numbers_of(messages)
        return np.array(self.starts, dtype=np.int64)[question] + answer

    def columns(self, codes: Ints) -> tuple[Ints, ...]:
        """The answer, and the question if there are several."""
        starts = np.array(self.starts, dtype=np.int64)
        question = np.searchsorted(starts, codes, side="right") - 1
        answer = codes - starts[question]
        return (answer,) if len(self.parts) == 1 else (answer, question)

    def decode(self, messages: Messages) -> Floats:
        """The estimates of single messages."""
        question, answer = numbers_of(messages)
        estimates = np.zeros((len(messages), sum(part.dim for part in self.parts)))
        start = 0
        for place, part in enumerate(self.parts):
            who = np.flatnonzero(question == place)
            item, answers = part.messages(answer[who], messages.simulated)
            dim = part.mechanism.estimate_dim
            at = start + item[:, None] * dim + np.arange(dim)
            estimates[who[:, None], at] = part.mechanism.decode(answers) / part.often
            start += part.dim
        return estimates

    def estimate(self, sums: Sums) -> SurveyEstimate:
        """The results. Those of a question that nobody answered are nan."""
        codes, counts = sent_codes(sums)
        ends = np.searchsorted(codes, self.starts[1:-1])
        sent = zip(
            self.parts,
            self.starts,
            np.split(codes, ends),
            np.split(counts, ends),
            strict=False,
        )
        estimates: list[Any] = []
        results = {}
        notes: list[str] = []
        for part, start, answers, times in sent:
            unknown = np.full(part.mechanism.estimate_dim, np.nan)
            aggregators = part.aggregators(answers - start, times, sums.simulated)
            of_items = [
                each.mean() if each.count else Estimate(unknown, unknown, 0)
                for each in aggregators
            ]
            results[part.name] = part.question._result(
                part.name, of_items, aggregators[0]
            )
            estimates += of_items
            notes += [f"{part.name}: {note}" for note in part.question._notes(of_items)]
        return SurveyEstimate(
            np.concatenate([each.value for each in estimates]),
            np.concatenate([each.stderr for each in estimates]),
            sums.count,
            sums.simulated,
            note="; ".join(notes),
            messages=self.source.messages,
            results=results,
            types={part.name: part.question.type for part in self.parts},
            names=tuple(
                f"{part.name}: {name}"
                for part in self.parts
                for name in part.coordinates
            ),
        )


def numbers_of(messages: Messages) -> tuple[Ints, Ints]:
    """The question and the answer of every message."""
    answer = messages.column("answer").astype(np.int64)
    if len(messages.columns) == 1:
        return np.zeros(len(answer), dtype=np.int64), answer
    return messages.column("question").astype(np.int64), answer


class Survey(Mechanism):
    """Several questions in one private message: each person answers one of them, with the whole ε.

    Which one is drawn by the device, before any value is looked at, and is never drawn again. The answer comes from the
    question's own mechanism: Frequencies for `Choice`, `Number`, `Count` and `Mean`, FrameUnit for `Vector`, GroupUnit
    for `By`, and the better of one sampled label and FrameUnit for `MultiChoice`. A message is the number of the
    question and the answer, in as many bits for every question. Its privacy is that of the worst part, by their exact
    laws.

    Estimates divide by the messages that answered a question. That is far better than to split ε, or to send one long
    vector: with m choices at ε = 3 about (0.22 + f(1 − f))·m/n per share f, and 0.74·m/n for the long vector.

    `dim` are the numbers of a person's record, and `clip` is its largest norm as it is encoded.

    Args:
        epsilon: the ε of a person's message, whatever it answers.
        questions: the questions by name; a name is that of the column, except for `Mean` and `By`.
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
    solved_class = SurveySolved
    words_each = _INNER_WORDS + 2

    solved: SurveySolved
    questions: dict[str, Question]
    draws: tuple[int, ...]

    def __init__(
        self,
        epsilon: float,
        questions: Mapping[str, Question],
        *,
        weights: Mapping[str, float] | None = None,
        people: int = 100_000,
        messages: int = 1,
    ) -> None:
        given = dict(locals())
        common = self.checked(epsilon=epsilon, messages=messages)
        people = check_argument("people", people, of="clients")
        asked = check_questions(questions)
        shown: dict[str, Any] = {"questions": asked}
        if weights is not None:
            shown["weights"] = checked_weights(weights)
        parts = [
            best_part(name, question, common["epsilon"], people)
            for name, question in asked.items()
        ]
        draws = drawn_by_weight(parts, shown.get("weights"))
        inner = tuple((p.items, p.mechanism) for p in parts)
        self.settle(
            given,
            SurveySolved(**common, **shown, people=people, draws=draws, parts=inner),
            **shown,
        )

    def _keep(self, solved: Solved, given: Mapping[str, Any] | None) -> None:
        super()._keep(solved, given)
        squares = (part.items * part.mechanism.clip**2 for part in self.parts)
        vars(self).update(dim=self.input.width, clip=math.sqrt(sum(squares)))

    @classmethod
    def from_schema(
        cls, schema: "str | os.PathLike[str] | Mapping[str, Any]"
    ) -> "Survey":
        """Make the survey of a schema: a file that `sstq survey init` wrote and people filled in, or its JSON values.

        Examples:
            >>> os_question = {"type": "choice", "labels": ["mac", "win"]}
            >>> Survey.from_schema({"format": "sstq-survey", "epsilon": 2.0, "questions": {"os": os_question}})
            Survey(epsilon=2.0, questions={'os': Choice(labels=('mac', 'win'))})
        """
        return cls(**survey_options(schema))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The questions with their mechanisms."""
        asked = self.questions
        inner = self.solved.parts
        if not len(asked) == len(inner) == len(self.draws):
            raise ValueError(
                f"parts and draws must be one per question, got {len(inner)} and {len(self.draws)}"
            )
        return tuple(
            Part(name, asked[name], mechanism, items, draw / TOTAL)
            for name, (items, mechanism), draw in zip(
                asked, inner, self.draws, strict=True
            )
        )

    def check_solved(self) -> None:
        """Refuse solved values that do not belong together."""
        check_argument("people", self.solved.people, of="clients")
        for part in self.parts:
            part.check(self.epsilon)
        if min(self.draws) < 1 or sum(self.draws) != TOTAL:
            raise ValueError("draws must be positive and sum to 2^62")
        # Two machines compute variances alike to about 1e-12; the JSON's draws are what both use.
        wanted = drawn_by_weight(self.parts, self.solved.weights)
        if any(
            abs(draw - due) > _DRAW_TOLERANCE * due
            for draw, due in zip(self.draws, wanted, strict=True)
        ):
            raise ValueError(f"draws must be those of the weights, got {self.draws}")
        if self.message_bits > _MOST_BITS:
            sizes = {part.name: part.size.bit_length() for part in self.parts}
            raise ValueError(
                f"a message must have at most {_MOST_BITS} bits, got {self.message_bits}: {sizes}"
            )

    @property
    def draw(self) -> EitherLaw:
        """The laws of all parts; a message tells its question."""
        laws: list[Law] = []
        shares: list[Fraction] = []
        for part, draw in zip(self.parts, self.draws, strict=True):
            law = part.mechanism.law()
            laws += law.parts
            shares += [
                Fraction(draw, TOTAL) * share for share in law.shares or [Fraction(1)]
            ]
        return EitherLaw(laws, shares)

    @property
    def unbiased(self) -> Unbiased:
        """Over frames, if there are vectors."""
        always = all(part.mechanism.unbiased for part in self.parts)
        return Unbiased.ALWAYS if always else Unbiased.OVER_FRAMES

    @cached_property
    def layout(self) -> Layout:
        """The answer, and the question if there are several."""
        limits = {
            "answer": max(part.size for part in self.parts),
            "question": len(self.parts),
        }
        wanted = {
            name: limit
            for name, limit in limits.items()
            if name == "answer" or limit > 1
        }
        return Layout(tuple(Field(name, limit) for name, limit in wanted.items()))

    def aggregator(self) -> Aggregator[SurveyEstimate]:
        """Create an empty aggregator."""
        return Aggregator(self.estimator)

    def load_aggregator(
        self, path: str | os.PathLike[str]
    ) -> Aggregator[SurveyEstimate]:
        """Load an aggregator that was saved to a file."""
        return Aggregator.load(path, self.estimator)

    @property
    def estimator(self) -> SurveyEstimator:
        """The results of all questions."""
        return SurveyEstimator(
            self, self.parts, (0, *accumulate(part.size for part in self.parts))
        )

    @property
    def estimate_dim(self) -> int:
        """The length of the estimates of all questions, as they are encoded."""
        return sum(part.dim for part in self.parts)

    @cached_property
    def input(self) -> Record:
        """A record with the columns of the questions that have one."""
        columns = {
            name: question
            for name, question in self.questions.items()
            if isinstance(question, ColumnQuestion)
        }
        return Record(columns, self._estimated, self._true_items)

    def typical_error(self, clients: int = 1) -> ExpectedError:
        """The error for one typical record."""
        first = next(iter(self.input.extremes(np.random.default_rng(0)).values()))
        return self.expected_mse(first["X"], clients)

    def prospect(self, clients: int) -> tuple[float, bool]:
        """The error of the question with the largest one, and whether all work."""
        plan = self.plan(clients)
        return max(one.error for one in plan.values()), plan.works

    def encode_batch(self, batch: Batch) -> Columns:
        """Draw the question of each person, and encode the answer with the mechanism of its part."""
        question = self._question(batch.words[:, _INNER_WORDS])
        answers = np.zeros(len(batch.rows), dtype=np.int64)
        for place, part in enumerate(self.parts):
            who = np.flatnonzero(question == place)
            if len(who):
                words = batch.words[who]
                answers[who] = part.encode(
                    self.input.by_column(batch.rows[who]),
                    words,
                    words[:, _INNER_WORDS + 1],
                )
        return (answers, question) if len(self.parts) > 1 else (answers,)

    def _question(self, words: Words) -> Ints:
        """The question that each person answers: drawn from one word, before anything is looked at."""
        ends = np.cumsum(np.array(self.draws, dtype=np.uint64))
        return np.searchsorted(ends, channel_words(words), side="right")

    def check_messages(self, messages: Messages) -> None:
        """Refuse messages that no client sends."""
        question, answer = numbers_of(messages)
        for place, part in enumerate(self.parts):
            given = answer[question == place]
            if np.any(given >= part.size):
                raise ValueError(
                    f"the answer to question {place} must be below {part.size}, got {given.max()}"
                )
            part.messages(given, messages.simulated)

    def _estimated(self, rows: Rows) -> Rows:
        columns = self.input.by_column(rows)
        truths = [
            part.question._estimated(part.mechanism, records)
            for part in self.parts
            for records in part.records(columns)
        ]
        return np.concatenate(truths, axis=1)

    def _true_items(self, columns: Mapping[str, Rows]) -> dict[tuple[str, str], float]:
        return {
            (name, str(item)): float(value)
            for name, question in self.questions.items()
            for item, value in question.truth(columns, name)
        }

    def row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """The mean and the variance of the estimate of each row."""
        columns = self.input.by_column(rows)
        means = []
        total = np.zeros(len(rows))
        for part in self.parts:
            for records in part.records(columns):
                mean, variance = part.question.row_error(part.mechanism, records)
                means.append(mean)
                total += (
                    variance + (1 - part.often) * np.einsum("ij,ij->i", mean, mean)
                ) / part.often
        return np.concatenate(means, axis=1), total

    @property
    def row_cost(self) -> int:
        """About how many numbers encoding one row takes."""
        return self.dim + max(part.mechanism.row_cost for part in self.parts)

    def largest_message(self) -> float:
        """The largest message about any question, over how often the question is drawn."""
        return max(part.mechanism.largest_message() / part.often for part in self.parts)

    def largest_biased_mean(self) -> float:
        """The norm of the largest honest means of all questions, side by side."""
        return math.sqrt(
            sum(
                part.items * part.mechanism.largest_honest_mean() ** 2
                for part in self.parts
            )
        )

    def plan(self, clients: int) -> SurveyPlan:
        """Return the expected error of every question from so many people, and which cannot work.

        Examples:
            >>> from sstq import Choice
            >>> print(Survey(epsilon=1.0, questions={"os": Choice(["a", "b"])}).plan(clients=1000))
            question  people  error of  error  works  people needed
            os        1,000   share     ...    yes    ...
        """
        return plan_survey(
            self.parts, check_argument("clients", clients), self.messages
        )
