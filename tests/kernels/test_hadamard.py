"""The fast transform against dense matrices and float64 butterflies."""

import numpy as np
import pytest
from scipy.linalg import hadamard

from sstq.kernels import hadamard_transform

from .reference import FLOAT32_ROUNDING, butterflies


def assert_close(result, exact, x, rounding):
    # Every level of butterflies is orthogonal up to √2 and rounds each output once, relatively by at most `rounding`.
    # So ‖error‖₂ ≤ ((1 + rounding)^levels − 1)·√N·‖x‖₂.
    size = x.shape[-1]
    levels = max(1, size.bit_length() - 1)
    bound = (
        1.01
        * levels
        * rounding
        * np.sqrt(size)
        * np.linalg.norm(np.float64(x), axis=-1)
    )
    assert np.all(np.linalg.norm(result - exact, axis=-1) <= bound)


@pytest.mark.parametrize("bits", range(9))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_integers_give_the_dense_matrix_exactly(bits, dtype):
    x = np.eye(1 << bits, dtype=dtype)
    hadamard_transform(x)
    np.testing.assert_array_equal(x, hadamard(1 << bits))


# In double precision twice the bound: the reference rounds as well.
@pytest.mark.parametrize(
    ("dtype", "rounding"), [(np.float32, FLOAT32_ROUNDING), (np.float64, 2 * 2.0**-53)]
)
@pytest.mark.parametrize("bits", [*range(14), 16, 18, 19])
def test_against_butterflies(bits, dtype, rounding, seed):
    x = np.random.default_rng(seed).standard_normal((3, 1 << bits)).astype(dtype)
    result = x.copy()
    hadamard_transform(result)
    assert_close(result, butterflies(x), x, rounding)


def test_one_vector_and_an_odd_address(seed):
    x = np.random.default_rng(seed).standard_normal(4097).astype(np.float32)
    result = x.copy()
    view = result[1:]
    hadamard_transform(view)
    assert_close(view, butterflies(x[1:]), x[1:], FLOAT32_ROUNDING)
    assert result[0] == x[0]


@pytest.mark.parametrize(
    ("x", "error", "says"),
    [
        (np.zeros(3, np.float32), ValueError, "power of two, got 3"),
        (np.zeros((4, 4), np.float32)[:, ::2], ValueError, "contiguous"),
        (np.frombuffer(bytes(16), np.float32), ValueError, "writable"),
        (np.zeros(4, np.int64), TypeError, "int64"),
        ([1.0, 2.0], TypeError, "list"),
    ],
)
def test_refuses(x, error, says):
    with pytest.raises(error, match=says):
        hadamard_transform(x)
