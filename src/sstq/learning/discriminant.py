"""The linear discriminant of class sums with known noise, and its predicted accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ClassSums", "Discriminant", "pooled_sums"]

Floats = NDArray[np.float64]

# Of the mean variance of a direction: public examples tell covariances to about this.
_RIDGE = 0.1
# A class with a smaller share than so much of an equal one counts as that large.
_LEAST_SHARE = 0.1
_DRAWS = 2000
_SHARPNESS, _HALVINGS = (1e-3, 1e3), 50


@dataclass(frozen=True)
class ClassSums:
    """Sums of unit spread by class, over the number of people, (groups, p), and their noise variance, (p,).

    `sums` are in units of a direction's own spread, so that cohorts with different weights can be pooled.
    """

    sums: Floats
    noise: Floats
    shares: Floats
    people: int

    @property
    def energies(self) -> Floats:
        """The mean square of class means by direction, were all classes of one size; noise included."""
        groups = len(self.sums)
        energies: Floats = groups * np.sum(self._centred**2, axis=0)
        return energies

    @property
    def energy_noise(self) -> Floats:
        """What noise alone adds to `energies`, (p,)."""
        groups = len(self.sums)
        # The overall mean takes one of as many degrees of freedom as there are classes.
        return groups * (groups - 1) * self.noise

    @property
    def _centred(self) -> Floats:
        return self.sums - self.shares[:, None] * self.sums.sum(axis=0)


def pooled_sums(first: ClassSums | None, second: ClassSums) -> ClassSums:
    """The least-variance mean of two cohorts, in the directions of the second one."""
    if first is None:
        return second
    count = min(first.sums.shape[1], second.sums.shape[1])
    one, two = np.zeros(len(second.noise)), 1 / second.noise
    one[:count] = 1 / first.noise[:count]
    padded = np.zeros_like(second.sums)
    padded[:, :count] = first.sums[:, :count]
    people = first.people + second.people
    shares = (first.shares * first.people + second.shares * second.people) / people
    return ClassSums((padded * one + second.sums * two) / (one + two), 1 / (one + two), shares, people)


@dataclass(frozen=True)
class Discriminant:
    """Scores u·coefᵀ + intercept, the best linear estimates of the classes' probabilities.

    With a public covariance S of the unit features u the coefficients of class k are (S + Λ)⁻¹·(m_k − π_k·m). Λ is
    diagonal: the known noise over the energy of the direction shrinks what is mostly noise. Without one, S = I/p, and
    half the squared length of the class mean is subtracted: the nearest class mean, which takes lengths into account.

    Probabilities are the softmax of sharpness · scores. The mean score of people's own classes is known from the class
    sums, without bias, because their noise is. The sharpness gives public examples the same mean score.

    Attributes:
        coef: (groups, p).
        intercept: (groups,).
        sharpness: of the probabilities.
        predicted_accuracy: the mean of the largest probability over public examples; nan without.
    """

    coef: Floats
    intercept: Floats
    sharpness: float
    predicted_accuracy: float

    @classmethod
    def fit(cls, found: ClassSums, weights: Floats, energies: Floats, public: Floats | None) -> Discriminant:
        """From pooled sums.

        Args:
            found: class sums in units of spread.
            weights: of the directions in the features that the discriminant will see, (p,).
            energies: the energy of every direction, (p,).
            public: unit features of public examples, (n, p); None without.
        """
        groups, size = found.sums.shape
        sums, noise = found.sums * weights, found.noise * weights**2
        centred = sums - found.shares[:, None] * sums.sum(axis=0)
        if public is None:
            inverse = size * np.eye(size)
            shares = np.maximum(found.shares, _LEAST_SHARE / groups)
            intercept = found.shares - size / 2 * np.sum(centred**2, axis=1) / shares
            examples = _normal_examples(found.shares, centred / shares[:, None])
        else:
            covariance = public.T @ public / len(public)
            ridge = groups**2 * noise / energies + _RIDGE * np.trace(covariance) / size
            inverse = np.linalg.inv(covariance + np.diag(ridge))
            intercept = found.shares - centred @ inverse @ public.mean(axis=0)
            examples = public
        coef = centred @ inverse
        own_score = float(np.sum(sums * coef) + found.shares @ intercept)
        # The noise of the sums is in the coefficients as well.
        own_score -= (groups - 1) * float(noise @ np.diag(inverse))
        scores = examples @ coef.T + intercept
        sharpness = _matching_sharpness(scores, own_score)
        accuracy = math.nan if public is None else float(_softmax(sharpness * scores).max(axis=1).mean())
        return cls(coef, intercept, sharpness, accuracy)

    def scores(self, rows: Floats) -> Floats:
        """The scores of unit features, (n, groups)."""
        scores: Floats = rows @ self.coef.T + self.intercept
        return scores

    def probabilities(self, rows: Floats) -> Floats:
        """The probabilities of the classes, (n, groups)."""
        return _softmax(self.sharpness * self.scores(rows))


def _softmax(values: Floats) -> Floats:
    raised = np.exp(values - values.max(axis=1, keepdims=True))
    probabilities: Floats = raised / raised.sum(axis=1, keepdims=True)
    return probabilities


def _matching_sharpness(scores: Floats, own_score: float) -> float:
    """The sharpness at which the expected score of an example's class is `own_score`, on average."""
    low, high = _SHARPNESS
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if float(np.sum(_softmax(middle * scores) * scores)) < own_score * len(scores):
            low = middle
        else:
            high = middle
    return low


def _normal_examples(shares: Floats, means: Floats) -> Floats:
    """Stand-ins for public examples: normal around the class means, of length about 1."""
    rng = np.random.default_rng(0)
    groups = rng.choice(len(shares), _DRAWS, p=shares / shares.sum())
    size = means.shape[1]
    return means[groups] + rng.standard_normal((_DRAWS, size)) / math.sqrt(size)
