"""Accumulation and partial sums against NumPy."""

import numpy as np
import pytest

from sstq import kernels
from sstq.kernels import accumulate, accumulate_vectors, count_passed


@pytest.mark.parametrize(
    "kind", ["u1", "u4", ">i8", "strided", "read-only", "unaligned"]
)
def test_against_add_at(kind, seed):
    def column(values):
        if kind == "strided":
            return np.repeat(values, 2)[::2]
        if kind == "unaligned":
            return np.frombuffer(b"-" + values.tobytes(), np.int64, offset=1)
        return (
            np.frombuffer(values.tobytes(), np.int64)
            if kind == "read-only"
            else values.astype(kind)
        )

    rng = np.random.default_rng(seed)
    table = rng.integers(-(2**40), 2**40, size=(16, 3))
    index = rng.integers(50, size=70_000)
    code = rng.integers(16, size=70_000)
    state = rng.integers(1000, size=(50, 4))
    expected = state.copy()
    np.add.at(expected[:, 0], index, 1)
    np.add.at(expected[:, 1:], index, table[code])
    accumulate(state, column(index), column(code), table)
    np.testing.assert_array_equal(state, expected)


@pytest.mark.parametrize(
    ("index", "code", "says"),
    [
        ([0, 2], [0, 0], r"index must lie in \[0, 2\), got 2"),
        ([0, -1], [0, 0], "index must lie .* -1"),
        ([0, 1], [0, 1 << 32], r"code must lie in \[0, 4\), got 4294967296"),
        ([0, 1], [-7, 0], "code must lie .* -7"),
        ([0, 1], [0], "shape"),
    ],
)
def test_refuses_before_anything_is_added(index, code, says):
    state = np.zeros((2, 4), np.int64)
    with pytest.raises(ValueError, match=says):
        accumulate(state, np.array(index), np.array(code), np.ones((4, 3), np.int64))
    assert not state.any()


@pytest.mark.parametrize(
    ("columns", "value_bits", "square_bits", "limit"),
    [(3, 44, 14, 256.0), (4, 59, 59, 1.0)],
)
def test_vectors_against_numpy(columns, value_bits, square_bits, limit, seed):
    rng = np.random.default_rng(seed)
    unit = float(rng.uniform(0.1, 10.0))
    vectors = (
        unit
        * limit
        * rng.uniform(-1, 1, (50, 7))
        * rng.choice([1.0, 1e-3, 0.0], (50, 7))
    )
    state = rng.integers(0, 100, (7, columns))
    expected = state.copy()
    relative = vectors / unit
    values = np.rint(np.ldexp(relative, value_bits)).astype(np.int64)
    squares = np.rint(np.ldexp(relative**2, square_bits)).astype(np.int64)
    mask = (1 << 30) - 1
    parts = [
        values >> 30,
        values & mask,
        *([squares] if columns == 3 else [squares >> 30, squares & mask]),
    ]
    expected += np.stack([part.sum(axis=0) for part in parts], axis=1)
    assert accumulate_vectors(state, vectors, unit, limit, value_bits, square_bits)
    np.testing.assert_array_equal(state, expected)


@pytest.mark.parametrize("bad", [1.001, -1.001, np.inf, np.nan])
def test_a_number_beyond_the_limit_is_told(bad):
    vectors = np.zeros((3, 2))
    vectors[2, 1] = bad
    assert not accumulate_vectors(np.zeros((2, 3), np.int64), vectors, 1.0, 1.0, 10, 10)


def test_a_state_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="one row of 3 or 4 integers per coordinate"):
        accumulate_vectors(np.zeros((3, 3), np.int64), np.zeros((1, 2)), 1.0, 1.0, 1, 1)


def test_partial_sums_against_numpy(seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((300, 40)).astype(np.float32)
    uniforms = rng.random(300)
    sums = np.cumsum(np.abs(rows), axis=1, dtype=np.float64) * 0.03
    np.testing.assert_array_equal(
        count_passed(rows, uniforms, 0.03), np.sum(sums <= uniforms[:, None], axis=1)
    )


@pytest.mark.parametrize(
    ("size", "length", "count"), [(1, 1, 3), (7, 0, 2), (13, 5, 40), (101, 300, 5000)]
)
def test_walks_visit_places_as_counted_one_by_one(size, length, count, seed):
    rng = np.random.default_rng(seed)
    first, step = rng.integers(size, size=(2, count))
    times = rng.integers(5, size=count)
    expected = np.zeros(size, np.int64)
    for place, stride, many in zip(first, step, times, strict=True):
        np.add.at(expected, (place + stride * np.arange(length)) % size, many)
    np.testing.assert_array_equal(
        kernels.count_walks(first, step, times, length, size), expected
    )


def test_walks_outside_of_the_places_are_refused():
    one = np.ones(1, np.int64)
    for first, step in ((7 * one, one), (one, 7 * one), (-one, one)):
        with pytest.raises(ValueError, match="must lie in"):
            kernels.count_walks(first, step, one, 1, 7)
