"""Rounds behind a shuffler: mixing messages slot by slot, and the total (ε, δ) of a client."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sstq.accounting import shuffled_epsilon
from sstq.accounting.bounds import check_delta
from sstq.mechanisms import FrameUnit, Mechanism
from sstq.runs.rounds import mean_of_round

__all__ = ["check_shuffled", "shuffled_mean", "shuffled_total"]


def check_shuffled(mechanism: Mechanism, delta: float) -> None:
    """Raise ValueError for what is not supported: mechanisms other than FrameUnit, a public coin, a δ of 0."""
    check_delta(delta, positive=True)
    if not isinstance(mechanism, FrameUnit) or mechanism.coin == "public":
        found = f"{mechanism.name} with a {mechanism.coin} coin"
        remedy = "create it with sstq.planning.shuffled_mechanism"
        raise ValueError(f"mechanism must be FrameUnit with a private coin behind a shuffler, got {found}: {remedy}")


def shuffled_mean(
    mechanism: Mechanism, gradients: NDArray[np.float32], _round_number: int, rng: np.random.Generator | None
) -> NDArray[np.float64]:
    """Return the mean of a round as the server estimates it from messages that were mixed slot by slot."""
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.encode(gradients, rng=rng).shuffled(mechanism.messages, rng))
    return mean_of_round(aggregator).value


@lru_cache(maxsize=4096)
def shuffled_total(mechanism: Mechanism, clients: int, delta: float, answers: int) -> tuple[float, float]:
    """Return the total ε and δ of a client's messages over the rounds, each with at least this many clients.

    Rounds compose as slots do. What is sent in a round may depend on the rounds before: the losses of a slot are
    dominated by one pair of laws whatever the vectors are, and such pairs compose adaptively (Zhu, Dong, Wang: Optimal
    Accounting of Differential Privacy via Characteristic Function. AISTATS 2022, Theorem 10).

    Examples:
        >>> import sstq
        >>> mechanism = sstq.FrameUnit(10, 2.0, frames=16)
        >>> once, _ = shuffled_total(mechanism, 1000, 1e-6, 1)
        >>> twice, delta = shuffled_total(mechanism, 1000, 1e-6, 2)
        >>> once < twice < 2 * once, delta
        (True, 1e-06)
    """
    return (shuffled_epsilon(mechanism, clients, delta, rounds=answers), delta) if answers else (0.0, 0.0)
