"""The error of the mean by strata, where clients outnumber coordinates, against that of the private coin."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import sstq
from benchmarks.harness import Result, benchmark

DIM = 256
EPSILON = 6.0


def similar_vectors(clients: int, cosine: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Unit vectors that all have this cosine with one direction, and are random otherwise."""
    direction = rng.standard_normal(DIM)
    direction /= np.linalg.norm(direction)
    x = rng.standard_normal((clients, DIM), dtype=np.float32)
    x -= np.outer(x @ direction, direction)
    x *= (1 - cosine**2) ** 0.5 / np.linalg.norm(x, axis=1, keepdims=True)
    x += cosine * direction
    return x


def mechanisms(bits: int) -> tuple[sstq.SSTQ, sstq.SSTQ]:
    """With a private and with a public coin."""
    return sstq.SSTQ(DIM, EPSILON, bits=bits), sstq.SSTQ(DIM, EPSILON, bits=bits, coin="public")


def squared_error(mechanism: sstq.SSTQ, x: NDArray[np.float32], rng: np.random.Generator) -> float:
    """Of the mean of one round with fresh identifiers."""
    clients = rng.integers(0, 1 << 63, size=len(x)) if mechanism.coin == "public" else None
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.encode(x, rng=rng, clients=clients))
    return float(np.sum((aggregator.mean().value - x.mean(axis=0)) ** 2))


@benchmark
def strata() -> Iterator[Result]:
    """Squared error of the mean with a private coin over that by strata, d = 256, N = 1024, ε = 6."""
    rng = np.random.default_rng(1)
    private, assigned = mechanisms(4)
    x = similar_vectors(100_000, 0.96, rng)
    ratio = squared_error(private, x, rng) / squared_error(assigned, x, rng)
    yield Result("b = 4, cosine 0.96, n = 100,000", ratio, "×", "measured, one round each: ± 12 %", target=4)
    for bits, cosine in [(4, 1.0), (4, 0.96), (4, 0.86), (4, 0.0), (2, 0.96), (1, 0.96)]:
        x = similar_vectors(10_000, cosine, rng)
        private, assigned = mechanisms(bits)
        ratio = private.expected_mse(x).total / assigned.expected_mse(x).total
        yield Result(f"b = {bits}, cosine {cosine}, n = 10,000", ratio, "×", "expected")
