"""Checked entry to the kernels that add messages and vectors to an aggregator's sums."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.kernels.checks import check_range, checked, kind_of
from sstq.kernels.compiling import prepare


def accumulate(
    state: NDArray[np.int64], index: NDArray[np.integer], code: NDArray[np.integer], table: NDArray[np.int64]
) -> None:
    """Add messages to an aggregator's state: state[index, 0] += 1 and state[index, 1:4] += table[code], for each.

    Integers only, so the result is exact and independent of the order of the messages. An index or code out of range
    is a ValueError, raised before anything is added. One thread.

    Args:
        state: int64 (N, 4), C-contiguous and writable, changed in place.
        index: (n,), positions in [0, N), C-contiguous, of any integer type.
        code: (n,), rows of the table, C-contiguous, of any integer type.
        table: int64 (M, 3).

    Examples:
        >>> state = np.zeros((2, 4), np.int64)
        >>> accumulate(state, np.array([1, 1]), np.array([0, 1]), np.array([[1, 10, 100], [2, 20, 200]]))
        >>> state
        array([[  0,   0,   0,   0],
               [  2,   3,  30, 300]])

    """
    if not isinstance(state, np.ndarray) or state.dtype != np.int64:
        raise TypeError(f"state must be an int64 array, not {kind_of(state)}")
    if state.ndim != 2 or state.shape[1] != 4 or not state.flags.c_contiguous or not state.flags.writeable:
        raise ValueError(f"state must be a writable C-contiguous array of shape (N, 4), not {state.shape}")
    table = checked("table", table, np.int64, 2)
    if table.shape[1] != 3:
        raise ValueError(f"table must have shape (M, 3), not {table.shape}")
    index, code = _as_messages("index", index), _as_messages("code", code)
    if index.shape != code.shape:
        raise ValueError(f"code must have the shape of index, {index.shape}, not {code.shape}")
    check_range("index", index, state.shape[0])
    check_range("code", code, table.shape[0])
    from sstq.kernels.accumulation import add_messages

    increments = np.concatenate([np.ones((table.shape[0], 1), np.int64), table], axis=1)
    prepare(add_messages, state, index, code, increments)
    add_messages(state, index, code, increments)


def _as_messages(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return a column of messages as the one kind of array that the kernel is compiled for, of each integer type.

    That is read-only, as arrays from Parquet files are: the kernel takes both without a copy, and Numba one type.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be an integer array, not {kind_of(array)}")
    if array.ndim != 1 or not array.flags.c_contiguous:
        raise ValueError(f"{name} must be one-dimensional and C-contiguous, not of shape {array.shape}")
    # A copy only of what has another byte order or starts between two of its numbers.
    column = np.require(array, array.dtype.newbyteorder("="), "A").view()
    column.flags.writeable = False
    return column


def accumulate_vectors(
    state: NDArray[np.int64],
    vectors: NDArray[np.float64],
    *,
    unit: float,
    limit: float,
    value_bits: int,
    square_bits: int,
) -> bool:
    """Add vectors to sums in fixed point: of v = round(2^value_bits·x/unit), and of round(2^square_bits·(x/unit)²).

    Row j of the state has the sums of v >> 30, of v & (2^30 − 1) and of the squares of coordinate j; with a fourth
    column the squares have two limbs as well. One thread.

    Args:
        state: int64 (d, 3) or (d, 4), C-contiguous and writable, changed in place.
        vectors: float64 (n, d).
        unit: of the fixed point, positive.
        limit: what |x|/unit must not exceed.
        value_bits: of a value's fraction.
        square_bits: of a square's fraction.

    Returns:
        Whether all numbers are within the limit; if not, the state has been spoiled.

    Examples:
        >>> state = np.zeros((2, 3), np.int64)
        >>> accumulate_vectors(state, np.array([[1.0, -0.5]]), unit=1.0, limit=1.0, value_bits=31, square_bits=4)
        True
        >>> state
        array([[ 2,  0, 16],
               [-1,  0,  4]])

    """
    if not isinstance(state, np.ndarray) or state.dtype != np.int64:
        raise TypeError(f"state must be an int64 array, not {kind_of(state)}")
    vectors = checked("vectors", vectors, np.float64, 2)
    if state.ndim != 2 or state.shape[1] not in (3, 4) or not state.flags.c_contiguous or not state.flags.writeable:
        raise ValueError(f"state must be a writable C-contiguous array of shape (d, 3) or (d, 4), not {state.shape}")
    if vectors.shape[1] != len(state):
        raise ValueError(f"vectors must have {len(state)} columns, not {vectors.shape[1]}")
    from sstq.kernels.accumulation import add_vectors

    factors = (float(unit), float(limit), 2.0**value_bits, 2.0**square_bits)
    prepare(add_vectors, state, vectors, *factors)
    return bool(add_vectors(state, vectors, *factors))
