"""Exact arithmetic for privacy: bounds on exp and log that are always on the safe side.

A channel is ε-LDP when every column of its weight matrix satisfies max/min ≤ e^ε, where ε is the exact value of a
double. Both sides are compared as rationals. Python's ``decimal`` rounds ``exp`` and ``ln`` correctly, so that one unit
in the last place settles the direction.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from sstq.array_types import Bools, Ints

WORD_BITS = 62
TOTAL = 1 << WORD_BITS
"""Every row of a channel sums to this: one draw of 62 uniform bits decides."""

_DIGITS = 60


def exp_lower(epsilon: float) -> Fraction:
    """Return a rational lower bound of e^ε, within a relative 1e-58 of it, for the exact value of the double ε.

    Examples:
        >>> exp_lower(1.0) < Fraction("2.718281828459045235360287471352662497757247093699959574966968")
        True
    """
    context = Context(prec=_DIGITS)
    # exp is within half a unit of the last place, so one whole unit down is strictly below.
    return Fraction(context.next_minus(context.exp(Decimal(epsilon))))


def exp_upper(epsilon: float) -> Fraction:
    """Return a rational upper bound of e^ε, as close as `exp_lower`.

    Examples:
        >>> exp_lower(1.0) < exp_upper(1.0) < exp_lower(1.0) * (1 + Fraction(1, 10**58))
        True
    """
    context = Context(prec=_DIGITS)
    return Fraction(context.next_plus(context.exp(Decimal(epsilon))))


def log_interval(ratio: Fraction, digits: int = 30) -> tuple[Decimal, Decimal]:
    """Return two decimal numbers of at most 60 digits with log(ratio) between them, for a ratio of at least 1.

    Examples:
        >>> log_interval(Fraction(2))
        (Decimal('0.693147180559945309417232121458'), Decimal('0.693147180559945309417232121459'))
    """
    if ratio < 1:
        raise ValueError(f"ratio must be at least 1, got {ratio}")
    if ratio == 1:
        return Decimal(0), Decimal(0)
    top = Decimal(ratio.numerator)
    bottom = Decimal(ratio.denominator)
    down, up = (
        Context(prec=_DIGITS, rounding=way) for way in (ROUND_FLOOR, ROUND_CEILING)
    )
    # ln is within half a unit of the last place, so one whole unit settles the direction.
    least = down.next_minus(down.ln(down.divide(top, bottom)))
    most = up.next_plus(up.ln(up.divide(top, bottom)))
    down.prec = up.prec = digits
    return down.plus(least), up.plus(most)


def log_upper(ratio: Fraction) -> float:
    """Return log(ratio), ratio ≥ 1, rounded up to a double.

    Examples:
        >>> exp_lower(math.nextafter(log_upper(Fraction(20)), 0)) < 20 < exp_lower(log_upper(Fraction(20)))
        True
    """
    bound = log_interval(ratio, _DIGITS)[1]
    nearest = float(bound)
    return nearest if Decimal(nearest) >= bound else math.nextafter(nearest, math.inf)


def round_up(value: Fraction) -> float:
    """The least double that is at least `value`.

    Examples:
        >>> round_up(3 * Fraction(0.1)) > 3 * Fraction(0.1) > Fraction(0.3)
        True
    """
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def rows_sum_to_total(weights: Ints) -> Bools:
    """Return for each row of non-negative int64 weights whether it sums to exactly 2^62.

    The halves of each weight are added separately: a plain int64 sum of tampered weights could wrap around to 2^62.
    """
    half = WORD_BITS // 2
    mask = (1 << WORD_BITS // 2) - 1
    low = (weights & mask).sum(axis=1)
    high = (weights >> half).sum(axis=1) + (low >> half)
    exact: Bools = (high == 1 << half) & (low & mask == 0)
    return exact


def largest_ratio(tops: Ints, bottoms: Ints) -> Fraction:
    """Return the largest tops/bottoms over the columns, exactly; columns of zeros do not count."""
    best_top = 0
    best_bottom = 1
    for top, bottom in zip(tops.tolist(), bottoms.tolist(), strict=True):
        if top * best_bottom > best_top * bottom:
            best_top = top
            best_bottom = bottom
    return Fraction(best_top, best_bottom)
