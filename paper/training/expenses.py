"""Ledgers of a training: one for all clients alike, or one per person if cohorts take turns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sstq.accounting import BudgetExhausted, Ledger, RunExpenses, compose

__all__ = ["PersonLedgers", "charged"]


def charged(ledger: Ledger) -> float:
    """The sum of everything charged; an interrupted and repeated round counts twice."""
    entries = ledger.entries
    return compose([entry.epsilon for entry in entries]) if entries else 0.0


class PersonLedgers:
    """One ledger per person in a folder: each pays only for the rounds that they answer.

    A person who cannot pay any more does not answer. So a cohort whose paid answers were lost in a
    crash is not asked a second time if its budget was for one answer.

    Args:
        folder: the folder, created if necessary; the ledger of person 17 is ``person-17.jsonl``.
        epsilon: the total ε per person; leave it out to continue with the folder's total.

    Examples:
        >>> import sstq, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledgers = PersonLedgers(folder.name, epsilon=8.0)
        >>> expenses = RunExpenses(sstq.FrameUnit(10, 8.0))
        >>> ledgers.charge(np.array([3, 5]), expenses, 1), ledgers.charge(np.array([4, 5]), expenses, 2)
        (array([3, 5]), array([4]))
        >>> ledgers.most
        8.0
        >>> folder.cleanup()
    """

    def __init__(self, folder: str | Path, epsilon: float | None = None) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        there = [Ledger(path) for path in self._folder.glob("person-*.jsonl")]
        if epsilon is None:
            if not there:
                raise ValueError(f"epsilon must be given: {folder} has no ledgers yet")
            epsilon = there[0].epsilon
        self.epsilon = epsilon
        self._charged = {ledger.path.name: charged(ledger) for ledger in there}

    @property
    def most(self) -> float:
        """The largest ε charged to any person."""
        return max(self._charged.values(), default=0.0)

    def charge(self, members: NDArray[np.int64], expenses: RunExpenses, number: int) -> NDArray[np.int64]:
        """Charge all members for a round; returns those who paid, whose messages may leave."""
        return np.array([member for member in members if self._pays(int(member), expenses, number)], dtype=np.int64)

    def check(self, answered: NDArray[np.int64], rounds: int) -> None:
        """Raise ValueError if people who answered in the rounds of a checkpoint have no ledger."""
        missing = [person for person in np.flatnonzero(answered) if self._name(int(person)) not in self._charged]
        if missing:
            raise ValueError(
                f"ledger must hold the {rounds} rounds of the checkpoint, got {self._folder} without person "
                f"{missing[0]}: continue with the original ledgers of this training, or start a new training"
            )

    def _pays(self, person: int, expenses: RunExpenses, number: int) -> bool:
        ledger = Ledger(self._folder / self._name(person), epsilon=self.epsilon)
        try:
            expenses.charge(ledger, number)
        except BudgetExhausted:
            return False
        finally:
            self._charged[ledger.path.name] = charged(ledger)
        return True

    @staticmethod
    def _name(person: int) -> str:
        return f"person-{person}.jsonl"
