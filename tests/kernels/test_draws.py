"""Normal numbers and vectors around a direction, against NumPy and exact arithmetic."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from sstq.kernels import box_muller, draw_around
from sstq.randomness.secret import bit_source, open_interval

# Both ends, the borders of quarters and of eighths of the circle, and 1/√2, where the logarithm changes its exponent.
EXTREMES = np.array(
    [
        0,
        1,
        2**12,
        2**61,
        2**61 - 1,
        2**62,
        2**63 - 1,
        2**63,
        2**64 - 1,
        13043817825332782212,
        13043817825332782213,
    ],
    dtype=np.uint64,
)


def in_numpy(words):
    """The formula in NumPy, with the angle as a fraction of the circle to 53 bits."""
    radius, angle = np.split(open_interval(words), 2, axis=-1)
    length = np.sqrt(-2 * np.log(radius))
    return np.concatenate(
        [length * np.cos(2 * np.pi * angle), length * np.sin(2 * np.pi * angle)],
        axis=-1,
    )


def test_the_formula_in_numpy(seed):
    words = bit_source(seed).words(3 * 20_002).reshape(3, -1)
    # 2πa rounds to 4.4e-16 at worst and a itself is 1.1e-16 of the circle off, times a radius of at most 8.6.
    np.testing.assert_allclose(box_muller(words), in_numpy(words), rtol=0, atol=2e-14)


def test_extremes_in_exact_arithmetic():
    pairs = np.stack(np.meshgrid(EXTREMES, EXTREMES), axis=-1).reshape(-1, 2)
    with mpmath.workprec(200):
        for (radius, angle), found in zip(
            pairs.tolist(), box_muller(pairs).tolist(), strict=True
        ):
            u = Fraction(2 * (radius >> 12) + 1, 2**53)
            turned = (angle + 2**61) % 2**64
            quarter, place = divmod(turned << 2, 2**64)
            a = quarter + Fraction(2 * (place >> 12) + 1, 2**53) - Fraction(1, 2)
            r = mpmath.sqrt(-2 * mpmath.log(mpmath.mpf(u.numerator) / u.denominator))
            a = mpmath.pi / 2 * a.numerator / a.denominator
            for exact, number in (
                (r * mpmath.cos(a), found[0]),
                (r * mpmath.sin(a), found[1]),
            ):
                assert number != 0
                # A few roundings of 2^-53 each, relatively: small numbers are as exact as large ones.
                assert abs(number / exact - 1) < 8 * 2.0**-53


@pytest.mark.parametrize("to_length", [False, True])
@pytest.mark.parametrize("dim", [2, 3, 16, 17, 1000])
def test_a_reflection_in_numpy(dim, to_length, seed):
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((5, dim))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    words = bit_source(seed).words(5 * (dim // 2 * 2)).reshape(5, -1)
    t = rng.standard_normal(5)
    scale = dim**-0.5
    sign = np.where(u[:, :1] < 0, -1.0, 1.0)
    h = u + sign * np.eye(dim)[0]
    across = in_numpy(words)[:, : dim - 1]
    if to_length:
        across /= np.linalg.norm(across, axis=1, keepdims=True)
    before = np.concatenate([-sign * t[:, None], scale * across], axis=1)
    exact = (
        before
        - 2
        * np.sum(h * before, axis=1, keepdims=True)
        / np.sum(h * h, axis=1, keepdims=True)
        * h
    )
    vectors = draw_around(u, t, np.full(5, scale), words, to_length=to_length)
    np.testing.assert_allclose(vectors, exact, rtol=2.0**-23, atol=1e-13)


def test_refuses():
    words = np.zeros((1, 3), np.uint64)
    one = np.zeros(1)
    with pytest.raises(ValueError, match="even number of columns"):
        box_muller(words)
    with pytest.raises(ValueError, match="do not suffice"):
        draw_around(np.zeros((1, 4)), one, one, words, to_length=True)
    with pytest.raises(ValueError, match=r"along must have shape \(2,\), got \(1,\)"):
        draw_around(np.zeros((2, 2)), one, one, words, to_length=True)
