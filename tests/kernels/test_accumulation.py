"""Accumulation against np.add.at."""

import numpy as np
import pytest

from sstq.kernels import accumulate, accumulate_vectors, compiling


@pytest.mark.parametrize("index_type", [np.int64, np.uint32])
@pytest.mark.parametrize("code_type", [np.int64, np.uint16])
def test_against_add_at(index_type, code_type, seed):
    rng = np.random.default_rng(seed)
    table = rng.integers(-(2**40), 2**40, size=(16, 3))
    index = rng.integers(50, size=5000).astype(index_type)
    code = rng.integers(16, size=5000).astype(code_type)
    state = rng.integers(1000, size=(50, 4))
    expected = state.copy()
    np.add.at(expected[:, 0], index, 1)
    np.add.at(expected[:, 1:], index, table[code])
    accumulate(state, index, code, table)
    np.testing.assert_array_equal(state, expected)


@pytest.mark.parametrize("kind", ["read-only", "unaligned", "big-endian", "strided"])
def test_every_kind_of_array_is_one_type_to_the_compiler(kind):
    def make(values):
        if kind == "big-endian":
            return np.array(values, ">i8")
        if kind == "unaligned":
            return np.frombuffer(b"-" + np.array(values).tobytes(), np.int64, offset=1)
        if kind == "strided":
            return np.repeat(values, 2)[::2]
        return np.frombuffer(np.array(values).tobytes(), np.int64)

    state, table = np.zeros((300, 4), np.int64), np.array([[5, 6, 7], [8, 9, 10]])
    accumulate(state, np.array([0]), np.array([0]), table)
    before = len(compiling._versions)
    accumulate(state, make([1, 256]), make([0, 1]), table)
    assert state[[0, 1, 256]].tolist() == [[1, 5, 6, 7], [1, 5, 6, 7], [1, 8, 9, 10]]
    assert state[:, 0].sum() == 3
    assert len(compiling._versions) == before
    with pytest.raises(ValueError, match=r"code must lie in \[0, 2\), got 256"):
        accumulate(state, make([1]), make([256]), table)


def test_the_arrays_of_the_caller_stay_writable():
    index, code = np.array([0]), np.array([0])
    accumulate(np.zeros((1, 4), np.int64), index, code, np.zeros((1, 3), np.int64))
    assert index.flags.writeable
    assert code.flags.writeable


@pytest.mark.parametrize(
    ("index", "code", "says"),
    [
        ([0, 2], [0, 0], r"index must lie in \[0, 2\), got 2"),
        ([0, -1], [0, 0], "index must lie .* -1"),
        ([0, 1], [0, 4], r"code must lie in \[0, 4\), got 4"),
        ([0, 1], [-7, 0], "code must lie .* -7"),
        ([0, 1], [0], "shape"),
    ],
)
def test_refuses_before_anything_is_added(index, code, says):
    state = np.zeros((2, 4), np.int64)
    with pytest.raises(ValueError, match=says):
        accumulate(state, np.array(index), np.array(code), np.ones((4, 3), np.int64))
    assert not state.any()


@pytest.mark.parametrize(("columns", "value_bits", "square_bits", "limit"), [(3, 44, 14, 256.0), (4, 59, 59, 1.0)])
def test_vectors_against_numpy(columns, value_bits, square_bits, limit, seed):
    rng = np.random.default_rng(seed)
    unit = float(rng.uniform(0.1, 10.0))
    vectors = unit * limit * rng.uniform(-1, 1, (50, 7)) * rng.choice([1.0, 1e-3, 0.0], (50, 7))
    state = rng.integers(0, 100, (7, columns))
    expected = state.copy()
    relative = vectors / unit
    values = np.rint(np.ldexp(relative, value_bits)).astype(np.int64)
    squares = np.rint(np.ldexp(relative**2, square_bits)).astype(np.int64)
    mask = (1 << 30) - 1
    parts = [values >> 30, values & mask, *([squares] if columns == 3 else [squares >> 30, squares & mask])]
    expected += np.stack([part.sum(axis=0) for part in parts], axis=1)
    factors = {"unit": unit, "limit": limit, "value_bits": value_bits, "square_bits": square_bits}
    assert accumulate_vectors(state, vectors, **factors)
    np.testing.assert_array_equal(state, expected)


@pytest.mark.parametrize("bad", [1.001, -1.001, np.inf, np.nan])
def test_a_number_beyond_the_limit_is_told(bad):
    vectors = np.zeros((3, 2))
    vectors[2, 1] = bad
    factors = {"unit": 1.0, "limit": 1.0, "value_bits": 10, "square_bits": 10}
    assert not accumulate_vectors(np.zeros((2, 3), np.int64), vectors, **factors)
