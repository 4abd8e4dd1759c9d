"""Conservative rounding, and conservative searches for the largest value that a budget allows."""

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

from sstq.checks import RANGES, ArgumentError, check_argument
from sstq.exactness import round_up

Participation = int | Literal["once"]
"""How many rounds each person answers in."""


def check_delta(delta: float, *, positive: bool = False) -> float:
    """The δ of all rounds together, which may be 0 unless `positive`; otherwise a ValueError."""
    if not positive and not isinstance(delta, bool) and delta == 0:
        return 0.0
    return float(check_argument("delta", delta, of="total_delta"))


def answers_of(participation: Any) -> int:
    """Return the number of rounds in which a person answers, from "once" or a number.

    Examples:
        >>> answers_of("once"), answers_of(3)
        (1, 3)
        >>> answers_of("often")
        Traceback (most recent call last):
        ...
        sstq.checks.ArgumentError: participation must be 'once' or an integer in [1, 1000000000], got 'often'
    """
    if participation == "once":
        return 1
    low, high, _ = RANGES["rounds"]
    if type(participation) is not int or not low <= participation <= high:
        wanted = f"must be 'once' or an integer in [{low}, {high}]"
        raise ArgumentError("participation", f"{wanted}, got {participation!r}")
    return participation


def round_down(value: Fraction) -> float:
    """The greatest double that is at most `value`."""
    # Adding zero turns a negative zero, which reads badly, into a plain one.
    return -round_up(-value) + 0.0


def furthest(
    fits: Callable[[float], bool], safe: float, limit: float, tolerance: float = 1e-12
) -> float:
    """The last number that fits between `safe`, which must fit, and `limit`; the result itself was tried."""
    if fits(limit):
        return limit
    while abs(limit - safe) > tolerance * max(safe, limit):
        middle = (safe + limit) / 2
        if fits(middle):
            safe = middle
        else:
            limit = middle
    return safe


def greatest_count(fits: Callable[[int], bool], low: int, limit: int) -> int:
    """The greatest integer in [low, limit] that fits, if all integers below one that fits also fit; `low` must fit.

    The search doubles before it bisects, because trying a count far beyond the edge may take long.
    """
    step = 1
    while low + step <= limit and fits(low + step):
        low = low + step
        step = 2 * step
    untried = range(low + 1, min(low + step, limit + 1))
    return low + bisect_left(untried, True, key=lambda count: not fits(count))
