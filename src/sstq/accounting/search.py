"""Searches for the edge of what a budget allows. The answer always lies on the safe side: it was tried itself."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["greatest_count", "greatest_number", "least_number"]

_TOLERANCE = 1e-12


def least_number(fits: Callable[[float], bool], low: float, high: float) -> float:
    """Return the least number in [low, high] that fits, where all above one that fits do; `high` must.

    Examples:
        >>> least_number(lambda x: x * x >= 2, 0.0, 2.0)
        1.41421356237...
    """
    if fits(low):
        return low
    while high - low > _TOLERANCE * high:
        middle = (low + high) / 2
        if fits(middle):
            high = middle
        else:
            low = middle
    return high


def greatest_number(fits: Callable[[float], bool], low: float, high: float) -> float:
    """Return the greatest number in [low, high] that fits, where all below one that fits do; `low` must.

    Examples:
        >>> greatest_number(lambda x: x * x <= 2, 0.0, 2.0)
        1.41421356237...
    """
    if fits(high):
        return high
    while high - low > _TOLERANCE * high:
        middle = (low + high) / 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def greatest_count(fits: Callable[[int], bool], low: int, limit: int) -> int:
    """Return the greatest integer in [low, limit] that fits, where all below one that fits do; `low` must.

    It doubles before it halves, because trying a count far beyond the edge may be dear.

    Examples:
        >>> greatest_count(lambda count: count * count <= 1000, 0, 10**9)
        31
        >>> greatest_count(lambda count: True, 0, 100)
        100
    """
    step = 1
    while low + step <= limit and fits(low + step):
        low, step = low + step, 2 * step
    beyond = min(low + step, limit + 1)
    while beyond - low > 1:
        middle = (low + beyond) // 2
        if fits(middle):
            low = middle
        else:
            beyond = middle
    return low
