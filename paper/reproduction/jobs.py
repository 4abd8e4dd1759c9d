"""Jobs: one method, one seed, one setting each. The result depends on the description alone.

Every job's randomness comes from a seed, so a figure can be reproduced to the last digit. That is simulation: real
messages use the operating system's randomness.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paper.datasets import load
from paper.reproduction.methods import EPSILON, find_method
from paper.training.problems import (
    SETTINGS,
    Problem,
    Settings,
    image_problem,
    regression_problem,
)
from paper.training.rounds import Server, train
from sstq.mechanisms import Mechanism

MSE_CLIP = 0.2
ONCE = "once-"
"""The kinds of jobs in which everybody answers once begin with it; the data set follows."""
_TRIALS_AT_A_TIME = 50


@dataclass(frozen=True)
class Job:
    """One piece of an experiment.

    Attributes:
        kind: "mse", "regression", the data set of a training, or that after "once-".
        method: a key of `METHODS`.
        seed: the seed of all randomness.
        bits: the bit width b, for methods that use it.
        count: training rounds, or trials of an error measurement.
        dim: the dimension; 0 if the data set determines it.
        scaling: "clip", as private messages must be, or "norm" (see `nonprivate_norm_scaled_mean`).
        epsilon: the ε of a message, if not the paper's.
        clients: the number of clients of a training, if not the paper's.
    """

    kind: str
    method: str
    seed: int
    bits: int
    count: int
    dim: int = 0
    scaling: str = "clip"
    epsilon: float | None = None
    clients: int | None = None

    @property
    def message_epsilon(self) -> float:
        """The ε of a message."""
        return EPSILON if self.epsilon is None else self.epsilon

    @property
    def path(self) -> Path:
        """The path of its result file, relative to the folder of results."""
        parts = [
            self.method,
            f"b{self.bits}",
            *([f"d{self.dim}"] if self.dim else []),
            f"n{self.count}",
        ]
        parts += [] if self.epsilon is None else [f"e{self.epsilon:g}"]
        parts += [] if self.clients is None else [f"c{self.clients}"]
        leaky = [] if self.scaling == "clip" else [self.scaling]
        return Path(self.kind) / ("-".join([*parts, *leaky, f"s{self.seed}"]) + ".json")

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON values."""
        described = asdict(self)
        # Results written before jobs had an ε or clients are still valid; JSON has no infinity.
        epsilon = described.pop("epsilon")
        if epsilon is not None:
            described["epsilon"] = f"{epsilon:g}"
        if self.clients is None:
            del described["clients"]
        return described


def run_job(job: Job, data: Path | None = None) -> dict[str, Any]:
    """Run a job and return its result as JSON values."""
    if job.kind == "mse":
        return _measure_error(job)
    if job.kind.startswith(ONCE):
        from paper.reproduction.once import run_once

        return run_once(job, data)
    return _train(job, data)


def data_folder(name: str, data: Path | None) -> Path | None:
    """The folder of a data set: the subfolder with its name in `data`, or `data` itself."""
    return data / name if data is not None and (data / name).is_dir() else data


def _measure_error(job: Job) -> dict[str, Any]:
    """The exact error of one Gaussian vector of norm C = 0.2, and the error measured in trials."""
    rng = np.random.default_rng([job.seed, 5])
    vector = rng.standard_normal(job.dim)
    vector *= MSE_CLIP / np.linalg.norm(vector)
    method = find_method(job.method)
    mechanism = method.build(
        job.dim, MSE_CLIP, job.bits, epsilon=job.message_epsilon, frame_seed=job.seed
    )
    exact = mechanism.expected_mse(vector)
    errors: list[float] = []
    while len(errors) < job.count:
        rows = np.broadcast_to(
            vector, (min(_TRIALS_AT_A_TIME, job.count - len(errors)), job.dim)
        )
        decoded = mechanism.decode(mechanism.encode(rows, rng=rng))
        errors += np.sum((decoded - vector) ** 2, axis=1).tolist()
    sampled = np.array(errors)
    return {
        "bias2": exact.bias2,
        "variance": exact.variance,
        "sample_sum": float(sampled.sum()),
        "sample_squares": float(np.sum(sampled**2)),
        "message_bits": mechanism.message_bits,
    }


def _train(job: Job, data: Path | None) -> dict[str, Any]:
    problem, settings, server = _set_up(job, data)
    method = find_method(job.method)
    mechanism = method.build(
        problem.model.dim, settings.clip, job.bits, epsilon=job.message_epsilon
    )
    columns: dict[str, list[Any]] = {
        "loss": [],
        "train_loss": [],
        "accuracy": [],
        "mean_norm": [],
    }
    start = time.perf_counter()
    for report in train(
        problem,
        mechanism,
        server,
        job.count,
        batch=settings.batch,
        seed=job.seed,
        private_seed=job.seed,
        estimate=nonprivate_norm_scaled_mean if job.scaling == "norm" else None,
    ):
        for name, values in columns.items():
            values.append(_number(getattr(report, name)))
    return {
        **columns,
        "message_bits": mechanism.message_bits,
        "dim": problem.model.dim,
        "seconds": time.perf_counter() - start,
    }


def _set_up(job: Job, data: Path | None) -> tuple[Problem, Settings, Server]:
    settings = SETTINGS[job.kind]
    settings = replace(settings, clients=job.clients or settings.clients)
    server = Server(settings.rate, settings.norm_cap)
    if job.kind == "regression":
        return regression_problem(job.dim, settings.clients, job.seed), settings, server
    return (
        image_problem(
            load(job.kind, data_folder(job.kind, data)), settings.clients, job.seed
        ),
        settings,
        server,
    )


def _number(value: float | None) -> float | None:
    """Round to six digits, which is more than the figures need; None for missing values."""
    return None if value is None or math.isnan(value) else float(f"{value:.6g}")


_BELOW_ONE = 1 - 1e-6


def nonprivate_norm_scaled_mean(
    mechanism: Mechanism,
    gradients: NDArray[np.float32],
    round_number: int,  # noqa: ARG001 (an `Estimator` takes it)
    rng: np.random.Generator | None,
) -> NDArray[np.float64]:
    """The mean of decoded directions, each times its (clipped) norm. NOT PRIVATE: the norms are used in clear.

    With noise for vectors of norm up to C = 1, as local privacy requires, PrivUnit ends at 172 for d = 200 where the
    paper prints 130. The paper's numbers are those of messages about g/‖g‖ whose decoded vectors are multiplied by
    ‖g‖, about 0.2 there: the server would have to know every client's exact norm, which nothing protects.
    """
    norms = np.linalg.norm(gradients.astype(np.float64), axis=1, keepdims=True)
    directions = gradients * (_BELOW_ONE * mechanism.clip / np.maximum(norms, 1e-300))
    decoded = mechanism.decode(mechanism.encode(directions, rng=rng))
    mean: NDArray[np.float64] = np.mean(
        decoded * (np.minimum(norms, mechanism.clip) / mechanism.clip), axis=0
    )
    return mean
