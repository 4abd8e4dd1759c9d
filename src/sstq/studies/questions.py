"""Questions: everything that a device needs to answer once, published as JSON.

A document has a format, a version and a kind, which says how a value becomes what the mechanism encodes. A device that
answers refuses documents, never values: whatever it cannot use is answered as something harmless.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self, get_args, get_type_hints

import numpy as np

from sstq.accounting import Ledger
from sstq.accounting.ledger import check_local, ledger_price
from sstq.checks import ArgumentError, check_argument
from sstq.files.strict_json import JsonObject, read_json
from sstq.mechanisms import Mechanism
from sstq.mechanisms.answers import answer as encode_or_substitute
from sstq.mechanisms.answers import encode_files
from sstq.mechanisms.registry import from_document
from sstq.messages.batch import Messages
from sstq.randomness.secret import RngLike, bit_source
from sstq.studies.kinds import Kinds

_KINDS = Kinds()
FORMAT = "sstq-study-question"
VERSION = 1
# Documents of other formats, and who reads them.
_OTHER_FORMATS = {"sstq-question": "sstq.learning.questions"}


class Document(ABC):
    """What a cohort is asked, published as JSON: everything that a device needs to answer once."""

    mechanism: Mechanism
    study: str | None

    @property
    def purpose(self) -> str:
        """What a person's ledger pays for, once: one question per study."""
        return f"study {self.study}"

    @abstractmethod
    def encode_each(self, values: Sequence[Any], rng: RngLike = None) -> Messages:
        """Return one private message per value, whatever the values are."""

    def encode_file(self, path: Path, column: str | None = None) -> Messages:  # noqa: ARG002
        """Return one private message per person in a file; `column` says where the values are, if that is not clear."""
        raise ValueError("files do not answer this study; its people call take_part")

    @abstractmethod
    def to_dict(self) -> JsonObject:
        """Return the document as JSON values."""

    @classmethod
    @abstractmethod
    def read(cls, data: JsonObject) -> Document:
        """Read a document of this format; what is missing or of a wrong type may raise any error."""

    def to_json(self) -> str:
        """Return the document as canonical JSON (RFC 8785)."""
        import rfc8785

        return rfc8785.dumps(self.to_dict()).decode()

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read a document; ValueError unless all of it is what `to_dict` returns."""
        require(
            isinstance(data, dict),
            f"the document must be a JSON object, got {type(data).__name__}",
        )
        other = _OTHER_FORMATS.get(str(data.get("format")))
        format_class: Any = import_module(other).Question if other else Question
        try:
            question: Any = format_class.read(data)
        except (
            TypeError,
            KeyError,
            AttributeError,
            IndexError,
            OverflowError,
        ) as error:
            raise ValueError(
                f"the document is not a question of a study: {error!r}"
            ) from error
        require(
            question.to_dict() == data,
            f"the document must be as its own JSON form has it, of {_form(question)}",
        )
        require(
            isinstance(question, cls),
            f"the document must be a {cls.__name__}, got {_form(question)}",
        )
        return question  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a document from its JSON."""
        return cls.from_dict(read_json(text))

    def pay(self, most_epsilon: float, ledger: Ledger | None) -> None:
        """Refuse a document that asks for more ε than the person allows, and charge the person's ledger."""
        most = check_argument("most_epsilon", most_epsilon, of="answer_epsilon")
        price = ledger_price(self.mechanism)
        if price > most:
            asked = f"the document asks for epsilon = {price!r} per person"
            raise ArgumentError(
                "most_epsilon", f"must be at least {price!r}, got {most!r}: {asked}"
            )
        if ledger is not None:
            ledger.spend(price, self.purpose)


def _form(document: Document) -> str:
    head = document.to_dict()
    return f"format {head['format']!r}, version {head['version']}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Question(Document):
    """A question to a cohort of people, each of whom sends one message.

    A subclass is a dataclass whose fields are JSON values; `register_question` makes devices know its kind.

    Attributes:
        kind: the name of the class in documents.
        study: the identifier of the study, 32 hexadecimal digits; a person answers once per study.
        mechanism: the mechanism of the message; a subclass may name its classes.
    """

    kind: ClassVar[str]
    study: str
    mechanism: Mechanism

    def __post_init__(self) -> None:
        check_identifier(self.study)
        asked = get_type_hints(type(self))["mechanism"]
        wanted = " or ".join(kind.__name__ for kind in get_args(asked) or [asked])
        require(
            isinstance(self.mechanism, asked),
            f"mechanism must be {wanted}, got {self.mechanism!r}",
        )
        check_local(self.mechanism)
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise ValueError (see `require`) unless all fields are within their bounds."""

    @abstractmethod
    def held(self, values: Sequence[Any]) -> Any:
        """Return what the mechanism encodes, for one value per person, without drawing anything.

        A value that raises an error, such as an object whose methods do, is answered as None is.
        """

    @np.errstate(all="ignore")  # whatever the application has NumPy raise
    def encode(self, values: Sequence[Any], rng: RngLike = None) -> Messages:
        """Return one private message per value; the number of random words does not depend on the values."""
        try:
            held = self.held(values)
        except Exception:
            held = self._held_by_the_usable(values)
        return encode_or_substitute(self.mechanism, held, rng=rng)

    def _held_by_the_usable(self, values: Sequence[Any]) -> Any:
        usable = [one if self._is_usable(one) else None for one in values]
        try:
            return self.held(usable)
        except Exception:  # of a value that raises now and then
            return self.held([None] * len(usable))

    def _is_usable(self, value: Any) -> bool:
        try:
            self.held([value])
        except Exception:
            return False
        return True

    def encode_file(self, path: Path, column: str | None = None) -> Messages:
        """Return one private message per person in a file; `column` says where the values are, if that is not clear."""
        columns = None if column is None else [column]
        people = self.mechanism.input.open(path, columns=columns, answering=True)
        return Messages.concatenate(
            list(encode_files(self.mechanism, people, answering=True))
        )

    def encode_each(self, values: Sequence[Any], rng: RngLike = None) -> Messages:
        """Return one private message per value."""
        return self.encode(values, rng)

    def to_dict(self) -> JsonObject:
        """Return the document as JSON values."""
        values = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "mechanism"
        }
        head = {"format": FORMAT, "version": VERSION, "kind": self.kind}
        return head | values | {"mechanism": json.loads(self.mechanism.to_json())}

    @classmethod
    def read(cls, data: JsonObject) -> Question:
        """Read a document of any registered kind."""
        form = data.get("format"), data.get("version")
        wanted = f"the document must be of format {FORMAT!r}, version {VERSION}, got {form!r}"
        require(form == (FORMAT, VERSION), wanted)
        kind = _KINDS.find(data.get("kind"))
        values = {
            name: value
            for name, value in data.items()
            if name not in ("format", "version", "kind")
        }
        values["mechanism"] = from_document(values["mechanism"])
        question: Question = kind(**values)
        return question


register_question = _KINDS.add
"""Make devices know a class of questions; use it as a decorator."""


def require(fine: bool, otherwise: str) -> None:
    """Raise ValueError with a sentence unless it is fine."""
    if not fine:
        raise ValueError(otherwise)


def check_identifier(study: Any) -> None:
    """Raise ValueError unless this can be the identifier of a study."""
    identified = isinstance(study, str) and re.fullmatch("[0-9a-f]{32}", study)
    require(bool(identified), f"study must be 32 hexadecimal digits, got {study!r}")


def answer(
    document: str,
    value: Any,
    *,
    most_epsilon: float,
    ledger: Ledger | None = None,
    rng: RngLike = None,
) -> bytes:
    """Answer the published document of a study on a device: one private message, whatever the value is.

    Args:
        document: the JSON of the question.
        value: what the person holds; a value that cannot be used is answered as something harmless.
        most_epsilon: the most ε that the person allows. A document that asks for more is refused, which depends on the
            document alone.
        ledger: the person's ledger. It has one entry per study, so nobody answers two questions of one study.
        rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.

    Returns:
        The bytes of the message.

    Examples:
        >>> from sstq.studies import Words
        >>> document = Words(epsilon=2.0).question(people=1000)
        >>> len(answer(document, "hello", most_epsilon=2.0)), len(answer(document, None, most_epsilon=2.0))
        (4, 4)
    """
    question = Document.from_json(document)
    bit_source(rng)  # raises before anything is paid
    question.pay(most_epsilon, ledger)
    return question.encode_each([value], rng).to_bytes()
