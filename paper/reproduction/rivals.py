"""What `once` compares with: a trusted server, no privacy at all, and training in cohorts."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paper.reproduction.methods import METHODS
from sstq.accounting import gaussian_sigma
from sstq.aggregation import Estimate
from sstq.learning import PrivateClassifier, Question
from sstq.mechanisms import ClippedWarning, GroupUnit
from sstq.mechanisms.groupunit.group_estimates import GroupEstimate

DELTA = 1e-6
_SENSITIVITY = 2.0
# A variance per number and person that stands for no noise.
_NONE = 1e-9


class ExactClassifier(PrivateClassifier):
    """`PrivateClassifier` from exact class sums: no privacy."""

    _central_delta = 0.0

    def _noise(self, mechanism: GroupUnit, people: int) -> float:
        size = mechanism.groups * mechanism.dim
        if not self._central_delta:
            return size * _NONE / people
        return float(
            size
            * (
                _SENSITIVITY
                * gaussian_sigma(self.epsilon, self._central_delta)
                / people
            )
            ** 2
        )

    def _answers(self, question: Question, mapped: Any, y: Any, rng: Any) -> Estimate:
        if question.kind == "centre" and not self._central_delta:
            vectors = question.vectors(mapped)
            return Estimate(
                vectors.mean(axis=0), np.zeros(vectors.shape[1]), len(vectors)
            )
        if question.kind != "classes" or not isinstance(question.mechanism, GroupUnit):
            return super()._answers(question, mapped, y, rng)
        count = len(mapped)
        groups = question.mechanism.groups
        own = question.labels(y, count)
        sums = np.zeros((groups, question.mechanism.dim))
        np.add.at(sums, own, question.vectors(mapped))
        noise = math.sqrt(self._noise(question.mechanism, count) / sums.size)
        value = sums.ravel() / count + noise * rng.standard_normal(sums.size)
        shares = np.bincount(own, minlength=groups) / count
        return GroupEstimate(
            value,
            np.full(sums.size, noise),
            count,
            shares=shares,
            shares_stderr=np.zeros(groups),
        )


class CentralClassifier(ExactClassifier):
    """`PrivateClassifier` with a trusted server: class sums with Gaussian noise, (ε, 1e-6)-private.

    The sums of e_label ⊗ u of unit features u change by at most 2 in norm if one person is replaced. Gaussian noise of
    σ = 2/μ, with the least σ for (ε, δ) by Balle and Wang (2018, Theorem 8), is added once to the sums of a cohort.
    The cohorts have no person in common. The shares of the classes are public in this comparison.
    """

    _central_delta = DELTA


Floats = NDArray[np.float64]

_BITS = 4
_CLIP = 1.0
# The constant beside unit features that is tried. On held-out rows of five tables 1 and 2 were mostly worse.
_CONSTANT = 0.5
# One of so many people is held out to choose whether there is a constant.
_HELD_OUT = 5


def predict_by_cohorts(
    method: str,
    epsilon: float,
    rows: Floats,
    labels: NDArray[np.int64],
    classes: int,
    test: Floats,
    **options: Any,
) -> NDArray[np.int64]:
    """The classes of test rows by `train_in_cohorts`, with an intercept where that helps.

    Whether it helps is tried on a fifth of the training rows, after training on the others. No ε accounts for this
    choice, which favours the method.
    """
    first = len(rows) - len(rows) // _HELD_OUT

    def scores(constant: float, count: int, of: Floats) -> Floats:
        weights = train_in_cohorts(
            method,
            epsilon,
            _with_constant(rows[:count], constant),
            labels[:count],
            classes,
            **options,
        )
        told: Floats = _with_constant(of, constant) @ weights.T
        return told

    def held_accuracy(constant: float) -> float:
        found = scores(constant, first, rows[first:]).argmax(axis=1)
        return float(np.mean(found == labels[first:]))

    chosen = max((0.0, _CONSTANT), key=held_accuracy)
    found: NDArray[np.int64] = scores(chosen, len(rows), test).argmax(axis=1)
    return found


def _with_constant(rows: Floats, constant: float) -> Floats:
    if not constant:
        return rows
    return np.column_stack([rows, np.full(len(rows), constant)])


def train_in_cohorts(
    method: str,
    epsilon: float,
    rows: Floats,
    labels: NDArray[np.int64],
    classes: int,
    *,
    rounds: int,
    rate: float,
    seed: int,
) -> Floats:
    """The weights of a softmax regression, (classes, p), after one pass over all people.

    In each round a cohort sends clipped gradients by a mechanism, one message per person, and the server takes a step
    of rate/√round. Nobody is asked twice, so ε is the total of everybody.
    """
    order = np.random.default_rng([seed, 17]).permutation(len(rows))
    weights = np.zeros((classes, rows.shape[1]))
    for number, part in enumerate(np.array_split(order, rounds), start=1):
        scores = rows[part] @ weights.T
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        errors = raised / raised.sum(axis=1, keepdims=True)
        errors[np.arange(len(part)), labels[part]] -= 1
        gradients = (errors[:, :, None] * rows[part][:, None, :]).reshape(len(part), -1)
        mechanism = METHODS[method].build(
            gradients.shape[1], _CLIP, _BITS, epsilon=epsilon, frame_seed=number
        )
        aggregator = mechanism.aggregator()
        with warnings.catch_warnings():
            # gradients are clipped on purpose
            warnings.simplefilter("ignore", ClippedWarning)
            aggregator.update(
                mechanism.encode(
                    gradients, rng=np.random.default_rng([seed, 18, number])
                )
            )
        weights -= (
            rate / np.sqrt(number) * aggregator.mean().value.reshape(weights.shape)
        )
    return weights
