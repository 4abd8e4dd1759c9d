"""The federated training loop: gradients of a round's clients, private messages, their mean, a step.

Everything that is not private noise is a function of the seed: partition, start, batches, who answers when. So two
mechanisms with one seed see the same examples in the same order, and differ by their noise alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from paper.training.cohorts import Cohorts
from paper.training.problems import Problem
from sstq import Mechanism
from sstq.accounting import gaussian_sigma, price
from sstq.accounting.bounds import Participation, answers_of
from sstq.checks import check_number
from sstq.mechanisms import ClippedWarning
from sstq.randomness.streams import mix_seed

Estimator = Callable[
    [Mechanism, NDArray[np.float32], int, np.random.Generator | None],
    NDArray[np.float64],
]

# Clients whose gradients are encoded together, which bounds memory.
_CLIENTS_AT_A_TIME = 256


@dataclass(frozen=True)
class Server:
    """A step of stochastic gradient descent with a norm cap.

    Args:
        rate: the learning rate.
        norm_cap: a mean longer than this is scaled down to it, which biases it; None for no cap.

    Examples:
        >>> Server(rate=0.5, norm_cap=1.0).step(np.zeros(2), np.array([3.0, 4.0]))
        array([-0.3, -0.4], dtype=float32)
    """

    rate: float = 0.2
    norm_cap: float | None = 10.0

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 1e-12, 1e12)
        if self.norm_cap is not None:
            check_number("norm_cap", self.norm_cap, 1e-12, 1e12)

    def step(
        self, parameters: NDArray[np.floating], mean: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """Return the parameters after a round with this estimated mean gradient."""
        norm = float(np.linalg.norm(mean))
        if self.norm_cap is not None and norm > self.norm_cap:
            mean = mean * (self.norm_cap / norm)
        return (parameters - self.rate * mean).astype(np.float32)


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
        epsilon: the ε that this client has spent so far, by plain addition.
        delta: the δ that belongs to it, by plain addition.
        mean_norm: the norm of the estimated mean gradient, before the server's cap.
        true_norm: the norm of the mean of the clipped gradients, which the server does not see; nan for round 0.
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
    mean_norm: float
    true_norm: float
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
    participation: Participation | None = None,
    estimate: Estimator | None = None,
) -> Iterator[Round]:
    """Train a model, yielding a report after every round.

    Args:
        problem: the model, and who holds which examples.
        mechanism: a mechanism of the model's dimension; its clip is the clients' gradient clip.
        server: the server's step.
        rounds: the number of rounds.
        batch: the number of examples per gradient.
        seed: the seed of the start, the batches and the frames.
        private_seed: the seed of the privacy noise, for simulations; by default the operating system's randomness.
        participation: in how many of the rounds each client answers, "once" or a number: `Cohorts` of clients take
            turns, by the seed alone. By default all clients answer in every round.
        estimate: a function that computes the mean of a round instead of `private_mean`; it need not be private.

    Examples:
        >>> import sstq
        >>> from paper.training.problems import regression_problem
        >>> problem = regression_problem(dim=8, clients=50, seed=0, examples=500)
        >>> mechanism = sstq.mechanism("frameunit", dim=8, epsilon=4.0, frames=64)
        >>> losses = [r.loss for r in train(problem, mechanism, Server(rate=0.5), 20, batch=5, private_seed=1)]
        >>> losses[-1] < losses[0]
        True
    """
    check_number("rounds", rounds, 0, 10**9, integer=True)
    check_number("batch", batch, 1, 10**6, integer=True)
    if mechanism.dim != problem.model.dim:
        raise ValueError(
            f"mechanism must have dim = {problem.model.dim}, the model's parameters, got {mechanism.dim}"
        )
    cohorts = (
        None
        if participation is None
        else Cohorts(problem.clients, rounds, answers_of(participation))
    )
    model = problem.model
    parameters = problem.model.initial(seed)
    train_loss = mean_norm = true_norm = nan
    for number in range(rounds + 1):
        members = np.arange(0)
        if number:
            members = (
                np.arange(problem.clients)
                if cohorts is None
                else cohorts.members(seed, number)
            )
            this_round = mechanism.with_seed(mix_seed(seed, number))
            rng = (
                None
                if private_seed is None
                else np.random.default_rng([private_seed, number])
            )
            x, y = problem.batches(batch, seed, number, members)
            gradients = model.gradients(parameters, x, y)
            train_loss = model.evaluate(
                parameters, x.reshape(-1, *x.shape[2:]), y.reshape(-1)
            ).loss
            mean = (estimate or private_mean)(this_round, gradients, number, rng)
            mean_norm = float(np.linalg.norm(mean))
            true_norm = _clipped_mean_norm(gradients, mechanism.clip)
            parameters = server.step(parameters, mean)
        tested = model.evaluate(parameters, problem.test_x, problem.test_y)
        answers = number if cohorts is None else cohorts.answers_after(number)
        yield Round(
            number=number,
            loss=tested.loss,
            train_loss=train_loss,
            accuracy=tested.accuracy,
            clients=len(members),
            mean_norm=mean_norm,
            true_norm=true_norm,
            parameters=parameters,
            answers=answers,
            bits=answers * mechanism.messages * mechanism.message_bits,
            epsilon=answers * price(mechanism) if answers else 0.0,
            delta=answers * mechanism.delta,
        )


def _clipped_mean_norm(gradients: NDArray[np.float32], clip: float) -> float:
    norms = np.linalg.norm(gradients.astype(np.float64), axis=1, keepdims=True)
    return float(
        np.linalg.norm(
            np.mean(gradients * np.minimum(1, clip / np.maximum(norms, 1e-300)), axis=0)
        )
    )


def private_mean(
    mechanism: Mechanism,
    gradients: NDArray[np.float32],
    round_number: int,  # noqa: ARG001 (an `Estimator` takes it)
    rng: np.random.Generator | None,
) -> NDArray[np.float64]:
    """Return the mean of the clients' vectors as the server estimates it from their messages.

    Examples:
        >>> import sstq
        >>> private_mean(sstq.FrameUnit(dim=3, epsilon=4.0), np.full((100, 3), 0.1), 1, None).shape
        (3,)
    """
    aggregator = mechanism.aggregator()
    for start in range(0, len(gradients), _CLIENTS_AT_A_TIME):
        part = slice(start, start + _CLIENTS_AT_A_TIME)
        with warnings.catch_warnings():
            # gradients are clipped on purpose
            warnings.simplefilter("ignore", ClippedWarning)
            aggregator.update(mechanism.encode(gradients[part], rng=rng))
    return aggregator.mean().value


def gaussian_mean(epsilon: float, delta: float, answers: int) -> Estimator:
    """Return an estimator of means with Gaussian noise on every client, (ε, δ) in total over its answers.

    Replacing a client's vector changes it by at most 2·clip. The noise is the least that is enough (Balle and Wang,
    2018, Theorem 8); k answers need √k times the noise of one.
    """
    sigma = 2 * gaussian_sigma(epsilon, delta) * answers**0.5

    def estimate(
        mechanism: Mechanism,
        gradients: NDArray[np.float32],
        _number: int,
        rng: np.random.Generator | None,
    ) -> NDArray[np.float64]:
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        clipped = gradients * np.minimum(1, mechanism.clip / np.maximum(norms, 1e-30))
        noise = (rng or np.random.default_rng()).standard_normal(gradients.shape[1])
        mean: NDArray[np.float64] = (
            clipped.mean(axis=0)
            + sigma * mechanism.clip / len(gradients) ** 0.5 * noise
        )
        return mean

    return estimate
