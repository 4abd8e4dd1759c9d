"""Campaigns: which messages are collected, from whom, until when, who may read the estimate, and who mixes.

A campaign's document is what a client fetches: canonical JSON (RFC 8785) that the collector signs
(`sstq.client.signing`), and the shuffler too if there is one. The same JSON without the keys is what an administrator
sends to create the campaign, and what the database keeps.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import rfc8785

from sstq.accounting.ledger import check_local
from sstq.checks import (
    ArgumentError,
    check_argument,
    check_number,
    check_option,
    did_you_mean,
)
from sstq.client.sealing import CROWD_BYTES, OVERHEAD
from sstq.files.strict_json import read_json
from sstq.mechanisms import Mechanism, from_json

if TYPE_CHECKING:
    from sstq.studies.questions import Document as StudyDocument

__all__ = ["Campaign", "Document", "Shuffling", "Stage", "read_document"]

# Who may send: everybody, holders of the campaign's shared token, or holders of a single-use token.
Senders = Literal["everybody", "token", "single-use"]
# Who may read the estimate: the administrator only, holders of the campaign's reader token, or everybody.
Readers = Literal["administrator", "token", "public"]
# What happens at the end to a crowd below the threshold: it is dropped, or forwarded at the local ε.
BelowThreshold = Literal["drop", "local"]

LARGEST_UPLOAD = 32 << 20  # bytes
# over all frames and blocks: each row that is sent takes 24 bytes of the state
MOST_ROWS = 1 << 30
# in one frame: folding takes 32 bytes of memory per row, so at most 64 MB
MOST_DENSE_ROWS = 1 << 21
MOST_TOKENS = 100_000  # single-use tokens per request
MOST_PEOPLE = 10**9  # in a crowd
MOST_HOURS = 100_000.0  # of a stage: eleven years

_FORMAT = "sstq-campaign"
_VERSION = 2
NAME_PATTERN = r"[a-z0-9-]{1,64}"
STUDY_PATTERN = r"[a-z0-9-]{1,56}"  # the names of its stages are longer
_MOST_STAGES = 99_999
TIME_PATTERN = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
_DEFAULT_MESSAGES = 10_000
_LONGEST_LABEL = 200
# The fields of a document besides those of the campaign.
_DESCRIBED = (
    "format",
    "version",
    "keys",
    "digest",
    "message_bits",
    "slots",
    "envelope_bytes",
    "sealing_keys",
)


@dataclass(frozen=True)
class Shuffling:
    """The terms of a shuffled campaign, which never change.

    Attributes:
        url: the shuffler's public address. Clients fetch the campaign and send there, and nowhere else.
        key: the shuffler's public signing key (Ed25519) in hexadecimal; it signs the campaign and what it forwards.
        sealing_key: the shuffler's public sealing key (X25519) in hexadecimal, for the cover of envelopes.
        threshold: how many people make a crowd. The shuffler mixes and forwards crowds when the campaign has closed.
        delta: the δ at which the collector reports ε.
        below_threshold: "drop" or "local": what happens then to fewer people.

    Examples:
        >>> Shuffling("https://shuffle.example", "00" * 32, "11" * 32, threshold=1000).below_threshold
        'drop'
    """

    url: str
    key: str
    sealing_key: str
    threshold: int
    delta: float = 1e-6
    below_threshold: BelowThreshold = "drop"

    def __post_init__(self) -> None:
        check_address("url", self.url)
        check_key("key", self.key)
        check_key("sealing_key", self.sealing_key)
        check_number("threshold", self.threshold, 2, MOST_PEOPLE, integer=True)
        object.__setattr__(self, "delta", check_argument("delta", self.delta))
        check_option("below_threshold", self.below_threshold, get_args(BelowThreshold))


@dataclass(frozen=True)
class Stage:
    """A stage of a study: a campaign with the question for one cohort.

    Attributes:
        study: the name of the study, which is that of its link.
        number: the number of the stage, from 1.
        name: what the cohort is called.
        question: the document of the question (`sstq.studies.Question`) without its mechanism, which the campaign has.
        people: the stage closes when it has so many; None for as many as come until its end.
        hours: how long a stage lasts; None without a limit.
    """

    study: str
    number: int
    name: str
    question: Mapping[str, Any] = field(hash=False)
    people: int | None = None
    hours: float | None = None

    def __post_init__(self) -> None:
        allowed = "1 to 56 characters out of a-z, 0-9 and hyphens"
        check_text("study", self.study, STUDY_PATTERN, allowed)
        check_number("number", self.number, 1, _MOST_STAGES, integer=True)
        _check_labels("name", (self.name,), 1)
        is_question = (
            isinstance(self.question, Mapping) and "mechanism" not in self.question
        )
        _require(
            is_question,
            "question",
            "must be a JSON object without a mechanism, which is the campaign's",
        )
        if self.people is not None:
            check_number("people", self.people, 1, MOST_PEOPLE, integer=True)
        if self.hours is not None:
            check_number("hours", self.hours, 0, MOST_HOURS)

    @property
    def campaign(self) -> str:
        """The name of the stage's campaign."""
        return stage_name(self.study, self.number)


def stage_name(study: str, number: int) -> str:
    """Return the name of the campaign of a stage."""
    return f"{study}--{number}"


@dataclass(frozen=True)
class Campaign:
    """The terms of a collection under one name; checked on construction, ValueError if they are not valid.

    Attributes:
        name: 1 to 64 characters out of a–z, 0–9 and hyphens.
        mechanism: the mechanism that clients encode with. It must be locally private.
        labels: a name for each coordinate of a vector, or for each category; empty if they have none.
        group_labels: a name for each private group; empty if they have none.
        image_shape: (height, width) or (height, width, channels) if a vector is an image; empty otherwise.
        opens: when the campaign starts to accept messages; None for at once.
        closes: when the campaign stops accepting messages; None for never.
        most_messages: the maximum per upload; None for one person's messages, or with senders="token" for as many as
            fit, up to 10,000. A sender's token allows that many to campaigns that are open to everybody.
        senders: who may send.
        readers: who may read the estimate.
        shuffling: the shuffler that mixes messages on their way to the collector; None if clients send directly.
        stage: the stage of a study that this is; None for a campaign by itself.

    Examples:
        >>> import sstq
        >>> campaign = Campaign("steps", sstq.FrameUnit(dim=3, epsilon=2.0), labels=("home", "work", "elsewhere"))
        >>> campaign.most_messages, campaign.most_in_batch, campaign.status(datetime.now(UTC))
        (1, 10000, 'open')
    """

    name: str
    mechanism: Mechanism
    labels: tuple[str, ...] = ()
    group_labels: tuple[str, ...] = ()
    image_shape: tuple[int, ...] = ()
    opens: datetime | None = None
    closes: datetime | None = None
    most_messages: int = None  # type: ignore[assignment]  # an integer from construction on
    senders: Senders = "everybody"
    readers: Readers = "administrator"
    shuffling: Shuffling | None = None
    stage: Stage | None = None

    def __post_init__(self) -> None:
        mechanism = self.mechanism
        allowed = "1 to 64 characters out of a-z, 0-9 and hyphens"
        check_text("name", self.name, NAME_PATTERN, allowed)
        check_option("senders", self.senders, get_args(Senders))
        check_option("readers", self.readers, get_args(Readers))
        _check_mechanism(mechanism)
        _check_labels("labels", self.labels, mechanism.coordinates)
        _check_labels("group_labels", self.group_labels, mechanism.groups or 0)
        _check_shape(self.image_shape, mechanism.dim)
        _check_times(self.opens, self.closes)
        if self.shuffling is not None:
            _require(
                self.closes is not None,
                "closes",
                "must be given if messages are shuffled: they are mixed then",
            )
            allowed = "must be 'everybody' or 'single-use' if messages are shuffled"
            why = "the shuffler does not know the collector's tokens"
            _require(
                self.senders != "token", "senders", f"{allowed}, got 'token': {why}"
            )
        object.__setattr__(self, "most_messages", self._checked_most())
        if self.stage is not None:
            self._check_stage(self.stage)

    def _check_stage(self, stage: Stage) -> None:
        _require(
            self.name == stage.campaign,
            "name",
            f"must be that of the stage, {stage.campaign}, got {self.name}",
        )
        _require(
            self.question.study is not None,
            "question",
            "must name its study: a person answers once in all stages",
        )
        ends = self.closes is not None and stage.hours is not None
        _require(
            stage.people is not None or ends,
            "people",
            "must be given for a stage without closes and hours",
        )
        if self.shuffling is not None and stage.people is not None:
            least = self.shuffling.threshold
            _require(
                stage.people >= least,
                "people",
                f"must be a crowd, at least {least}, got {stage.people}",
            )

    @cached_property
    def question(self) -> StudyDocument:
        """The question of a stage; ValueError for a campaign by itself, and for a question that is not sound."""
        from sstq.studies.questions import Document as StudyDocument

        mechanism = read_json(self.mechanism.to_json())
        return StudyDocument.from_dict({**self.staged.question, "mechanism": mechanism})

    @property
    def link_name(self) -> str:
        """The name in its link: that of a stage's study, otherwise its own."""
        return self.name if self.stage is None else self.stage.study

    @property
    def staged(self) -> Stage:
        """The stage; ValueError for a campaign by itself."""
        if self.stage is None:
            raise ValueError(f"{self.name} is no study: send to it with send")
        return self.stage

    def _checked_most(self) -> int:
        single = self.senders == "single-use"
        slots = self.slots
        most = self.most_messages
        smallest = self.upload_bytes(1)
        _require(
            smallest <= LARGEST_UPLOAD,
            "mechanism",
            f"must send at most {LARGEST_UPLOAD} bytes, got {smallest}",
        )
        if single and self.shuffling is None:
            allowed = "must send one message per person with senders='single-use' and no shuffler"
            _require(slots == 1, "mechanism", f"{allowed}, got messages={slots}")
        if single or self.shuffling is not None:
            allowed = "must be 1 with senders='single-use' or a shuffler"
            _require(
                most in (None, 1),
                "most_messages",
                f"{allowed}, got {most!r}: an upload is then of one person",
            )
            return 1
        fitting = 8 * LARGEST_UPLOAD // self.message_bits
        # strangers send for one person at a time; batches need a token
        if most is None:
            return (
                slots
                if self.senders == "everybody"
                else min(_DEFAULT_MESSAGES, fitting)
            )
        return int(check_number("most_messages", most, 1, fitting, integer=True))

    @cached_property
    def most_in_batch(self) -> int:
        """The maximum number of messages in an upload with a sender's token."""
        if self.senders != "everybody" or self.shuffling is not None:
            return self.most_messages
        return max(
            self.most_messages,
            min(_DEFAULT_MESSAGES, 8 * LARGEST_UPLOAD // self.message_bits),
        )

    @cached_property
    def digest(self) -> str:
        """The mechanism's fingerprint, which every upload repeats."""
        return self.mechanism.digest()

    @property
    def slots(self) -> int:
        """How many messages each person sends; a shuffler mixes each of these slots separately."""
        return self.mechanism.messages

    @cached_property
    def message_bits(self) -> int:
        """The size of one message in bits."""
        return self.mechanism.message_bits

    @property
    def envelope_bytes(self) -> int:
        """The size of a sealed message in bytes."""
        return OVERHEAD + -(-self.message_bits // 8)

    def upload_bytes(self, count: int) -> int:
        """The size in bytes of an upload with this many messages, or with one person's envelopes in their cover."""
        if self.shuffling is not None:
            return CROWD_BYTES + OVERHEAD + self.slots * self.envelope_bytes
        return -(-count * self.message_bits // 8)

    def agreed(self) -> bytes:
        """Return what people agree to for good when they send to a shuffled campaign, as canonical JSON."""
        shuffling = None if self.shuffling is None else asdict(self.shuffling)
        return _canonical(
            {
                "name": self.name,
                "digest": self.digest,
                "senders": self.senders,
                "shuffling": shuffling,
            }
        )

    def crowd(self, sealing_key: bytes) -> bytes:
        """Return the name of the crowd of people who agreed to the same and sealed for this key of the collector."""
        return hashlib.sha256(
            b"sstq-crowd-v2\x00" + sealing_key + self.agreed()
        ).digest()

    def status(self, now: datetime) -> Literal["scheduled", "open", "closed"]:
        """Whether the campaign is not open yet, open, or closed at this time."""
        if self.opens is not None and now < self.opens:
            return "scheduled"
        return "closed" if self.closes is not None and now >= self.closes else "open"

    def terms(self) -> dict[str, Any]:
        """Return all fields except name and mechanism as JSON values, without those that are not set."""
        values = {own.name: getattr(self, own.name) for own in fields(self)[2:]}
        return {
            name: _as_json(value)
            for name, value in values.items()
            if value not in (None, ())
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values, without those that are not set."""
        return {
            "name": self.name,
            "mechanism": read_json(self.mechanism.to_json()),
        } | self.terms()

    @classmethod
    def from_dict(cls, data: Any) -> Campaign:
        """Build a campaign from JSON values; ValueError for anything else. The mechanism may be one already."""
        _check_fields("a campaign", data, cls)
        return cls(
            **{
                name: term_from_json(name, value)
                for name, value in data.items()
                if value is not None
            }
        )

    def document(
        self, keys: Iterable[bytes], sealing_keys: Iterable[bytes] = ()
    ) -> bytes:
        """Return the document that the collector signs: the campaign, its message format and the collector's keys.

        Args:
            keys: the collector's signing keys.
            sealing_keys: the keys to seal shuffled messages for, the newest first.
        """
        described: dict[str, Any] = {
            "digest": self.digest,
            "message_bits": self.message_bits,
        }
        if self.shuffling is not None:
            described |= {"slots": self.slots, "envelope_bytes": self.envelope_bytes}
            described["sealing_keys"] = [key.hex() for key in sealing_keys]
        header = {
            "format": _FORMAT,
            "version": _VERSION,
            "keys": [key.hex() for key in keys],
        }
        return _canonical(header | self.to_dict() | described)


class Document(NamedTuple):
    """The content of a campaign's document: the campaign, and the collector's signing and sealing keys."""

    campaign: Campaign
    keys: tuple[bytes, ...]
    sealing_keys: tuple[bytes, ...]


def read_document(raw: bytes) -> Document:
    """Read a campaign's document; ValueError for anything else. `sstq.client.signing` checks the signatures."""
    data = read_json(raw)
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise ValueError("this is not the document of a campaign")
    if type(data.get("version")) is not int or data["version"] != _VERSION:
        raise ValueError(
            f"the document has version {data.get('version')!r:.100}, this library reads {_VERSION}"
        )
    campaign = Campaign.from_dict(
        {name: value for name, value in data.items() if name not in _DESCRIBED}
    )
    keys = _read_keys("keys", data.get("keys", []))
    sealing_keys = _read_keys("sealing_keys", data.get("sealing_keys", []))
    if campaign.shuffling is not None and not sealing_keys:
        raise ValueError(
            "sealing_keys must be one or more keys where messages are shuffled"
        )
    # Each campaign has exactly one document: writing it again must give the same digest, bits and bytes.
    if campaign.document(keys, sealing_keys) != raw:
        raise ValueError(
            "the document is not canonical, or its digest or message_bits is wrong"
        )
    return Document(campaign, keys, sealing_keys)


def check_address(name: str, url: Any) -> None:
    """ValueError unless this is the address of a service: no query, fragment or final slash."""
    form = r"(?i:https?)://(?!/)(?!.*[?#])[!-~]{1,990}(?<!/)"
    allowed = "a URL with http:// or https://, without a query, fragment or final slash"
    check_text(name, url, form, allowed)


def check_key(name: str, key: Any) -> None:
    """ValueError unless this is a public key in hexadecimal."""
    check_text(name, key, "[0-9a-f]{64}", "64 hexadecimal digits (0-9, a-f)")


def check_text(name: str, text: Any, pattern: str, allowed: str) -> None:
    """ValueError unless this is a string of that form."""
    good = isinstance(text, str) and re.fullmatch(pattern, text)
    _require(good, name, f"must be {allowed}, got {text!r:.100}")


def _read_keys(name: str, stated: Any) -> tuple[bytes, ...]:
    _require(
        isinstance(stated, list),
        name,
        f"must be a list of public keys, got {stated!r:.100}",
    )
    for key in stated:
        check_key(name, key)
    return tuple(map(bytes.fromhex, stated))


def _check_fields(what: str, data: Any, cls: Any) -> None:
    """ValueError unless the JSON value is an object with fields of a dataclass and all that have no default."""
    _require(
        isinstance(data, Mapping), what, f"must be a JSON object, got {data!r:.100}"
    )
    needed = {own.name: own.default is MISSING for own in fields(cls)}
    for name in data:
        _require(
            name in needed,
            what,
            f"has no field {name!r:.100}{did_you_mean(name, needed)}",
        )
    for name in needed:
        _require(
            not needed[name] or data.get(name) is not None,
            what,
            f"needs the field {name!r}",
        )


def _require(allowed: object, name: str, problem: str) -> None:
    if not allowed:
        raise ArgumentError(name, problem)


def _check_mechanism(mechanism: Any) -> None:
    _require(
        isinstance(mechanism, Mechanism),
        "mechanism",
        f"must be a mechanism, got {mechanism!r:.100}",
    )
    check_local(mechanism)
    # Without a frame a state has as many rows as different messages were sent, and no more.
    rows = (
        0 if getattr(mechanism, "frame", None) is None else mechanism.estimator.numbers
    )
    if mechanism.estimator.sparse:
        most = MOST_ROWS
        row_bytes = 24
    else:
        most = MOST_DENSE_ROWS
        row_bytes = 32
    _require(
        rows <= most,
        "mechanism",
        f"must have at most {most} rows of all frames, got {rows}: the collector takes {row_bytes} bytes per row, here "
        f"{row_bytes * rows / 1e6:,.0f} MB; choose fewer frames or dimensions",
    )


def _check_labels(name: str, labels: Any, count: int) -> None:
    _require(
        isinstance(labels, tuple),
        name,
        f"must be a tuple of strings, got {labels!r:.100}",
    )
    _require(
        len(labels) in (0, count), name, f"must be {count} names, got {len(labels)}"
    )
    for label in labels:
        good = (
            isinstance(label, str)
            and label.isprintable()
            and 1 <= len(label) <= _LONGEST_LABEL
        )
        _require(
            good,
            name,
            f"must be 1 to {_LONGEST_LABEL} printable characters each, got {label!r:.100}",
        )
    _require(len(set(labels)) == len(labels), name, "must be distinct")


def _check_shape(shape: Any, dim: int) -> None:
    good = isinstance(shape, tuple) and all(
        type(side) is int and side >= 1 for side in shape
    )
    good = good and (
        not shape
        or (
            len(shape) in (2, 3)
            and math.prod(shape) == dim
            and shape[2:] in ((), (1,), (3,))
        )
    )
    sides = "height and width, and perhaps 1 or 3 channels"
    _require(
        good,
        "image_shape",
        f"must be {sides}, with the product dim = {dim}, got {shape!r:.100}",
    )


def _check_times(opens: Any, closes: Any) -> None:
    for name, value in (("opens", opens), ("closes", closes)):
        if value is not None:
            whole = (
                isinstance(value, datetime)
                and value.utcoffset() == UTC.utcoffset(None)
                and not value.microsecond
            )
            _require(
                whole,
                name,
                f"must be a datetime in UTC with whole seconds, got {value!r:.100}",
            )
    if opens is not None and closes is not None:
        _require(
            closes > opens,
            "closes",
            f"must be after opens, {_as_json(opens)}, got {_as_json(closes)}",
        )


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Shuffling | Stage):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value


def term_from_json(name: str, value: Any) -> Any:
    """A field of a campaign from its JSON value; ValueError for anything else."""
    if name == "mechanism" and not isinstance(value, Mechanism):
        _require(
            isinstance(value, dict),
            name,
            "must be the JSON object of a mechanism, not a string",
        )
        return from_json(_canonical(value).decode())
    if name in ("labels", "group_labels", "image_shape"):
        _require(isinstance(value, list), name, f"must be a list, got {value!r:.100}")
        return tuple(value)
    if name in ("opens", "closes"):
        try:
            if re.fullmatch(TIME_PATTERN, value):
                return datetime.fromisoformat(value)
        except (TypeError, ValueError):
            pass
        raise ArgumentError(
            name, f"must be a time such as 2027-01-31T18:00:00Z, got {value!r:.100}"
        )
    if name in _PARTS:
        _check_fields(name, value, _PARTS[name])
        return _PARTS[name](**value)
    return value


_PARTS: dict[str, type[Shuffling | Stage]] = {"shuffling": Shuffling, "stage": Stage}


def _canonical(value: Mapping[str, Any]) -> bytes:
    try:
        return rfc8785.dumps(dict(value))
    except (rfc8785.CanonicalizationError, UnicodeError, RecursionError) as error:
        raise ValueError(f"the JSON has no canonical form: {error}") from error
