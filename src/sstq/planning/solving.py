"""Solving for what is left out: the error, the clients, ε or the bits; and the ε of one round and of all rounds.

MMRC and compressed PrivUnitG are left out: FrameUnit with as many public bits has less error, or the same to 1 %, and a
faster server. So are PrivUnit and its relatives, which are private only up to floating point and no better.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from decimal import ROUND_CEILING, Context

from sstq.accounting import compose, epsilon_per_round, rounds_allowed
from sstq.checks import RANGES
from sstq.mechanisms.base import Coin
from sstq.planning.offers import Family, Offer, Terms, frameunit_family, rrsc_family, sqkr_family, vqsgd_family
from sstq.planning.tuning import private_families, strata_families

EPSILON_MIN, EPSILON_MAX, _ = RANGES["epsilon"]
CLIENTS_MAX = 10**12

# Errors that differ by less count as equal, so that a predicted error can be used as a target.
_ROUNDING = 1 + 1e-9


def families(terms: Terms, epsilon: float) -> list[Family]:
    """All families that the terms allow, with ε to spend."""
    # Behind a public coin nothing is gained by sending what the coin has chosen.
    coin: Coin = "private" if terms.coin == "private" else "public"
    found = frameunit_family(terms, epsilon, coin) + sqkr_family(terms, epsilon, coin)
    if coin == "public":
        found += strata_families(terms, epsilon)
        if terms.server == "any":
            found += rrsc_family(terms, epsilon)
    if terms.coin != "public":
        found += private_families(terms, epsilon) + vqsgd_family(terms, epsilon)
    return found


def offers(found: Iterable[Family], clients: int, *, thorough: bool = False) -> list[Offer]:
    """The offers for so many clients, the least error first; unless `thorough`, without some that cannot be first."""
    made: list[Offer] = []
    for family in found:
        offer = family(clients, min((offer.mse for offer in made), default=math.inf), thorough)
        if offer is not None:
            made.append(offer)
    return sorted(made, key=lambda offer: (offer.mse, offer.bits))


def weigh(terms: Terms, epsilon: float, clients: int, *, thorough: bool = False) -> list[Offer]:
    """The offers of all families, the best first; ValueError if the bits are too few for any."""
    found = offers(families(terms, epsilon), clients, thorough=thorough)
    if not found:
        index = (terms.dim - 1).bit_length()
        raise ValueError(
            f"bits must be at least {index + 1} for a private coin at dim = {terms.dim}, got {terms.bits}: the index "
            f"alone takes {index}; pass bits={index + 1}, or coin='public', for which 1 bit is enough"
        )
    return found


def least_clients(terms: Terms, epsilon: float, target_error: float) -> int:
    """The least number of clients whose mean has the target error."""
    found, least = families(terms, epsilon), weigh(terms, epsilon, CLIENTS_MAX)[0].mse
    enough = _ROUNDING * target_error**2
    if least > enough:
        raise ValueError(
            f"target_error = {target_error:g} of clip is out of reach at epsilon = {epsilon:g}: even "
            f"{CLIENTS_MAX:.0e} clients have an error of {math.sqrt(least):.4g}"
        )
    return bisect_left(range(1, CLIENTS_MAX + 1), True, key=lambda n: offers(found, n)[0].mse <= enough) + 1


def least_epsilon(terms: Terms, clients: int, target_error: float) -> float:
    """The least ε for which the mean has the target error, rounded up to six digits."""
    from scipy.optimize import brentq

    def excess(log_epsilon: float) -> float:
        epsilon = min(max(math.exp(log_epsilon), EPSILON_MIN), EPSILON_MAX)
        return math.log(weigh(terms, epsilon, clients)[0].mse / (_ROUNDING * target_error**2))

    low, high = math.log(EPSILON_MIN), math.log(EPSILON_MAX)
    if excess(low) <= 0:
        return EPSILON_MIN
    if excess(high) > 0:
        best = math.sqrt(weigh(terms, EPSILON_MAX, clients)[0].mse)
        raise ValueError(
            f"target_error = {target_error:g} of clip is out of reach for clients = {clients}: the least error, at "
            f"epsilon = {EPSILON_MAX:g}, is {best:.4g}{_clients_instead(terms, target_error, EPSILON_MAX)}"
        )
    root = brentq(excess, low, high, xtol=1e-7, rtol=1e-7)
    six_digits = Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float
    found = float(six_digits(math.exp(root)))
    while excess(math.log(found)) > 0 and found < EPSILON_MAX:  # the error may jump there, or be found from below
        found = float(six_digits(found * (1 + 1e-5)))
    return min(found, EPSILON_MAX)


def least_bits(terms: Terms, epsilon: float, clients: int, target_error: float) -> list[Offer]:
    """The offers within the fewest bits that have the target error, the best first."""
    # No error is traded for fewer bits here: the fewest bits are already the goal.
    exact = replace(terms, slack=0.0)
    enough, found = _ROUNDING * target_error**2, weigh(exact, epsilon, clients)
    if found[0].mse > enough:
        raise ValueError(
            f"target_error = {target_error:g} of clip is out of reach for clients = {clients} at epsilon = "
            f"{epsilon:g}: the least error is {math.sqrt(found[0].mse):.4g}"
            f"{_clients_instead(terms, target_error, epsilon)}{_epsilon_instead(terms, clients, target_error)}"
        )
    # One after the other: the number of frames is rounded, so that errors may be out of order.
    for bits in range(1, min(offer.bits for offer in found if offer.mse <= enough) + 1):
        exact = replace(exact, bits=bits)
        within = offers(families(exact, epsilon), clients)
        if within and within[0].mse <= enough:
            break
    return weigh(exact, epsilon, clients, thorough=True)


def _clients_instead(terms: Terms, target_error: float, epsilon: float) -> str:
    try:
        needed = least_clients(terms, epsilon, target_error)
    except ValueError:
        return ""
    return f"; pass clients={needed} at epsilon = {epsilon:g}"


def _epsilon_instead(terms: Terms, clients: int, target_error: float) -> str:
    if weigh(terms, EPSILON_MAX, clients)[0].mse > target_error**2:
        return ""
    return f"; pass epsilon={least_epsilon(terms, clients, target_error):g} for these clients"


def allowed_epsilon(epsilon: float | None, rounds: int | None, total: float | None, delta: float) -> float | None:
    """The ε that a round may spend; None if neither it nor a total for several rounds is given."""
    if total is None or rounds is None:
        return epsilon
    each = min(EPSILON_MAX, epsilon_per_round(rounds, total, delta))
    if each < EPSILON_MIN:
        raise ValueError(
            f"total_epsilon = {total:g} leaves {each:.3g} for each of {rounds} rounds, but mechanisms need at least "
            f"{EPSILON_MIN:g}; pass rounds={rounds_allowed(EPSILON_MIN, total, delta)}"
        )
    if epsilon is None:
        return each
    fitting = rounds_allowed(epsilon, total, delta)
    if fitting < rounds:
        raise ValueError(
            f"epsilon = {epsilon:g} in {rounds} rounds is {compose(epsilon, rounds, delta):.6g} in total, above "
            f"total_epsilon = {total:g}; pass epsilon={each:.6g} or rounds={fitting}"
        )
    return epsilon


def allowed_rounds(epsilon: float, rounds: int | None, total: float | None, delta: float) -> int:
    """The number of rounds: as given, else as many as the total allows, else one."""
    if rounds is not None or total is None:
        return rounds or 1
    fitting = rounds_allowed(epsilon, total, delta)
    if not fitting:
        raise ValueError(f"epsilon must be at most total_epsilon = {total:g}, got {epsilon:g}: not even one round fits")
    return fitting
