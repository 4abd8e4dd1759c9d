"""References that run in the same process (NumPy, BLAS, other libraries, copying memory), and shared set-ups."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from sstq import SSTQ, kernels
from sstq.frames.tight import HadamardFrame

# The network of the paper's experiments.
DIM = 25_450
EPSILON = 3.0
BITS = 4
MILLION = 1e6

Floats = NDArray[np.float32]

# Factors of 64 × 64 keep BLAS busy without wasting arithmetic: 64 multiplications per element for six butterflies.
_FACTOR_BITS = 6


def threads(count: int) -> AbstractContextManager[object]:
    """Set the number of threads of the kernels within the block."""
    return patch.dict(os.environ, {"SSTQ_THREADS": str(count)})


def blas_on_one_thread() -> AbstractContextManager[object]:
    """Limit BLAS to one thread if threadpoolctl is installed (scikit-learn installs it); otherwise change nothing."""
    if find_spec("threadpoolctl") is None:
        return nullcontext()
    limits: AbstractContextManager[object] = import_module(
        "threadpoolctl"
    ).threadpool_limits(1)
    return limits


def aligned_zeros(rows: int, size: int) -> Floats:
    """Return float32 rows on cache lines, whatever the allocator would choose.

    Rows that are not on cache lines slow down every implementation, but not equally. They are zero, so that
    transforming them again and again stays finite.
    """
    buffer = np.zeros(rows * size + 16, np.float32)
    start = -(buffer.ctypes.data // 4) % 16
    return buffer[start : start + rows * size].reshape(rows, size)


def numpy_butterflies(x: NDArray[Any]) -> None:
    """Hadamard transform of the last axis in place, one NumPy operation for all butterflies of a level."""
    half = 1
    while half < x.shape[-1]:
        pairs = x.reshape(*x.shape[:-1], -1, 2, half)
        upper = pairs[..., 0, :]
        lower = pairs[..., 1, :]
        difference = upper - lower
        upper += lower
        lower[...] = difference
        half *= 2


def kronecker_transform(x: Floats) -> Floats:
    """Hadamard transform of every row as a Kronecker product of small dense matrices, each a product of BLAS."""
    from scipy.linalg import hadamard

    rows, size = x.shape
    left = size.bit_length() - 1
    while left:
        bits = min(left, _FACTOR_BITS)
        factor = hadamard(1 << bits).astype(np.float32)
        # The highest bits of the index are transformed and become the lowest: after all bits they are in order again.
        mixed = factor @ x.reshape(rows, 1 << bits, -1)
        x = np.ascontiguousarray(mixed.swapaxes(1, 2)).reshape(rows, size)
        left -= bits
    return x


def foreign_transform() -> Callable[[Floats], object]:
    """Return the transform of fht-cpu (C++, vectorised by hand) on one thread; ImportError if it is not usable."""
    if find_spec("fht_cpu") is None:
        raise ImportError("fht-cpu is not installed (pip install fht-cpu)")
    try:
        return partial(import_module("fht_cpu").fht, num_threads=1)
    except Exception as error:
        # compiled for another machine or NumPy it fails in many ways
        raise ImportError(
            f"fht-cpu is installed but cannot be used: {error!r}"
        ) from error


def draw_in_numpy(
    mechanism: SSTQ, y: Floats, rng: np.random.Generator
) -> tuple[int, int]:
    """Run the second half of Algorithm 1: draw a coordinate of a representation, its token, and the code.

    Args:
        mechanism: the mechanism whose codebook, bound and ε are used.
        y: the coefficients, (N,).
        rng: the source of all randomness.
    """
    j = int(rng.integers(len(y)))
    words = mechanism.codebook.values
    coordinate = float(y[j]) / mechanism.bound
    k = int(
        np.clip(np.searchsorted(words, coordinate, side="right") - 1, 0, len(words) - 2)
    )
    token = k + int(rng.random() < (coordinate - words[k]) / (words[k + 1] - words[k]))
    probabilities = np.full(
        len(words), 1 / (math.exp(mechanism.epsilon) + len(words) - 1)
    )
    probabilities[token] *= math.exp(mechanism.epsilon)
    return j, int(rng.choice(len(words), p=probabilities))


def numpy_kashin(
    x: np.ndarray, frame: HadamardFrame, schedule: np.ndarray
) -> np.ndarray:
    """Run the same algorithm for one client, in NumPy."""
    a, mask, t = (np.zeros(frame.size, np.float32) for _ in range(3))
    a[frame.columns] = frame.signs * x
    mask[frame.columns] = np.float32(1 / frame.size)
    numpy_butterflies(a)
    power = product = moved = quotient = 0.0
    for relaxation, stretch, cap, box in schedule:
        rate = np.float32(
            max(relaxation, min(stretch * quotient, kernels.LONGEST_STEP))
        )
        new = np.clip(t + np.clip(rate * a, -cap, cap), -box, box)
        quotient = moved / max(2 * product - power + a @ a, kernels.LEAST_REDUCTION)
        power = a @ a
        product = a @ (new - t)
        moved = (new - t) @ (new - t)
        a -= new - t
        t = new
        numpy_butterflies(a)
        a *= mask
        numpy_butterflies(a)
    return t


def straightforward_encode(
    mechanism: SSTQ, x: np.ndarray, rng: np.random.Generator
) -> tuple[int, int]:
    """Algorithm 1 for one client as one would write it down in NumPy, with the mechanism's own representation."""
    frame = mechanism.frame
    t = numpy_kashin(x, frame, mechanism.kashin.schedule(frame))
    return draw_in_numpy(
        mechanism, t * np.float32(mechanism.bound / mechanism.kashin.bound(frame)), rng
    )


def unit_vectors(count: int, dim: int = DIM) -> NDArray[np.float32]:
    """Return random unit vectors in single precision, always the same."""
    x = np.random.default_rng(1).standard_normal((count, dim), dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x
