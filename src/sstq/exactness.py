"""Exact arithmetic for privacy: bounds on exp and log that never err on the wrong side.

A channel is ε-LDP when every column of its weight matrix satisfies max/min ≤ e^ε, where ε is the exact value of a
double. Both sides are compared as rationals: `exp_lower` is a rational just below e^ε and `log_upper` a
double just above the logarithm of a rational. Python's ``decimal`` rounds ``exp`` and ``ln`` correctly, so that one
unit in the last place settles the direction.
"""

import math
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

WORD_BITS = 62
TOTAL = 1 << WORD_BITS
"""Every row of a channel sums to this: one draw of 62 uniform bits decides."""

EPSILON_MIN, EPSILON_MAX = 1e-6, 32.0
"""Outside this range 62-bit weights cannot follow ε closely: e^32 is already 2^46."""

_DIGITS = 60
_HALF_BITS = WORD_BITS // 2


def check_epsilon(epsilon: float) -> float:
    """Return ``epsilon`` as a float, or say why it cannot be a privacy budget.

    Examples:
        >>> check_epsilon(3)
        3.0
        >>> check_epsilon(-1.0)
        Traceback (most recent call last):
        ...
        ValueError: epsilon = -1.0 is not in [1e-06, 32.0]
    """
    # Compared as it is: an integer may be too large for a float.
    if not EPSILON_MIN <= epsilon <= EPSILON_MAX:
        raise ValueError(f"epsilon = {epsilon!r} is not in [{EPSILON_MIN}, {EPSILON_MAX}]")
    return float(epsilon)


def exp_lower(epsilon: float) -> Fraction:
    """Return a rational lower bound of e^ε, within a relative 1e-58 of it, for the exact value of the double ε.

    Examples:
        >>> bound = exp_lower(1.0)
        >>> bound < Fraction("2.718281828459045235360287471352662497757247093699959574966968")
        True
        >>> float(bound) == math.e
        True
    """
    context = Context(prec=_DIGITS)
    # exp is within half a unit of the last place, so one whole unit down is strictly below.
    return Fraction(context.next_minus(context.exp(Decimal(epsilon))))


def log_upper(ratio: Fraction) -> float:
    """Return log(ratio), ratio ≥ 1, rounded up to a double.

    Examples:
        >>> log_upper(Fraction(1))
        0.0
        >>> exp_lower(math.nextafter(log_upper(Fraction(20)), 0)) < 20 < exp_lower(log_upper(Fraction(20)))
        True
    """
    if ratio < 1:
        raise ValueError(f"ratio = {ratio} is not at least 1")
    if ratio == 1:
        return 0.0
    context = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    quotient = context.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    bound = context.next_plus(context.ln(quotient))
    nearest = float(bound)
    return nearest if Decimal(nearest) >= bound else math.nextafter(nearest, math.inf)


def rows_sum_to_total(weights: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say for each row of non-negative int64 weights whether it sums to exactly 2^62.

    The halves of each weight are added apart: a plain int64 sum of tampered weights could wrap around to 2^62.

    Examples:
        >>> rows_sum_to_total(np.array([[TOTAL - 1, 1], [TOTAL, TOTAL], [5, 5]]))
        array([ True, False, False])
    """
    low = (weights & ((1 << _HALF_BITS) - 1)).sum(axis=1)
    high = (weights >> _HALF_BITS).sum(axis=1) + (low >> _HALF_BITS)
    exact: NDArray[np.bool_] = (high == 1 << _HALF_BITS) & (low & ((1 << _HALF_BITS) - 1) == 0)
    return exact


def largest_ratio(tops: NDArray[np.int64], bottoms: NDArray[np.int64]) -> Fraction:
    """Return the largest tops/bottoms over the columns, exactly; all bottoms are positive.

    Examples:
        >>> largest_ratio(np.array([3, 10, 7]), np.array([2, 5, 4]))
        Fraction(2, 1)
    """
    best_top, best_bottom = 0, 1
    for top, bottom in zip(tops.tolist(), bottoms.tolist(), strict=True):
        if top * best_bottom > best_top * bottom:
            best_top, best_bottom = top, bottom
    return Fraction(best_top, best_bottom)
