"""Accumulation against np.add.at."""

import numpy as np
import pytest

from sstq.kernels import accumulate


@pytest.mark.parametrize("kind", ["u1", "u4", ">i8", "strided", "read-only", "unaligned"])
def test_against_add_at(kind, seed):
    def column(values):
        if kind == "strided":
            return np.repeat(values, 2)[::2]
        if kind == "unaligned":
            return np.frombuffer(b"-" + values.tobytes(), np.int64, offset=1)
        return np.frombuffer(values.tobytes(), np.int64) if kind == "read-only" else values.astype(kind)

    rng = np.random.default_rng(seed)
    table = rng.integers(-(2**40), 2**40, size=(16, 3))
    index, code = rng.integers(50, size=70_000), rng.integers(16, size=70_000)
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
