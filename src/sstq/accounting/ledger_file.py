"""The file of a ledger: lines of JSON that a person can read, and a checksum at the end.

The first line holds the terms, then comes one line for every round, and the last one counts them and holds the SHA-256
of all bytes above it. The file is always written as a whole, so every other shape is damage.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from sstq.accounting.filters import COMPOSITIONS
from sstq.accounting.limits import check_delta, check_round_epsilon, check_total_epsilon
from sstq.checks import check_number, check_option
from sstq.files.strict_json import read_json

__all__ = [
    "BudgetExhausted",
    "Entry",
    "LedgerDamaged",
    "LedgerError",
    "RoundAlreadySpent",
    "RoundCapExceeded",
    "Terms",
    "check_round_id",
    "read_ledger",
    "serialize",
]

FORMAT, VERSION = "sstq-ledger", 1
_ID_LENGTH_MAX = 256


class LedgerError(ValueError):
    """A ledger refuses; nothing was spent."""


class BudgetExhausted(LedgerError):  # noqa: N818
    """The round would cost more than is left of the total."""


class RoundCapExceeded(LedgerError):  # noqa: N818
    """The round would cost more than this client allows for one round."""


class RoundAlreadySpent(LedgerError):  # noqa: N818
    """The ledger already has this round; a second message in it would be a second expense."""


class LedgerDamaged(LedgerError):  # noqa: N818
    """The file is damaged, cut off, missing or not a ledger. It is never replaced by a fresh budget."""


@dataclass(frozen=True)
class Terms:
    """What a ledger allows, fixed when it is created.

    Attributes:
        epsilon: the total.
        delta: of the total.
        round_cap: the greatest ε of one round, or None.
        composition: how rounds add up: "basic", "adaptive" or "optimal".
        order: the Rényi order of the adaptive composition, otherwise None.
    """

    epsilon: float
    delta: float
    round_cap: float | None
    composition: str
    order: float | None

    def __post_init__(self) -> None:
        check_total_epsilon(self.epsilon, "epsilon")
        check_delta(self.delta)
        check_option("composition", self.composition, COMPOSITIONS)
        if self.round_cap is not None:
            check_round_epsilon(self.round_cap, "round_cap")
        if (self.composition == "basic") != (self.delta == 0):
            raise ValueError(f"composition {self.composition!r} does not go with delta = {self.delta!r}")
        if self.composition == "optimal" and self.round_cap is None:
            raise ValueError("composition 'optimal' needs a round_cap, which it charges for every round")
        if (self.order is not None) != (self.composition == "adaptive"):
            raise ValueError(f"order = {self.order!r} does not go with composition {self.composition!r}")
        if self.order is not None and check_number("order", self.order, 1, 1e6) == 1:
            raise ValueError("order must be greater than 1")


@dataclass(frozen=True)
class Entry:
    """A round that was paid for.

    Attributes:
        round_id: what the round is called.
        epsilon: what it cost.
        time: when, in UTC.
    """

    round_id: str
    epsilon: float
    time: str


def check_round_id(round_id: str | int) -> str:
    """Return the name of a round as a string, or say why it cannot be one.

    Examples:
        >>> check_round_id(7)
        '7'
        >>> check_round_id("")
        Traceback (most recent call last):
        ...
        ValueError: round_id must be an integer or 1 to 256 characters, got ''
    """
    if (
        isinstance(round_id, bool)
        or not isinstance(round_id, str | int)
        or not 1 <= len(str(round_id)) <= _ID_LENGTH_MAX
    ):
        raise ValueError(f"round_id must be an integer or 1 to {_ID_LENGTH_MAX} characters, got {round_id!r}")
    return str(round_id)


def serialize(terms: Terms, entries: tuple[Entry, ...]) -> bytes:
    """Return the bytes of a ledger's file. Numbers are written with as many digits as give the same double back."""
    lines: list[dict[str, Any]] = [{"format": FORMAT, "version": VERSION, **vars(terms)}, *map(vars, entries)]
    body = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()
    last = {"entries": len(entries), "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(last).encode() + b"\n"


def read_ledger(path: str | os.PathLike[str]) -> tuple[Terms, tuple[Entry, ...]]:
    """Return the terms and entries of a ledger's file; LedgerDamaged unless every byte is as it was written."""
    data = Path(path).read_bytes()

    def damaged(reason: str) -> NoReturn:
        raise LedgerDamaged(f"{path}: {reason}")

    if not data.startswith(b'{"format": "%b"' % FORMAT.encode()):
        damaged("this is not a ledger" if data else "the ledger is empty")
    if not data.endswith(b"\n"):
        damaged("the ledger is cut off")
    lines = data[:-1].split(b"\n")
    body = data[: len(data) - len(lines[-1]) - 1]
    try:
        header, *rounds, last = [read_json(line) for line in lines]
        if header.get("version") != VERSION:
            damaged(f"version {header.get('version')!r} of the format is not known; {VERSION} is")
        if last != {"entries": len(rounds), "sha256": hashlib.sha256(body).hexdigest()}:
            damaged("the ledger is cut off or was changed: its last line does not match the others")
        terms = Terms(**{name: value for name, value in header.items() if name not in ("format", "version")})
        entries = tuple(
            Entry(check_round_id(r.pop("round_id")), check_round_epsilon(r.pop("epsilon")), **r) for r in rounds
        )
    except LedgerDamaged:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LedgerDamaged(f"{path}: the ledger is damaged: {error}") from error
    if len({entry.round_id for entry in entries}) < len(entries):
        damaged("the ledger is damaged: it has a round twice")
    return terms, entries
