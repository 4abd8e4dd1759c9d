"""Training in cohorts: a softmax regression on the same public features, in rounds that ask everybody once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paper.reproduction.methods import METHODS

__all__ = ["train_in_cohorts"]

Floats = NDArray[np.float64]

_BITS = 4
_CLIP = 1.0


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
        mechanism = METHODS[method].build(gradients.shape[1], _CLIP, _BITS, epsilon=epsilon, frame_seed=number)
        aggregator = mechanism.aggregator()
        aggregator.update(mechanism.encode(gradients, rng=np.random.default_rng([seed, 18, number])))
        weights -= rate / np.sqrt(number) * aggregator.mean().value.reshape(weights.shape)
    return weights
