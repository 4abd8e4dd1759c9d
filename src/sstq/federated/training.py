"""The federated loop: gradients of all clients, one private message each, a mean, a step, again.

Everything that is not private noise is a function of the seed: partition, start, batches. So two mechanisms with one
seed see the same examples in the same order, and differ by their noise alone.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sstq.accounting import Ledger
from sstq.federated.checkpoints import State, load_state, save_state
from sstq.federated.problems import Problem
from sstq.federated.server import Server
from sstq.schemes import Mechanism
from sstq.schemes.base import check_number
from sstq.schemes.framed import FramedMechanism
from sstq.schemes.frameunit_sums import FrameBiasWarning
from sstq.streams import mix_seed

__all__ = ["Round", "private_mean", "train"]


@dataclass(frozen=True)
class Round:
    """What is known after a round; round 0 is the start, before anything was sent.

    Attributes:
        number: of the round.
        loss: on the test examples, after the step (the squared distance from the truth for a regression).
        train_loss: the mean loss of the round's batches before the step; nan for round 0.
        accuracy: on the test examples; None for a regression.
        bits: that each client has sent so far.
        epsilon: that each client has spent so far, by plain addition.
        mean_norm: the norm of the estimated mean gradient, before the server's cap.
        parameters: the model after the step.
    """

    number: int
    loss: float
    train_loss: float
    accuracy: float | None
    bits: int
    epsilon: float
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
    estimate: Callable[[Mechanism, NDArray[np.float32], int, np.random.Generator | None], NDArray[np.float64]]
    | None = None,
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
        ledger: where a client's ε is charged before anything is sent; a round that it refuses ends the training.
        checkpoint: a file to which the state is saved after every round; if it is there already, training goes on
            from it, or is refused if anything but the number of rounds differs.
        estimate: instead of `private_mean`, what makes the mean of a round; it need not be private.

    Examples:
        >>> import sstq
        >>> from sstq.federated import Server, regression_problem, train
        >>> problem = regression_problem(dim=8, clients=50, seed=0, examples=500)
        >>> mechanism = sstq.mechanism("frameunit", dim=8, epsilon=4.0, frames=64)
        >>> losses = [r.loss for r in train(problem, mechanism, Server(rate=0.5), 20, batch=5, private_seed=1)]
        >>> losses[-1] < losses[0]
        True
    """
    _check(problem, mechanism, rounds, batch)
    identity = _identity(problem, mechanism, server, batch, seed, fresh_frames)
    state = _start(problem, identity, seed, checkpoint)
    yield _report(problem, mechanism, state, float("nan"), float("nan"))
    while state.round_number < rounds:
        number = state.round_number + 1
        if ledger is not None:
            ledger.spend(mechanism.epsilon, f"round {number}")
        this_round = mechanism
        if fresh_frames and isinstance(mechanism, FramedMechanism):
            this_round = mechanism.with_frame_seed(mix_seed(seed, number))
        x, y = problem.batches(batch, seed, number)
        gradients = problem.model.gradients(state.parameters, x, y)
        rng = None if private_seed is None else np.random.default_rng([private_seed, number])
        mean = (estimate or private_mean)(this_round, gradients, number, rng)
        examples = x.reshape(-1, *x.shape[2:]), y.reshape(-1)
        train_loss = problem.model.evaluate(state.parameters, *examples).loss
        parameters, velocity = server.step(state.parameters, mean, state.velocity, number - 1)
        state = State(number, parameters, velocity, state.identity)
        if checkpoint is not None:
            save_state(state, checkpoint)
        yield _report(problem, mechanism, state, train_loss, float(np.linalg.norm(mean)))


def private_mean(
    mechanism: Mechanism, gradients: NDArray[np.float32], round_number: int, rng: np.random.Generator | None
) -> NDArray[np.float64]:
    """The mean of the clients' vectors as the server learns it, from their messages alone."""
    count = len(gradients)
    # Behind a public coin every client needs a fresh identity in every round.
    clients = None if mechanism.coin == "private" else np.arange(count) + round_number * count
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.encode(gradients, rng=rng, clients=clients))
    with warnings.catch_warnings():
        # With a fresh frame every round the bias of one frame is averaged out over rounds.
        warnings.simplefilter("ignore", FrameBiasWarning)
        return aggregator.mean().value


def _check(problem: Problem, mechanism: Mechanism, rounds: int, batch: int) -> None:
    check_number("rounds", rounds, 0, 10**9, integer=True)
    check_number("batch", batch, 1, 10**6, integer=True)
    if mechanism.dim != problem.model.dim:
        raise ValueError(f"the mechanism is for dim {mechanism.dim}, but the model has {problem.model.dim} parameters")


def _identity(
    problem: Problem, mechanism: Mechanism, server: Server, batch: int, seed: int, fresh_frames: bool
) -> str:
    """What a checkpoint must agree with: everything that decides the next round, but for the noise."""
    # The parts stand for the data and for how it was spread over the clients.
    parts = zlib.crc32(b"".join(part.tobytes() for part in problem.parts))
    facts = (problem.name, problem.model.dim, problem.clients, f"{parts:08x}", server, batch, seed, fresh_frames)
    return " ".join(map(str, (*facts, mechanism.digest())))


def _start(problem: Problem, identity: str, seed: int, checkpoint: str | Path | None) -> State:
    if checkpoint is not None and Path(checkpoint).exists():
        return load_state(checkpoint, problem.model.dim, identity)
    parameters = problem.model.initial(seed)
    return State(0, parameters, np.zeros(problem.model.dim), identity)


def _report(problem: Problem, mechanism: Mechanism, state: State, train_loss: float, mean_norm: float) -> Round:
    evaluation = problem.model.evaluate(state.parameters, problem.test_x, problem.test_y)
    number = state.round_number
    return Round(
        number,
        evaluation.loss,
        train_loss,
        evaluation.accuracy,
        number * mechanism.message_bits,
        number * mechanism.epsilon if number else 0.0,
        mean_norm,
        state.parameters,
    )
