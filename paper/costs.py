"""What a round costs to compute: the paper's figures of Section 7 beside ours, as ratios of one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sstq
from paper.reproduction.methods import find_method
from sstq.frames.kashin import represent

CLIENTS = 100
CLIP = 0.1
BITS = 4
DIMS: Mapping[str, int] = {"Fashion-MNIST": 25_450, "CIFAR-10": 98_666}
_METHODS = ("sstq-uniform", "sqkr", "vqsgd", "privunit", "sstq-certified", "frameunit")
_REPEATS = 5


def measure_costs(dim: int, clients: int = CLIENTS) -> list[dict[str, Any]]:
    """Measure how long encoding and estimating the mean of a round takes for each method.

    Returns:
        Rows with the processor seconds of a round, their ratio to the paper's SSTQ, and the share of the
        representation.
    """
    vectors = (
        np.random.default_rng(0).standard_normal((clients, dim)).astype(np.float32)
    )
    vectors *= CLIP / np.linalg.norm(vectors, axis=1, keepdims=True)
    rows: list[dict[str, Any]] = []
    for key in _METHODS:
        method = find_method(key)
        mechanism = method.build(dim, CLIP, BITS)
        seconds = _best(partial(_one_round, mechanism, vectors))
        share = 0.0
        if isinstance(mechanism, sstq.SSTQ):
            picks = np.zeros((clients, 1), dtype=np.int64)
            representing = partial(
                represent, mechanism.frame, mechanism.kashin, vectors / CLIP, picks
            )
            share = min(1.0, _best(representing) / seconds)
        rows.append({"label": method.label, "seconds": seconds, "share": share})
    for row in rows:
        row["ratio"] = row["seconds"] / rows[0]["seconds"]
    return rows


def _one_round(mechanism: sstq.Mechanism, vectors: NDArray[np.float32]) -> None:
    mechanism.aggregator().update(mechanism.encode(vectors, rng=0)).mean()


def _best(task: Callable[[], object]) -> float:
    """The least processor time of a few, after one that compiles: other work on the machine hardly moves it."""
    task()
    times = []
    for _ in range(_REPEATS):
        start = time.process_time()
        task()
        times.append(time.process_time() - start)
    return min(times)
