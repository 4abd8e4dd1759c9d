"""Who pays for a round: one ledger that stands for all clients alike, or one per person where cohorts take turns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sstq.accounting import BudgetExhausted, Ledger, RunExpenses, compose

__all__ = ["PersonLedgers", "charged"]


def charged(ledger: Ledger) -> float:
    """All that was ever charged; a round that was cut short and done again is there twice."""
    entries = ledger.entries
    return compose([entry.epsilon for entry in entries]) if entries else 0.0


class PersonLedgers:
    """One ledger per person in a folder: each pays for the rounds that it answers, and for no others.

    A person who cannot pay any more does not answer. So a cohort whose answers were lost after they were paid for, in a
    crash, is not asked a second time if its budget was for one answer.

    Args:
        folder: made if it is not there; the ledger of person 17 is ``person-17.jsonl``.
        epsilon: the total of a person; left out to go on with the total that the folder began with.

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
                raise ValueError(f"epsilon must be given: {folder} holds no ledgers yet")
            epsilon = there[0].epsilon
        self.epsilon = epsilon
        self._charged = {ledger.path.name: charged(ledger) for ledger in there}

    @property
    def most(self) -> float:
        """What the person was charged who was charged most."""
        return max(self._charged.values(), default=0.0)

    def charge(self, members: NDArray[np.int64], expenses: RunExpenses, number: int) -> NDArray[np.int64]:
        """Let all members pay for a round; when this returns, the messages of those it returns may leave."""
        return np.array([member for member in members if self._pays(int(member), expenses, number)], dtype=np.int64)

    def check(self, answered: NDArray[np.int64], rounds: int) -> None:
        """Refuse (ValueError) ledgers that lack people who answered in the rounds of a checkpoint."""
        missing = [person for person in np.flatnonzero(answered) if self._name(int(person)) not in self._charged]
        if missing:
            raise ValueError(
                f"ledger must hold the {rounds} rounds of the checkpoint, got {self._folder} without person "
                f"{missing[0]}: go on with the ledgers that this training began with, or start a new training"
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
