import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sstq.exactness import (
    TOTAL,
    exp_lower,
    exp_upper,
    largest_ratio,
    log_interval,
    log_upper,
    rows_sum_to_total,
)

EPSILONS = st.floats(1e-6, 32.0)


def exp_bracket(x: Fraction, terms: int = 200) -> tuple[Fraction, Fraction]:
    """Bound e^x by its Taylor polynomial and the geometric bound of the rest: independent of ``decimal``."""
    total = Fraction(1)
    term = Fraction(1)
    for k in range(1, terms):
        term = term * x / k
        # Rounding the term down to 400 bits keeps the fractions short; the rest is covered below.
        term = Fraction(math.floor(term * (1 << 400)), 1 << 400)
        total += term
    return total, total + term + Fraction(terms, 1 << 340)


@given(EPSILONS)
def test_exp_lower_is_just_below_the_exponential(epsilon: float) -> None:
    low, high = exp_bracket(Fraction(epsilon))
    bound = exp_lower(epsilon)
    assert bound < high
    assert low * (1 - Fraction(1, 10**57)) < bound < low


@given(st.integers(1, TOTAL), st.integers(1, TOTAL))
def test_log_upper_is_the_next_double_above_the_logarithm(
    first: int, second: int
) -> None:
    ratio = Fraction(max(first, second), min(first, second))
    bound = log_upper(ratio)
    assert exp_bracket(Fraction(bound))[1] >= ratio
    if ratio > 1:
        assert exp_bracket(Fraction(math.nextafter(bound, 0.0)))[0] < ratio


@given(st.integers(1, 2**124), st.integers(1, TOTAL))
def test_both_ends_of_a_log_interval_are_on_their_side(first: int, second: int) -> None:
    """Against mpmath, at all digits and at few."""
    ratio = Fraction(max(first, second), min(first, second))
    with mpmath.workdps(90):
        logarithm = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        for digits in (60, 30, 5):
            lower, upper = log_interval(ratio, digits)
            width = (
                mpmath.mpf(10) ** (2 - digits) * (1 + logarithm) + mpmath.mpf(10) ** -57
            )
            assert (
                mpmath.mpf(str(lower))
                <= logarithm
                <= mpmath.mpf(str(upper))
                <= mpmath.mpf(str(lower)) + width
            )


def test_an_interval_holds_more_than_its_nearest_digits() -> None:
    """At 60 digits the nearest number is on the wrong side about half the time."""
    with mpmath.workdps(130):
        # Near 1 the logarithm has digits that the quotient does not have.
        near = [
            Fraction(3 * 10**zeros + number, 3 * 10**zeros)
            for zeros in (5, 30)
            for number in (1, 4, 7)
        ]
        for ratio in [*map(Fraction, range(2, 60)), *near]:
            lower, upper = log_interval(ratio, 60)
            logarithm = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
            assert mpmath.mpf(str(lower)) < logarithm < mpmath.mpf(str(upper))


def test_log_upper_refuses_ratios_below_one() -> None:
    with pytest.raises(ValueError, match="ratio must be at least 1, got 1/2"):
        log_upper(Fraction(1, 2))


@given(st.lists(st.integers(0, TOTAL), min_size=1, max_size=64))
def test_row_sums_are_those_of_unbounded_integers(row: list[int]) -> None:
    assert rows_sum_to_total(np.array([row])).tolist() == [sum(row) == TOTAL]


@given(EPSILONS)
def test_exp_upper_is_just_above_the_exponential(epsilon: float) -> None:
    low, high = exp_bracket(Fraction(epsilon))
    bound = exp_upper(epsilon)
    assert low < bound
    assert high < bound < high * (1 + Fraction(1, 10**57))


@pytest.mark.parametrize(
    ("row", "sums"),
    [
        ([TOTAL // 2, TOTAL // 2], True),
        ([TOTAL // 2, TOTAL // 2 + 1], False),
        ([TOTAL // 2, TOTAL // 2 - 1], False),
        ([TOTAL - 2**30, 2**30], True),
        ([TOTAL - 2**30, 2**30 - 1, 1], True),
        ([TOTAL - 2**31, 2**30], False),
        ([TOTAL, 2**31], False),
    ],
)
def test_low_and_high_halves_of_a_row_count(row: list[int], sums: bool) -> None:
    assert (sum(row) == TOTAL) == sums
    assert rows_sum_to_total(np.array([row])).tolist() == [sums]


def test_a_row_sum_that_wraps_around_in_64_bits_is_seen() -> None:
    row = [TOTAL] * 5  # 5·2^62 = 2^62 modulo 2^64
    assert np.array(row).sum() == TOTAL
    assert not rows_sum_to_total(np.array([row])).any()


@given(st.lists(st.tuples(st.integers(1, TOTAL), st.integers(1, TOTAL)), min_size=1))
def test_largest_ratio(pairs: list[tuple[int, int]]) -> None:
    tops, bottoms = np.array(pairs).T
    assert largest_ratio(tops, bottoms) == max(
        Fraction(top, bottom) for top, bottom in pairs
    )
