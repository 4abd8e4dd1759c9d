"""From the ball onto the sphere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sstq.randomness.secret import unit_interval

__all__ = ["GAUSSIAN_EXCESS", "random_directions"]

GAUSSIAN_EXCESS = 13.0
"""By how much the norm of a Gaussian vector or matrix may exceed its typical one.

For any of 2^64 clients (and 2^12 candidates each) it does so by more with probability e^(−13²/2)·2^76 < 1e-13.
"""


def random_directions(unit: NDArray[np.float32], words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Random unit vectors s·x/‖x‖ whose expectation is x: the sign s is −1 with probability (1 − ‖x‖)/2.

    A mechanism that is unbiased on the sphere is then unbiased on the ball: E[x̂] = E[s]·x/‖x‖ = x. By symmetry
    E‖x̂‖² is that of a unit vector whatever ‖x‖ is, so its variance is E‖x̂‖² − ‖x‖²: a short vector is not cheaper. The
    sign is drawn before the mechanism sees the vector, so that privacy does not depend on it.

    Args:
        unit: rows of the unit ball, (n, d).
        words: one secret word a row.

    Returns:
        Rows of norm 1, (n, d), in double precision. The zero vector becomes ±e₁ with a fair sign.

    Examples:
        >>> halves = np.tile(np.float32([0.0, -0.5]), (4, 1))
        >>> words = np.array([0, 1 << 61, 1 << 62, 1 << 63], dtype=np.uint64)
        >>> random_directions(halves, words)[:, 1].tolist()
        [1.0, 1.0, -1.0, -1.0]
    """
    # Squares of single-precision numbers neither overflow nor underflow in double precision.
    directions = unit.astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", directions, directions))
    zero = norms == 0
    directions[zero, 0] = 1.0
    # Rounding may leave a clipped row a hair longer than 1: its probability is then below zero, and it is not flipped.
    flipped = unit_interval(words) < (1 - norms) / 2
    directions *= (np.where(flipped, -1.0, 1.0) / np.where(zero, 1.0, norms))[:, None]
    return directions
