"""What is learned: the examples of a node, those of the server, and the network in one of two frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
from flwr.app import ArrayRecord

from flower_fashion.data import Examples, load

HIDDEN_UNITS = 32
CLASSES = 10

_NETWORKS = {"numpy": "numpy_network", "torch": "torch_network"}


class Evaluation(NamedTuple):
    """The mean loss, and the share of right labels."""

    loss: float
    accuracy: float


class Network(Protocol):
    """What both frameworks offer; the parameters travel as Flower's ArrayRecord."""

    def initial(self, seed: int) -> ArrayRecord:
        """The parameters to start from."""
        ...

    def fit(
        self,
        arrays: ArrayRecord,
        examples: Examples,
        config: Mapping[str, Any],
        seed: list[int],
    ) -> ArrayRecord:
        """The parameters after `local-steps` steps of gradient descent, on random batches of `batch-size`."""
        ...

    def evaluate(self, arrays: ArrayRecord, examples: Examples) -> Evaluation:
        """Loss and accuracy."""
        ...


def network(config: Mapping[str, Any]) -> Network:
    """Return the paper's network, one hidden layer of 32 units, in the framework of the run's configuration."""
    framework = str(config["framework"])
    (training, _) = _load(str(config["dataset"]))
    if framework not in _NETWORKS:
        raise ValueError(
            f"framework must be {' or '.join(map(repr, _NETWORKS))}, got {framework!r}"
        )
    # Imported here, so that a node that trains with NumPy needs no PyTorch.
    module = import_module(f"flower_fashion.{_NETWORKS[framework]}")
    made: Network = module.make(training.images.shape[1], HIDDEN_UNITS, CLASSES)
    return made


def node_examples(config: Mapping[str, Any], node: Mapping[str, Any]) -> Examples:
    """Return what a node trains on: its part of the training set, which no other node holds.

    In a real federation every node would read its own data here. `partition-id` and `num-partitions` are set by the
    simulation, or by whoever starts the node (`flower-supernode --node-config`).
    """
    (training, _) = _load(str(config["dataset"]))
    public = _public(config)
    order = np.random.default_rng(0).permutation(len(training.labels) - public)
    mine = (
        public
        + np.array_split(order, int(node["num-partitions"]))[int(node["partition-id"])]
    )
    return Examples(training.images[mine], training.labels[mine])


def public_examples(config: Mapping[str, Any]) -> Examples:
    """Return the examples that the server itself has, the first `public-examples` of the training set."""
    (training, _) = _load(str(config["dataset"]))
    public = _public(config)
    return Examples(training.images[:public], training.labels[:public])


def test_examples(config: Mapping[str, Any]) -> Examples:
    """Return the test set, on which the server measures the model: nodes report no figures of their own."""
    return _load(str(config["dataset"]))[1]


def batches(
    examples: Examples, config: Mapping[str, Any], seed: list[int]
) -> list[Examples]:
    """Return the batches of one round, the same in both frameworks."""
    rng = np.random.default_rng(seed)
    size = min(int(config["batch-size"]), len(examples.labels))
    chosen = [
        rng.choice(len(examples.labels), size, replace=False)
        for _ in range(int(config["local-steps"]))
    ]
    return [Examples(examples.images[rows], examples.labels[rows]) for rows in chosen]


def _public(config: Mapping[str, Any]) -> int:
    return int(config["public-examples"])


@lru_cache(maxsize=1)
def _load(name: str) -> tuple[Examples, Examples]:
    return load(name)
