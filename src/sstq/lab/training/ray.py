"""Rounds of federated training in Ray tasks, one per group of clients."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.federated.adaptive_clip import AdaptiveClip
from sstq.federated.rounds import mean_of_round
from sstq.integrations.ray.aggregation import as_aggregator, without_mechanism
from sstq.integrations.ray.connection import import_ray
from sstq.integrations.ray.tasks import results_of, shared_mechanism
from sstq.kernels.threads import core_count
from sstq.lab.training.groups import client_groups, mean_of_groups, round_identities
from sstq.lab.training.models import Model
from sstq.lab.training.problems import Problem
from sstq.lab.training.rounds import RoundResult, RoundTask, batch_loss, count_within
from sstq.runs.shards import stream_part

__all__ = ["RayRounds"]


class RayRounds:
    """Computes rounds in Ray tasks; the `engine` of `sstq.lab.training.train`.

    A task draws the batches of 256 clients, computes their gradients, encodes them, and returns sums of integers.
    The examples are copied to Ray's memory once. With a private seed every round has the bits of a run in one process
    with the same number of BLAS threads: rounding depends on that number, so the workers are given this process's own.
    With many cores a task is better off with one thread; set OPENBLAS_NUM_THREADS=1 for the driver then.

    Examples:
        >>> import sstq
        >>> from sstq.lab.training import Server, regression_problem, train
        >>> from sstq.integrations.ray import connected
        >>> problem = regression_problem(dim=8, clients=1000, seed=0)
        >>> mechanism = sstq.mechanism("frameunit", dim=8, epsilon=4.0, frames=64)
        >>> with connected():  # doctest: +SKIP
        ...     history = list(train(problem, mechanism, Server(rate=0.5), 10, batch=4, engine=RayRounds()))
    """

    def __init__(self) -> None:
        self._problem: Problem | None = None
        self._examples: Any = None

    def __call__(self, task: RoundTask) -> RoundResult:
        """Return the result of the round."""
        ray = import_ray()
        problem, mechanism = task.problem, task.mechanism
        if problem is not self._problem:
            self._problem, self._examples = problem, ray.put((problem.model, problem.x, problem.y))
        parameters, clients = ray.put(task.parameters), len(task.members)
        common = (clients, task.number, task.private_seed, task.rng, task.adaptive)
        shared = (self._examples, parameters, mechanism.to_json(), *common)
        chosen = problem.chosen(task.batch, task.seed, task.number, task.members)
        calls = ((chosen[group], group.start, *shared) for group in client_groups(clients))
        total = mechanism.aggregator()
        losses, within = [], 0
        for result in results_of(_contribution, calls, _blas_threads()):
            if isinstance(result, Exception):
                raise result
            held, loss, ones = result
            within += ones
            total.merge(as_aggregator(held, type(total), mechanism))
            losses.append(loss)
        return RoundResult(mean_of_round(total).value, mean_of_groups(losses, clients), within)


def _blas_threads() -> dict[str, str]:
    """The number of BLAS threads of this process, as environment variables of OpenBLAS and OpenMP."""
    openmp = os.environ.get("OMP_NUM_THREADS", str(core_count()))
    return {"OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", openmp), "OMP_NUM_THREADS": openmp}


def _contribution(
    chosen: NDArray[np.int64],
    first: int,
    examples: tuple[Model, NDArray[np.float32], NDArray[Any]],
    parameters: NDArray[np.float32],
    json: str,
    clients: int,
    round_number: int,
    private_seed: int | None,
    rng: np.random.Generator | None,
    adaptive: AdaptiveClip | None,
) -> tuple[dict[str, Any], float, int]:
    """Return a group's part of a round: its aggregated messages, the mean loss of its batches, and its bits."""
    model, all_x, all_y = examples
    x, y = all_x[chosen], all_y[chosen]
    # Arrays from Ray's memory are read-only, which some libraries warn about; a copy is not.
    parameters = parameters.copy()
    gradients = model.gradients(parameters, x, y)
    mechanism = shared_mechanism(json)
    group = slice(first, first + len(chosen))
    identities = round_identities(mechanism, clients, round_number)
    aggregator = mechanism.aggregator()
    with stream_part(rng, mechanism, first, len(chosen)) as part:
        ids = None if identities is None else identities[group]
        aggregator.update(mechanism.encode(gradients, rng=part, clients=ids))
    within = count_within(adaptive, mechanism, gradients, private_seed, round_number, first)
    return without_mechanism(aggregator), batch_loss(model, parameters, x, y), within
