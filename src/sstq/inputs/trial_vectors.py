"""Unit vectors that expose faulty mechanisms, for tests, audits and calibration."""

import numpy as np

from sstq.array_types import Floats


def typical_vector(dim: int, norm: float = 1.0) -> Floats:
    """The default vector for error predictions: one fixed Gaussian direction."""
    direction = np.random.default_rng(0).standard_normal(dim)
    return direction * (norm / np.linalg.norm(direction))


def structured_vectors(dim: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Named batches of unit vectors, each (n, d).

    Gaussian and heavy-tailed ones are random; the others are inputs that a fast transform may leave unmixed.
    """
    positions = np.arange(dim)
    spikes = np.zeros((3, dim))
    spikes[[0, 1, 2], [0, dim - 1, dim // 2]] = (1.0, -1.0, 1.0)
    sparse = np.zeros((3, dim))
    for row, weight in zip(sparse, (2, 10, max(1, dim // 10)), strict=True):
        row[rng.integers(dim, size=weight)] = 1.0 + rng.random(weight)
    named = {
        "gaussian": rng.standard_normal((6, dim)),
        "heavy-tailed": rng.standard_t(1.5, size=(2, dim)),
        "spike": spikes,
        "constant": np.ones((1, dim)),
        "alternating": np.resize([1.0, -1.0], (1, dim)),
        "block": np.where(positions < max(1, dim // 8), 1.0, 0.0)[None],
        "sparse": sparse,
        "hadamard": np.array(
            [
                1.0 - 2.0 * (np.bitwise_count(positions & row) & 1)
                for row in (1, dim // 3, dim - 1)
            ]
        ),
    }
    return {
        name: rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for name, rows in named.items()
    }
