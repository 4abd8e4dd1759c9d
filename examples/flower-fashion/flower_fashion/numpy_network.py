"""The network in NumPy: sstq's own, whose parameters are one flat vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from flower_fashion.task import Examples, batches
from paper.training import Evaluation, HiddenLayer

_NAME = "parameters"


@dataclass(frozen=True)
class NumpyNetwork:
    """`paper.training.HiddenLayer` behind the interface of `task.Network`."""

    model: HiddenLayer

    def initial(self, seed: int) -> ArrayRecord:
        """The parameters to start from."""
        return _record(self.model.initial(seed))

    def fit(self, arrays: ArrayRecord, examples: Examples, config: Mapping[str, Any], seed: list[int]) -> ArrayRecord:
        """The parameters after a few steps of gradient descent."""
        parameters = _vector(arrays).copy()
        for images, labels in batches(examples, config, seed):
            (gradient,) = self.model.gradients(parameters, images[None], labels[None])
            parameters -= np.float32(config["local-rate"]) * gradient
        return _record(parameters)

    def evaluate(self, arrays: ArrayRecord, examples: Examples) -> Evaluation:
        """Loss and accuracy."""
        return self.model.evaluate(_vector(arrays), examples.images, examples.labels)


def make(inputs: int, hidden: int, classes: int) -> NumpyNetwork:
    """Return the network for images of so many pixels."""
    return NumpyNetwork(HiddenLayer(inputs, hidden, classes, start="he"))


def _vector(arrays: ArrayRecord) -> NDArray[np.float32]:
    return arrays[_NAME].numpy().astype(np.float32, copy=False)


def _record(parameters: NDArray[np.float32]) -> ArrayRecord:
    return ArrayRecord({_NAME: Array(parameters)})
