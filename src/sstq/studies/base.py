"""The base of studies: a server that asks cohorts in turn. Everybody answers once, so ε is a person's total, for life.

A study is its options and what it has learned so far: one entry of JSON values per cohort. The cohorts that are left,
the next question and the result follow from these, so that a restart loses nothing.
"""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from sstq.aggregation import Aggregator, Estimate
from sstq.checks import ArgumentError, check_argument
from sstq.files.strict_json import JsonObject, read_json
from sstq.messages.batch import Messages
from sstq.randomness.streams import mix_seed
from sstq.studies.kinds import Kinds
from sstq.studies.questions import Document, check_identifier, require
from sstq.studies.results import StudyResult

FORMAT = "sstq-study"
VERSION = 1
_MOST_SHOWN = 12
_KINDS = Kinds(
    {
        "classifier": "sstq.learning:PrivateClassifier",
        "regression": "sstq.learning:PrivateRegression",
    }
)


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

    def __post_init__(self) -> None:
        check_argument("people", self.people, of="clients")

    @property
    def works(self) -> bool:
        """Whether the study can work."""
        return not self.problem

    def __str__(self) -> str:
        cohorts = list(self.cohorts.items())
        shown = cohorts if len(cohorts) <= _MOST_SHOWN else [*cohorts[:2], cohorts[-1]]
        sizes = ", ".join(f"{name} {count:,}" for name, count in shown)
        expected = (
            f"{self.of}: {self.error:.3g}"
            if self.works
            else f"cannot work: {self.problem}"
        )
        return f"{self.people:,} people ({sizes}); {expected}"


@dataclass
class _State:
    """How far a study is.

    Attributes:
        identifier: the name of the study, 32 hexadecimal digits.
        learned: what each cohort told, in turn, as JSON values.
        asked: the question that waits for answers.
        people: how many people it is for.
    """

    identifier: str = field(default_factory=lambda: secrets.token_hex(16))
    learned: list[JsonObject] = field(default_factory=list)
    asked: Document | None = None
    people: int = 0


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
        self._options = options

    @cached_property
    def _state(self) -> _State:
        """How far the study is."""
        return _State()

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return self._options

    @property
    def identifier(self) -> str:
        """The name of the study, 32 hexadecimal digits; a person answers once per study."""
        return self._state.identifier

    @property
    def learned(self) -> list[JsonObject]:
        """What each cohort told, in turn, as JSON values."""
        return self._state.learned

    @property
    def people_asked(self) -> int:
        """How many people the last question was for."""
        return self._state.people

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return (
            f"<{type(self).__name__}({options}): {len(self.cohorts_left)} cohorts left>"
        )

    # --- what a subclass provides

    @property
    @abstractmethod
    def weights(self) -> dict[str, float]:
        """The cohorts that are left, in turn, and their sizes relative to each other."""

    @abstractmethod
    def ask(self, cohort: str, people: int) -> Document:
        """Return the question for a cohort of so many people."""

    @abstractmethod
    def take(
        self, cohort: str, question: Any, aggregator: Aggregator[Estimate]
    ) -> JsonObject:
        """Return what the answers of a cohort tell, as JSON values, which are appended to `learned`."""

    @abstractmethod
    def conclude(self) -> StudyResult:
        """Return the result, from `learned`."""

    @abstractmethod
    def plan(self, people: int) -> StudyPlan:
        """Return the expected error from so many people in all, or why it cannot work."""

    @property
    def so_far(self) -> StudyResult | None:
        """What a collector shows while the study goes on; None if nothing is known yet."""
        return None if self.cohorts_left else self.result

    @property
    def asks_next(self) -> list[str] | None:
        """What the next cohort is asked about, for whoever runs the study; None if the study tells nothing."""
        return None

    def follow(self, cohort: str, facts: JsonObject) -> None:  # noqa: B027 (most studies leave it out)
        """Use what a cohort told, before it is appended to `learned`; called again for each after a restart."""

    def options_to_dict(self) -> JsonObject:
        """Return the options as JSON values."""
        return self.options

    @classmethod
    def options_from_dict(cls, options: JsonObject) -> dict[str, Any]:
        """Return the arguments of the constructor, from `options_to_dict`."""
        return options

    # --- a deployment

    @property
    def cohorts_left(self) -> tuple[str, ...]:
        """The cohorts still to be asked; later ones may change with what is learned."""
        return tuple(self.weights)

    def cohort_sizes(self, people: int) -> dict[str, int]:
        """Return how many of these people to ask in each cohort that is left."""
        weights = self._weights_left()
        cuts = np.round(
            np.cumsum(list(weights.values())) / sum(weights.values()) * people
        ).astype(int)
        return dict(zip(weights, np.diff(cuts, prepend=0).tolist(), strict=True))

    def question(self, people: int) -> str:
        """Return the document for the next cohort, of so many people; publish it, and call `learn` with the answers.

        As long as the answers are not learned, this returns the same document again.
        """
        if self._state.asked is None:
            self._ask(people)
        asked = self.people_asked
        if people != asked:
            problem = f"must be {asked}, for whom the question is, got {people}"
            raise ArgumentError("people", problem)
        document: str = self.asked.to_json()
        return document

    def _ask(self, people: int) -> None:
        people = check_argument("people", people, of="clients")
        cohort = next(iter(self._weights_left()))
        self._state.asked = self.ask(cohort, people)
        self._state.people = people

    def _left(self, cohorts: dict[str, float]) -> dict[str, float]:
        """Those of all cohorts, in turn, that have not answered yet."""
        return dict(list(cohorts.items())[len(self.learned) :])

    @property
    def _public_seed(self) -> int:
        """The seed of the next question, from the name of the study."""
        return mix_seed(int(self.identifier[:15], 16), len(self.learned))

    def _weights_left(self) -> dict[str, float]:
        weights = self.weights
        require(bool(weights), "all cohorts have answered: the result is there")
        return weights

    @property
    def asked(self) -> Any:
        """The question that waits for answers, as an object."""
        if self._state.asked is None:
            raise ValueError(
                "there is nothing to learn from: call question first (sstq study question in the shell)"
            )
        return self._state.asked

    def learn(
        self, messages: Messages | Aggregator[Estimate] | Iterable[bytes]
    ) -> Self:
        """Learn from the answers to the question: messages, their aggregator, or the bytes of each answer."""
        mechanism = self.asked.mechanism
        aggregator = mechanism.aggregator()
        if isinstance(messages, Aggregator):
            aggregator.merge(messages)
        elif isinstance(messages, Messages):
            aggregator.update(messages)
        else:
            read = [
                mechanism.messages_from_bytes(raw, mechanism.messages)
                for raw in messages
            ]
            if read:
                aggregator.update(Messages.concatenate(read))
        return self._learn(aggregator)

    def learn_counts(self, columns: Any, counts: ArrayLike | str = "count") -> Self:
        """Learn from a table of counts, as `Aggregator.update_counts` takes it: how often each message occurred."""
        return self._learn(
            self.asked.mechanism.aggregator().update_counts(columns, counts)
        )

    def _learn(self, aggregator: Aggregator[Estimate]) -> Self:
        people = aggregator.count / self.asked.mechanism.messages
        require(
            people > 0 or self.may_be_empty,
            "messages must be those of at least one person, got none: ask again",
        )
        # Behind a shuffler fewer people would be hidden less well.
        enough = (
            self.options.get("trust", "local") == "local" or people >= self.people_asked
        )
        require(
            enough,
            f"messages must be those of {self.people_asked} people, for whom the ε is, got {people:g}",
        )
        self._keep(self.take(self.cohorts_left[0], self.asked, aggregator))
        return self

    def _keep(self, facts: JsonObject) -> None:
        # What a subclass returns is JSON: a restart must not change it.
        facts = json.loads(json.dumps(facts, allow_nan=False))
        self.follow(self.cohorts_left[0], facts)
        self.learned.append(facts)
        self._state.asked = None

    @property
    def result(self) -> Any:
        """The result; ValueError as long as cohorts are left."""
        if self.cohorts_left:
            raise ValueError(
                f"there is no result yet; still to answer: {', '.join(self.cohorts_left)}"
            )
        return self.conclude()

    def to_json(self) -> str:
        """Return all of the study as JSON, for `from_json`."""
        state = self._state
        body = {
            "options": self.options_to_dict(),
            "learned": state.learned,
            "asked": None if state.asked is None else state.asked.to_dict(),
            "people": state.people,
        }
        head = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "study": state.identifier,
        }
        return json.dumps(head | body, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a study from its `to_json`; ValueError for anything else."""
        data = read_json(text)
        require(
            isinstance(data, dict),
            f"the JSON must be a study, got {type(data).__name__}",
        )
        try:
            form = data.get("format")
            version = data.get("version")
            require(
                (form, version) == (FORMAT, VERSION),
                f"the JSON must be of format {FORMAT!r}, version {VERSION}, got {form!r}, version {version}",
            )
            kind = _KINDS.find(data.get("kind"))
            require(
                issubclass(kind, cls),
                f"the study must be a {cls.__name__}, got {kind.__name__}",
            )
            study = kind(**kind.options_from_dict(data["options"]))
            check_identifier(data["study"])
            study._state.identifier = data["study"]
            for facts in data["learned"]:
                study._keep(facts)
            # as what was learned last says, or an error
            _ = study.cohorts_left
            if data["asked"] is not None:
                study._state.asked = Document.from_dict(data["asked"])
            study._state.people = data["people"]
            require(
                type(data["people"]) is int,
                f"people must be an integer, got {data['people']!r}",
            )
        except (TypeError, KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"the JSON is not a study: {error!r}") from error
        same = json.loads(study.to_json()) == data
        require(same, "the JSON must be as `to_json` writes it")
        return study  # type: ignore[no-any-return]

    # --- a simulation

    def simulate(
        self, values: Sequence[Any], rng: int | np.random.Generator | None = None
    ) -> Any:
        """Return the result of a new study of people with these values, who answer on this machine.

        Args:
            values: one value per person.
            rng: None for the operating system's randomness; a seed, for the same result again.
        """
        generator = np.random.default_rng(rng)
        secret = None if rng is None else generator
        study = type(self)(**self.options_from_dict(self.options_to_dict()))
        # Public seeds follow from the identifier.
        study._state.identifier = generator.bytes(16).hex()
        for held in study._split(values, generator):
            study.question(max(1, len(held)))
            study.learn(study.asked.encode_each(held, secret) if held else [])
        return study.result

    def _split(
        self, values: Sequence[Any], generator: np.random.Generator
    ) -> Iterator[Sequence[Any]]:
        """Yield what the people of each cohort hold, whose answers have been learned when the next one is drawn."""
        left = generator.permutation(len(values))
        while self.cohorts_left:
            size = max(1, next(iter(self.cohort_sizes(len(left)).values())))
            who = left[:size]
            left = left[size:]
            require(
                len(who) > 0,
                f"values must be enough for every cohort, got {len(values)}",
            )
            yield [values[place] for place in who]


register_study = _KINDS.add
"""Make `Study.from_json` know a class of studies; use it as a decorator."""
