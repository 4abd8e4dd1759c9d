"""The sphere: from the ball onto it, and vectors at a given distance from a pole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sstq.randomness import unit_interval

__all__ = ["around", "random_directions"]


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


def around(
    directions: NDArray[np.float64], along: NDArray[np.float64], across: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The vectors t·u + w, w being `across` carried into the hyperplane orthogonal to u.

    One Householder reflection takes e₁ to ±u, and so (t, w) of R × R^(d−1) to its place. Nothing cancels, and there is
    no case in which a projected vector vanishes and cannot be normalised.

    Args:
        directions: unit vectors u, (n, d).
        along: t, (n,).
        across: (n, d − 1); rotation-invariant, or the result depends on the choice of the reflection.

    Examples:
        >>> u = np.array([[0.6, -0.8]])
        >>> v = around(u, np.array([0.5]), np.array([[2.0]]))
        >>> np.allclose(v @ u[0], 0.5), np.allclose(np.sum(v**2), 4.25)
        (True, True)
    """
    # H = I − 2hhᵀ/‖h‖² with h = u + s·e₁ takes e₁ to −s·u; s is the sign of u₁, so that ‖h‖² = 2(1 + |u₁|) ≥ 2.
    first = directions[:, 0]
    sign = np.where(first < 0, -1.0, 1.0)
    vectors = np.concatenate([(-sign * along)[:, None], across], axis=1)
    factors = (np.einsum("ij,ij->i", vectors, directions) + sign * vectors[:, 0]) / (1 + np.abs(first))
    vectors -= factors[:, None] * directions
    vectors[:, 0] -= factors * sign
    return vectors
