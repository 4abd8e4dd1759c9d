import numpy as np
import pytest

from sstq.mechanisms.sphere import random_directions
from sstq.randomness.secret import bit_source, open_interval

EXTREMES = np.array([0, 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)


@pytest.mark.parametrize("norm", [1.0, 0.75, 0.5, 2.0**-20, 1e-40])
def test_the_expected_direction_is_the_vector(norm):
    # All words of a grid, so that the average over them is exact to one step of it.
    steps = 1 << 12
    words = np.arange(steps, dtype=np.uint64) << np.uint64(52)
    x = np.float32([0.0, -0.6 * norm, 0.8 * norm])
    directions = random_directions(np.tile(x, (steps, 1)), words)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(directions.mean(axis=0), x, atol=1.1 / steps)


def test_zero_becomes_a_fair_sign_of_the_first_axis():
    words = np.array([0, 2**62, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    directions = random_directions(np.zeros((5, 3), dtype=np.float32), words)
    np.testing.assert_array_equal(directions, np.outer([-1, -1, -1, 1, 1], [1, 0, 0]))


def test_unit_vectors_are_hardly_ever_flipped(seed):
    x = np.random.default_rng(seed).standard_normal((1000, 7))
    unit = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    directions = random_directions(unit, bit_source(seed).words(1000))
    # Rounding to single precision leaves 1 − ‖x‖ below 1e-6: a thousand rows flip with probability below 1e-3.
    assert np.sum(np.einsum("ij,ij->i", directions, unit) < 0) <= 3


def test_extreme_words_are_inside_the_open_interval():
    assert np.all((open_interval(EXTREMES) > 0) & (open_interval(EXTREMES) < 1))
    np.testing.assert_array_equal(1 - open_interval(EXTREMES), open_interval(~EXTREMES))
