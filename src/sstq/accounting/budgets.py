"""The three questions about rounds: what do they cost together, how many fit, and how large may each be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from sstq.accounting.composition import (
    METHODS,
    PLD_ROUNDS_MAX,
    advanced_total,
    basic_total,
    count_rounds,
    optimal_fits,
    optimal_total,
    pld_total,
)
from sstq.accounting.limits import (
    ROUND_EPSILON_MAX,
    ROUND_EPSILON_MIN,
    ROUNDS_MAX,
    check_clients,
    check_delta,
    check_round_epsilon,
    check_rounds,
    check_total_epsilon,
    round_down,
    round_up,
)
from sstq.accounting.search import greatest_count, greatest_number
from sstq.accounting.shuffling import numeric_epsilon
from sstq.checks import check_option

__all__ = ["compose", "epsilon_per_round", "rounds_allowed"]


def compose(
    epsilon: float | Sequence[float],
    rounds: int | None = None,
    delta: float = 0.0,
    method: str = "optimal",
    *,
    clients: int | None = None,
) -> float:
    """Return the ε of all messages of one client together, for a given δ.

    The server may choose each round's mechanism by what it saw before, as long as the ε of each round are fixed
    beforehand. (When they are not, only "basic" holds as it is; `Ledger` counts such rounds, too.)

    Args:
        epsilon: ε of every round, or a sequence with one ε a round.
        rounds: T, when all rounds have the same ε; 1 unless given.
        delta: δ of all rounds together. With δ = 0 only the sum of all ε holds, whatever the method.
        method: "basic", the sum, which needs no δ; "advanced", the classical bound, to compare with; "optimal", the
            exact answer for equal ε; "pld", nearly the same answer for any ε by numerical convolution (needs the extra
            `accounting`, δ ≥ 1e-9, T ≤ 1e5).
        clients: how many clients' messages a trusted shuffler mixes in every round; see `shuffled_epsilon` for what
            that takes. Half of δ pays for the shuffling (all of it with "basic").

    Examples:
        >>> compose(1.0, 100)
        100.0
        >>> compose(1.0, 100, delta=1e-6)
        83.53...
        >>> compose(0.1, 100, delta=1e-6)
        4.774...
        >>> compose(1.0, 100, delta=1e-6, clients=100_000)
        0.732...
        >>> compose([0.5, 0.25, 0.25])
        1.0

    References:
        Dwork, Rothblum, Vadhan: Boosting and Differential Privacy. FOCS 2010 (advanced). Kairouz, Oh, Viswanath: The
        Composition Theorem for Differential Privacy. ICML 2015 (optimal).
    """
    epsilons = count_rounds(epsilon, rounds)
    delta = check_delta(delta)
    check_option("method", method, METHODS)
    alone = _total(epsilons, delta, method)
    return alone if clients is None else min(alone, _shuffled_total(epsilons, delta, method, check_clients(clients)))


def rounds_allowed(
    epsilon: float, total_epsilon: float, delta: float = 0.0, method: str = "optimal", *, clients: int | None = None
) -> int:
    """Return how many rounds of ε stay within a total (ε′, δ); at most 10⁹, and 0 when not even one does.

    Arguments are those of `compose`. The doubles are taken at their exact values: 0.3 is a little less than three
    times 0.1, so that two rounds fit.

    Examples:
        >>> rounds_allowed(0.5, 8.0)
        16
        >>> rounds_allowed(0.1, 8.0, delta=1e-6)
        238
        >>> rounds_allowed(0.1, 0.3)
        2
    """
    epsilon, total_epsilon = check_round_epsilon(epsilon), check_total_epsilon(total_epsilon)
    delta, clients = check_delta(delta), None if clients is None else check_clients(clients)
    check_option("method", method, METHODS)
    basic = min(ROUNDS_MAX, Fraction(total_epsilon) // Fraction(epsilon))
    if _is_basic(delta, method) and clients is None:
        return basic
    # Pure ε holds whatever the method says.
    return greatest_count(
        lambda rounds: _fits(epsilon, rounds, total_epsilon, delta, method, clients), basic, _most_rounds(method)
    )


def epsilon_per_round(
    rounds: int, total_epsilon: float, delta: float = 0.0, method: str = "optimal", *, clients: int | None = None
) -> float:
    """Return the greatest ε a round, at most 100, for which T rounds stay within a total (ε′, δ).

    Arguments are those of `compose`.

    Examples:
        >>> epsilon_per_round(100, 8.0)
        0.07999999999999999
        >>> epsilon_per_round(100, 8.0, delta=1e-6)
        0.156...
        >>> compose(epsilon_per_round(100, 8.0, delta=1e-6), 100, delta=1e-6)
        8.0...
    """
    rounds, total_epsilon = check_rounds(rounds), check_total_epsilon(total_epsilon)
    delta, clients = check_delta(delta), None if clients is None else check_clients(clients)
    check_option("method", method, METHODS)
    basic = min(ROUND_EPSILON_MAX, round_down(Fraction(total_epsilon) / rounds))
    if basic < ROUND_EPSILON_MIN:
        raise ValueError(f"total_epsilon = {total_epsilon!r} leaves less than {ROUND_EPSILON_MIN:g} for each round")
    if _is_basic(delta, method) and clients is None:
        return basic
    return greatest_number(
        lambda epsilon: _fits(epsilon, rounds, total_epsilon, delta, method, clients), basic, ROUND_EPSILON_MAX
    )


def _is_basic(delta: float, method: str) -> bool:
    return delta == 0 or method == "basic"


def _most_rounds(method: str) -> int:
    return PLD_ROUNDS_MAX if method == "pld" else ROUNDS_MAX


def _total(epsilons: Counter[float], delta: float, method: str) -> float:
    if _is_basic(delta, method):
        return round_up(basic_total(epsilons))
    if method == "advanced":
        return advanced_total(epsilons, delta)
    if method == "pld":
        return pld_total(epsilons, delta)
    if len(epsilons) > 1:
        raise ValueError("method 'optimal' needs the same epsilon in every round; use 'pld' for different ones")
    ((epsilon, rounds),) = epsilons.items()
    return optimal_total(epsilon, rounds, delta)


def _shuffled_total(epsilons: Counter[float], delta: float, method: str, clients: int) -> float:
    check_delta(delta, positive=True)
    shuffling = delta if method == "basic" else delta / 2
    each = shuffling / epsilons.total()
    amplified: Counter[float] = Counter()
    for epsilon, count in epsilons.items():
        amplified[max(ROUND_EPSILON_MIN, numeric_epsilon(epsilon, clients, each))] += count
    return _total(amplified, delta - shuffling, method)


def _fits(epsilon: float, rounds: int, total: float, delta: float, method: str, clients: int | None) -> bool:
    """Whether T rounds of ε are (total, δ)-private; for "optimal" δ is compared, which needs no search."""
    if rounds * Fraction(epsilon) <= Fraction(total):
        return True
    epsilons = Counter({epsilon: rounds})
    if clients is not None and _shuffled_total(epsilons, delta, method, clients) <= total:
        return True
    if method == "optimal":
        return optimal_fits(epsilon, rounds, total, delta)
    return _total(epsilons, delta, method) <= total
