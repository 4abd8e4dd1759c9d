"""Symmetric matrices as vectors of the same length, and the moments of a regression as one of a ball."""

from __future__ import annotations

import math

import numpy as np

from sstq.learning.features import Floats

Bounds = tuple[float, float, float]
"""The bound of the norm of the features; the middle of the target's range, and half its length."""


def moment_dim(features: int) -> int:
    """The number of products of this many features, a constant and a target with each other."""
    return (features + 2) * (features + 3) // 2


def symmetric_vectors(rows: Floats) -> Floats:
    """xxᵀ of every row as a vector of d(d + 1)/2 numbers, off-diagonal ones times √2 to keep the length."""
    first, second = np.triu_indices(rows.shape[1])
    products: Floats = rows[:, first] * rows[:, second] * np.where(first == second, 1.0, math.sqrt(2))
    return products


def symmetric(vector: Floats) -> Floats:
    """The matrix of a vector of `symmetric_vectors`."""
    size = math.isqrt(2 * len(vector))
    first, second = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[first, second] = vector / np.where(first == second, 1.0, math.sqrt(2))
    return matrix + np.triu(matrix, 1).T


def moment_rows(rows: Floats, targets: Floats, bounds: Bounds) -> Floats:
    """(x, 1, y)/√3 of length at most 1, x and y in units of their bounds; what is beyond is moved to the bound."""
    norm, middle, half = bounds
    x = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), norm)
    y = np.clip((targets - middle) / half, -1, 1)
    return np.column_stack([x, np.ones(len(x)), y]) / math.sqrt(3)


def error_vectors(rows: Floats, coef: Floats, intercept: Floats) -> Floats:
    """What (1, d) coefficients leave of the squared targets, and how large these are, moved into the disc, (n, 2)."""
    whole = rows * math.sqrt(3)
    predicted = np.clip(whole[:, :-2] @ coef[0] + intercept[0], -1, 1)
    squares = np.column_stack([np.minimum((whole[:, -1] - predicted) ** 2, 1), whole[:, -1] ** 2])
    return (2 * squares - 1) / math.sqrt(2)


def errors_of(vector: Floats, stderr: Floats) -> tuple[float, float]:
    """The share of the squared targets that is explained (R²) and its standard error, to first order."""
    left, whole = (1 + math.sqrt(2) * vector) / 2
    left_error, whole_error = stderr / math.sqrt(2)
    if whole <= 2 * whole_error:
        return math.nan, math.nan
    return 1 - left / whole, math.hypot(left_error, left / whole * whole_error) / whole
