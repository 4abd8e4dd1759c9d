"""Adding messages to the exact state of an aggregator."""

from typing import Any

import numpy as np

from sstq.kernels.constants import LIMB_BITS
from sstq.kernels.target import compiled

_LIMB_MASK = (1 << LIMB_BITS) - 1


@compiled
def add_messages(state: Any, index: Any, code: Any, increments: Any) -> None:
    """state[index[i]] += increments[code[i]] for every message i.

    state is int64 (N, 4) and increments int64 (M, 4), so that a message is one vector addition. All four sums are
    formed before the first is stored, or the compiler would have to fear that the store changes the next increment.
    """
    for i in range(index.size):
        row = index[i]
        increment = code[i]
        count = state[row, 0] + increments[increment, 0]
        first = state[row, 1] + increments[increment, 1]
        second = state[row, 2] + increments[increment, 2]
        third = state[row, 3] + increments[increment, 3]
        state[row, 0] = count
        state[row, 1] = first
        state[row, 2] = second
        state[row, 3] = third


@compiled
def add_vectors(state: Any, vectors: Any, unit: float, limit: float, value_factor: float, square_factor: float) -> bool:
    """Add each vector, coordinate by coordinate, to sums of values (two limbs) and of squares (one limb or two).

    Returns False at the first number beyond limit·unit in magnitude, or that is none; the state is of no use then.
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
