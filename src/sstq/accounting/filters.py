"""What a ledger's entries cost together, when each ε may be chosen after seeing the earlier messages.

A composition theorem holds for ε that were fixed beforehand. A ledger does not know them beforehand, so it needs a
*privacy filter*, a rule that may stop the rounds at any time:

* basic: the sum of all ε. The likelihood ratio of a whole history is at most e^Σε, history by history.
* adaptive: the Rényi filter of Feldman and Zrnic (2021). For an order α fixed beforehand, a round of ε costs the Rényi
  divergence of randomized response, log(1 + 2·sinh(αε/2)·sinh((α − 1)ε/2)/cosh(ε/2))/(α − 1), which adds up; turning it
  into (ε, δ) costs log((α − 1)/α) − (log δ + log α)/(α − 1) once (Canonne, Kamath, Steinke 2020, Proposition 12).
* optimal: every round counts as if it had spent the round cap, which *is* fixed beforehand, in the optimal composition.

With δ > 0 a history may go on while the sum *or* the other rule allows it: those of the first kind lose at most ε
without δ, and those of the second kind together lose ε but for δ.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

from sstq.accounting.composition import basic_total, optimal_total

__all__ = ["COMPOSITIONS", "best_order", "filtered_total"]

COMPOSITIONS = ("basic", "adaptive", "optimal")

# Orders to choose from: 1 + 2^(−6), …, 1 + 2^12 in steps of 2^(1/8).
_ORDERS = tuple(1 + 2 ** (eighth / 8) for eighth in range(-48, 97))
# Above the rounding errors of the functions used, relatively.
_SPARE = 1e-12


def best_order(epsilon: float, delta: float) -> float:
    """Return the Rényi order that allows the most small rounds within a total (ε, δ).

    A small round costs αε²/2, so that the number of rounds is proportional to what conversion leaves, divided by α.

    Examples:
        >>> best_order(8.0, 1e-6)
        4.36...
    """
    return max(_ORDERS, key=lambda order: (epsilon - _conversion(order, delta)) / order)


def filtered_total(
    composition: str, delta: float, round_cap: float | None, order: float | None
) -> Callable[[Counter[float]], Fraction]:
    """Return the function from the ε so far to an upper bound on the ε they cost together, for the given δ.

    Examples:
        >>> total = filtered_total("adaptive", 1e-6, None, best_order(8.0, 1e-6))
        >>> float(total(Counter({0.1: 50}))), float(total(Counter({0.1: 200})))
        (4.47..., 7.66...)
    """

    def basic(epsilons: Counter[float]) -> Fraction:
        return basic_total(epsilons)

    def adaptive(epsilons: Counter[float]) -> Fraction:
        assert order is not None  # noqa: S101
        rounds = math.fsum(count * _renyi(epsilon, order) for epsilon, count in epsilons.items())
        conversion = _conversion(order, delta)
        bound = rounds + conversion + _SPARE * (rounds + abs(conversion))
        return min(basic_total(epsilons), Fraction(max(0.0, bound)))

    def optimal(epsilons: Counter[float]) -> Fraction:
        assert round_cap is not None  # noqa: S101
        rounds = epsilons.total()
        bound = Fraction(optimal_total(round_cap, rounds, delta)) if rounds else Fraction(0)
        return min(basic_total(epsilons), bound)

    return {"basic": basic, "adaptive": adaptive, "optimal": optimal}[composition]


def _renyi(epsilon: float, order: float) -> float:
    """The Rényi divergence of randomized response of ε; no more than ε."""
    if order * epsilon > 100:  # sinh might overflow, and only its growing exponential counts
        return epsilon - math.log1p(math.exp(-epsilon)) / (order - 1)
    product = 2 * math.sinh(order * epsilon / 2) * math.sinh((order - 1) * epsilon / 2) / math.cosh(epsilon / 2)
    return min(epsilon, math.log1p(product) / (order - 1))


def _conversion(order: float, delta: float) -> float:
    """What turning a Rényi divergence into (ε, δ) adds to it."""
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
