"""Clipping against exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest

from sstq.kernels import clip_to_ball


def exact_unit(row, clip):
    """The clipped row over clip, from rational arithmetic and one square root."""
    values = [Fraction(float(v)) for v in row]
    square = sum(v * v for v in values)
    # The root of a rational whose ends fit a double, to 60 digits.
    norm = (
        Fraction(math.isqrt(int(square * 10**2400)), 10**1200)
        if square
        else Fraction(0)
    )
    longer = norm > Fraction(clip)
    return [float(v / (norm if longer else Fraction(clip))) for v in values], longer


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [1, 2, 7, 8, 9, 33])
@pytest.mark.parametrize("clip", [1e-100, 1e-3, 1.0, 1e100])
def test_rows_of_any_magnitude(dtype, dim, clip, seed):
    rng = np.random.default_rng(seed)
    exponents = (
        [-44, -38, -20, 0, 20, 37]
        if dtype == np.float32
        else [-320, -300, -100, 0, 100, 200, 307]
    )
    with np.errstate(under="ignore"):
        rows = np.concatenate(
            [rng.uniform(-1, 1, (2, dim)) * 10.0**e for e in exponents]
            + [np.zeros((1, dim))]
        )
        rows = rows.astype(dtype)
    unit, longer = clip_to_ball(rows, clip)
    assert unit.dtype == np.float32
    for row, got, cut in zip(rows, unit, longer, strict=True):
        expected, expected_cut = exact_unit(row, clip)
        assert cut == expected_cut
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-45)


def test_the_edge_of_the_ball_and_the_largest_numbers():
    unit, longer = clip_to_ball(
        np.array([[3.0, 4.0], [3.0, np.nextafter(4.0, 5.0)]]), 5.0
    )
    assert longer.tolist() == [False, True]
    np.testing.assert_allclose(unit, [[0.6, 0.8]] * 2, rtol=1e-7)
    unit, longer = clip_to_ball(np.full((1, 4), np.finfo(np.float64).max), 1.0)
    assert longer.all()
    np.testing.assert_array_equal(unit, 0.5)
    unit, longer = clip_to_ball(np.array([[1e308], [0.0]]), 1.7e308)
    assert not longer.any()
    np.testing.assert_allclose(unit, [[1 / 1.7], [0.0]], rtol=1e-7)


def test_refuses():
    with pytest.raises(TypeError, match="float32 or float64 with 2 axes, got int64"):
        clip_to_ball(np.zeros((2, 2), int), 1.0)
