"""What a collector keeps beside a campaign's terms; its document has nothing of this.

`sstq.client.campaigns` checks the terms.
"""

import re
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from sstq.checks import ArgumentError, check_number, check_option
from sstq.client.campaigns import MOST_PEOPLE

RENEWABLE = ("send_token", "read_token")
"""The shared tokens that can be replaced."""

_ORIGIN = r"https?://[a-z0-9.-]+(:[0-9]{1,5})?"


@dataclass(frozen=True)
class OwnTerms:
    """What is stored with a campaign's terms; lists become tuples.

    Attributes:
        origins: the origins of web pages that may send, besides this service's own; "*" for any.
        release_every: readers see a new estimate after this many new messages.
        read_token: the SHA-256 of the token of its readers, in hexadecimal.
        sealing_keys: the public keys that shuffled messages are sealed for, in hexadecimal.
    """

    origins: tuple[str, ...] = ()
    release_every: int = 20
    read_token: str | None = None
    sealing_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_number("release_every", self.release_every, 1, MOST_PEOPLE, integer=True)
        for name in ("origins", "sealing_keys"):
            object.__setattr__(self, name, tuple(_strings(name, getattr(self, name))))
        for origin in self.origins:
            if origin != "*" and not re.fullmatch(_ORIGIN, origin):
                raise ArgumentError("origins", f"must be such as https://poll.example, or *, got {origin!r:.100}")

    @classmethod
    def take(cls, stored: dict[str, Any]) -> Self:
        """Take those of stored terms out of them."""
        return cls(**{field.name: stored.pop(field.name) for field in fields(cls) if field.name in stored})

    def as_json(self) -> dict[str, Any]:
        """Return what `take` takes."""
        return {name: value for name, value in asdict(self).items() if value}


def take_asked(terms: dict[str, Any]) -> dict[str, Any]:
    """Take what an administrator may ask of `OwnTerms` out of the body of a request."""
    return {name: terms.pop(name) for name in ("origins", "release_every") if name in terms}


def take_renewed(terms: dict[str, Any]) -> list[str]:
    """Take the tokens to replace out of the body of a request; ValueError for any others."""
    renewed = _strings("renew", terms.pop("renew", []))
    for which in renewed:
        check_option("renew", which, RENEWABLE)
    return renewed


def take_end(terms: dict[str, Any]) -> bool:
    """Take out of the body of a request whether it closes the campaign; ValueError unless that is true or left out."""
    closed = terms.pop("closed", None)
    if closed not in (None, True):
        raise ArgumentError("closed", f"must be true, got {closed!r:.100}")
    return closed is True


def _strings(name: str, value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
        raise ArgumentError(name, f"must be a list of strings, got {value!r:.100}")
    return list(value)
