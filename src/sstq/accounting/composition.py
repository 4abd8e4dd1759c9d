"""Composition: the total ε of several ε-LDP messages of one client, how many a budget allows, and the ε of each.

Everything rests on one fact (Kairouz, Oh, Viswanath 2015): among all ε-LDP mechanisms binary randomized response,
which tells the truth with probability e^ε/(1 + e^ε), reveals the most. Its privacy loss is +ε or −ε, so the loss of T
rounds is a random walk, and δ(ε′) is its expected excess over ε′.
"""

import math
from fractions import Fraction

import numpy as np

from sstq.accounting.bounds import check_delta, furthest, greatest_count, round_down
from sstq.accounting.losses import Losses
from sstq.checks import RANGES, check_argument
from sstq.exactness import round_up

_EPSILON_MIN, _EPSILON_MAX, _ = RANGES["round_epsilon"]
ROUNDS_MAX = int(RANGES["rounds"][1])

# Losses further than this many standard deviations (and steps) from their mean have a mass below 1e-170.
_DEVIATIONS = 40.0
_STEPS = 1000
# SciPy's binomial masses have relative errors of about 1e-13, and losses of some units in the last place.
_SPARE = 1 + 1e-9
_ROUND_UP = 1 + 2.0**-50


def compose(epsilon: float, rounds: int = 1, delta: float = 0.0) -> float:
    """Return the total ε of all messages of one client, for a given δ.

    The server may choose each round's mechanism by what it saw before, as long as the ε of each round is fixed
    beforehand. (If it is not, only δ = 0 holds; `Ledger` counts such rounds correctly.)

    Args:
        epsilon: the ε of every round.
        rounds: T.
        delta: the total δ. With δ = 0 the result is the sum of all ε, the best possible bound.

    Examples:
        >>> compose(0.25, 4)
        1.0
        >>> compose(1.0, 100, delta=1e-6)
        83.53...

    References:
        Kairouz, Oh, Viswanath: The Composition Theorem for Differential Privacy. ICML 2015.
    """
    epsilon = check_argument("epsilon", epsilon, of="round_epsilon")
    rounds = check_argument("rounds", rounds)
    basic = round_up(rounds * Fraction(epsilon))
    delta = check_delta(delta)
    return _walk(epsilon, rounds).epsilon(delta, basic) if delta else basic


def rounds_allowed(epsilon: float, total_epsilon: float, delta: float = 0.0) -> int:
    """Return how many rounds of ε stay within a total (ε′, δ), 0 if not even one fits, and at most 10⁹.

    Doubles are taken at their exact values: 0.3 is a little less than three times 0.1, so only two rounds fit.

    Examples:
        >>> rounds_allowed(0.1, 8.0, delta=1e-6)
        238
        >>> rounds_allowed(0.1, 0.3)
        2
    """
    epsilon = check_argument("epsilon", epsilon, of="round_epsilon")
    total = check_argument("total_epsilon", total_epsilon)
    delta = check_delta(delta)
    basic = min(ROUNDS_MAX, Fraction(total) // Fraction(epsilon))
    return greatest_count(
        lambda rounds: _fits(epsilon, rounds, total, delta), basic, ROUNDS_MAX
    )


def epsilon_per_round(rounds: int, total_epsilon: float, delta: float = 0.0) -> float:
    """Return the greatest ε per round, at most 100, for which T rounds stay within a total (ε′, δ).

    Examples:
        >>> epsilon_per_round(100, 8.0)
        0.07999999999999999
        >>> epsilon_per_round(100, 8.0, delta=1e-6)
        0.156...
    """
    rounds = check_argument("rounds", rounds)
    total = check_argument("total_epsilon", total_epsilon)
    delta = check_delta(delta)
    basic = min(_EPSILON_MAX, round_down(Fraction(total) / rounds))
    if basic < _EPSILON_MIN:
        raise ValueError(
            f"total_epsilon = {total_epsilon!r} leaves less than {_EPSILON_MIN:g} per round"
        )
    return furthest(
        lambda epsilon: _fits(epsilon, rounds, total, delta), basic, _EPSILON_MAX
    )


def _walk(epsilon: float, rounds: int) -> Losses:
    """The positive privacy losses of T rounds of randomized response.

    δ(ε′) = Σ_l C(T, l)·[e^((T−l)ε) − e^(ε′ + lε)]⁺ / (1 + e^ε)^T (Kairouz, Oh, Viswanath, Theorem 3.3, there at
    ε′ = (T − 2i)ε; between these points the same sum holds). Knowing only that a mechanism is ε-LDP, no smaller δ can
    be proved.
    """
    from scipy.stats import binom

    lie = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    reach = _DEVIATIONS * math.sqrt(rounds * lie * (1 - lie)) + _STEPS
    first = max(0, math.floor(rounds * lie - reach))
    lies = np.arange(min(rounds // 2, math.ceil(rounds * lie + reach)), first - 1, -1)
    raised = epsilon * _ROUND_UP
    return Losses(
        2 * raised,
        float(rounds - 2 * lies[0]) * raised,
        binom.pmf(lies, rounds, lie) * _SPARE,
    )


def _fits(epsilon: float, rounds: int, total: float, delta: float) -> bool:
    """Whether T rounds of ε are (total, δ)-private."""
    if rounds * Fraction(epsilon) <= Fraction(total):
        return True
    return delta > 0 and _walk(epsilon, rounds).delta(total) <= delta
