"""What a trusted server could learn: the classifier of `sstq.learning` from class sums with Gaussian noise, or none.

The sums of e_label ⊗ u of unit features u change by at most 2 in norm if one person is replaced. Gaussian noise of
σ = 2/μ, with the least σ for (ε, δ) by Balle and Wang (2018, Theorem 8), is added once to the sums of a cohort. The
cohorts have no person in common, so everybody has (ε, δ).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sstq.learning import PrivateClassifier, Question
from sstq.mechanisms import GroupUnit
from sstq.mechanisms.groupunit.estimates import GroupEstimate

__all__ = ["CentralClassifier", "gaussian_sigma"]

_SENSITIVITY = 2.0
# Variance per number and person that stands for none.
_NONE = 1e-9


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The least standard deviation of (ε, δ)-private Gaussian noise at sensitivity 1.

    Examples:
        >>> round(1 / gaussian_sigma(1.0, 1e-6), 4)
        0.2367
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    def excess(log_sigma: float) -> float:
        sigma = math.exp(log_sigma)
        first = float(log_ndtr(0.5 / sigma - epsilon * sigma))
        second = epsilon + float(log_ndtr(-0.5 / sigma - epsilon * sigma))
        return math.exp(first) - math.exp(second) - delta

    return math.exp(brentq(excess, math.log(1e-3), math.log(1e6), xtol=1e-12))


class CentralClassifier(PrivateClassifier):
    """`PrivateClassifier` with a trusted server: exact class sums with Gaussian noise; without any if δ is 0."""

    delta = 0.0

    def _answers(self, question: Question, mapped: Any, y: Any, rng: Any) -> Any:
        if question.kind != "classes":
            return super()._answers(question, mapped, y, rng)
        count, groups = len(mapped), len(self.classes_)
        own = question.labels(y, count)
        sums = np.zeros((groups, question.mechanism.dim))
        np.add.at(sums, own, question.vectors(mapped))
        noise = math.sqrt(self._noise(question.mechanism, count) / sums.size)
        value = sums.ravel() / count + noise * rng.standard_normal(sums.size)
        shares = np.bincount(own, minlength=groups) / count
        return GroupEstimate(value, np.full(sums.size, noise), count, shares=shares, shares_stderr=np.zeros(groups))

    def _noise(self, mechanism: GroupUnit, people: int) -> float:
        size = mechanism.groups * mechanism.dim
        if not self.delta:
            return size * _NONE / people
        return float(size * (_SENSITIVITY * gaussian_sigma(self.epsilon, self.delta) / people) ** 2)
