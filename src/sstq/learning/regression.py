"""PrivateRegression: least squares from one private message per person."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sstq.checks import check_argument
from sstq.learning.estimators import (
    BaseEstimator,
    RegressorMixin,
    check_is_fitted,
    generator_of,
    validate_data,
)
from sstq.learning.features import FeatureMap, Floats, apply_features
from sstq.learning.moments import moment_dim, moments_of
from sstq.learning.questions import Question, checked_bounds
from sstq.mechanisms import FrameUnit
from sstq.messages.batch import Messages

__all__ = ["PrivateRegression"]


class PrivateRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Fit a linear regression to people who each send one ε-locally private message of features and target, once.

    The message holds everything that least squares needs: the products of the features with each other and the target,
    as one vector of (d + 1)(d + 2)/2 + d + 1 numbers, by FrameUnit. The matrix of products is symmetric; it is sent as
    a vector of the same length, each entry once. The noise of the messages is known, and the ridge is the size of the
    noise's largest eigenvalue: τ·√(2(d + 1)) for a noise of τ per entry. The intercept is not shrunk.

    Args:
        epsilon: the ε of a person's only message, and so the person's total.
        x_bound: a public bound of the norm of the features; longer ones are scaled down to it. Too large a bound
            costs accuracy: the noise is proportional to it.
        y_bound: a public bound of the target's magnitude; larger ones are clipped to it.
        features: a public feature map; None if examples are features already.
        random_state: None for the operating system's randomness; a seed makes a simulation reproducible.

    Attributes:
        coef_: the coefficients of the features, (d,).
        intercept_: the constant.
        ridge_: the ridge that was added, in units of x_bound².
        people_: the number of people who answered.
        message_bits_: the bits per message.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (50_000, 2)) / np.sqrt(2)
        >>> model = PrivateRegression(epsilon=4.0, random_state=0).fit(X, X @ [0.5, -0.3] + 0.2)
        >>> np.round(model.coef_, 1), round(float(model.intercept_), 1)
        (array([ 0.5, -0.3]), 0.2)
    """

    def __init__(
        self,
        epsilon: float = 3.0,
        *,
        x_bound: float = 1.0,
        y_bound: float = 1.0,
        features: FeatureMap = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.x_bound = x_bound
        self.y_bound = y_bound
        self.features = features
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> PrivateRegression:
        """Simulate devices and server: encode one message per example, and learn from these alone."""
        X, y = validate_data(self, X, y, allow_nd=True, dtype="numeric", y_numeric=True)
        mapped = apply_features(self.features, X)
        rng = generator_of(self.random_state)
        question = self._question(len(mapped), mapped.shape[1], rng, None)
        return self.learn(question.encode(mapped, y, rng))

    def question(self, people: int, width: int) -> Question:
        """Return the question for this many people and features; publish its `to_json`, then call `learn`."""
        return self._question(people, width, generator_of(self.random_state), self.features)

    def _question(self, people: int, width: int, rng: np.random.Generator | None, features: FeatureMap) -> Question:
        people = check_argument("people", people, of="clients")
        seed = int((rng or np.random.default_rng()).integers(2**63))
        mechanism = FrameUnit(moment_dim(width), self.epsilon, clients=people, frame_seed=seed)
        self._asked = Question(
            "moments", mechanism, features=features, bounds=checked_bounds(self.x_bound, self.y_bound)
        )
        self._width = width
        return self._asked

    def learn(self, messages: Messages) -> PrivateRegression:
        """Solve the least squares from these messages."""
        asked: Question | None = getattr(self, "_asked", None)
        if asked is None:
            raise ValueError("learn needs the messages of a question: call question first")
        mechanism = asked.mechanism
        aggregator = mechanism.aggregator()
        aggregator.update(messages)
        estimate = aggregator.mean()
        size = self._width + 1
        products, along = moments_of(estimate.value, self._width)
        products[-1, -1] = 0.5  # the constant's own, which is known
        noise = math.sqrt(2 * mechanism.typical_error(round(estimate.people)).total / mechanism.dim)
        ridge = noise * math.sqrt(2 * size)
        values, vectors = np.linalg.eigh(products)
        positive = (vectors * np.maximum(values, 0)) @ vectors.T
        positive[np.arange(self._width), np.arange(self._width)] += ridge
        # With a certain intercept the matrix is regular, however large the noise.
        positive[-1, -1] = max(positive[-1, -1], 0.5)
        solution = np.linalg.solve(positive, along)
        self.coef_ = solution[:-1] * self.y_bound / (math.sqrt(2) * self.x_bound)
        self.intercept_ = float(solution[-1] * self.y_bound / math.sqrt(2))
        self.ridge_ = 2 * ridge
        self.people_, self.message_bits_ = round(estimate.people), mechanism.message_bits
        del self._asked
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Predict the targets, (n,)."""
        check_is_fitted(self, "coef_")
        if hasattr(self, "n_features_in_"):
            X = validate_data(self, X, reset=False, allow_nd=True, dtype="numeric")
        predicted: Floats = apply_features(self.features, X) @ self.coef_ + self.intercept_
        return predicted
