"""Selection of signed rows against sorting."""

import math

import numpy as np
import pytest

from sstq.kernels import pick_signed_rows
from sstq.kernels.selection import last_inside

from . import reference


def last_by_sorting(scores, inside):
    return np.argsort(-np.abs(scores), kind="stable")[inside - 1]


def last_by_kernel(scores, inside, expected):
    return last_inside(scores, expected, inside, np.empty(scores.size + 1, np.int32))


def scores_of_all_kinds(size, rng):
    yield rng.standard_normal(size)
    yield rng.integers(-3, 4, size)
    yield np.zeros(size)
    yield np.full(size, -2.5)
    yield np.where(np.arange(size) == size // 2, 1e6, rng.standard_normal(size))
    yield rng.standard_normal(size) * 10.0 ** rng.integers(-40, 38, size)
    yield np.where(rng.random(size) < 0.5, 0.0, -0.0)
    yield np.linspace(1, 1 + 1e-6, size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 256, 70_000])
def test_the_last_inside_is_that_of_sorting(size, seed):
    rng = np.random.default_rng(seed)
    for scores in scores_of_all_kinds(size, rng):
        with np.errstate(under="ignore"):
            single = scores.astype(np.float32)
        for inside in {1, 2, size // 4, size // 2, size - 1, size} & set(
            range(1, size + 1)
        ):
            for expected in (1.0, 1e-38, 1e38):
                assert last_by_kernel(single, inside, expected) == last_by_sorting(
                    single, inside
                )


def rows_by_sorting(scores, inside):
    """All signed rows by their place."""
    chosen = np.sort(np.argsort(-np.abs(scores), kind="stable")[:inside])
    rest = np.setdiff1d(np.arange(scores.size), chosen)
    signed = 2 * chosen + (scores[chosen] < 0)
    return np.concatenate(
        [signed, signed ^ 1, np.repeat(2 * rest, 2) + np.tile([0, 1], rest.size)]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dim", "size", "rounds"),
    [(1, 1, 2), (3, 4, 2), (5, 8, 3), (200, 256, 2), (300, 512, 3)],
)
def test_every_place_is_its_signed_row(dim, size, rounds, seed):
    """Three frames; a vector, its flipped copy, and vectors with scores that are tied or zero."""
    rng = np.random.default_rng(seed)
    first = rng.choice(np.float32([-1, 1]), (3, dim))
    later = rng.choice(np.float32([-1, 1]), (3, rounds - 1, size))
    gauss = rng.standard_normal(dim) / dim
    vectors = [
        gauss / max(1, np.linalg.norm(gauss)),
        np.eye(dim)[0],
        np.full(dim, dim**-0.5),
    ]
    for x, frame, flipped in zip(
        np.float32(vectors), range(3), (True, False, True), strict=True
    ):
        length = np.linalg.norm(x.astype(np.float64))
        uniform = 0.0 if flipped else 1 - 2**-53
        sign = -1 if uniform < (1 - length) / 2 else 1
        scores = np.zeros(size)
        scores[:dim] = np.float32(x * (sign / length)) * first[frame]
        scores = reference.butterflies(scores)
        for signs in later[frame]:
            scores = reference.butterflies(scores * signs)
        # Scores of the reference that are nearly tied may be ordered either way in single precision.
        order = np.sort(np.abs(scores))[::-1]
        gaps = -np.diff(order, append=-np.inf) > 1e-3 * order[0]
        exact = np.abs(scores) == np.round(np.abs(scores) * size) / size
        tried = np.flatnonzero(gaps | exact.all()) + 1
        for inside in tried[:: max(1, len(tried) // 20)]:
            places = np.arange(2 * size)
            repeated = (len(places), 1)
            picked, _ = pick_signed_rows(
                np.tile(x, repeated),
                1.0,
                np.full(len(places), uniform),
                (first, later),
                np.full(len(places), frame),
                int(inside),
                places,
            )
            np.testing.assert_array_equal(np.sort(picked), places)
            expected = rows_by_sorting(scores, inside)
            certain = np.abs(scores[expected >> 1]) > 1e-3 * order[0]
            np.testing.assert_array_equal(picked[certain], expected[certain])


def test_bad_arguments_are_refused():
    x = np.float32([[0.6, 0.8]])
    half = np.array([0.5])
    signs = np.ones((1, 2), np.float32), np.empty((1, 0, 2), np.float32)
    zero = np.array([0])
    for arguments, message in [
        ((x, 1.0, half, signs, zero, 0, zero), "inside - 1 must lie in"),
        ((x, 1.0, half, signs, zero, 3, zero), "inside - 1 must lie in"),
        ((x, 1.0, half, signs, zero, 1, zero + 4), "places must lie"),
        ((x, 1.0, half, signs, zero + 1, 1, zero), "which must lie"),
        ((x[:, :1], 1.0, half, signs, zero, 1, zero), "signs must have shape"),
        ((x, 1.0, half[:0], signs, zero, 1, zero), "uniforms must have shape"),
    ]:
        with pytest.raises(ValueError, match=message):
            pick_signed_rows(*arguments)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_only_the_direction_and_the_share_of_clip_count(dtype, seed):
    """Whatever the magnitudes: rows scaled by powers of two, with clip or beyond it, pick what the unit rows pick."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((40, 50)).astype(dtype)
    x /= 2 * np.linalg.norm(x, axis=1, keepdims=True)
    signs = (
        rng.choice(np.float32([-1, 1]), (1, 50)),
        rng.choice(np.float32([-1, 1]), (1, 1, 64)),
    )
    rest = signs, np.zeros(40, np.int64), 20, rng.integers(0, 128, 40)
    uniforms = rng.random(40)
    # The smallest are subnormal, and the numbers of x short enough to lose nothing by it.
    x = np.round(x * 2**12).astype(dtype) / 2**12
    picked, longer = pick_signed_rows(x, 1.0, uniforms, *rest)
    assert not longer.any()
    for exponent in (
        (-130, -100, 100, 120)
        if dtype == np.float32
        else (-1060, -1030, -1000, 1000, 1020)
    ):
        scaled = np.ldexp(x, exponent).astype(dtype)
        again, longer = pick_signed_rows(
            scaled, math.ldexp(1.0, exponent), uniforms, *rest
        )
        assert np.all(scaled != 0) == np.all(x != 0)
        np.testing.assert_array_equal(again, picked)
        assert not longer.any()
    # The sign of a row that is longer than clip is never flipped.
    unflipped, _ = pick_signed_rows(x, 1.0, np.full(40, 1 - 2**-53), *rest)
    clipped, longer = pick_signed_rows(x, 0.25, np.zeros(40), *rest)
    np.testing.assert_array_equal(clipped, unflipped)
    assert longer.all()
