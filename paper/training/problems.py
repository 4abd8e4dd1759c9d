"""Learning problems: a model, examples spread over clients, examples to test on, and the paper's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paper.training.models import HiddenLayer, LeastSquares, Model
from sstq.checks import check_number

Partition = list[NDArray[np.int64]]
"""Which client holds which examples."""


@dataclass(frozen=True)
class Settings:
    """The settings of a training besides its data and its mechanism.

    Attributes:
        clients: the number of clients that share the training examples.
        batch: the number of examples per gradient.
        clip: the bound on the norm of a client's gradient.
        rate: the server's learning rate.
        norm_cap: the server's bound on the norm of the mean; None for none.
        rounds: the number of rounds.
    """

    clients: int
    batch: int
    clip: float
    rate: float
    norm_cap: float | None = 10.0
    rounds: int = 100


SETTINGS: Mapping[str, Settings] = {
    "digits": Settings(clients=100, batch=14, clip=0.5, rate=0.5),
    "fashion-mnist": Settings(clients=100, batch=64, clip=0.1, rate=0.2),
    "cifar-10": Settings(clients=100, batch=64, clip=0.1, rate=0.5),
    "regression": Settings(clients=200, batch=20, clip=1.0, rate=0.5),
}
"""The settings by data set: Section 7 of the paper for the images, Appendix G for the regression."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A learning problem: the model, and which client holds which examples.

    Attributes:
        name: the name of the data.
        model: the model.
        x: all training examples, (n, …).
        y: their targets, (n,).
        parts: the examples of each client, disjoint.
        test_x: examples to test on; the training examples themselves for a regression.
        test_y: their targets.
    """

    name: str
    model: Model
    x: NDArray[np.float32]
    y: NDArray[Any]
    parts: Partition
    test_x: NDArray[np.float32]
    test_y: NDArray[Any]

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.parts)

    def batches(
        self,
        batch: int,
        seed: int,
        round_number: int,
        members: NDArray[np.int64] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Return batches of examples and targets, (clients, batch, …) and (clients, batch), for all or some clients.

        They depend only on the seed, the round and its members (by default all clients), so all mechanisms
        see the same examples. A client with fewer examples than `batch` draws with replacement.
        """
        rng = np.random.default_rng([seed, 3, round_number])
        parts = (
            self.parts
            if members is None
            else [self.parts[member] for member in members]
        )
        chosen = np.stack(
            [
                part[rng.choice(len(part), batch, replace=len(part) < batch)]
                for part in parts
            ]
        )
        return self.x[chosen], self.y[chosen]


def image_problem(
    dataset: Any,
    clients: int,
    seed: int,
    *,
    start: str = "he",
    model: Model | None = None,
) -> Problem:
    """Create the problem of the paper's network on images, or of another model.

    The network starts "he", with which Clean has the paper's loss, or "uniform".
    """
    if model is None:
        model = HiddenLayer(
            dataset.train_images.shape[1], classes=len(dataset.classes), start=start
        )
    labels = dataset.train_labels
    parts = iid_partition(len(labels), clients, seed)
    return Problem(
        dataset.name,
        model,
        dataset.train_images,
        labels,
        parts,
        dataset.test_images,
        dataset.test_labels,
    )


def regression_problem(
    dim: int, clients: int, seed: int, *, examples: int = 4000
) -> Problem:
    """Create the paper's linear regression: rows of A from N(0, 1/d), θ* from N(0, I), targets Aθ* without noise."""
    dim = check_number("dim", dim, 1, 2**20, integer=True)
    rng = np.random.default_rng([seed, 4])
    x = (rng.standard_normal((examples, dim)) * dim**-0.5).astype(np.float32)
    truth = rng.standard_normal(dim).astype(np.float32)
    y = x @ truth
    return Problem(
        "regression",
        LeastSquares(truth),
        x,
        y,
        iid_partition(examples, clients, seed),
        x,
        y,
    )


def iid_partition(examples: int, clients: int, seed: int) -> Partition:
    """Return disjoint random parts of (nearly) equal size, one per client."""
    clients = check_number("clients", clients, 1, examples, integer=True)
    return np.array_split(
        np.random.default_rng([seed, 1]).permutation(examples), clients
    )
