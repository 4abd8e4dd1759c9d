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
    bound = 1.01 * levels * rounding * np.sqrt(size) * np.linalg.norm(np.float64(x), axis=-1)
    assert np.all(np.linalg.norm(result - exact, axis=-1) <= bound)


@pytest.mark.parametrize("bits", range(9))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_integers_give_the_dense_matrix_exactly(bits, dtype):
    x = np.eye(1 << bits, dtype=dtype)
    hadamard_transform(x)
    np.testing.assert_array_equal(x, hadamard(1 << bits))


@pytest.mark.parametrize("bits", [*range(14), 15, 16, 17, 18, 19])
def test_single_precision(bits, seed):
    x = np.random.default_rng(seed).standard_normal((3, 1 << bits)).astype(np.float32)
    result = x.copy()
    hadamard_transform(result)
    assert_close(result, butterflies(x), x, FLOAT32_ROUNDING)


@pytest.mark.parametrize("bits", [*range(14), 16, 18])
def test_double_precision(bits, seed):
    x = np.random.default_rng(seed).standard_normal((2, 1 << bits))
    result = x.copy()
    hadamard_transform(result)
    # Twice the bound: the reference rounds as well.
    assert_close(result, butterflies(x), x, 2 * 2.0**-53)


def test_one_vector_and_an_odd_address(seed):
    x = np.random.default_rng(seed).standard_normal(4097).astype(np.float32)
    result = x.copy()
    view = result[1:]
    hadamard_transform(view)
    assert_close(view, butterflies(x[1:]), x[1:], FLOAT32_ROUNDING)
    assert result[0] == x[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_do_not_change_a_bit(dtype, seed, monkeypatch):
    x = np.random.default_rng(seed).standard_normal((37, 1 << 13)).astype(dtype)
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("SSTQ_THREADS", threads)
        results.append(x.copy())
        hadamard_transform(results[-1])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_no_rows():
    hadamard_transform(np.empty((0, 8), np.float32))


@pytest.mark.parametrize(
    ("x", "error", "says"),
    [
        (np.zeros(3, np.float32), ValueError, "power of two, got 3"),
        (np.zeros(0, np.float32), ValueError, "power of two"),
        (np.zeros((1, 2, 4), np.float32), ValueError, "dimensions"),
        (np.zeros((4, 4), np.float32)[:, ::2], ValueError, "contiguous"),
        (np.zeros(4, np.int64), TypeError, "int64"),
        ([1.0, 2.0], TypeError, "list"),
    ],
)
def test_refuses(x, error, says):
    with pytest.raises(error, match=says):
        hadamard_transform(x)


def test_refuses_read_only_rows():
    x = np.zeros(4, np.float32)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        hadamard_transform(x)
