"""Models in NumPy, with the gradients of all clients from a few matrix products: the paper's two, and a linear one.

A model is a flat vector of parameters, because that is what a client encodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_option

Floats = NDArray[np.float32]

# Examples evaluated at a time: enough for the matrix product, few enough for the cache.
_EVALUATED_AT_A_TIME = 4096


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a model.

    Attributes:
        loss: the mean loss of the examples.
        accuracy: the share of examples with the right label; None for a regression.
    """

    loss: float
    accuracy: float | None = None


@dataclass(frozen=True)
class HiddenLayer:
    """A network with one hidden layer of rectified units and a softmax: the paper's, with 32 of them.

    Parameters are, in this order, the first layer's weights (inputs × hidden) and biases, and the second's (hidden ×
    classes).

    Args:
        inputs: the number of values per example.
        hidden: the number of hidden units.
        classes: the number of classes.
        start: "uniform" in ±1/√(inputs of the layer), as is usual for such layers, or "he": weights from
            N(0, 2/(inputs of the layer)) and biases of zero. The paper does not say; its losses are those of "he".
    """

    inputs: int
    hidden: int = 32
    classes: int = 10
    start: str = "uniform"

    def __post_init__(self) -> None:
        check_option("start", self.start, ("uniform", "he"))

    @property
    def dim(self) -> int:
        """d, the number of parameters."""
        return (self.inputs + 1) * self.hidden + (self.hidden + 1) * self.classes

    def initial(self, seed: int) -> Floats:
        """Return the initial parameters, (d,)."""
        rng = np.random.default_rng([seed, 0])
        if self.start == "he":
            return self._he_start(rng)
        first = rng.uniform(-1, 1, (self.inputs + 1) * self.hidden) * self.inputs**-0.5
        second = (
            rng.uniform(-1, 1, (self.hidden + 1) * self.classes) * self.hidden**-0.5
        )
        return np.concatenate([first, second]).astype(np.float32)

    def gradients(self, parameters: Floats, x: Floats, y: NDArray[Any]) -> Floats:
        """Return the gradient of each client's mean cross-entropy, (clients, d)."""
        clients, batch, _ = x.shape
        _, _, second, _ = self._layers(parameters)
        rows = x.reshape(-1, self.inputs)
        active, probabilities, _ = self._forward(parameters, rows, y.reshape(-1))
        probabilities[np.arange(len(rows)), y.reshape(-1)] -= 1
        probabilities /= batch
        signal = probabilities @ second.T
        signal[active == 0] = 0
        by_client = (clients, batch, -1)
        parts = [
            np.matmul(x.transpose(0, 2, 1), signal.reshape(by_client)),
            signal.reshape(by_client).sum(axis=1),
            np.matmul(
                active.reshape(by_client).transpose(0, 2, 1),
                probabilities.reshape(by_client),
            ),
            probabilities.reshape(by_client).sum(axis=1),
        ]
        return np.concatenate([part.reshape(clients, -1) for part in parts], axis=1)

    def evaluate(self, parameters: Floats, x: Floats, y: NDArray[Any]) -> Evaluation:
        """Return the mean cross-entropy and the share of correct labels."""
        return _evaluate_in_parts(
            lambda rows, labels: self._forward(parameters, rows, labels)[1:], x, y
        )

    def _he_start(self, rng: np.random.Generator) -> Floats:
        first = (
            rng.standard_normal(self.inputs * self.hidden) * (2 / self.inputs) ** 0.5
        )
        second = (
            rng.standard_normal(self.hidden * self.classes) * (2 / self.hidden) ** 0.5
        )
        return np.concatenate(
            [first, np.zeros(self.hidden), second, np.zeros(self.classes)]
        ).astype(np.float32)

    def _layers(self, parameters: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        ends = np.cumsum(
            [self.inputs * self.hidden, self.hidden, self.hidden * self.classes]
        )
        first, first_bias, second, second_bias = np.split(parameters, ends)
        return (
            first.reshape(-1, self.hidden),
            first_bias,
            second.reshape(-1, self.classes),
            second_bias,
        )

    def _forward(
        self, parameters: Floats, x: Floats, y: NDArray[Any]
    ) -> tuple[Floats, Floats, Floats]:
        """The hidden units, the probabilities of the classes, and the cross-entropy of each example."""
        first, first_bias, second, second_bias = self._layers(parameters)
        active = np.maximum(x @ first + first_bias, 0)
        return active, *_softmax(active @ second + second_bias, y)


@dataclass(frozen=True)
class Logistic:
    """Logistic regression with a softmax over the classes: far fewer parameters than a network, so far less noise.

    Parameters are the weights (inputs × classes), then the biases; all start at zero.

    Args:
        inputs: the number of values per example.
        classes: the number of classes.
    """

    inputs: int
    classes: int = 10

    @property
    def dim(self) -> int:
        """d, the number of parameters."""
        return (self.inputs + 1) * self.classes

    def initial(self, seed: int) -> Floats:  # noqa: ARG002 (the start is the same for all)
        """Return zeros."""
        return np.zeros(self.dim, dtype=np.float32)

    def gradients(self, parameters: Floats, x: Floats, y: NDArray[Any]) -> Floats:
        """Return the gradient of each client's mean cross-entropy, (clients, d)."""
        clients, batch, _ = x.shape
        signal, _ = self._forward(parameters, x.reshape(-1, self.inputs), y.reshape(-1))
        signal[np.arange(len(signal)), y.reshape(-1)] -= 1
        signal = signal.reshape(clients, batch, self.classes) / np.float32(batch)
        weights = np.matmul(x.transpose(0, 2, 1), signal)
        return np.concatenate(
            [weights.reshape(clients, -1), signal.sum(axis=1)], axis=1
        )

    def evaluate(self, parameters: Floats, x: Floats, y: NDArray[Any]) -> Evaluation:
        """Return the mean cross-entropy and the share of correct labels."""
        return _evaluate_in_parts(
            lambda rows, labels: self._forward(parameters, rows, labels), x, y
        )

    def _forward(
        self, parameters: Floats, x: Floats, y: NDArray[Any]
    ) -> tuple[Floats, Floats]:
        weights, biases = np.split(parameters, [self.inputs * self.classes])
        return _softmax(x @ weights.reshape(-1, self.classes) + biases, y)


def _softmax(logits: Floats, y: NDArray[Any]) -> tuple[Floats, Floats]:
    """The probabilities of the classes, and the cross-entropy of each example."""
    logits = logits - logits.max(axis=1, keepdims=True)
    probabilities = np.exp(logits)
    totals = probabilities.sum(axis=1)
    losses = np.log(totals) - logits[np.arange(len(logits)), y]
    probabilities /= totals[:, None]
    return probabilities, losses


def _evaluate_in_parts(
    forward: Callable[[Floats, NDArray[Any]], tuple[Floats, Floats]],
    x: Floats,
    y: NDArray[Any],
) -> Evaluation:
    """Return the mean cross-entropy and the share of correct labels."""
    loss = right = 0.0
    for start in range(0, len(x), _EVALUATED_AT_A_TIME):
        part = slice(start, start + _EVALUATED_AT_A_TIME)
        probabilities, losses = forward(x[part], y[part])
        loss += float(losses.sum(dtype=np.float64))
        right += float(np.count_nonzero(probabilities.argmax(axis=1) == y[part]))
    return Evaluation(loss / len(x), right / len(x))


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Linear regression, L(θ) = ‖Aθ − b‖²/2n; as in the paper, it is judged by the distance ‖θ − θ*‖² from the truth.

    Args:
        truth: θ*, (d,).
    """

    truth: Floats

    @property
    def dim(self) -> int:
        """d, the number of parameters."""
        return len(self.truth)

    def initial(self, seed: int) -> Floats:  # noqa: ARG002 (the start is the same for all)
        """Return zeros."""
        return np.zeros(self.dim, dtype=np.float32)

    def gradients(self, parameters: Floats, x: Floats, y: NDArray[Any]) -> Floats:
        """Return the gradient of each client's mean loss, (clients, d)."""
        residuals = x @ parameters - y
        gradients: Floats = np.matmul(residuals[:, None, :], x)[:, 0, :] / np.float32(
            x.shape[1]
        )
        return gradients

    def evaluate(self, parameters: Floats, x: Floats, y: NDArray[Any]) -> Evaluation:  # noqa: ARG002
        """Return the squared distance from the truth."""
        return Evaluation(
            float(np.sum((parameters.astype(np.float64) - self.truth) ** 2))
        )


Model = HiddenLayer | Logistic | LeastSquares
