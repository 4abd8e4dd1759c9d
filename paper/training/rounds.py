"""The federated training loop: gradients of a round's clients, private messages, their mean, a step.

Everything that is not private noise is a function of the seed: partition, start, batches. So two mechanisms with one
seed see the same examples in the same order, and differ by their noise alone. The seed also decides who answers when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sstq.accounting import Ledger, ledger_price
from sstq.checks import check_number, check_option
from paper.training.checkpoints import State, load_state, save_state
from paper.training.expenses import PersonLedgers
from paper.training.groups import client_groups, mean_of_groups, round_identities
from paper.training.identity import facts_of_problem
from paper.training.meters import Meter, ShuffledMeter
from paper.training.models import Model
from paper.training.problems import Problem
from paper.training.server import Server
from paper.training.shuffled import check_shuffled, shuffled_mean
from sstq.mechanisms import Mechanism
from sstq.runs.adaptive_clip import AdaptiveClip
from sstq.runs.cohorts import Cohorts, Participation, answers_of
from sstq.runs.rounds import mean_of_round, round_mechanism

__all__ = ["Round", "RoundEngine", "RoundResult", "RoundTask", "batch_loss", "count_within", "private_mean", "train"]

Estimator = Callable[[Mechanism, NDArray[np.float32], int, np.random.Generator | None], NDArray[np.float64]]


@dataclass(frozen=True)
class RoundTask:
    """Everything that a round is computed from.

    Attributes:
        problem: the model, and who holds which examples.
        mechanism: the mechanism of this round, with its frame and clip.
        parameters: the parameters of the model before the step.
        batch: the number of examples per gradient.
        seed: the seed of the batches.
        number: the number of the round.
        members: the clients that answer, ascending.
        private_seed: the seed of the privacy noise, for simulations; None for the operating system's randomness.
        adaptive: the adaptive clip, if any, which asks for a bit about the norm.
    """

    problem: Problem
    mechanism: Mechanism
    parameters: NDArray[np.float32]
    batch: int
    seed: int
    number: int
    members: NDArray[np.int64]
    private_seed: int | None
    adaptive: AdaptiveClip | None = None

    @property
    def rng(self) -> np.random.Generator | None:
        """The generator of the messages' noise; None for the operating system's randomness."""
        return None if self.private_seed is None else np.random.default_rng([self.private_seed, self.number])


class RoundResult(NamedTuple):
    """The result of a round.

    Attributes:
        mean: the mean gradient as the server estimates it.
        loss: the mean loss of the round's batches.
        within: how many bits said that the norm was within the clip; 0 if none were asked for.
    """

    mean: NDArray[np.float64]
    loss: float
    within: int = 0


# A function that computes a round.
RoundEngine = Callable[[RoundTask], RoundResult]


@dataclass(frozen=True)
class Round:
    """The report after a round; round 0 is the start, before anything was sent.

    Attributes:
        number: the number of the round.
        loss: the loss on the test examples after the step (for a regression, the squared distance from the truth).
        train_loss: the mean loss of the round's batches before the step; nan for round 0.
        accuracy: the accuracy on the test examples; None for a regression.
        clients: the number of clients that answered in this round.
        answers: the answers so far of the client with the most answers: all rounds, unless cohorts take turns.
        bits: the bits that this client has sent so far.
        epsilon: the ε that this client has spent so far, by plain addition: what a ledger has charged, if there is one.
            Behind a shuffler it is the total of all its messages.
        delta: the δ that belongs to it, by plain addition; behind a shuffler the given one.
        local_epsilon: the ε that this client has spent so far if the shuffler cheats; None without a shuffler.
        clip: the clip of the round.
        mean_norm: the norm of the estimated mean gradient, before the server's cap.
        parameters: the model after the step.
    """

    number: int
    loss: float
    train_loss: float
    accuracy: float | None
    clients: int
    answers: int
    bits: int
    epsilon: float
    delta: float
    local_epsilon: float | None
    clip: float
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
    participation: Participation | None = None,
    trust: Literal["local", "shuffler"] = "local",
    delta: float = 1e-6,
    adaptive_clip: AdaptiveClip | None = None,
    ledger: Ledger | PersonLedgers | None = None,
    checkpoint: str | Path | None = None,
    estimate: Estimator | None = None,
    engine: RoundEngine | None = None,
) -> Iterator[Round]:
    """Train a model, yielding a report after every round.

    Args:
        problem: the model, and who holds which examples.
        mechanism: a mechanism of the model's dimension; its clip is the clients' gradient clip, that of the first round
            if the clip is adaptive.
        server: the server's step.
        rounds: the number of rounds.
        batch: the number of examples per gradient.
        seed: the seed of the start, the batches and the frames.
        private_seed: the seed of the privacy noise, for simulations; by default the operating system's randomness.
        fresh_frames: whether every round has its own frame, if the mechanism has frames.
        participation: in how many of the rounds each client answers, "once" or a number: `Cohorts` of clients take
            turns, by the seed alone. By default all clients answer in every round.
        trust: "local", or "shuffler": then the messages of each slot of a round are mixed before the server sees them.
            The mechanism must be a FrameUnit, such as `sstq.planning.shuffled_mechanism` returns. There must be
            no ledger, adaptive clip, `estimate` or engine then.
        delta: the δ of a client's total behind a shuffler.
        adaptive_clip: moves the clip with one more private bit per answer, whose ε adds to the mechanism's.
        ledger: the ledger that is charged before anything is sent. A `Ledger` covers all clients alike: a round that it
            refuses ends the training. With `participation` it is `PersonLedgers`: who cannot pay does not answer, and a
            round that nobody answers leaves the model as it was. A round that is done again after a crash is charged
            again. A ledger that lacks rounds of the checkpoint is refused (ValueError). For mechanisms with δ = 0,
            since it adds up pure ε.
        checkpoint: a file to which the state is saved after every round; if it exists already, training continues
            from it, or is refused (ValueError) unless these are the same: `mechanism`, `server`, `batch`, `seed`,
            `private_seed` or its absence, `fresh_frames`, `participation` (and with it `rounds`), `adaptive_clip`, the
            name of `estimate`, and of the problem its name, the checksums of `x`, `y` and `parts`, and the description
            of the model (see `Model`).
        estimate: a function that computes the mean of a round instead of `private_mean`; it need not be private.
        engine: computes the rounds, with the same result as this process (see `sstq.integrations.ray`).

    Examples:
        >>> import sstq
        >>> from paper.training import Server, regression_problem, train
        >>> problem = regression_problem(dim=8, clients=50, seed=0, examples=500)
        >>> mechanism = sstq.mechanism("frameunit", dim=8, epsilon=4.0, frames=64)
        >>> losses = [r.loss for r in train(problem, mechanism, Server(rate=0.5), 20, batch=5, private_seed=1)]
        >>> losses[-1] < losses[0]
        True
    """
    _check(problem, mechanism, rounds, batch)
    cohorts = None if participation is None else Cohorts(problem.clients, rounds, answers_of(participation))
    shuffled = check_option("trust", trust, ("local", "shuffler")) == "shuffler"
    if shuffled:
        if any(part is not None for part in (adaptive_clip, ledger, estimate, engine)):
            raise ValueError("adaptive_clip, ledger, estimate and engine must be None with trust='shuffler'")
        check_shuffled(mechanism, delta)
        estimate = shuffled_mean
    if ledger is not None:
        ledger_price(mechanism)
        if isinstance(ledger, PersonLedgers) != (cohorts is not None):
            raise ValueError("ledger must be PersonLedgers with participation, and a Ledger without")
    if engine is not None and estimate is not None:
        raise ValueError("estimate and engine must not be given together: estimate is for rounds in this process")
    identity: dict[str, str] = {}
    if checkpoint is not None:
        identity = _identity(problem, mechanism, server, batch, seed, private_seed, fresh_frames, estimate)
        identity |= {"participation": str(cohorts), "adaptive_clip": str(adaptive_clip)}
    state = _start(problem, mechanism, identity, seed, checkpoint)
    if shuffled:
        meter: Meter = ShuffledMeter(mechanism, cohorts, problem.clients, delta)
    else:
        meter = Meter(mechanism, adaptive_clip, cohorts, ledger)
    meter.check(state.round_number, seed)
    compute = engine or partial(_compute_here, estimate or private_mean)
    yield _report(problem, meter, state, 0, state.clip)
    while state.round_number < rounds:
        number = state.round_number + 1
        members = meter.pay(problem.clients, number, seed)
        result = None
        if len(members):
            this_round = round_mechanism(mechanism, seed, number) if fresh_frames else mechanism
            this_round = this_round.replace(clip=state.clip) if adaptive_clip else this_round
            result = compute(
                RoundTask(
                    problem, this_round, state.parameters, batch, seed, number, members, private_seed, adaptive_clip
                )
            )
        after = state if result is None else _stepped(state, server, result)
        if adaptive_clip is not None and result is not None:
            private = mechanism.trust != "none"
            after = replace(after, clip=adaptive_clip.next_clip(state.clip, result.within, len(members), private))
        after = replace(after, round_number=number)
        if checkpoint is not None:
            save_state(after, checkpoint)
        yield _report(problem, meter, after, len(members), state.clip, result)
        state = after


def _stepped(state: State, server: Server, result: RoundResult) -> State:
    parameters, velocity = server.step(state.parameters, result.mean, state.velocity, state.round_number)
    return replace(state, parameters=parameters, velocity=velocity)


def private_mean(
    mechanism: Mechanism, gradients: NDArray[np.float32], round_number: int, rng: np.random.Generator | None
) -> NDArray[np.float64]:
    """Return the mean of the clients' vectors as the server estimates it from their messages.

    Examples:
        >>> import sstq
        >>> private_mean(sstq.FrameUnit(dim=3, epsilon=4.0), np.full((100, 3), 0.1), 1, None).shape
        (3,)
    """
    count = len(gradients)
    clients = round_identities(mechanism, count, round_number)
    aggregator = mechanism.aggregator()
    for group in client_groups(count):
        identities = None if clients is None else clients[group]
        aggregator.update(mechanism.encode(gradients[group], rng=rng, clients=identities))
    return mean_of_round(aggregator).value


def _compute_here(estimate: Estimator, task: RoundTask) -> RoundResult:
    """The `RoundEngine` of this process."""
    model, parameters, clients = task.problem.model, task.parameters, len(task.members)
    x, y = task.problem.batches(task.batch, task.seed, task.number, task.members)
    groups = list(client_groups(clients))
    gradients = np.concatenate([model.gradients(parameters, x[group], y[group]) for group in groups])
    mean = estimate(task.mechanism, gradients, task.number, task.rng)
    losses = [batch_loss(model, parameters, x[group], y[group]) for group in groups]
    asked = partial(count_within, task.adaptive, task.mechanism)
    within = sum(asked(gradients[group], task.private_seed, task.number, group.start) for group in groups)
    return RoundResult(mean, mean_of_groups(losses, clients), within)


def count_within(
    adaptive: AdaptiveClip | None,
    mechanism: Mechanism,
    gradients: NDArray[np.float32],
    private_seed: int | None,
    number: int,
    first: int,
) -> int:
    """Count the clients of a group, which begins with `first`, that say that their norm is within the clip."""
    if adaptive is None:
        return 0
    norms = np.linalg.norm(gradients.astype(np.float64), axis=1)
    if mechanism.trust == "none":
        return int(np.count_nonzero(norms <= mechanism.clip))
    # A zero at the end would give the stream of the messages.
    rng = None if private_seed is None else np.random.default_rng([private_seed, number, 1 + first])
    return int(adaptive.bits(norms, mechanism.clip, rng).sum())


def batch_loss(model: Model, parameters: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[Any]) -> float:
    """The mean loss of batches (clients, batch, …) and their targets."""
    return model.evaluate(parameters, x.reshape(-1, *x.shape[2:]), y.reshape(-1)).loss


def _check(problem: Problem, mechanism: Mechanism, rounds: int, batch: int) -> None:
    check_number("rounds", rounds, 0, 10**9, integer=True)
    check_number("batch", batch, 1, 10**6, integer=True)
    if mechanism.dim != problem.model.dim:
        raise ValueError(f"mechanism must have dim = {problem.model.dim}, the model's parameters, got {mechanism.dim}")


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
    """What a checkpoint must match. The engine is not part of it: all engines compute the same rounds."""
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


def _start(
    problem: Problem, mechanism: Mechanism, identity: dict[str, str], seed: int, checkpoint: str | Path | None
) -> State:
    if checkpoint is not None and Path(checkpoint).exists():
        return load_state(checkpoint, problem.model.dim, identity)
    parameters = problem.model.initial(seed)
    return State(0, parameters, np.zeros(problem.model.dim), mechanism.clip, identity)


def _report(
    problem: Problem, meter: Meter, state: State, clients: int, clip: float, result: RoundResult | None = None
) -> Round:
    evaluation = problem.model.evaluate(state.parameters, problem.test_x, problem.test_y)
    return Round(
        number=state.round_number,
        loss=evaluation.loss,
        train_loss=nan if result is None else result.loss,
        accuracy=evaluation.accuracy,
        clients=clients,
        clip=clip,
        mean_norm=nan if result is None else float(np.linalg.norm(result.mean)),
        parameters=state.parameters,
        **meter.spent(state.round_number),
    )
