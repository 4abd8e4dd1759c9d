"""Symmetric matrices as vectors of the same length, and the moments of a regression as one vector of a ball."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["moment_dim", "moment_vectors", "moments_of", "symmetric", "symmetric_vectors"]

Floats = NDArray[np.float64]


def moment_dim(features: int) -> int:
    """Return the length of the moment vector of this many features and a constant.

    Examples:
        >>> moment_dim(2)
        9
    """
    return (features + 1) * (features + 2) // 2 + features + 1


def symmetric_vectors(rows: Floats) -> Floats:
    """Return xxᵀ of every row as a vector of d(d + 1)/2 numbers, off-diagonal ones times √2 to keep the length.

    Examples:
        >>> float(np.linalg.norm(symmetric_vectors(np.array([[3.0, 4.0]]))))
        25.0
    """
    first, second = np.triu_indices(rows.shape[1])
    products: Floats = rows[:, first] * rows[:, second] * np.where(first == second, 1.0, math.sqrt(2))
    return products


def symmetric(vector: Floats, size: int) -> Floats:
    """Return the matrix of a vector of `symmetric_vectors`."""
    first, second = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[first, second] = vector / np.where(first == second, 1.0, math.sqrt(2))
    return matrix + np.triu(matrix, 1).T


def moment_vectors(rows: Floats, targets: Floats, bounds: tuple[float, float]) -> Floats:
    """(zzᵀ, zy)/√2 of length at most 1, with z = (x, 1)/√2, x and y in units of their bounds, (n, moment_dim).

    Rows and targets beyond their bound are scaled down to it.
    """
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    x = rows / np.maximum(norms, bounds[0])
    z = np.concatenate([x, np.ones((len(x), 1))], axis=1) / math.sqrt(2)
    y = np.clip(targets / bounds[1], -1, 1)
    return np.concatenate([symmetric_vectors(z), z * y[:, None]], axis=1) / math.sqrt(2)


def moments_of(vector: Floats, features: int) -> tuple[Floats, Floats]:
    """Return the means of zzᵀ and of zy from a mean of moment vectors."""
    size = features + 1
    split = size * (size + 1) // 2
    return math.sqrt(2) * symmetric(vector[:split], size), math.sqrt(2) * vector[split:]
