"""GroupUnit: its variance beside the ball's, simulated rounds, and the time of a message."""

from collections.abc import Iterator

import numpy as np

import sstq
from benchmarks.harness import Result, benchmark, fastest

DIM, CLIENTS, ROUNDS = 64, 10_000, 30


@benchmark
def groups() -> Iterator[Result]:
    """GroupUnit, 64 numbers per person: second moment of a message over d, against one ball; rounds; time."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((CLIENTS, DIM)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    for count in (10, 100):
        for epsilon in (1.0, 2.0, 3.0, 4.0, 6.0, 8.0):
            mechanism = sstq.GroupUnit(DIM, epsilon, groups=count, share_people=0.0)
            ball = sstq.FrameUnit(DIM * count, epsilon)
            note = f"{mechanism.blocks} blocks; one ball {ball.gain**2 / DIM:.4g}"
            yield Result(f"{count} groups, epsilon {epsilon:g}", mechanism.gain**2 / DIM, "second moment over d", note)
    labels = rng.integers(10, size=CLIENTS)
    truth = np.zeros((10, DIM))
    np.add.at(truth, labels, x / CLIENTS)
    for epsilon in (2.0, 3.0, 4.0, 6.0, 8.0):
        mechanism = sstq.GroupUnit(DIM, epsilon, groups=10, frames=64)
        errors = []
        for number in range(ROUNDS):
            own = mechanism.with_seed(number)
            aggregator = own.aggregator()
            aggregator.update(own.encode(x, rng=number, groups=labels))
            errors.append(np.sum((aggregator.mean().value.reshape(10, DIM) - truth) ** 2))
        expected = mechanism.expected_mse(x[:200], groups=labels[:200]).variance * 200 / CLIENTS
        what = f"squared error of {ROUNDS} rounds of {CLIENTS} people, epsilon {epsilon:g}"
        yield Result(what, float(np.mean(errors)) / expected, "× the exact one", "± 1 % by chance")
    for epsilon in (2.0, 4.0, 8.0):
        mechanism = sstq.GroupUnit(DIM, epsilon, groups=10, frames=64, share_people=0.0)
        block = -(-10 // mechanism.blocks) * DIM
        plain = sstq.FrameUnit(block, epsilon, frames=64, frame_size=mechanism.frame.size)
        padded = np.tile(x, (1, block // DIM))
        ours, theirs = fastest(
            lambda: mechanism.encode(x, rng=1, groups=labels),  # noqa: B023
            lambda: plain.encode(padded, rng=1),  # noqa: B023
        )
        what = f"time of a message, epsilon {epsilon:g}, {mechanism.blocks} blocks"
        yield Result(what, ours / theirs, "× FrameUnit's", "on the block's dimension, as many rows and frames; ≤ 1.5")
