"""FrameUnit with more clients than dimensions: what one frame costs, and what many frames mend."""

from collections.abc import Iterator

import numpy as np

import sstq
from benchmarks.harness import Result, benchmark

DIM, CLIENTS, EPSILON = 256, 1_000_000, 3.0
BATCH = 50_000


def measured_error(mechanism: sstq.Mechanism, x: np.ndarray) -> float:
    """The squared error of the mean of CLIENTS clients that all hold x: the worst case for a bias of the frames."""
    aggregator = mechanism.aggregator()
    batch = np.broadcast_to(x.astype(np.float32), (BATCH, DIM))
    for start in range(0, CLIENTS, BATCH):
        aggregator.update(mechanism.encode(batch, rng=start))
    return float(np.sum((aggregator.mean().value - x) ** 2))


@benchmark
def frames() -> Iterator[Result]:
    """FrameUnit, d = 256, a million clients with one vector, ε = 3: squared error of the mean over the optimum."""
    x = np.random.default_rng(1).standard_normal(DIM)
    x /= np.linalg.norm(x)
    optimum = sstq.mechanism("privunitg", dim=DIM, epsilon=EPSILON).expected_mse(x, clients=CLIENTS).total
    for count in (1, 2**8, 2**16):
        mechanism = sstq.mechanism("frameunit", dim=DIM, epsilon=EPSILON, frames=count)
        expected = mechanism.expected_mse(x, clients=CLIENTS)
        note = f"expected {expected.total / optimum:.4g}, ± 9 % by chance; {mechanism.message_bits} bits"
        yield Result(f"frames = {count}", measured_error(mechanism, x) / optimum, "× the optimum", note)
