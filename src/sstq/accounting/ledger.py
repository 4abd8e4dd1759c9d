"""The ledger: a client's own record on disk of the privacy it has spent, and what a message costs.

The file has readable lines of JSON: the terms, then one line per round, and last their number and the SHA-256 of all
bytes above. It is always written as a whole, so anything else is damage.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.accounting.bounds import round_down
from sstq.accounting.composition import ROUNDS_MAX
from sstq.checks import check_argument
from sstq.exactness import round_up
from sstq.files.atomic import atomic_file, locked_file
from sstq.files.strict_json import read_json

if TYPE_CHECKING:
    from sstq.mechanisms import Mechanism

_FORMAT = "sstq-ledger"
_VERSION = 4
_ID_LENGTH_MAX = 256


class LedgerError(ValueError):
    """A ledger refused the expense; nothing was spent."""


class BudgetExhausted(LedgerError):  # noqa: N818
    """The round would cost more than is left of the total, or more than this client allows for one round."""


class RoundAlreadySpent(LedgerError):  # noqa: N818
    """The ledger already has this round; a second message would be a second expense."""


class LedgerDamaged(LedgerError):  # noqa: N818
    """The file is damaged, cut off, missing or not a ledger. It is never replaced by a fresh budget."""


@dataclass(frozen=True)
class Entry:
    """A round that was paid for: its name, its ε, and when it was paid, in UTC."""

    round_id: str
    epsilon: float
    time: str


class Ledger:
    """A budget on disk that refuses to be overspent.

    Call `spend` before a message leaves. When it returns, the expense is on the disk: file and folder are synced, so it
    survives `kill -9` and a power failure. A client that crashes between spending and sending has spent. Several
    threads and processes may share a ledger. The file is read again each time; nothing is kept in memory.

    Each round can be spent only once: a second message would be a second expense. Sending the *same* bytes again costs
    nothing, so a client that may have to retry keeps its encoded message.

    The sum of all ε stays within the total, whatever a server asks for and in whatever order: the likelihood ratio of a
    whole history is at most e^Σε, history by history.

    The terms are fixed when the file is created; opening it with others is an error. A damaged, cut-off or foreign file
    is an error, and so is a missing one while its lock file ``<path>.lock`` says that there was one. Nothing is spent
    while the file has a second name (a hard link), which would be a second budget. The owner can delete file and lock
    or put back an older copy: the ledger guards against mistakes and greedy servers, not against its owner.

    Args:
        path: the file; created, readable by its owner only, if it does not exist. Its folder must.
        epsilon: the total; leave it out to open an existing ledger with its own terms.
        round_cap: the maximum ε that this client allows for one round, all its messages together.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = Ledger(f"{folder.name}/client.ledger", epsilon=2.0, round_cap=1.0)
        >>> ledger.rounds_left(0.75)
        2
        >>> ledger.spend(0.75, "round 1").epsilon
        0.75
        >>> ledger.spent, ledger.remaining
        (0.75, 1.25)
        >>> ledger.spend(0.75, "round 1")
        Traceback (most recent call last):
        ...
        sstq.accounting.ledger.RoundAlreadySpent: round 'round 1' was already spent at ...
        >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        epsilon: float | None = None,
        round_cap: float | None = None,
    ) -> None:
        # Two names of one file must not have two locks.
        self.path = Path(path).resolve()
        if epsilon is None:
            if round_cap is not None:
                raise ValueError("epsilon must be given with round_cap, got None")
            self.epsilon, self.round_cap, _ = _read(self.path)
            return
        self.epsilon, self.round_cap = _checked_terms(epsilon, round_cap)
        with self._locked() as created:
            if self.path.exists():
                _ = self.entries
            elif created:
                raise LedgerDamaged(
                    f"{self.path}: the ledger is missing, although {self.path.name}.lock exists"
                )
            else:
                self._write(())

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All rounds paid for, in order."""
        try:
            epsilon, round_cap, entries = _read(self.path)
        except FileNotFoundError as error:
            raise LedgerDamaged(f"{self.path}: the ledger is missing") from error
        if (epsilon, round_cap) != (self.epsilon, self.round_cap):
            terms = f"epsilon = {epsilon} and round_cap = {round_cap}, not {self.epsilon} and {self.round_cap}"
            raise LedgerError(f"{self.path}: the ledger has other terms: {terms}")
        return entries

    @property
    def spent(self) -> float:
        """The sum of all entries, rounded up."""
        return round_up(_sum(self.entries))

    @property
    def remaining(self) -> float:
        """The part of the total ε that is left, rounded down."""
        return round_down(Fraction(self.epsilon) - _sum(self.entries))

    def rounds_left(self, epsilon: float) -> int:
        """Return how many more rounds of ε can be spent; at most 10⁹."""
        epsilon = check_argument("epsilon", epsilon, of="answer_epsilon")
        left = Fraction(self.epsilon) - _sum(self.entries)
        return (
            0
            if epsilon > (self.round_cap or epsilon)
            else min(ROUNDS_MAX, left // Fraction(epsilon))
        )

    def spend(self, epsilon: float, round_id: str | int) -> Entry:
        """Pay for one round of ε; when this returns, and not before, its messages may leave.

        All of a client's messages in a round cost their sum: `price(mechanism)`, up to 81,920. A ledger does not count
        on a shuffler.

        Each `round_id`, a string or an integer, can be spent once. A `LedgerError` (a ValueError: `BudgetExhausted`,
        `RoundAlreadySpent` or `LedgerDamaged`) means that nothing was spent.
        """
        epsilon = check_argument("epsilon", epsilon, of="answer_epsilon")
        name = check_round_id(round_id)
        if epsilon > (self.round_cap or epsilon):
            raise BudgetExhausted(
                f"epsilon must be at most round_cap = {self.round_cap!r}, got {epsilon!r}; the cap is fixed when a "
                f"ledger is made, and a new one may have round_cap={epsilon!r}"
            )
        with self._locked():
            entries = self.entries
            if self.path.stat().st_nlink > 1:
                raise LedgerDamaged(
                    f"{self.path}: the ledger has another name, a hard link, which would keep the budget of before; "
                    "delete that"
                )
            for paid in entries:
                if paid.round_id == name:
                    raise RoundAlreadySpent(
                        f"round {name!r} was already spent at {paid.time}"
                    )
            spent = _sum(entries)
            total = Fraction(self.epsilon)
            if spent + Fraction(epsilon) > total:
                left = f"{round_down(total - spent)!r} of {self.epsilon!r} ({round_up(spent)!r} is spent)"
                raise BudgetExhausted(
                    f"epsilon = {epsilon!r} is more than is left: {left}"
                )
            entry = Entry(
                name, epsilon, datetime.now(UTC).isoformat(timespec="seconds")
            )
            self._write((*entries, entry))
        return entry

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Hold the lock, whose file is empty until there is a ledger: from then on a missing one is an error."""
        with locked_file(self.path.with_name(f"{self.path.name}.lock")) as lock:
            created = os.fstat(lock).st_size > 0
            yield created
            if not created:
                os.pwrite(lock, b"+", 0)
                os.fsync(lock)

    def _write(self, entries: tuple[Entry, ...]) -> None:
        """Write the file, while the lock is held. Numbers have enough digits to give the same double back."""
        head = {
            "format": _FORMAT,
            "version": _VERSION,
            "epsilon": self.epsilon,
            "round_cap": self.round_cap,
        }
        body = "".join(
            json.dumps(line, allow_nan=False) + "\n"
            for line in (head, *map(vars, entries))
        ).encode()
        last = {"entries": len(entries), "sha256": hashlib.sha256(body).hexdigest()}
        with atomic_file(self.path, private=True, locked=True) as stream:
            stream.write(body + json.dumps(last).encode() + b"\n")


def _sum(entries: tuple[Entry, ...]) -> Fraction:
    return sum((Fraction(entry.epsilon) for entry in entries), Fraction(0))


def check_round_id(round_id: Any) -> str:
    """Return the name of a round as a string; ValueError if it is not valid."""
    allowed = isinstance(round_id, str | int) and not isinstance(round_id, bool)
    if not allowed or not 1 <= len(str(round_id)) <= _ID_LENGTH_MAX:
        raise ValueError(
            f"round_id must be an integer or 1 to {_ID_LENGTH_MAX} characters, got {round_id!r}"
        )
    return str(round_id)


def _checked_terms(epsilon: Any, round_cap: Any) -> tuple[float, float | None]:
    """Numbers of any kind become plain floats."""
    cap = (
        None
        if round_cap is None
        else check_argument("round_cap", round_cap, of="answer_epsilon")
    )
    return check_argument("epsilon", epsilon, of="total_epsilon"), cap


def _read(path: Path) -> tuple[float, float | None, tuple[Entry, ...]]:
    """Read the terms and entries of a ledger's file; LedgerDamaged unless every byte is as it was written."""
    data = path.read_bytes()
    try:
        return _parse(data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LedgerDamaged(f"{path}: the ledger is damaged: {error}") from error


def _parse(data: bytes) -> tuple[float, float | None, tuple[Entry, ...]]:
    if not data.startswith(b'{"format": "%b"' % _FORMAT.encode()):
        raise ValueError("this is not a ledger" if data else "the file is empty")
    body, _, last = data.removesuffix(b"\n").rpartition(b"\n")
    body += b"\n"
    header, *rounds = [read_json(line) for line in body[:-1].split(b"\n")]
    header.pop("format")
    if (version := header.pop("version")) != _VERSION:
        raise ValueError(f"version must be {_VERSION}, got {version!r}")
    checksum = {"entries": len(rounds), "sha256": hashlib.sha256(body).hexdigest()}
    if not data.endswith(b"}\n") or read_json(last) != checksum:
        raise ValueError("it was cut off or changed: its checksum does not match")
    epsilon, round_cap = _checked_terms(**header)
    entries = tuple(Entry(**line) for line in rounds)
    for entry in entries:
        check_round_id(entry.round_id)
        check_argument("epsilon", entry.epsilon, of="answer_epsilon")
    if len({entry.round_id for entry in entries}) < len(entries):
        raise ValueError("it has a round twice")
    return epsilon, round_cap, entries


def price(mechanism: Mechanism) -> float:
    """Return the ε that a ledger charges for one answer with this mechanism, without a shuffler.

    That is the nominal ε of a message, or its exact privacy loss if that is larger, times the messages per person.

    Examples:
        >>> import sstq
        >>> price(sstq.FrameUnit(dim=3, epsilon=2.0)), price(sstq.FrameUnit(dim=3, epsilon=2.0, messages=4))
        (2.0, 8.0)
    """
    each = max(mechanism.epsilon, mechanism.privacy_loss())
    return (
        each
        if mechanism.messages == 1
        else round_up(mechanism.messages * Fraction(each))
    )


def check_local(mechanism: Mechanism) -> Mechanism:
    """Return a mechanism whose every message is private by itself; ValueError for others: ε must be finite and δ 0.

    Examples:
        >>> import sstq
        >>> check_local(sstq.FrameUnit(dim=3, epsilon=2.0)).name
        'frameunit'
    """
    if math.isinf(mechanism.epsilon) or mechanism.delta > 0:
        raise ValueError(
            f"mechanism must be locally private, got {mechanism.name}; choose another, such as frameunit"
        )
    return mechanism


def ledger_price(mechanism: Mechanism) -> float:
    """Return the `price`; ValueError for a mechanism with δ > 0, because ledgers add up pure ε.

    Examples:
        >>> import sstq
        >>> ledger_price(sstq.FrameUnit(dim=3, epsilon=2.0))
        2.0
    """
    if mechanism.delta > 0:
        problem = f"mechanism {mechanism.name!r} is (ε, δ)-private with delta = {mechanism.delta!r}"
        remedy = "leave the ledger out, or use a mechanism with δ = 0"
        raise ValueError(f"a ledger adds up pure ε, but {problem}: {remedy}")
    return price(mechanism)
