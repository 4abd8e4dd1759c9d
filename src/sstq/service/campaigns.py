"""A campaign: which messages are collected, from whom, until when, and who may read the estimate.

Its document is what a client fetches: canonical JSON (RFC 8785) that the collector signs (`sstq.service.signing`). The
same JSON without the keys is what an administrator sends to create the campaign, and what the database keeps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, get_args

import rfc8785

from sstq.aggregation import FamilyAggregator
from sstq.checks import check_number, check_option
from sstq.files.strict_json import read_json
from sstq.mechanisms import Mechanism, from_json
from sstq.service.sealing import KEY_ID_BYTES, OVERHEAD, key_id
from sstq.service.shuffling import Shuffling, check_fields

__all__ = [
    "LARGEST_UPLOAD",
    "MOST_DENSE_ROWS",
    "MOST_ROWS",
    "MOST_TOKENS",
    "Campaign",
    "Readers",
    "Senders",
    "read_document",
    "sealing_keys_of",
]

Senders = Literal["everybody", "token", "single-use"]
"""Who may send: everybody, who holds the shared token of the campaign, or who holds a token that works once."""

Readers = Literal["administrator", "token", "public"]
"""Who may read the estimate: the administrator, who holds the campaign's token for readers, or everybody."""

LARGEST_UPLOAD = 32 << 20
"""The most bytes of one upload."""

MOST_ROWS = 1 << 30
"""The most rows of all frames and blocks of a campaign: a row that was sent takes 24 bytes of the state."""

MOST_DENSE_ROWS = 1 << 21
"""The most rows of a single frame: folding uploads takes 32 bytes per row of memory, at most 64 MB."""

MOST_TOKENS = 100_000
"""How many single-use tokens one request makes."""

_FORMAT, _VERSION = "sstq-campaign", 1
NAME_PATTERN = r"[a-z0-9-]{1,64}"
TIME_PATTERN = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
_DEFAULT_MESSAGES, _LONGEST_LABEL = 10_000, 200
_KEY_BYTES = 32
# What a document has beside the campaign's own fields.
_DESCRIBED = ("format", "version", "keys", "digest", "message_bits", "slots", "envelope_bytes", "sealing_keys")


@dataclass(frozen=True)
class Campaign:
    """What is collected under a name; checked on construction, ValueError for what cannot be collected.

    Attributes:
        name: 1 to 64 of a–z, 0–9 and hyphens.
        mechanism: by which clients encode. It must be locally private with a private coin.
        labels: a name for each coordinate of a vector; empty if they have none.
        group_labels: a name for each private group; empty if they have none.
        image_shape: (height, width) or (height, width, channels) if a vector is an image; empty otherwise.
        opens: when the first message is taken; None for at once.
        closes: when no message is taken any more; None for never.
        most_messages: of one upload; None for as many as fit, up to 10,000, or 1 where tokens work once.
        senders: who may send.
        readers: who may read the estimate.
        shuffling: by whom messages are mixed before they reach the collector; None if they come directly.

    Examples:
        >>> import sstq
        >>> campaign = Campaign("steps", sstq.FrameUnit(dim=3, epsilon=2.0), labels=("home", "work", "elsewhere"))
        >>> campaign.most_messages, campaign.status(datetime.now(UTC))
        (10000, 'open')
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

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(NAME_PATTERN, self.name):
            raise ValueError(f"name must be 1 to 64 of a-z, 0-9 and hyphens, got {_short(self.name)}")
        check_option("senders", self.senders, get_args(Senders))
        check_option("readers", self.readers, get_args(Readers))
        _check_mechanism(self.mechanism)
        _check_labels("labels", self.labels, self.mechanism.dim)
        _check_labels("group_labels", self.group_labels, self.mechanism.groups or 0)
        _check_shape(self.image_shape, self.mechanism.dim)
        _check_times(self.opens, self.closes)
        self._check_shuffling()
        object.__setattr__(self, "most_messages", self._checked_most())

    def _check_shuffling(self) -> None:
        if self.shuffling is None:
            return
        if not isinstance(self.shuffling, Shuffling):
            raise ValueError(f"shuffling must be a Shuffling or None, got {_short(self.shuffling)}")
        if self.closes is None:
            raise ValueError("closes must be a time where messages are shuffled: the shuffler must know when to end")
        if self.senders == "token":
            raise ValueError(
                "senders must be 'everybody' or 'single-use' where messages are shuffled, got 'token': the shuffler, "
                "which envelopes are sent to, does not know the collector's tokens"
            )

    def _checked_most(self) -> int:
        bits = self.mechanism.message_bits if self.shuffling is None else 8 * self.envelope_bytes * self.slots
        fitting = 8 * LARGEST_UPLOAD // bits
        if not fitting:
            raise ValueError(f"mechanism must send at most {LARGEST_UPLOAD} bytes per message, got {-(-bits // 8)}")
        once = self.senders == "single-use"
        if once and self.slots > 1 and self.shuffling is None:
            raise ValueError(
                f"mechanism must send one message per person with senders='single-use', got messages={self.slots}: a "
                "token pays for one upload, and only a shuffler takes several messages of a person"
            )
        if self.most_messages is None:
            return 1 if once else min(_DEFAULT_MESSAGES, fitting)
        if once and self.most_messages != 1:
            raise ValueError(
                f"most_messages must be 1 with senders='single-use', got {self.most_messages!r}: a token stands for "
                "one person, who counts once"
            )
        return int(check_number("most_messages", self.most_messages, 1, fitting, integer=True))

    @cached_property
    def digest(self) -> str:
        """The fingerprint of the mechanism, which an upload repeats."""
        return self.mechanism.digest()

    @property
    def slots(self) -> int:
        """How many messages a person sends; a shuffler mixes each of these slots apart."""
        return self.mechanism.messages

    @property
    def envelope_bytes(self) -> int:
        """The bytes of a sealed message."""
        return OVERHEAD + -(-self.mechanism.message_bits // 8)

    @cached_property
    def message_bits(self) -> int:
        """The bits of one message."""
        return self.mechanism.message_bits

    @cached_property
    def largest_upload(self) -> int:
        """The most bytes that an upload to this campaign has."""
        return self.upload_bytes(self.most_messages)

    def upload_bytes(self, count: int) -> int:
        """The bytes of an upload of so many messages, or of all envelopes of so many people with the key's name."""
        if self.shuffling is not None:
            return KEY_ID_BYTES + count * self.slots * self.envelope_bytes
        return -(-count * self.message_bits // 8)

    def status(self, now: datetime) -> Literal["scheduled", "open", "closed"]:
        """What the times say: not open yet, open, or closed."""
        if self.opens is not None and now < self.opens:
            return "scheduled"
        return "closed" if self.closes is not None and now >= self.closes else "open"

    def terms(self) -> dict[str, Any]:
        """All fields but the name and the mechanism as JSON values, those that have no value left out."""
        values = {own.name: getattr(self, own.name) for own in fields(self) if own.name not in ("name", "mechanism")}
        for name in ("opens", "closes"):
            values[name] = values[name] and _written(values[name])
        for name in ("labels", "group_labels", "image_shape"):
            values[name] = list(values[name])
        values["shuffling"] = values["shuffling"] and values["shuffling"].to_dict()
        return {name: value for name, value in values.items() if value not in (None, [])}

    @classmethod
    def from_terms(cls, name: Any, mechanism: Mechanism, terms: Mapping[str, Any]) -> Campaign:
        """The campaign of a name, a mechanism and what `terms` returns; ValueError for anything else."""
        values = dict(terms)
        for field in ("labels", "group_labels", "image_shape"):
            values[field] = _read_list(field, values.get(field))
        for field in ("opens", "closes"):
            values[field] = _read_time(field, values.get(field))
        if values.get("shuffling") is not None:
            values["shuffling"] = Shuffling.from_dict(values["shuffling"])
        return cls(name, mechanism, **values)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values, those that have no value left out."""
        return {"name": self.name, "mechanism": read_json(self.mechanism.to_json())} | self.terms()

    @classmethod
    def from_dict(cls, data: Any) -> Campaign:
        """The campaign of JSON values, `name` and `mechanism` at least; ValueError for anything else."""
        check_fields("a campaign", data, cls, ("name", "mechanism"))
        terms = dict(data)
        name, mechanism = terms.pop("name"), terms.pop("mechanism")
        if not isinstance(mechanism, dict):
            raise ValueError("mechanism must be the object that `sstq spec` writes, not a text or a name")
        return cls.from_terms(name, from_json(_canonical(mechanism).decode()), terms)

    def to_json(self) -> str:
        """What `from_json` reads, in canonical form."""
        return _canonical(self.to_dict()).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Campaign:
        """The campaign of a JSON text; ValueError for anything else."""
        return cls.from_dict(read_json(text))

    def document(self, keys: Iterable[bytes], sealing_keys: Iterable[bytes] = ()) -> bytes:
        """What the collector signs: the campaign, what its messages look like, and the public keys of the collector.

        Args:
            keys: with which it signs.
            sealing_keys: for which messages are sealed where they are shuffled; the first for those sent from now on.
        """
        described: dict[str, Any] = {"digest": self.digest, "message_bits": self.message_bits}
        if self.shuffling is not None:
            described |= {"slots": self.slots, "envelope_bytes": self.envelope_bytes}
            described["sealing_keys"] = [{"id": key_id(key), "key": key.hex()} for key in sealing_keys]
        header = {"format": _FORMAT, "version": _VERSION, "keys": [key.hex() for key in keys]}
        return _canonical(header | self.to_dict() | described)


def read_document(raw: bytes) -> tuple[Campaign, tuple[bytes, ...]]:
    """The campaign of a document and the public keys that it names; ValueError unless it is such a document.

    The signature is another matter: see `sstq.service.signing.verify`.
    """
    data = read_json(raw)
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise ValueError("this is not the document of a campaign")
    if type(data.get("version")) is not int or data["version"] != _VERSION:
        raise ValueError(f"the document has version {_short(data.get('version'))}, this library reads {_VERSION}")
    campaign = Campaign.from_dict({name: value for name, value in data.items() if name not in _DESCRIBED})
    try:
        keys = tuple(bytes.fromhex(key) for key in data["keys"])
        sealing = [bytes.fromhex(entry["key"]) for entry in data.get("sealing_keys", ())]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("keys must be a list of public keys in hexadecimal, and so must sealing_keys") from error
    if campaign.shuffling is not None and (not sealing or any(len(key) != _KEY_BYTES for key in sealing)):
        raise ValueError(f"sealing_keys must be one or more keys of {_KEY_BYTES} bytes where messages are shuffled")
    # One text per campaign: the digest, the bits and the canonical form are right only if all of it is the same again.
    if campaign.document(keys, sealing) != raw:
        raise ValueError("the document is not in the canonical form of its campaign, or its digest or bits are wrong")
    return campaign, keys


def sealing_keys_of(document: bytes) -> dict[str, bytes]:
    """The keys for which messages of a shuffled campaign are sealed, by their names; the first is the newest.

    The document is one that `read_document` has read.
    """
    return {entry["id"]: bytes.fromhex(entry["key"]) for entry in read_json(document)["sealing_keys"]}


def _check_mechanism(mechanism: Any) -> None:
    if not isinstance(mechanism, Mechanism):
        raise ValueError(f"mechanism must be a mechanism, got {_short(mechanism)}")
    if mechanism.trust != "local":
        raise ValueError(
            f"mechanism must be locally private, got {mechanism.name}, whose messages are not private by themselves; "
            "make one with `sstq spec --name frameunit`"
        )
    if mechanism.coin == "public":
        raise ValueError(
            "mechanism must have a private coin, got coin='public', for which the collector would have to know who "
            "sent each message; make one with `sstq spec --name frameunit`"
        )
    frame = getattr(mechanism, "frame", None)
    frames, blocks = (int(getattr(mechanism, name, 1)) for name in ("frames", "blocks"))
    size = mechanism.dim if frame is None else int(frame.size)
    rows, parts = frames * size * blocks, f"{frames} frames × {size} rows" + f" × {blocks} blocks" * (blocks > 1)
    if rows > MOST_ROWS:
        raise ValueError(
            f"mechanism must have at most 2^30 rows in all of its frames, got {parts}: the state grows to 24 bytes for "
            f"each row that is sent, here to {24 * rows / 1e9:,.0f} GB; choose fewer frames or fewer dimensions"
        )
    if rows > MOST_DENSE_ROWS and not isinstance(mechanism.aggregator(), FamilyAggregator):
        raise ValueError(
            f"mechanism must have at most 2^21 rows in a single frame, got {size}: to fold uploads takes "
            f"32 bytes per row of memory, here {32 * rows / 1e6:,.0f} MB instead of 64 MB; choose fewer dimensions"
        )


def _check_labels(name: str, labels: Any, count: int) -> None:
    if not isinstance(labels, tuple) or not all(isinstance(label, str) for label in labels):
        raise ValueError(f"{name} must be a tuple of strings, got {_short(labels)}")
    if labels and len(labels) != count:
        raise ValueError(f"{name} must be {count} names, got {len(labels)}")
    for label in labels:
        if not label.isprintable() or not 1 <= len(label) <= _LONGEST_LABEL:
            raise ValueError(f"{name} must be 1 to {_LONGEST_LABEL} printable characters each, got {_short(label)}")
    if len(set(labels)) < len(labels):
        raise ValueError(f"{name} must differ from each other")


def _check_shape(shape: Any, dim: int) -> None:
    integers = isinstance(shape, tuple) and all(type(side) is int and side >= 1 for side in shape)
    if not integers or (shape and (len(shape) not in (2, 3) or math.prod(shape) != dim)):
        raise ValueError(f"image_shape must be 2 or 3 integers whose product is dim = {dim}, got {_short(shape)}")
    if len(shape) == 3 and shape[2] not in (1, 3):
        raise ValueError(f"image_shape must have 1 or 3 channels, got {shape[2]}")


def _check_times(opens: Any, closes: Any) -> None:
    for name, value in (("opens", opens), ("closes", closes)):
        if value is not None and (
            not isinstance(value, datetime) or value.utcoffset() != UTC.utcoffset(None) or value.microsecond
        ):
            raise ValueError(f"{name} must be a datetime in UTC with whole seconds, got {_short(value)}")
    if opens is not None and closes is not None and closes <= opens:
        raise ValueError(f"closes must be after opens, {_written(opens)}, got {_written(closes)}")


def _written(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def _read_time(name: str, value: Any) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch(TIME_PATTERN, value):
        raise ValueError(f"{name} must be a time such as 2027-01-31T18:00:00Z, got {_short(value)}")
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError(f"{name} must be a time such as 2027-01-31T18:00:00Z, got {_short(value)}") from error


def _read_list(name: str, value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list, got {_short(value)}")
    return tuple(value)


def _canonical(value: Mapping[str, Any]) -> bytes:
    try:
        return rfc8785.dumps(dict(value))
    except (rfc8785.CanonicalizationError, UnicodeError, RecursionError) as error:
        raise ValueError(f"the JSON has no canonical form: {error}") from error


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
