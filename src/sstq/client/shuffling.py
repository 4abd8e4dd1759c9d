"""The terms of a shuffled campaign: which shuffler mixes, how many people make a crowd, and at which δ."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from sstq.checks import check_argument, check_number, check_option, did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["BelowThreshold", "Shuffling", "check_fields"]

BelowThreshold = Literal["drop", "local"]
"""What happens to envelopes below the threshold when the campaign closes: they are dropped, or they are
forwarded, and the collector reports the local ε."""

MOST_PEOPLE = 10**9


@dataclass(frozen=True)
class Shuffling:
    """The terms of a shuffled campaign.

    Attributes:
        url: the shuffler's address, to which clients send.
        key: the shuffler's public key (Ed25519) in hexadecimal; it signs what it forwards.
        threshold: how many people's envelopes the shuffler waits for before it mixes and forwards them.
        delta: the δ at which the collector reports ε.
        below_threshold: "drop" or "local": what happens to fewer envelopes when the campaign closes.

    Examples:
        >>> Shuffling("https://shuffle.example", "00" * 32, threshold=1000).to_dict()["below_threshold"]
        'drop'
    """

    url: str
    key: str
    threshold: int
    delta: float = 1e-6
    below_threshold: BelowThreshold = "drop"

    def __post_init__(self) -> None:
        parts = urlsplit(self.url) if isinstance(self.url, str) else None
        plain = parts is not None and self.url.isascii() and self.url.isprintable() and len(self.url) <= 1000
        if parts is None or not plain or parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"url must be the shuffler's URL with http:// or https://, got {self.url!r:.100}")
        if parts.query or parts.fragment or self.url.endswith("/"):
            raise ValueError(f"url must have no query, fragment or final slash, got {self.url!r:.100}")
        if not isinstance(self.key, str) or not re.fullmatch("[0-9a-f]{64}", self.key):
            raise ValueError(
                f"key must be 64 hexadecimal digits, as `sstq shuffler` prints them, got {self.key!r:.100}"
            )
        check_number("threshold", self.threshold, 2, MOST_PEOPLE, integer=True)
        object.__setattr__(self, "delta", check_argument("delta", self.delta))
        check_option("below_threshold", self.below_threshold, get_args(BelowThreshold))

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Shuffling:
        """Build the terms from JSON values; ValueError for anything else."""
        check_fields("shuffling", data, cls, ("url", "key", "threshold"))
        return cls(**data)


def check_fields(what: str, data: Any, cls: type[DataclassInstance], needed: Iterable[str]) -> None:
    """ValueError unless the JSON value is an object with fields of a dataclass and all that are needed."""
    if not isinstance(data, dict):
        raise ValueError(f"{what} must be a JSON object, got {data!r:.100}")
    known = [own.name for own in fields(cls)]
    for name in data:
        if name not in known:
            raise ValueError(f"{what} has no field {name!r:.100}{did_you_mean(name, known)}")
    for name in needed:
        if name not in data:
            raise ValueError(f"{what} needs the field {name!r}")
