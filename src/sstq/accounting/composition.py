"""The ε of several ε-LDP messages together: four theorems, from the simplest to the tightest.

Everything rests on one fact (Kairouz, Oh, Viswanath 2015): among all ε-LDP mechanisms binary randomized response,
which tells the truth with probability e^ε/(1 + e^ε), reveals the most. Its privacy loss is +ε or −ε, so the loss of T
rounds is a random walk, and δ(ε′) is its expected excess over ε′.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sstq.accounting.limits import check_round_epsilon, check_rounds, check_total_epsilon, round_up
from sstq.accounting.search import least_number

__all__ = [
    "METHODS",
    "PLD_ROUNDS_MAX",
    "advanced_total",
    "basic_total",
    "count_rounds",
    "optimal_delta",
    "optimal_fits",
    "optimal_total",
    "pld_total",
]

METHODS = ("basic", "advanced", "optimal", "pld")
"""Ways to compose rounds; see `sstq.accounting.compose`."""

# Losses further than this many standard deviations (and steps) from their mean have a mass below 1e-170.
_DEVIATIONS, _STEPS = 40.0, 1000
# SciPy's binomial masses are good to about 1e-13, relatively; bounds are searched with this to spare.
_SPARE = 1 + 1e-9

# One or two units in the last place: losses are rounded up, which matters when δ is as small as that.
_ROUND_UP = 1 + 2.0**-52

PLD_ROUNDS_MAX, PLD_DELTA_MIN = 10**5, 1e-9
# The Fourier transform errs by some 1e-13 in δ, in either direction; a thousandth of δ ≥ 1e-9 is enough to spare.
_PLD_SPARE = 1 - 1e-3
_PLD_CELLS = 1 << 18


def basic_total(epsilons: Counter[float]) -> Fraction:
    """Return the sum of all ε, exactly: what T pure messages give for δ = 0, and nothing better exists."""
    return sum((count * Fraction(epsilon) for epsilon, count in epsilons.items()), Fraction(0))


def advanced_total(epsilons: Counter[float], delta: float) -> float:
    """Return √(2 ln(1/δ)·Σε²) + Σε(e^ε − 1), the advanced composition of Dwork, Rothblum and Vadhan (2010).

    It can exceed the plain sum, and it never beats the optimal one; it is here to compare with the literature.
    """
    squares = math.fsum(count * epsilon**2 for epsilon, count in epsilons.items())
    drift = math.fsum(count * epsilon * math.expm1(epsilon) for epsilon, count in epsilons.items())
    return math.sqrt(2 * math.log(1 / delta) * squares) + drift


@dataclass(frozen=True)
class _Walk:
    """The positive privacy losses of T rounds of randomized response, and their probabilities."""

    losses: NDArray[np.float64]
    masses: NDArray[np.float64]

    @classmethod
    def of(cls, epsilon: float, rounds: int) -> _Walk:
        from scipy.stats import binom

        lie = 1 / (1 + math.exp(epsilon))
        reach = _DEVIATIONS * math.sqrt(rounds * lie * (1 - lie)) + _STEPS
        first = max(0, math.floor(rounds * lie - reach))
        last = min(rounds // 2, math.ceil(rounds * lie + reach))
        lies = np.arange(first, last + 1)
        losses: NDArray[np.float64] = (rounds - 2 * lies) * np.float64(epsilon)
        losses *= _ROUND_UP
        return cls(losses, binom.pmf(lies, rounds, lie))

    def delta(self, total_epsilon: float) -> float:
        """Return E[(1 − e^(ε′ − loss))⁺]; all terms are positive, so that nothing cancels."""
        above = self.losses > total_epsilon
        return float(np.sum(self.masses[above] * -np.expm1(total_epsilon - self.losses[above])))


def optimal_delta(epsilon: float, rounds: int, total_epsilon: float) -> float:
    """Return the least δ for which any T rounds of ε-LDP are (ε′, δ)-private together.

    δ(ε′) = Σ_l C(T, l)·[e^((T−l)ε) − e^(ε′ + lε)]⁺ / (1 + e^ε)^T, to about twelve digits. No mechanism that is only
    known to be ε-LDP has a better one.

    Args:
        epsilon: ε of one round.
        rounds: T.
        total_epsilon: ε′ of all rounds together.

    Examples:
        >>> optimal_delta(1.0, 100, 80.0)
        7.015...e-06
        >>> optimal_delta(1.0, 100, 100.0)
        0.0

    References:
        Kairouz, Oh, Viswanath: The Composition Theorem for Differential Privacy. ICML 2015, Theorem 3.3 (there at
        ε′ = (T − 2i)ε; between these points the same sum holds).
    """
    epsilon, rounds = check_round_epsilon(epsilon), check_rounds(rounds)
    total_epsilon = check_total_epsilon(total_epsilon)
    if rounds * Fraction(epsilon) <= Fraction(total_epsilon):
        return 0.0
    return _Walk.of(epsilon, rounds).delta(total_epsilon)


def optimal_fits(epsilon: float, rounds: int, total_epsilon: float, delta: float) -> bool:
    """Say whether T rounds of ε are (ε′, δ)-private together."""
    return _Walk.of(epsilon, rounds).delta(total_epsilon) * _SPARE <= delta


def optimal_total(epsilon: float, rounds: int, delta: float) -> float:
    """Return the least ε′ for which T rounds of ε are (ε′, δ)-private together."""
    walk = _Walk.of(epsilon, rounds)
    basic = round_up(rounds * Fraction(epsilon))
    return least_number(lambda total: walk.delta(total) * _SPARE <= delta, 0.0, basic)


def pld_total(epsilons: Counter[float], delta: float) -> float:
    """Return the ε′ of the composed privacy loss distributions, which dp-accounting multiplies by Fourier transform.

    Rounds of one ε lie on a grid of that ε, so that nothing is rounded; otherwise losses are rounded up to a grid, by
    at most T·Σε·2⁻¹⁸ in all.
    """
    rounds = epsilons.total()
    if rounds > PLD_ROUNDS_MAX:
        raise ValueError(f"rounds must be at most {PLD_ROUNDS_MAX} for method 'pld', got {rounds}")
    if delta < PLD_DELTA_MIN:
        raise ValueError(f"delta must be at least {PLD_DELTA_MIN:g} for method 'pld', got {delta!r}")
    try:
        from dp_accounting.pld.common import DifferentialPrivacyParameters
        from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters
    except ImportError as error:
        raise ImportError("method 'pld' needs dp-accounting: pip install 'sstq[accounting]'") from error
    basic = round_up(basic_total(epsilons))
    grid = next(iter(epsilons)) if len(epsilons) == 1 else basic / _PLD_CELLS
    first, *others = (
        from_privacy_parameters(DifferentialPrivacyParameters(epsilon, 0.0), grid).self_compose(count)
        for epsilon, count in epsilons.items()
    )
    composed = reduce(lambda left, right: left.compose(right), others, first)
    return float(min(composed.get_epsilon_for_delta(delta * _PLD_SPARE), basic))


def count_rounds(epsilon: float | Sequence[float], rounds: int | None) -> Counter[float]:
    """Return how often each ε occurs, from one ε and a number of rounds or from one ε a round."""
    if isinstance(epsilon, Sequence | np.ndarray):
        if rounds is not None:
            raise ValueError(f"rounds must be left out when epsilon has one number a round, got {rounds!r}")
        if len(epsilon) == 0:
            raise ValueError("epsilon must have at least one round, got none")
        return Counter(check_round_epsilon(value) for value in epsilon)
    return Counter({check_round_epsilon(epsilon): 1 if rounds is None else check_rounds(rounds)})
