"""What a collector keeps beside a campaign's terms; its document has nothing of this.

`sstq.client.campaigns` checks the terms.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple, Self, get_args

from sstq.checks import ArgumentError, check_number, check_option
from sstq.client.campaigns import MOST_HOURS, MOST_PEOPLE

Renewable = Literal["send_token", "read_token"]
"""The shared tokens that can be replaced."""

TooFew = Literal["wait", "end"]
"""What happens to a stage whose time is over and to which too few people came: it waits, or the study ends."""

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
                raise ArgumentError(
                    "origins",
                    f"must be such as https://poll.example, or *, got {origin!r:.100}",
                )

    @classmethod
    def take(cls, stored: dict[str, Any]) -> Self:
        """Take those of stored terms out of them."""
        return cls(**taken(stored, [field.name for field in fields(cls)]))

    def as_json(self) -> dict[str, Any]:
        """Return what `take` takes."""
        return {name: value for name, value in asdict(self).items() if value}


class StageRecord(NamedTuple):
    """A stage of a study: the cohort's name, how many people it is for, and how many were learned from, once it was."""

    name: str
    people: int
    learned: int | None = None


@dataclass(frozen=True)
class StudyTerms:
    """The terms of a study, which never change, and how far it is.

    Attributes:
        kind, identifier, epsilon: the study's own.
        delta: of a study that trusts a shuffler, otherwise None.
        people: how many people there are for all stages.
        hours: how long a stage lasts; None for as long as it takes.
        least: the share of a stage's people without whom it is not learned from.
        too_few: what happens when a stage's time is over and fewer came.
        stages: the stages so far.
        note: why the study ended early, if it did.
        failed: whether that is because a stage could not be learned from.
    """

    kind: str
    identifier: str
    epsilon: float
    delta: float | None
    people: int
    hours: float | None = None
    least: float = 0.5
    too_few: TooFew = "wait"
    stages: tuple[StageRecord, ...] = ()
    note: str = ""
    failed: bool = False

    def __post_init__(self) -> None:
        check_number("people", self.people, 1, MOST_PEOPLE, integer=True)
        check_number("least", self.least, 0.01, 1)
        check_option("too_few", self.too_few, get_args(TooFew))
        if self.hours is not None:
            check_number("hours", self.hours, 1e-4, MOST_HOURS)
        object.__setattr__(
            self, "stages", tuple(StageRecord(*stage) for stage in self.stages)
        )

    @property
    def people_left(self) -> int:
        """How many people no stage has been for yet."""
        return max(1, self.people - sum(stage.people for stage in self.stages))

    @property
    def learned(self) -> int:
        """How many people were learned from."""
        return sum(stage.learned or 0 for stage in self.stages)

    def enough(self, people: int) -> int:
        """How many people a stage for so many needs at least."""
        return math.ceil(self.least * people)


OWN_ASKED = ("origins", "release_every")
"""What an administrator asks of `OwnTerms`."""

STUDY_ASKED = ("people", "hours", "least", "too_few")
"""What an administrator asks of `StudyTerms`."""


def taken(terms: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Take terms with these names, where there are some, out of others."""
    return {name: terms.pop(name) for name in names if name in terms}


def take_renewed(terms: dict[str, Any]) -> list[str]:
    """Take the tokens to replace out of the body of a request; ValueError for any others."""
    renewed = _strings("renew", terms.pop("renew", []))
    for which in renewed:
        check_option("renew", which, get_args(Renewable))
    return renewed


def take_end(terms: dict[str, Any]) -> bool:
    """Take out of the body of a request whether it closes the campaign; ValueError unless that is true or left out."""
    closed = terms.pop("closed", None)
    if closed not in (None, True):
        raise ArgumentError("closed", f"must be true, got {closed!r:.100}")
    return closed is True


def _strings(name: str, value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(part, str) for part in value
    ):
        raise ArgumentError(name, f"must be a list of strings, got {value!r:.100}")
    return list(value)
