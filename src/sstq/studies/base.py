"""The base of studies: a server that asks cohorts in turn. Everybody answers once, so ε is a person's total, for life.

A study is its options and what it has learned so far: one entry of JSON values per cohort. The cohorts that are left,
the next question and the result follow from these, so that a restart loses nothing.
"""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from sstq.aggregation import Aggregator, Estimate
from sstq.checks import check_argument, check_option
from sstq.files.strict_json import read_json
from sstq.messages.batch import Messages
from sstq.studies.questions import Question, require

FORMAT = "sstq-study"
VERSION = 1
_MOST_SHOWN = 12
_STUDIES: dict[str, type[Study]] = {}


@dataclass(frozen=True)
class StudyPlan:
    """What to expect of a study.

    Attributes:
        people: the number of people in all.
        cohorts: how many of them to ask in each cohort.
        error: the expected error.
        of: what the error is that of.
        problem: why the study cannot work; empty if it can.
    """

    people: int
    cohorts: dict[str, int] = field(default_factory=dict)
    error: float = np.nan
    of: str = ""
    problem: str = ""

    @property
    def works(self) -> bool:
        """Whether the study can work."""
        return not self.problem

    def __str__(self) -> str:
        cohorts = list(self.cohorts.items())
        shown = cohorts if len(cohorts) <= _MOST_SHOWN else [*cohorts[:2], cohorts[-1]]
        sizes = ", ".join(f"{name} {count:,}" for name, count in shown)
        expected = f"{self.of}: {self.error:.3g}" if self.works else f"cannot work: {self.problem}"
        return f"{self.people:,} people ({sizes}); {expected}"


class Study(ABC):
    """A study: `question` publishes a document, `learn` takes the answers, and `result` is there in the end.

    A subclass says which cohorts there are, asks each of them and learns from it. It keeps the arguments of its
    constructor as `options`, and what it learns in `learned`, as JSON values; nothing else. `sstq.testing.check_study`
    checks it.
    """

    kind: ClassVar[str]
    may_be_empty: ClassVar[bool] = False
    """Whether a cohort in which nobody answered is learned from as well."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.identifier = secrets.token_hex(16)
        self.learned: list[dict[str, Any]] = []
        self._asked: Question | None = None
        self.people_asked = 0

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"<{type(self).__name__}({options}): {len(self.cohorts_left)} cohorts left>"

    # --- what a subclass provides

    @property
    @abstractmethod
    def weights(self) -> dict[str, float]:
        """The cohorts that are left, in turn, and their sizes relative to each other."""

    @abstractmethod
    def ask(self, cohort: str, people: int) -> Question:
        """Return the question for a cohort of so many people."""

    @abstractmethod
    def take(self, cohort: str, question: Any, aggregator: Aggregator[Estimate]) -> dict[str, Any]:
        """Return what the answers of a cohort tell, as JSON values, which are appended to `learned`."""

    @abstractmethod
    def conclude(self) -> Any:
        """Return the result, from `learned`."""

    @abstractmethod
    def plan(self, people: int) -> StudyPlan:
        """Return the expected error from so many people in all, or why it cannot work."""

    def options_to_dict(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        return self.options

    @classmethod
    def options_from_dict(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the constructor, from `options_to_dict`."""
        return options

    # --- a deployment

    @property
    def cohorts_left(self) -> tuple[str, ...]:
        """The cohorts still to be asked; later ones may change with what is learned."""
        return tuple(self.weights)

    def cohort_sizes(self, people: int) -> dict[str, int]:
        """Return how many of these people to ask in each cohort that is left."""
        weights = self.weights
        cuts = np.round(np.cumsum(list(weights.values())) / sum(weights.values()) * people).astype(int)
        return dict(zip(weights, np.diff(cuts, prepend=0).tolist(), strict=True))

    def question(self, people: int) -> str:
        """Return the document for the next cohort, of so many people; publish it, and call `learn` with the answers.

        As long as the answers are not learned, this returns the same document again.
        """
        people = check_argument("people", people, of="clients")
        if self._asked is None:
            if not self.cohorts_left:
                raise ValueError("all cohorts have answered: the result is there")
            self._asked = self.ask(self.cohorts_left[0], people)
            self.people_asked = people
        require(
            people == self.people_asked, f"people must be {self.people_asked}, for whom the question is, got {people}"
        )
        return self._asked.to_json()

    @property
    def asked(self) -> Question:
        """The question that waits for answers."""
        if self._asked is None:
            raise ValueError(
                "there is no question to learn from: call question(people), or run sstq study question, first"
            )
        return self._asked

    def learn(self, messages: Messages | Aggregator[Estimate] | Iterable[bytes]) -> Self:
        """Learn from the answers to the question: messages, their aggregator, or the bytes of each answer."""
        mechanism = self.asked.mechanism
        aggregator = mechanism.aggregator()
        if isinstance(messages, Aggregator):
            aggregator.merge(messages)
        elif isinstance(messages, Messages):
            aggregator.update(messages)
        else:
            read = [mechanism.messages_from_bytes(raw, mechanism.messages) for raw in messages]
            if read:
                aggregator.update(Messages.concatenate(read))
        return self._learn(aggregator)

    def learn_counts(self, columns: Any, counts: ArrayLike | str = "count") -> Self:
        """Learn from a table of counts, as `Aggregator.update_counts` takes it: how often each message occurred."""
        return self._learn(self.asked.mechanism.aggregator().update_counts(columns, counts))

    def _learn(self, aggregator: Aggregator[Estimate]) -> Self:
        enough = aggregator.count > 0 or self.may_be_empty
        require(enough, "messages must be those of at least one person, got none: ask again")
        # What a subclass returns is JSON: a restart must not change it.
        facts = json.loads(json.dumps(self.take(self.cohorts_left[0], self.asked, aggregator), allow_nan=False))
        self.learned.append(facts)
        self._asked = None
        return self

    @property
    def result(self) -> Any:
        """The result; ValueError as long as cohorts are left."""
        if self.cohorts_left:
            raise ValueError(f"there is no result yet; still to answer: {', '.join(self.cohorts_left)}")
        return self.conclude()

    def to_json(self) -> str:
        """Return all of the study as JSON, for `from_json`."""
        asked = None if self._asked is None else self._asked.to_dict()
        head = {"format": FORMAT, "version": VERSION, "kind": self.kind, "study": self.identifier}
        state = {
            "options": self.options_to_dict(),
            "learned": self.learned,
            "asked": asked,
            "people": self.people_asked,
        }
        return json.dumps(head | state, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a study from its `to_json`; ValueError for anything else."""
        data = read_json(text)
        require(isinstance(data, dict), f"the JSON must be a study, got {type(data).__name__}")
        found = data.get("format"), data.get("version")
        require(found == (FORMAT, VERSION), f"the JSON must be of format {FORMAT!r}, version {VERSION}, got {found!r}")
        kind = _STUDIES[check_option("kind", data.get("kind"), tuple(_STUDIES))]
        require(issubclass(kind, cls), f"the study must be a {cls.__name__}, got {kind.__name__}")
        try:
            study = kind(**kind.options_from_dict(data["options"]))
            study.identifier = data["study"]
            study.learned = data["learned"]
            study._asked = None if data["asked"] is None else Question.from_dict(data["asked"])
            study.people_asked = data["people"]
            require(json.loads(study.to_json()) == data, "the JSON must be as `to_json` writes it")
        except (TypeError, KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"the JSON is not a study: {error!r}") from error
        return study  # type: ignore[return-value]

    # --- a simulation

    def _simulated(self, generator: np.random.Generator) -> Study:
        """A new study; public seeds follow from its identifier."""
        study = type(self)(**self.options_from_dict(self.options_to_dict()))
        study.identifier = generator.bytes(16).hex()
        return study

    def simulate(self, values: Sequence[Any], rng: int | np.random.Generator | None = None) -> Any:
        """Return the result of a new study of people with these values, who answer on this machine.

        Args:
            values: one value per person.
            rng: None for the operating system's randomness; a seed, for the same result again.
        """
        generator = np.random.default_rng(rng)
        study = self._simulated(generator)
        left = generator.permutation(len(values))
        while study.cohorts_left:
            size = max(1, next(iter(study.cohort_sizes(len(left)).values())))
            who = left[:size]
            left = left[size:]
            require(len(who) > 0, f"values must be enough for every cohort, got {len(values)}")
            study.question(len(who))
            study.learn(study.asked.encode(_some(values, who), None if rng is None else generator))
        return study.result


def _some(values: Sequence[Any], who: Any) -> Sequence[Any]:
    if isinstance(values, np.ndarray):
        return values[who]
    return [values[place] for place in who]


_S = TypeVar("_S", bound=type[Study])


def register_study(cls: _S) -> _S:
    """Make `Study.from_json` know a class of studies; use it as a decorator."""
    if _STUDIES.setdefault(cls.kind, cls).__qualname__ != cls.__qualname__:
        raise ValueError(f"kind must be a new one, got {cls.kind!r}, which is that of {_STUDIES[cls.kind].__name__}")
    _STUDIES[cls.kind] = cls
    return cls
