"""Metering: what answers cost and who pays for them, without trust and behind a shuffler."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.accounting import Ledger, RunExpenses
from paper.training.expenses import PersonLedgers, charged
from paper.training.shuffled import shuffled_total
from sstq.mechanisms import Mechanism
from sstq.runs.adaptive_clip import AdaptiveClip, answer_price
from sstq.runs.cohorts import Cohorts

__all__ = ["Meter", "ShuffledMeter"]


class Meter:
    """Counts what answers cost and who pays for them."""

    def __init__(
        self,
        mechanism: Mechanism,
        adaptive: AdaptiveClip | None,
        cohorts: Cohorts | None,
        ledger: Ledger | PersonLedgers | None,
    ) -> None:
        self._epsilon, self._delta = answer_price(mechanism, adaptive), mechanism.delta
        self._bits = mechanism.bundle_bits + (adaptive is not None)
        self._cohorts, self._ledger = cohorts, ledger
        self._expenses = RunExpenses(mechanism, self._epsilon)

    def check(self, rounds: int, seed: int) -> None:
        """Refuse a budget that would start again in the middle of a training."""
        if isinstance(self._ledger, PersonLedgers) and self._cohorts is not None:
            self._ledger.check(self._cohorts.answered(seed, rounds), rounds)
        if isinstance(self._ledger, Ledger) and charged(self._ledger) < self._counted(rounds):
            raise ValueError(
                f"ledger must hold the {rounds} rounds of the checkpoint (ε = {self._counted(rounds):g}), got "
                f"{self._ledger.path} with ε = {charged(self._ledger):g}: continue with the original ledger of this "
                "training, or start a new training"
            )

    def pay(self, clients: int, number: int, seed: int) -> NDArray[np.int64]:
        """Return the clients that answer in a round, after they have paid if there is a ledger."""
        members = np.arange(clients) if self._cohorts is None else self._cohorts.members(seed, number)
        if isinstance(self._ledger, PersonLedgers):
            return self._ledger.charge(members, self._expenses, number)
        if self._ledger is not None:
            self._expenses.charge(self._ledger, number)
        return members

    def spent(self, rounds: int) -> dict[str, Any]:
        """Return what the client with the most answers has sent and spent after this many rounds."""
        answers = rounds if self._cohorts is None else self._cohorts.answers_after(rounds)
        epsilon = self._counted(answers)
        if self._ledger is not None:
            epsilon = self._ledger.most if isinstance(self._ledger, PersonLedgers) else charged(self._ledger)
        return {
            "answers": answers,
            "bits": answers * self._bits,
            "epsilon": epsilon,
            "delta": answers * self._delta,
            "local_epsilon": None,
        }

    def _counted(self, answers: int) -> float:
        return answers * self._epsilon if answers else 0.0


class ShuffledMeter(Meter):
    """Meters behind a shuffler: the total (ε, δ) of a client's messages, among the fewest clients of a round."""

    def __init__(self, mechanism: Mechanism, cohorts: Cohorts | None, clients: int, delta: float) -> None:
        super().__init__(mechanism, None, cohorts, None)
        self._total = partial(shuffled_total, mechanism, clients if cohorts is None else cohorts.least, delta)

    def spent(self, rounds: int) -> dict[str, Any]:
        """Return the same, with the local ε that remains if the shuffler cheats."""
        local = super().spent(rounds)
        epsilon, delta = self._total(local["answers"])
        return local | {"epsilon": epsilon, "delta": delta, "local_epsilon": local["epsilon"]}
