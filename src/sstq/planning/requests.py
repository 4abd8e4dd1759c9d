"""What is asked of a plan, and about what error a task with other numbers would have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sstq.accounting import epsilon_per_round, rounds_allowed
from sstq.accounting.bounds import check_delta
from sstq.checks import (
    RANGES,
    ArgumentError,
    check_argument,
    check_number,
    check_option,
)
from sstq.mechanisms import GroupUnit
from sstq.planning.candidates import best_candidate
from sstq.planning.shuffled_draw import (
    MESSAGE_BITS,
    MOST_MESSAGES,
    ShuffleBudget,
    likely_mse,
)

EPSILON_MIN, EPSILON_MAX, _ = RANGES["epsilon"]
CLIENTS_MAX = 10**12
SLACK = 0.02
"""The share of the squared error that a plan gives up for a shorter message."""

FIRST_DIRECTIONS = 32
"""The directions for which the noise of a classifier is predicted first; a coordinate's hardly depends on them."""


@dataclass(frozen=True)
class Request:
    """The task of a plan, checked; `sstq.planning.plan` explains its arguments."""

    dim: int
    clients: int | None = None
    epsilon: float | None = None
    bits: int | None = None
    target_error: float | None = None
    rounds: int = 1
    delta: float = 0.0
    clip: float = 1.0
    mean_norm: float | None = None
    trust: str = "local"
    classes: int | None = None

    def __post_init__(self) -> None:
        check_argument("dim", self.dim)
        check_argument("clip", self.clip)
        check_argument("rounds", self.rounds)
        check_option("trust", self.trust, ("local", "shuffler"))
        check_delta(self.delta, positive=self.trust == "shuffler")
        ranges: dict[str, tuple[float, float, bool]] = {
            "clients": (1, CLIENTS_MAX, True),
            "epsilon": (EPSILON_MIN, EPSILON_MAX * self.rounds, False),
            "bits": (1, 4096, True),
            "target_error": (1e-9, 1e9, False),
            "mean_norm": (1e-9 * self.clip, self.clip, False),
            "classes": (2, 2**20, True),
        }
        for name, (low, high, integer) in ranges.items():
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), low, high, integer=integer)
        # The arguments that have no meaning for the task, with their defaults.
        fixed: dict[str, Any] = {"target_error": None, "rounds": 1} if self.once else {}
        if self.classes is not None:
            fixed |= {"bits": None, "clip": 1.0} | (
                {"delta": 0.0} if self.trust == "local" else {}
            )
        for name, usual in fixed.items():
            if getattr(self, name) != usual:
                kind = "trust='shuffler'" if self.classes is None else "classes"
                raise ArgumentError(
                    name, f"must be left out with {kind}, got {getattr(self, name)!r}"
                )

    @property
    def once(self) -> bool:
        """Whether the task is one round of given people and ε: behind a shuffler, or of a classifier."""
        return self.trust == "shuffler" or self.classes is not None

    def message_epsilon(self, total: float) -> float:
        """The ε that one message may spend if a person's messages have this total."""
        if self.rounds == 1:
            return total
        each = min(EPSILON_MAX, epsilon_per_round(self.rounds, total, self.delta))
        if each < EPSILON_MIN:
            raise ArgumentError(
                "epsilon",
                f"leaves {each:.3g} for each of {self.rounds} rounds, but mechanisms need at least {EPSILON_MIN:g}; "
                f"pass rounds={rounds_allowed(EPSILON_MIN, total, self.delta)}",
            )
        return each

    def likely_mse(
        self, dim: int, clients: int, epsilon: float, *, rough: bool = False
    ) -> float:
        """About the squared error over clip² of this task with other numbers; infinite if there is none.

        Behind a shuffler a rough one, within a fifth or so, is a hundred times as quick.
        """
        if self.classes is not None:
            first = min(dim, FIRST_DIRECTIONS)
            noise = self.classes * self._one_mse(first, clients, epsilon, rough) / first
            dim = usual_directions(noise, dim)
        return self._one_mse(dim, clients, epsilon, rough)

    def _one_mse(self, dim: int, clients: int, epsilon: float, rough: bool) -> float:
        if self.trust == "shuffler":
            budget = ShuffleBudget(
                epsilon, self.delta, clients, MOST_MESSAGES, rough=rough
            )
            return likely_mse(budget, dim, self.classes or 1, self.bits or MESSAGE_BITS)
        if self.classes is not None:
            return (
                GroupUnit(dim, epsilon, groups=self.classes, clients=clients)
                .typical_error(clients)
                .total
            )
        best = best_candidate(
            dim, self.message_epsilon(epsilon), clients, self.bits, SLACK
        )
        return math.inf if best is None else best.mse


def usual_directions(noise: float, most: int) -> int:
    """How many directions are worth their noise if classes differ less and less along them, as 1/j: about √(2/σ²).

    A rule of thumb by reverse water-filling (`sstq.learning.directions`): the first p directions get something, for the
    largest p with p·(p − 1) < 2/σ². Along the first 46 principal directions of images of digits and of clothes the
    share of the variance between classes is within a factor of three of 1/j; for other features no plan can know it.

    Examples:
        >>> usual_directions(0.01, most=64), usual_directions(0.01, most=8)
        (14, 8)
    """
    return min(most, max(1, math.ceil((1 + math.sqrt(1 + 8 / noise)) / 2) - 1))
