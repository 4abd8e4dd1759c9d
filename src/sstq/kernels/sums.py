"""Sums: messages added to an aggregator's exact state, members of sets, and partial sums below a number."""

from typing import Any

import numpy as np

from sstq.kernels.api import LIMB_BITS

_LIMB_MASK = (1 << LIMB_BITS) - 1


def add_messages(state: Any, index: Any, code: Any, increments: Any) -> None:
    """state[index[i]] += increments[code[i]] for every message i.

    A message is one vector addition. All four sums are formed before the first is stored: for all the compiler knows, a
    store may change the next increment.
    """
    for i in range(index.size):
        row = index[i]
        kind = code[i]
        a = state[row, 0] + increments[kind, 0]
        b = state[row, 1] + increments[kind, 1]
        c = state[row, 2] + increments[kind, 2]
        d = state[row, 3] + increments[kind, 3]
        state[row, 0] = a
        state[row, 1] = b
        state[row, 2] = c
        state[row, 3] = d


def add_vectors(
    state: Any,
    vectors: Any,
    unit: float,
    limit: float,
    value_factor: float,
    square_factor: float,
) -> bool:
    """Add each vector to sums of values, in two limbs, and of squares, in one limb or two.

    Returns False at the first number beyond limit·unit, or that is none; the state is of no use then.
    """
    for i in range(vectors.shape[0]):
        for j in range(vectors.shape[1]):
            relative = vectors[i, j] / unit
            if not abs(relative) <= limit:
                return False
            value = np.int64(np.rint(relative * value_factor))
            square = np.int64(np.rint(relative * relative * square_factor))
            state[j, 0] += value >> LIMB_BITS
            state[j, 1] += value & _LIMB_MASK
            if state.shape[1] == 3:
                state[j, 2] += square
            else:
                state[j, 2] += square >> LIMB_BITS
                state[j, 3] += square & _LIMB_MASK
    return True


def count_passed_sums(rows: Any, uniforms: Any, counts: Any, scale: float) -> None:
    """Set counts[i] to the number of j with scale·(|rows[i, 0]| + … + |rows[i, j]|) ≤ uniforms[i], in doubles."""
    for row in range(rows.shape[0]):
        total = 0.0
        passed = np.int64(0)
        for j in range(rows.shape[1]):
            total += abs(np.float64(rows[row, j]))
            passed += np.int64(total * scale <= uniforms[row])
        counts[row] = passed


def count_walks(first: Any, step: Any, times: Any, length: int, counts: Any) -> None:
    """counts[(first[i] + j·step[i]) mod size] += times[i] for j < length and every walk i; all are below the size."""
    size = counts.size
    for i in range(first.size):
        place = first[i]
        stride = step[i]
        many = times[i]
        for _ in range(length):
            counts[place] += many
            place += stride
            if place >= size:
                place -= size
