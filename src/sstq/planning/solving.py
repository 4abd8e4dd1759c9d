"""Solving for what is left out: the error, the clients, ε or the bits."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace

from sstq.planning.families import families, offers
from sstq.planning.offers import Offer, Terms

__all__ = ["CLIENTS_MAX", "EPSILON_MAX", "EPSILON_MIN", "least_bits", "least_clients", "least_epsilon", "weigh"]

EPSILON_MIN, EPSILON_MAX = 0.01, 20.0
"""The ε that mechanisms take."""

CLIENTS_MAX = 10**12
"""More clients than there are."""

# Errors that differ by less are the same: an error that was predicted can be asked for again.
_ROUNDING = 1 + 1e-9
# ε is found to this share, and then rounded up to six digits.
_EPSILON_TOLERANCE = 1e-7


def weigh(terms: Terms, epsilon: float, clients: int, *, thorough: bool = False) -> list[Offer]:
    """The offers, the best first; ValueError if the bits are too few for any.

    Unless `thorough`, some that cannot be the first are left out.

    Examples:
        >>> best = weigh(Terms(1000, None, "private", "fast", None, slack=0.02), 3.0, 100)[0]
        >>> best.name, best.bits
        ('frameunit', 12)
    """
    found = offers(families(terms, epsilon), clients, thorough=thorough)
    if not found:
        raise ValueError(
            f"bits = {terms.bits} is too little for a private coin at dim = {terms.dim}: the index alone takes "
            f"{(terms.dim - 1).bit_length()}; the closest are bits = {(terms.dim - 1).bit_length() + 1}, or "
            "coin = 'public', for which 1 bit is enough"
        )
    return found


def least_clients(terms: Terms, epsilon: float, target_error: float) -> int:
    """The least number of clients whose mean has the target error."""
    found = families(terms, epsilon)

    def reached(clients: int) -> bool:
        return offers(found, clients)[0].mse <= _ROUNDING * target_error**2

    best = weigh(terms, epsilon, CLIENTS_MAX)[0]
    if not reached(CLIENTS_MAX):
        raise ValueError(
            f"target_error = {target_error:g} of clip is out of reach at epsilon = {epsilon:g}: the closest that even "
            f"{CLIENTS_MAX:.0e} clients have is {math.sqrt(best.mse):.4g}"
        )
    return bisect_left(range(1, CLIENTS_MAX + 1), True, key=reached) + 1


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
            f"target_error = {target_error:g} of clip is out of reach for clients = {clients}: the closest that "
            f"epsilon = {EPSILON_MAX:g} has is {best:.4g}{_clients_instead(terms, target_error)}"
        )
    root = brentq(excess, low, high, xtol=_EPSILON_TOLERANCE, rtol=_EPSILON_TOLERANCE)
    found = _rounded_up(math.exp(root))
    while excess(math.log(found)) > 0 and found < EPSILON_MAX:  # the error may jump there, or be found from below
        found = _rounded_up(found * (1 + 1e-5))
    return min(found, EPSILON_MAX)


def least_bits(terms: Terms, epsilon: float, clients: int, target_error: float) -> list[Offer]:
    """The offers within the fewest bits that have the target error, the best first."""
    # Nothing is given up for fewer bits here: they are what is asked for.
    exact = replace(terms, slack=0.0)
    all_of_them = weigh(exact, epsilon, clients)
    best = all_of_them[0]

    def reached(offer: Offer) -> bool:
        return offer.mse <= _ROUNDING * target_error**2

    if not reached(best):
        raise ValueError(
            f"target_error = {target_error:g} of clip is out of reach for clients = {clients} at epsilon = "
            f"{epsilon:g}: the closest is {math.sqrt(best.mse):.4g}"
            + _clients_instead(terms, target_error, epsilon)
            + _epsilon_instead(terms, clients, target_error)
        )
    shortest = min(offer.bits for offer in all_of_them if reached(offer))

    def enough(bits: int) -> bool:
        within = offers(families(replace(exact, bits=bits), epsilon), clients)
        return bool(within) and reached(within[0])

    fewest = min(bisect_left(range(1, shortest + 1), True, key=enough) + 1, shortest)
    while fewest > 1 and enough(fewest - 1):  # the number of frames is rounded, so that errors may be out of order
        fewest -= 1
    return weigh(replace(exact, bits=fewest), epsilon, clients, thorough=True)


def _clients_instead(terms: Terms, target_error: float, epsilon: float = EPSILON_MAX) -> str:
    """Say how many clients would do, if any number would."""
    try:
        needed = least_clients(terms, epsilon, target_error)
    except ValueError:
        return ""
    return f"; {needed} clients would have it at epsilon = {epsilon:g}"


def _epsilon_instead(terms: Terms, clients: int, target_error: float) -> str:
    """Say which ε would do, if any would."""
    if weigh(terms, EPSILON_MAX, clients)[0].mse > target_error**2:
        return ""
    return f"; these clients would have it at epsilon = {least_epsilon(terms, clients, target_error):g}"


def _rounded_up(value: float) -> float:
    """Six digits, on the side of more ε.

    Examples:
        >>> _rounded_up(0.1234561), _rounded_up(3.0)
        (0.123457, 3.0)
    """
    from decimal import ROUND_CEILING, Context, Decimal

    return float(Context(prec=6, rounding=ROUND_CEILING).plus(Decimal(value)))
