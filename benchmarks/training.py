"""Benchmarks of federated training: one round of the paper's network on Fashion-MNIST's sizes, gradients included."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks.harness import Measured, Result, benchmark, in_turns, seconds_of
from benchmarks.speed.measurements import DIM
from benchmarks.speed.references import paper_in_numpy
from paper.reproduction.jobs import Job, run_job
from paper.reproduction.methods import METHODS
from paper.training import HiddenLayer

CLIENTS, BATCH, CLIP, NAIVE_CLIENTS = 100, 64, 0.1, 2
# The most seconds of a round, by method.
TARGETS = {"sstq-uniform": 0.35, "sqkr": 0.35, "sstq-certified": 0.35, "frameunit": 0.15}


@benchmark
def training() -> Iterator[Result]:
    """One round of 100 clients, d = 25,450, gradients included: seconds, and speed beside NumPy (2 clients, scaled)."""
    clocks = [partial(seconds_of, _straightforward_round()), *(partial(_seconds_of_round, key) for key in TARGETS)]
    few_in_numpy, *rounds = (Measured.least_of(taken) for taken in in_turns(*clocks, repeats=5))
    naive = few_in_numpy * CLIENTS / NAIVE_CLIENTS
    yield Result("SSTQ as in the paper, straightforward NumPy", naive, "s", "the paper: 18 s")
    for (key, most), seconds in zip(TARGETS.items(), rounds, strict=True):
        label = METHODS[key].label
        yield Result(f"{label}: a round", seconds, "s", target=most, at_most=True)
        yield Result(f"{label}: faster than NumPy", naive / seconds, "×", target=40)


def _seconds_of_round(method: str) -> float:
    """Seconds of one round, after its set-up and a round that is not counted."""
    (seconds,) = run_job(Job("timing", method, seed=0, bits=4, count=1, dim=DIM))["seconds"]
    return float(seconds)


def _straightforward_round() -> Callable[[], None]:
    """Gradient, clipping, Algorithm 1 and Algorithm 2 for a few clients, one after the other."""
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

    return one_round
