"""Pairs of inputs that a broken mechanism is most likely to tell apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sstq.mechanisms import Mechanism
from sstq.mechanisms.structured import structured_vectors

__all__ = ["worst_pairs"]

Vector = NDArray[np.float64]

_NEAR = 1e-3
_SHORT = 0.3


def worst_pairs(mechanism: Mechanism, rng: np.random.Generator) -> dict[str, tuple[Vector, Vector]]:
    """Named pairs of vectors of norm clip: opposites, spikes, constants, zero, near ones, and rows of the frame.

    Zero against a vector finds a guarantee that is spent between two vectors though it holds against the centre only
    when opposites are tried, too; so both are.

    Examples:
        >>> import sstq
        >>> pairs = worst_pairs(sstq.mechanism("vqsgd", dim=5, epsilon=1.0), np.random.default_rng(1))
        >>> list(pairs)[:2]
        ['a Gaussian vector and its opposite', 'a spike and its opposite']
    """
    vectors = {name: rows[0] for name, rows in structured_vectors(mechanism.dim, rng).items()}
    gaussian, spike, constant = (vectors[name] for name in ("gaussian", "spike", "constant"))
    near = gaussian + _NEAR * rng.standard_normal(mechanism.dim) / np.sqrt(mechanism.dim)
    pairs = {
        "a Gaussian vector and its opposite": (gaussian, -gaussian),
        "a spike and its opposite": (spike, -spike),
        "a spike and another spike": (spike, np.roll(spike, 1)),
        "a Gaussian vector and a spike": (gaussian, spike),
        "a constant and its opposite": (constant, -constant),
        "a vector and zero": (gaussian, 0.0 * gaussian),
        "a vector and a short one": (gaussian, _SHORT * gaussian),
        "two vectors near each other": (gaussian, near / np.linalg.norm(near)),
    }
    frame = getattr(mechanism, "frame", None)
    if frame is not None and mechanism.dim > 1:
        row, other = (rows / np.linalg.norm(rows) for rows in frame.rows(np.array([0, frame.size - 1])))
        pairs["a row of the frame and its opposite"] = (row, -row)
        pairs["two rows of the frame"] = (row, other)
    return {name: (mechanism.clip * x, mechanism.clip * y) for name, (x, y) in pairs.items() if np.any(x != y)}
