"""The federated loop: gradients of all clients, one private message each, a mean, a step, again.

Everything that is not private noise is a function of the seed: partition, start, batches. So two mechanisms with one
seed see the same examples in the same order, and differ by their noise alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.accounting import Ledger, RunExpenses, compose, ledger_price, price
from sstq.checks import check_number
from sstq.lab.training.checkpoints import State, load_state, save_state
from sstq.lab.training.groups import client_groups, mean_of_groups, round_identities
from sstq.lab.training.identity import facts_of_problem
from sstq.lab.training.models import Model
from sstq.lab.training.problems import Problem
from sstq.lab.training.server import Server
from sstq.mechanisms import Mechanism
from sstq.runs.rounds import mean_of_round, round_mechanism

__all__ = ["Round", "RoundEngine", "RoundTask", "batch_loss", "private_mean", "train"]

Estimator = Callable[[Mechanism, NDArray[np.float32], int, np.random.Generator | None], NDArray[np.float64]]


@dataclass(frozen=True)
class RoundTask:
    """All that a round is computed from.

    Attributes:
        problem: the model, and who holds which examples.
        mechanism: of this round, its frame included.
        parameters: of the model, before the step.
        batch: the examples of a client's gradient.
        seed: of the batches.
        number: of the round.
        rng: of the privacy noise, for simulation; None for the operating system's randomness.
    """

    problem: Problem
    mechanism: Mechanism
    parameters: NDArray[np.float32]
    batch: int
    seed: int
    number: int
    rng: np.random.Generator | None


# What computes a round: the mean gradient as the server learns it, and the mean loss of the round's batches.
RoundEngine = Callable[[RoundTask], tuple[NDArray[np.float64], float]]


@dataclass(frozen=True)
class Round:
    """What is known after a round; round 0 is the start, before anything was sent.

    Attributes:
        number: of the round.
        loss: on the test examples, after the step (the squared distance from the truth for a regression).
        train_loss: the mean loss of the round's batches before the step; nan for round 0.
        accuracy: on the test examples; None for a regression.
        bits: that each client has sent so far.
        epsilon: that each client has spent so far, by plain addition: what the ledger has charged, where there is one.
        delta: that goes with it, by plain addition.
        mean_norm: the norm of the estimated mean gradient, before the server's cap.
        parameters: the model after the step.
    """

    number: int
    loss: float
    train_loss: float
    accuracy: float | None
    bits: int
    epsilon: float
    delta: float
    mean_norm: float
    parameters: NDArray[np.float32]


def train(
    problem: Problem,
    mechanism: Mechanism,
    server: Server,
    rounds: int,
    *,
    batch: int = 64,
    seed: int = 0,
    private_seed: int | None = None,
    fresh_frames: bool = True,
    ledger: Ledger | None = None,
    checkpoint: str | Path | None = None,
    estimate: Estimator | None = None,
    engine: RoundEngine | None = None,
) -> Iterator[Round]:
    """Train, yielding what is known after every round.

    Args:
        problem: the model, and who holds which examples.
        mechanism: for vectors of the model's dimension; its clip is the clients' gradient clip.
        server: what is done with the mean.
        rounds: how many.
        batch: the examples of a client's gradient.
        seed: of the start, the batches and the frames.
        private_seed: of the privacy noise, for simulation; the operating system's randomness unless given.
        fresh_frames: whether every round has its own frame, where the mechanism has one.
        ledger: where a client's ε is charged before anything is sent; a round that it refuses ends the training. A
            round that is done again after a crash is charged again. A ledger that lacks rounds of the checkpoint is
            refused (ValueError). For mechanisms with δ = 0, since it adds up pure ε.
        checkpoint: a file to which the state is saved after every round; if it is there already, training goes on
            from it, or is refused (ValueError) unless these are the same: `mechanism`, `server`, `batch`, `seed`,
            `private_seed` or its absence, `fresh_frames`, the name of `estimate`, and of the problem its name, the
            checksums of `x`, `y` and `parts`, and the description of the model (see `Model`).
        estimate: instead of `private_mean`, what makes the mean of a round; it need not be private.
        engine: what computes the rounds, with the same result as this process (see `sstq.integrations.ray`).

    Examples:
        >>> import sstq
        >>> from sstq.lab.training import Server, regression_problem, train
        >>> problem = regression_problem(dim=8, clients=50, seed=0, examples=500)
        >>> mechanism = sstq.mechanism("frameunit", dim=8, epsilon=4.0, frames=64)
        >>> losses = [r.loss for r in train(problem, mechanism, Server(rate=0.5), 20, batch=5, private_seed=1)]
        >>> losses[-1] < losses[0]
        True
    """
    _check(problem, mechanism, rounds, batch)
    if ledger is not None:
        ledger_price(mechanism)
    if engine is not None and estimate is not None:
        raise ValueError("estimate is for rounds in this process: give it or an engine, not both")
    identity: dict[str, str] = {}
    if checkpoint is not None:
        identity = _identity(problem, mechanism, server, batch, seed, private_seed, fresh_frames, estimate)
    state = _start(problem, identity, seed, checkpoint)
    expenses = RunExpenses(mechanism)
    compute = engine or partial(_compute_here, estimate or private_mean)
    if ledger is not None:
        _check_ledger(ledger, mechanism, state.round_number)
    yield _report(problem, mechanism, ledger, state, float("nan"), float("nan"))
    while state.round_number < rounds:
        number = state.round_number + 1
        if ledger is not None:
            expenses.charge(ledger, number)
        this_round = round_mechanism(mechanism, seed, number) if fresh_frames else mechanism
        rng = None if private_seed is None else np.random.default_rng([private_seed, number])
        mean, train_loss = compute(RoundTask(problem, this_round, state.parameters, batch, seed, number, rng))
        parameters, velocity = server.step(state.parameters, mean, state.velocity, number - 1)
        state = State(number, parameters, velocity, state.identity)
        if checkpoint is not None:
            save_state(state, checkpoint)
        yield _report(problem, mechanism, ledger, state, train_loss, float(np.linalg.norm(mean)))


def private_mean(
    mechanism: Mechanism, gradients: NDArray[np.float32], round_number: int, rng: np.random.Generator | None
) -> NDArray[np.float64]:
    """The mean of the clients' vectors as the server learns it, from their messages alone."""
    count = len(gradients)
    clients = round_identities(mechanism, count, round_number)
    aggregator = mechanism.aggregator()
    for group in client_groups(count):
        identities = None if clients is None else clients[group]
        aggregator.update(mechanism.encode(gradients[group], rng=rng, clients=identities))
    return mean_of_round(aggregator).value


def _compute_here(estimate: Estimator, task: RoundTask) -> tuple[NDArray[np.float64], float]:
    """The `RoundEngine` of this process."""
    model, parameters, clients = task.problem.model, task.parameters, task.problem.clients
    x, y = task.problem.batches(task.batch, task.seed, task.number)
    groups = list(client_groups(clients))
    gradients = np.concatenate([model.gradients(parameters, x[group], y[group]) for group in groups])
    mean = estimate(task.mechanism, gradients, task.number, task.rng)
    losses = [batch_loss(model, parameters, x[group], y[group]) for group in groups]
    return mean, mean_of_groups(losses, clients)


def batch_loss(model: Model, parameters: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[Any]) -> float:
    """The mean loss of batches (clients, batch, …) and their targets."""
    return model.evaluate(parameters, x.reshape(-1, *x.shape[2:]), y.reshape(-1)).loss


def _check(problem: Problem, mechanism: Mechanism, rounds: int, batch: int) -> None:
    check_number("rounds", rounds, 0, 10**9, integer=True)
    check_number("batch", batch, 1, 10**6, integer=True)
    if mechanism.dim != problem.model.dim:
        raise ValueError(f"the mechanism is for dim {mechanism.dim}, but the model has {problem.model.dim} parameters")


def _identity(
    problem: Problem,
    mechanism: Mechanism,
    server: Server,
    batch: int,
    seed: int,
    private_seed: int | None,
    fresh_frames: bool,
    estimate: Estimator | None,
) -> dict[str, str]:
    """What a checkpoint must agree with. An engine is no part of it: all compute the same rounds."""
    name = "private_mean" if estimate is None else getattr(estimate, "__qualname__", type(estimate).__qualname__)
    return facts_of_problem(problem) | {
        "mechanism": mechanism.digest(),
        "server": str(server),
        "batch": str(batch),
        "seed": str(seed),
        "private_seed": "secret" if private_seed is None else str(private_seed),
        "fresh_frames": str(fresh_frames),
        "estimate": name,
    }


def _start(problem: Problem, identity: dict[str, str], seed: int, checkpoint: str | Path | None) -> State:
    if checkpoint is not None and Path(checkpoint).exists():
        return load_state(checkpoint, problem.model.dim, identity)
    parameters = problem.model.initial(seed)
    return State(0, parameters, np.zeros(problem.model.dim), identity)


def _check_ledger(ledger: Ledger, mechanism: Mechanism, rounds: int) -> None:
    """Refuse a budget that would begin anew in the middle of a training."""
    done = _counted(mechanism, rounds)
    if _charged(ledger) < done:
        raise ValueError(
            f"ledger must hold the {rounds} rounds of the checkpoint (ε = {done:g}), got {ledger.path} with "
            f"ε = {_charged(ledger):g}: go on with the ledger that this training began with, or start a new training"
        )


def _charged(ledger: Ledger) -> float:
    """All that was ever charged; a round that was cut short and done again is there twice."""
    entries = ledger.entries
    return compose([entry.epsilon for entry in entries]) if entries else 0.0


def _counted(mechanism: Mechanism, rounds: int) -> float:
    return rounds * price(mechanism) if rounds else 0.0


def _report(
    problem: Problem,
    mechanism: Mechanism,
    ledger: Ledger | None,
    state: State,
    train_loss: float,
    mean_norm: float,
) -> Round:
    evaluation = problem.model.evaluate(state.parameters, problem.test_x, problem.test_y)
    number = state.round_number
    return Round(
        number,
        evaluation.loss,
        train_loss,
        evaluation.accuracy,
        number * mechanism.message_bits,
        _counted(mechanism, number) if ledger is None else _charged(ledger),
        number * mechanism.delta,
        mean_norm,
        state.parameters,
    )
