import numpy as np
import pytest

from sstq.randomness import bit_source, box_muller, open_interval
from sstq.schemes.sphere import around, random_directions

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


def test_extreme_words_give_finite_numbers():
    assert np.all((open_interval(EXTREMES) > 0) & (open_interval(EXTREMES) < 1))
    np.testing.assert_array_equal(1 - open_interval(EXTREMES), open_interval(~EXTREMES))
    numbers = box_muller(np.stack([EXTREMES, EXTREMES[::-1]]))
    assert np.all(np.isfinite(numbers))
    assert np.all(np.linalg.norm(box_muller(np.zeros((2, 2), dtype=np.uint64))[:, :1], axis=1) > 0)


def test_box_muller_is_normal(seed):
    numbers = box_muller(bit_source(seed).words(200_000)).reshape(2, -1)
    # Five z-tests at |z| < 6: false-failure rate 1e-8. Var g² = 2, Var g³ = 15, Var g⁴ = 96.
    count = numbers.size**0.5
    for power, mean, deviation in ((1, 0, 1), (2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)):
        assert abs(np.mean(numbers**power) - mean) < 6 * deviation / count
    assert abs(np.mean(numbers[0] * numbers[1])) < 6 / (count / 2**0.5)


@pytest.mark.parametrize("u", [[1.0, 0, 0], [-1.0, 0, 0], [0, 0, 1.0], [0.6, -0.8, 0], [-1e-9, 1.0, 0]])
def test_around_is_a_rotation_about_the_direction(u):
    directions = np.tile(np.array(u) / np.linalg.norm(u), (2, 1))
    across = np.array([[3.0, 0.0], [0.0, 2.0]])
    vectors = around(directions, np.array([0.5, -0.5]), across)
    np.testing.assert_allclose(np.einsum("ij,ij->i", vectors, directions), [0.5, -0.5], atol=1e-15)
    rest = vectors - np.array([[0.5], [-0.5]]) * directions
    np.testing.assert_allclose(rest @ rest.T, across @ across.T, atol=1e-14)
