"""Benchmarks of federated training: one round of the paper's network on Fashion-MNIST's sizes, gradients included."""

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Result, benchmark, fastest
from sstq.bench.measurements import DIM
from sstq.bench.references import paper_in_numpy
from sstq.federated import HiddenLayer
from sstq.reproduction.jobs import Job, run_job
from sstq.reproduction.methods import METHODS

CLIENTS, BATCH, CLIP, NAIVE_CLIENTS = 100, 64, 0.1, 2


@benchmark
def training() -> Iterator[Result]:
    """One round of 100 clients, d = 25,450, gradients included: seconds, and speed beside NumPy (2 clients, scaled)."""
    naive = _straightforward_round() * CLIENTS / NAIVE_CLIENTS
    yield Result("SSTQ as in the paper, straightforward NumPy", naive, "s", "the paper: 18 s")
    for key, most in (("sstq-uniform", 0.35), ("sqkr", 0.35), ("sstq-certified", 0.35), ("frameunit", 0.15)):
        seconds = min(run_job(Job("timing", key, seed=0, bits=4, count=5, dim=DIM))["seconds"])
        label = METHODS[key].label
        yield Result(f"{label}: a round", seconds, "s", target=most, at_most=True)
        yield Result(f"{label}: faster than NumPy", naive / seconds, "×", target=40)


def _straightforward_round() -> float:
    """Seconds of gradient, clipping, Algorithm 1 and Algorithm 2 for a few clients, one after the other."""
    model = HiddenLayer(inputs=784)
    mechanism = METHODS["sstq-uniform"].build(DIM, CLIP, bits=4)
    rng = np.random.default_rng(0)
    x = rng.random((NAIVE_CLIENTS, BATCH, 784), dtype=np.float32)
    y = rng.integers(10, size=(NAIVE_CLIENTS, BATCH))
    parameters = model.initial(0)

    def one_round() -> None:
        mean = np.zeros(DIM)
        for client in range(NAIVE_CLIENTS):
            gradient = model.gradients(parameters, x[client : client + 1], y[client : client + 1])[0]
            gradient *= min(1.0, CLIP / float(np.linalg.norm(gradient)))
            index, code = paper_in_numpy(mechanism, gradient, rng)
            mean += mechanism.decoder.values[code] * mechanism.frame.rows(np.array([index]))[0]

    return fastest(one_round, repeats=3)[0]
