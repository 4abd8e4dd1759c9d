"""The linear discriminant of class sums with known noise."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sstq.array_types import Floats
from sstq.learning.directions import Weighted, energy_level, energy_profile
from sstq.mechanisms.groupunit.group_estimates import GroupEstimate

Form = Literal["nearest", "regression", "fisher"]

# Of the mean variance of a direction: public examples tell covariances to about this.
_RIDGE = 0.1
# The last chosen directions still have energy, so shrinkage assumes that it falls half as fast.
_SHRINKAGE_DECAY = 0.5
# A class with less than this part of an equal share counts as that large.
_LEAST_SHARE = 0.1
# Public covariances and noisy means tell the squared correlation of a canonical direction to about this.
_MOST_CORRELATION = 0.8
_LEAST_CORRELATION = 1e-6
_DRAWS = 2000


@dataclass(frozen=True)
class ClassSums:
    """Class sums divided by the number of people, (groups, p), and their noise variance, (p,).

    `sums` are in units of a direction's own spread, so that cohorts with different weights can be pooled.
    """

    sums: Floats
    noise: Floats
    shares: Floats
    people: int

    def level(self, decay: float) -> float:
        """The level of energy, from the mean square of class means, as if all classes had one size."""
        groups = len(self.sums)
        energies = groups * np.sum(self.centred**2, axis=0)
        # The overall mean takes one of as many degrees of freedom as there are classes.
        return energy_level(energies, groups * (groups - 1) * self.noise, groups, decay)

    @classmethod
    def of(cls, estimate: GroupEstimate, noise: float, weights: Floats) -> ClassSums:
        """The class sums of an estimate with this expected squared error, and the directions' weights, (p,)."""
        sums = estimate.value.reshape(-1, len(weights))
        return cls(
            sums / weights,
            noise / sums.size / weights**2,
            shrunk_shares(estimate),
            round(estimate.people),
        )

    @property
    def centred(self) -> Floats:
        """The sums around the mean of all people."""
        centred: Floats = self.sums - self.shares[:, None] * self.sums.sum(axis=0)
        return centred


def shrunk_shares(estimate: GroupEstimate) -> Floats:
    """Shrink the shares of the classes towards equal shares according to their noise, on the simplex.

    They are equal if of few people nobody told the share.
    """
    equal = 1 / len(estimate.shares)
    if np.isnan(estimate.shares).any():
        return np.full(len(estimate.shares), equal)
    apart = estimate.shares - equal
    spread = float(np.sum(apart**2))
    noise = float(np.sum(estimate.shares_stderr**2))
    kept = max(0.0, 1 - noise / spread) if spread else 0.0
    return replace(estimate, shares=equal + kept * apart).simplex_shares()


def pooled_sums(first: ClassSums, second: ClassSums) -> ClassSums:
    """Pool two cohorts with the least variance, in the directions of the second one."""
    count = min(first.sums.shape[1], second.sums.shape[1])
    one = np.zeros(len(second.noise))
    two = 1 / second.noise
    one[:count] = 1 / first.noise[:count]
    padded = np.zeros_like(second.sums)
    padded[:, :count] = first.sums[:, :count]
    people = first.people + second.people
    shares = (first.shares * first.people + second.shares * second.people) / people
    return ClassSums(
        (padded * one + second.sums * two) / (one + two),
        1 / (one + two),
        shares,
        people,
    )


@dataclass(frozen=True)
class Discriminant:
    """Scores u·coefᵀ + intercept of unit features u; the class with the largest one is predicted.

    With a public covariance S of the features, A = S + Λ. Λ is diagonal: the known noise divided by the energy of a
    direction, which shrinks noise. There are two forms, of which none is better on all data:

    - regression on the classes' indicators, coefficients A⁻¹·(m_k − π_k·m): linear estimates of the probabilities;
    - Fisher's discriminant, which estimates their logarithms. The class sums, shrunk by James and Stein's factor, have
      canonical directions with squared correlations a² to the class; the variance within classes is 1 − a² of the whole
      there, so a direction counts 1/(1 − a²) times, and half the squared length of the class mean is subtracted.

    Without a covariance, S = I/p, and the class of the nearest mean is taken.

    Attributes:
        coef: (groups, p).
        intercept: (groups,).
        examples: unit features, (n, p): the public examples, or stand-ins without any.
    """

    coef: Floats
    intercept: Floats
    examples: Floats

    @classmethod
    def nearest(cls, pooled: ClassSums, weights: Floats) -> Discriminant:
        """The nearest class mean: of pooled sums in units of spread, with the directions' weights, (p,)."""
        groups, size = pooled.sums.shape
        centred = pooled.centred * weights
        shares = np.maximum(pooled.shares, _LEAST_SHARE / groups)
        intercept = pooled.shares - size / 2 * np.sum(centred**2, axis=1) / shares
        return cls(
            size * centred,
            intercept,
            _normal_examples(pooled.shares, centred / shares[:, None]),
        )

    @classmethod
    def forms(
        cls, pooled: ClassSums, weights: Floats, energies: Floats, public: Floats
    ) -> dict[Form, Discriminant]:
        """Both forms, from the energies of the directions, (p,), and the unit features of public examples, (n, p)."""
        groups, size = pooled.sums.shape
        centred = pooled.centred * weights
        noise = pooled.noise * weights**2
        covariance = public.T @ public / len(public)
        ridge = np.diag(
            groups**2 * noise / energies + _RIDGE * np.trace(covariance) / size
        )
        inverse = np.linalg.inv(covariance + ridge).astype(np.float64)
        fisher, constants = _canonical(pooled.shares, centred, noise, inverse)
        coefs: dict[Form, tuple[Floats, Floats]] = {
            "regression": (centred @ inverse, pooled.shares),
            "fisher": (fisher, constants),
        }
        middle = public.mean(axis=0)
        return {
            form: cls(coef, constant - coef @ middle, public)
            for form, (coef, constant) in coefs.items()
        }

    def scores(self, rows: Floats) -> Floats:
        """The scores of unit features, (n, groups)."""
        return rows @ self.coef.T + self.intercept

    def sharpness(self, accuracy: float) -> float:
        """The factor of the scores in the softmax at which the predicted accuracy is the given one, on average."""
        from scipy.special import softmax

        scores = self.scores(self.examples)
        factors = np.geomspace(1e-3, 1e3, 4096)
        place = bisect_left(
            factors[:-1],
            accuracy,
            key=lambda factor: softmax(factor * scores, axis=1).max(axis=1).mean(),
        )
        return float(factors[place])


def discriminants(
    pooled: ClassSums, sent: Weighted, decay: float
) -> dict[Form, Discriminant]:
    """The discriminants that people may choose from: both forms, or without public examples the nearest class mean."""
    if sent.examples is None:
        return {"nearest": Discriminant.nearest(pooled, sent.weights)}
    slower = _SHRINKAGE_DECAY * decay
    energies = energy_profile(len(sent.rows), slower, pooled.level(slower))
    return Discriminant.forms(pooled, sent.weights, energies, sent.examples)


def _canonical(
    shares: Floats, centred: Floats, noise: Floats, inverse: Floats
) -> tuple[Floats, Floats]:
    """Coefficients, (groups, p), and constants, (groups,), of Fisher's discriminant."""
    shares = np.maximum(shares, _LEAST_SHARE / len(shares))
    shares = shares / shares.sum()
    # By James and Stein: the part of a class sum's squared length that its noise does not explain.
    lengths = np.einsum("kp,pq,kq->k", centred, inverse, centred)
    of_noise = float(np.diag(inverse) @ noise) * (1 - shares)
    kept = np.maximum(
        0.0, 1 - of_noise / np.maximum(lengths, np.finfo(np.float64).tiny)
    )
    scaled = (centred * (kept / np.sqrt(shares))[:, None]) @ inverse
    between = scaled @ (centred * (kept / np.sqrt(shares))[:, None]).T
    correlations, axes = np.linalg.eigh((between + between.T) / 2)
    axes = axes[:, correlations > _LEAST_CORRELATION]
    correlations = np.minimum(
        correlations[correlations > _LEAST_CORRELATION], _MOST_CORRELATION
    )
    places = axes / np.sqrt(shares)[:, None]
    weights = 1 / (1 - correlations)
    constants = np.log(shares) - np.sum(weights * correlations * places**2, axis=1) / 2
    return (places * weights) @ axes.T @ scaled, constants


def _normal_examples(shares: Floats, means: Floats) -> Floats:
    """Stand-ins for public examples: normal around the class means, of length about 1."""
    rng = np.random.default_rng(0)
    groups = rng.choice(len(shares), _DRAWS, p=shares / shares.sum())
    size = means.shape[1]
    return means[groups] + rng.standard_normal((_DRAWS, size)) / math.sqrt(size)
