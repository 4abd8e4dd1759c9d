"""Vectors of single people as devices read them: no value is refused, and nothing overflows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sstq.array_types import Floats
from sstq.inputs.cells import vector_of

LARGEST = 1e100


def read_vectors(values: Sequence[Any], dim: int) -> Floats:
    """The vectors, (n, dim); zero for what is none, and for one with a number beyond 1e100."""
    rows = np.zeros((len(values), dim))
    for place, value in enumerate(values):
        vector = vector_of(value, dim)
        if vector is not None:
            rows[place] = vector
    usable = np.all(np.abs(rows) <= LARGEST, axis=1, keepdims=True)
    return np.where(usable, rows, 0.0)


def into_ball(rows: Floats, clip: float) -> Floats:
    """The vectors, with those longer than clip scaled down to it, so that a mechanism warns of none."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(
        rows * np.minimum(1.0, clip * (1 - 1e-12) / np.maximum(norms, 1e-200))
    )
