"""The network in NumPy, whose parameters are one flat vector: both layers' weights and biases, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from flower_fashion.data import Examples
from flower_fashion.task import Evaluation, batches

_NAME = "parameters"
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class NumpyNetwork:
    """One hidden layer of rectified units and a softmax, behind the interface of `task.Network`."""

    inputs: int
    hidden: int
    classes: int

    def initial(self, seed: int) -> ArrayRecord:
        """The parameters to start from: He's weights and biases of zero."""
        rng = np.random.default_rng(seed)
        first = (
            rng.standard_normal(self.inputs * self.hidden) * (2 / self.inputs) ** 0.5
        )
        second = (
            rng.standard_normal(self.hidden * self.classes) * (2 / self.hidden) ** 0.5
        )
        return _record(
            np.concatenate(
                [first, np.zeros(self.hidden), second, np.zeros(self.classes)]
            )
        )

    def fit(
        self,
        arrays: ArrayRecord,
        examples: Examples,
        config: Mapping[str, Any],
        seed: list[int],
    ) -> ArrayRecord:
        """The parameters after a few steps of gradient descent."""
        parameters = _vector(arrays).copy()
        for batch in batches(examples, config, seed):
            parameters -= np.float32(config["local-rate"]) * self._gradient(
                parameters, batch
            )
        return _record(parameters)

    def evaluate(self, arrays: ArrayRecord, examples: Examples) -> Evaluation:
        """Loss and accuracy."""
        _, shares = self._forward(_vector(arrays), examples.images)
        right = shares[np.arange(len(shares)), examples.labels]
        accuracy = np.mean(shares.argmax(axis=1) == examples.labels)
        return Evaluation(
            float(-np.log(np.maximum(right, 1e-30)).mean()), float(accuracy)
        )

    def _layers(self, parameters: Floats) -> list[Floats]:
        ends = np.cumsum(
            [self.inputs * self.hidden, self.hidden, self.hidden * self.classes]
        )
        first, bias, second, last = np.split(parameters, ends)
        return [
            first.reshape(-1, self.hidden),
            bias,
            second.reshape(-1, self.classes),
            last,
        ]

    def _forward(self, parameters: Floats, images: Floats) -> tuple[Floats, Floats]:
        """The hidden units, and the probabilities of the classes."""
        first, bias, second, last = self._layers(parameters)
        active = np.maximum(images @ first + bias, 0)
        scores = active @ second + last
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        return active, raised / raised.sum(axis=1, keepdims=True)

    def _gradient(self, parameters: Floats, batch: Examples) -> Floats:
        active, errors = self._forward(parameters, batch.images)
        errors[np.arange(len(errors)), batch.labels] -= 1
        errors /= len(errors)
        back = (errors @ self._layers(parameters)[2].T) * (active > 0)
        parts = (
            batch.images.T @ back,
            back.sum(axis=0),
            active.T @ errors,
            errors.sum(axis=0),
        )
        return np.concatenate([part.reshape(-1) for part in parts])


def make(inputs: int, hidden: int, classes: int) -> NumpyNetwork:
    """Return the network for images of so many pixels."""
    return NumpyNetwork(inputs, hidden, classes)


def _vector(arrays: ArrayRecord) -> Floats:
    return arrays[_NAME].numpy().astype(np.float32, copy=False)


def _record(parameters: NDArray[np.floating]) -> ArrayRecord:
    return ArrayRecord({_NAME: Array(parameters.astype(np.float32))})
