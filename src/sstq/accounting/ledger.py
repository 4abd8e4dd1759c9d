"""A client's own account of the privacy it has spent, on its disk."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from sstq.accounting.filters import best_order, filtered_total
from sstq.accounting.ledger_file import (
    BudgetExhausted,
    Entry,
    LedgerDamaged,
    LedgerError,
    RoundAlreadySpent,
    RoundCapExceeded,
    Terms,
    check_round_id,
    read_ledger,
    serialize,
)
from sstq.accounting.ledger_lock import Lock, locked
from sstq.accounting.limits import ROUNDS_MAX, check_round_epsilon, round_down, round_up
from sstq.accounting.search import greatest_count
from sstq.files.atomic import atomic_file

__all__ = ["Ledger"]


class Ledger:
    """A budget on disk that refuses to be overspent.

    Call `spend` before a message leaves. When it returns, the expense is on the disk: file and folder are synced, so it
    survives `kill -9` and a power failure. A client that crashes after spending and before sending has spent. Several
    threads and processes may share a ledger. The file is read anew each time; nothing is kept in memory.

    A round can be spent once only: a second message would be a second expense. To send the *same* bytes again costs
    nothing, so a client that wants to retry keeps its encoded message.

    The terms are fixed when the file is created; opening it with others is an error. A damaged, cut-off or foreign file
    is an error, and so is a missing one while its lock file ``<path>.lock`` says that there was one. Nobody is stopped
    from deleting both, or from putting back an older copy: the ledger guards a client against mistakes and greedy
    servers, not against its owner.

    Args:
        path: the file; created, readable by its owner only, if it does not exist. Its folder must.
        epsilon: the total; left out to open a ledger that exists, with its own terms.
        delta: the δ of the total. With 0 the sum of all ε must stay within `epsilon`.
        round_cap: the greatest ε that this client allows for one round.
        composition: how rounds add up when δ > 0: "adaptive" (default), which charges any ε at any time; or "optimal",
            which charges every round as `round_cap` and so allows the most rounds when all have that ε.

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
        sstq.accounting.ledger_file.RoundAlreadySpent: round 'round 1' was spent already, at ...
        >>> _ = ledger.spend(1.0, "round 2")
        >>> ledger.spend(0.5, "round 3")
        Traceback (most recent call last):
        ...
        sstq.accounting.ledger_file.BudgetExhausted: epsilon = 0.5 is more than is left: 0.25 of 2.0 (1.75 is spent)
        >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        epsilon: float | None = None,
        delta: float = 0.0,
        round_cap: float | None = None,
        composition: str | None = None,
    ) -> None:
        # Two names of one file must not have two locks.
        self._path = Path(path).resolve()
        if epsilon is None:
            if (delta, round_cap, composition) != (0.0, None, None):
                raise ValueError("epsilon must be given with delta, round_cap or composition, got None")
            self._terms = read_ledger(self._path)[0]
        else:
            self._terms = _terms(epsilon, delta, round_cap, composition)
            self._open_or_create()
        self._total = filtered_total(
            self._terms.composition, self._terms.delta, self._terms.round_cap, self._terms.order
        )

    def _open_or_create(self) -> None:
        with locked(self._path) as lock:
            if self._path.exists():
                self._read()
            elif lock.created:
                raise LedgerDamaged(f"{self._path}: the ledger is missing, although {self._path.name}.lock is there")
            else:
                self._write(lock, ())
            # From here on a missing file is a loss. Nothing can be spent before this is on the disk.
            if not lock.created:
                lock.mark_created()

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
        """The greatest ε of one round, if there is one."""
        return self._terms.round_cap

    @property
    def composition(self) -> str:
        """How rounds add up: "basic", "adaptive" or "optimal"."""
        return self._terms.composition

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All rounds that were paid for, in order."""
        return self._read()

    @property
    def spent(self) -> float:
        """The ε of all entries together, for the ledger's δ, rounded up."""
        return round_up(self._total(_epsilons(self._read())))

    @property
    def remaining(self) -> float:
        """What is left of the total, rounded down. With δ > 0 a round may cost less than its ε."""
        return _left(self._terms, self._total(_epsilons(self._read())))

    def rounds_left(self, epsilon: float) -> int:
        """Return how many more rounds of ε can be spent; at most 10⁹."""
        epsilon = check_round_epsilon(epsilon)
        if self.round_cap is not None and epsilon > self.round_cap:
            return 0
        epsilons, total = _epsilons(self._read()), Fraction(self.epsilon)
        if self._total(epsilons) > total:
            return 0
        return greatest_count(lambda rounds: self._total(epsilons + Counter({epsilon: rounds})) <= total, 0, ROUNDS_MAX)

    def spend(self, epsilon: float, round_id: str | int) -> Entry:
        """Pay for one message of ε; when this returns, and not before, the message may leave.

        Args:
            epsilon: ε of the message.
            round_id: the round, as a string or an integer; each can be spent once.

        Raises:
            BudgetExhausted: it would be more than the total.
            RoundCapExceeded: it is more than this client allows for one round.
            RoundAlreadySpent: the round is in the ledger.
            LedgerDamaged: the file is not what it was.

        All of these are `LedgerError`, which is a ValueError; nothing is changed then.
        """
        epsilon, name = check_round_epsilon(epsilon), check_round_id(round_id)
        if self.round_cap is not None and epsilon > self.round_cap:
            raise RoundCapExceeded(f"epsilon = {epsilon!r} is more than the cap of a round, {self.round_cap!r}")
        with locked(self._path) as lock:
            entries = self._read()
            self._check(entries, epsilon, name)
            entry = Entry(name, epsilon, datetime.now(UTC).isoformat(timespec="seconds"))
            self._write(lock, (*entries, entry))
            if not lock.created:
                lock.mark_created()
        return entry

    def _check(self, entries: tuple[Entry, ...], epsilon: float, name: str) -> None:
        for entry in entries:
            if entry.round_id == name:
                raise RoundAlreadySpent(f"round {name!r} was spent already, at {entry.time}")
        epsilons = _epsilons(entries)
        if self._total(epsilons + Counter({epsilon: 1})) > Fraction(self.epsilon):
            spent = self._total(epsilons)
            raise BudgetExhausted(
                f"epsilon = {epsilon!r} is more than is left: {_left(self._terms, spent)!r} of {self.epsilon!r} "
                f"({round_up(spent)!r} is spent)"
            )

    def _read(self) -> tuple[Entry, ...]:
        try:
            terms, entries = read_ledger(self._path)
        except FileNotFoundError as error:
            raise LedgerDamaged(f"{self._path}: the ledger is missing") from error
        if terms != self._terms:
            raise LedgerError(f"{self._path}: the ledger has other terms: {terms}, not {self._terms}")
        return entries

    def _write(self, lock: Lock, entries: tuple[Entry, ...]) -> None:
        with lock.writing() as died:
            if died:
                self._remove_leftovers()
            with atomic_file(self._path, private=True) as file:
                file.write(serialize(self._terms, entries))

    def _remove_leftovers(self) -> None:
        """Remove what a writer that was killed left; the lock is held, so nobody else is writing."""
        start = f".{self._path.name}."
        for item in os.scandir(self._path.parent):
            token = item.name.removeprefix(start)
            if item.name.startswith(start) and len(token) == 16 and set(token) <= set("0123456789abcdef"):
                os.unlink(item.path)


def _terms(epsilon: float, delta: float, round_cap: float | None, composition: str | None) -> Terms:
    chosen = composition or ("adaptive" if delta else "basic")
    # Checked before the order is computed from them; numbers of any kind become plain floats.
    Terms(epsilon, delta, round_cap, chosen, 2.0 if chosen == "adaptive" else None)
    order = best_order(epsilon, delta) if chosen == "adaptive" else None
    return Terms(float(epsilon), float(delta), None if round_cap is None else float(round_cap), chosen, order)


def _epsilons(entries: tuple[Entry, ...]) -> Counter[float]:
    return Counter(entry.epsilon for entry in entries)


def _left(terms: Terms, spent: Fraction) -> float:
    return round_down(max(Fraction(0), Fraction(terms.epsilon) - spent))
