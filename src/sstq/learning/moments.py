"""Symmetric matrices as vectors of the same length, and the moments of a regression as one of a ball."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sstq.array_types import Floats

_REACH = 1.96  # normal, for 95 %
Bounds = tuple[float, float, float]
"""The bound of the norm of the features; the middle of the target's range, and half its length."""


def moment_dim(features: int) -> int:
    """The number of products of this many features, a constant and a target with each other."""
    return (features + 2) * (features + 3) // 2


def symmetric_vectors(rows: Floats) -> Floats:
    """xxᵀ of every row as a vector of d(d + 1)/2 numbers, off-diagonal ones times √2 to keep the length."""
    first, second = np.triu_indices(rows.shape[1])
    return (
        rows[:, first] * rows[:, second] * np.where(first == second, 1.0, math.sqrt(2))
    )


def symmetric(vector: Floats) -> Floats:
    """The matrix of a vector of `symmetric_vectors`."""
    size = math.isqrt(2 * len(vector))
    first, second = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[first, second] = vector / np.where(first == second, 1.0, math.sqrt(2))
    return matrix + np.triu(matrix, 1).T


def bounded_rows(rows: Floats, norm: float) -> Floats:
    """Rows in units of the bound of their norm; longer ones are moved to it."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    bounded: Floats = rows / np.maximum(lengths, norm)
    return bounded


def moment_rows(rows: Floats, targets: Floats, bounds: Bounds) -> Floats:
    """(x, 1, y)/√3 of length at most 1, x and y in units of their bounds; what is beyond is moved to the bound."""
    norm, middle, half = bounds
    x = bounded_rows(rows, norm)
    y = np.clip((targets - middle) / half, -1, 1)
    return np.column_stack([x, np.ones(len(x)), y]) / math.sqrt(3)


def error_vectors(rows: Floats, coef: Floats, intercept: Floats) -> Floats:
    """What (1, d) coefficients leave of the squared targets, and how large these are, moved into the disc, (n, 2)."""
    whole = rows * math.sqrt(3)
    predicted = np.clip(whole[:, :-2] @ coef[0] + intercept[0], -1, 1)
    squares = np.column_stack(
        [np.minimum((whole[:, -1] - predicted) ** 2, 1), whole[:, -1] ** 2]
    )
    return (2 * squares - 1) / math.sqrt(2)


class Explained(NamedTuple):
    """R², its standard error to first order, and the ends of its 95 % interval."""

    value: float
    stderr: float
    low: float
    high: float


def explained(vector: Floats, stderr: Floats) -> Explained:
    """The share of the squared targets that is explained (R²); nan where these are not clearly above zero.

    A ratio r of what is left and the whole is in the interval if left − r·whole is within 1.96 standard errors of zero
    (Fieller): around a whole that is hardly known, symmetrical errors would be too short on one side.
    """
    left, whole = (1 + math.sqrt(2) * vector) / 2
    left2, whole2 = stderr**2 / 2
    bounded = whole**2 - _REACH**2 * whole2
    if not (whole > 0 and bounded > 0):
        return Explained(math.nan, math.nan, -math.inf, 1.0)
    root = math.sqrt(
        max((left * whole) ** 2 - bounded * (left**2 - _REACH**2 * left2), 0.0)
    )
    ratio = left / whole
    error = math.sqrt(left2 + ratio**2 * whole2) / whole
    return Explained(
        1 - ratio,
        error,
        *(1 - (left * whole + sign * root) / bounded for sign in (1, -1)),
    )
