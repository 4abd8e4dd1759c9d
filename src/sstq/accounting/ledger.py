"""The ledger: a client's own record on disk of the privacy it has spent, and what a message costs."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from sstq.accounting import ledger_file
from sstq.accounting.bounds import greatest_count, round_down
from sstq.accounting.composition import ROUNDS_MAX
from sstq.accounting.ledger_file import Entry, LedgerDamaged, LedgerError, RoundCapExceeded, Terms
from sstq.checks import check_argument
from sstq.exactness import round_up
from sstq.files.atomic import atomic_file, locked_file

if TYPE_CHECKING:
    from sstq.mechanisms import Mechanism

# The two bytes of the lock file: whether there is a ledger, and whether it is being written.
_NEW, _CREATED, _WRITING = b"-", b"+", b"w"


class Ledger:
    """A budget on disk that refuses to be overspent.

    Call `spend` before a message leaves. When it returns, the expense is on the disk: file and folder are synced, so it
    survives `kill -9` and a power failure. A client that crashes between spending and sending has spent. Several
    threads and processes may share a ledger. The file is read again each time; nothing is kept in memory.

    Each round can be spent only once: a second message would be a second expense. Sending the *same* bytes again costs
    nothing, so a client that may have to retry keeps its encoded message.

    The terms are fixed when the file is created; opening it with others is an error. A damaged, cut-off or foreign file
    is an error, and so is a missing one while its lock file ``<path>.lock`` says that there was one. The owner can
    delete both or put back an older copy: the ledger guards against mistakes and greedy servers, not against its owner.

    Args:
        path: the file; created, readable by its owner only, if it does not exist. Its folder must.
        epsilon: the total; leave it out to open an existing ledger with its own terms.
        delta: the δ of the total. With 0 the sum of all ε must stay within `epsilon`.
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
        sstq.accounting.ledger_file.RoundAlreadySpent: round 'round 1' was already spent at ...
        >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        epsilon: float | None = None,
        delta: float = 0.0,
        round_cap: float | None = None,
    ) -> None:
        # Two names of one file must not have two locks.
        self._path = Path(path).resolve()
        if epsilon is not None:
            self._terms = Terms.choose(epsilon, delta, round_cap)
            with self._locked() as lock:
                if self._path.exists():
                    self._read()
                elif _was_created(lock):
                    problem = f"the ledger is missing, although {self._path.name}.lock exists"
                    raise LedgerDamaged(f"{self._path}: {problem}")
                else:
                    self._write(lock, ())
        elif (delta, round_cap) != (0.0, None):
            raise ValueError("epsilon must be given with delta or round_cap, got None")
        else:
            self._terms = ledger_file.read_ledger(self._path)[0]

    @property
    def path(self) -> Path:
        """Where the ledger is."""
        return self._path

    @property
    def epsilon(self) -> float:
        """The total ε."""
        return self._terms.epsilon

    @property
    def delta(self) -> float:
        """The δ of the total."""
        return self._terms.delta

    @property
    def round_cap(self) -> float | None:
        """The maximum ε per round, if any."""
        return self._terms.round_cap

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All rounds paid for, in order."""
        return self._read()

    @property
    def spent(self) -> float:
        """The total ε of all entries, for the ledger's δ, rounded up."""
        return round_up(self._terms.total(_epsilons(self._read())))

    @property
    def remaining(self) -> float:
        """The part of the total ε that is left, rounded down. With δ > 0 a round may cost less than its ε."""
        return self._left(self._terms.total(_epsilons(self._read())))

    def rounds_left(self, epsilon: float) -> int:
        """Return how many more rounds of ε can be spent; at most 10⁹."""
        epsilon = check_argument("epsilon", epsilon, of="answer_epsilon")
        if self.round_cap is not None and epsilon > self.round_cap:
            return 0
        epsilons = _epsilons(self._read())
        if not self._allows(epsilons):
            return 0
        return greatest_count(lambda rounds: self._allows(epsilons + Counter({epsilon: rounds})), 0, ROUNDS_MAX)

    def spend(self, epsilon: float, round_id: str | int) -> Entry:
        """Pay for one round of ε; when this returns, and not before, its messages may leave.

        All of a client's messages in a round cost their sum: `price(mechanism)`, up to 81,920. A ledger does not count
        on a shuffler.

        Each `round_id`, a string or an integer, can be spent once. A `LedgerError` (a ValueError: `BudgetExhausted`,
        `RoundCapExceeded`, `RoundAlreadySpent` or `LedgerDamaged`) means that nothing was spent.
        """
        epsilon, name = check_argument("epsilon", epsilon, of="answer_epsilon"), ledger_file.check_round_id(round_id)
        if self.round_cap is not None and epsilon > self.round_cap:
            raise RoundCapExceeded(
                f"epsilon must be at most round_cap = {self.round_cap!r}, got {epsilon!r}; the cap is fixed when a "
                f"ledger is made, and a new one may have round_cap={epsilon!r}"
            )
        with self._locked() as lock:
            entries = self._read()
            for paid in entries:
                if paid.round_id == name:
                    raise ledger_file.RoundAlreadySpent(f"round {name!r} was already spent at {paid.time}")
            epsilons = _epsilons(entries)
            if not self._allows(epsilons + Counter({epsilon: 1})):
                spent = self._terms.total(epsilons)
                left = f"{self._left(spent)!r} of {self.epsilon!r} ({round_up(spent)!r} is spent)"
                raise ledger_file.BudgetExhausted(f"epsilon = {epsilon!r} is more than is left: {left}")
            entry = Entry(name, epsilon, datetime.now(UTC).isoformat(timespec="seconds"))
            self._write(lock, (*entries, entry))
        return entry

    def _allows(self, epsilons: Counter[float]) -> bool:
        return self._terms.total(epsilons) <= Fraction(self.epsilon)

    def _left(self, spent: Fraction) -> float:
        return round_down(max(Fraction(0), Fraction(self.epsilon) - spent))

    def _read(self) -> tuple[Entry, ...]:
        try:
            terms, entries = ledger_file.read_ledger(self._path)
        except FileNotFoundError as error:
            raise LedgerDamaged(f"{self._path}: the ledger is missing") from error
        if terms != self._terms:
            raise LedgerError(f"{self._path}: the ledger has other terms: {terms}, not {self._terms}")
        return entries

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the lock, and record on disk that the ledger exists: from then on a missing file is an error."""
        with locked_file(self._path.with_name(f"{self._path.name}.lock")) as lock:
            yield lock
            if not _was_created(lock):
                os.pwrite(lock, _CREATED, 0)
                os.fsync(lock)

    def _write(self, lock: int, entries: tuple[Entry, ...]) -> None:
        died = os.pread(lock, 1, 1) == _WRITING
        os.pwrite(lock, (_CREATED if _was_created(lock) else _NEW) + _WRITING, 0)
        if died:  # remove its leftovers; the lock is held, so nobody else is writing
            leftover = re.compile(rf"\.{re.escape(self._path.name)}\.[0-9a-f]{{16}}")
            for item in os.scandir(self._path.parent):
                if leftover.fullmatch(item.name):
                    os.unlink(item.path)
        with atomic_file(self._path, private=True) as stream:
            stream.write(ledger_file.serialize(self._terms, entries))
        os.ftruncate(lock, 1)


def _was_created(lock: int) -> bool:
    return os.pread(lock, 1, 0) not in (b"", _NEW)


def _epsilons(entries: tuple[Entry, ...]) -> Counter[float]:
    return Counter(entry.epsilon for entry in entries)


def price(mechanism: Mechanism) -> float:
    """Return the ε that a ledger charges for one answer with this mechanism, without a shuffler.

    That is the nominal ε of a message, or its exact privacy loss if that is larger, times the messages per person.

    Examples:
        >>> import sstq
        >>> price(sstq.FrameUnit(dim=3, epsilon=2.0)), price(sstq.FrameUnit(dim=3, epsilon=2.0, messages=4))
        (2.0, 8.0)
    """
    each = max(mechanism.epsilon, mechanism.privacy_loss())
    return each if mechanism.messages == 1 else round_up(mechanism.messages * Fraction(each))


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
