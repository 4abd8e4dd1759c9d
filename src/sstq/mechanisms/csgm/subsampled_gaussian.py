"""Privacy of the coordinate-subsampled Gaussian mechanism: Rényi accounting, in log-space.

A client adds to each of N sums, independently with probability γ, a number y_j with |y_j| ≤ B, and the server adds
N(0, σ²) to every sum. Neighbours differ in whether one client's numbers are added (add or remove one contribution).

* One coordinate is a Poisson-subsampled Gaussian mechanism. For an integer order α ≥ 2 its Rényi divergence is

      f_α(u) = 1/(α − 1)·log Σ_k C(α, k)·(1 − γ)^(α − k)·γ^k·exp((k² − k)·u/(2σ²)),    u = y_j²,

  from the mixture to the Gaussian, and that of the other direction is no larger (I. Mironov, K. Talwar, L. Zhang,
  *Rényi differential privacy of the sampled Gaussian mechanism*, 2019, Theorem 5 and Section 3.3).
* The N coordinates are independent, so their divergences add: at most N·f_α(B²) (W.-N. Chen, D. Song, A. Özgür,
  P. Kairouz, *Privacy amplification via compression*, NeurIPS 2023: CSGM).
* f_α is convex in u, a log-sum-exp of linear functions, with f_α(0) = 0. So f_α(u) ≤ (u/B²)·f_α(B²) for u ≤ B², and
  Σ_j y_j² ≤ E gives at most (E/B²)·f_α(B²) (W.-N. Chen, B. Isik, P. Kairouz, A. No, S. Oh, Z. Xu, *Improved
  communication-privacy trade-offs in L2 mean estimation under streaming differential privacy*, ICML 2024: L2-CSGM).
* ε(δ) = min_α f + log((α − 1)/α) − (log δ + log α)/(α − 1) (C. Canonne, G. Kamath, T. Steinke, *The discrete Gaussian
  for differential privacy*, 2020, Proposition 12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sstq.mechanisms.csgm.coordinate_sampling import CoordinateSampling, capped_sampling

__all__ = ["ORDERS", "ReleaseBudget", "SubsampledGaussian"]


def _orders() -> tuple[int, ...]:
    orders = list(range(2, 65))
    while orders[-1] < 16_384:
        orders.append(min(16_384, math.ceil(orders[-1] * 1.25)))
    return tuple(orders)


ORDERS = _orders()
"""The integer orders α tried. Small budgets need large ones: the best α is about 1 + 2·log(1/δ)/ε."""

# The share of δ that the cap on the length of a message may cost.
_CAP_SHARE = 2.0**-10

# The accounting is in doubles; its relative error is below this, and the result is rounded up by it.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class SubsampledGaussian:
    """The mechanism's privacy as a function of the noise, in units of B.

    Args:
        rate: γ, the probability that a coordinate is kept.
        weight: E/B², how many coordinates may be at the bound: N, or fewer under a bound on the energy.

    Examples:
        >>> accounting = SubsampledGaussian(rate=0.01, weight=10_000.0)
        >>> sigma = accounting.calibrate(1.0, 1e-5)
        >>> 0.999 < accounting.epsilon(sigma, 1e-5) <= 1.0
        True
    """

    rate: float
    weight: float

    @cached_property
    def _log_weights(self) -> dict[int, NDArray[np.float64]]:
        """Logarithms of C(α, k)·(1 − γ)^(α − k)·γ^k for k = 2 … α, for the orders met so far."""
        return {}

    def _weights(self, order: int) -> NDArray[np.float64]:
        from scipy.special import gammaln

        if order not in self._log_weights:
            k = np.arange(2, order + 1)
            binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
            self._log_weights[order] = binomial + (order - k) * math.log1p(-self.rate) + k * math.log(self.rate)
        return self._log_weights[order]

    def divergence(self, order: int, sigma: float) -> float:
        """weight·f_α(B²) for an integer order α ≥ 2, with σ in units of B.

        Examples:
            >>> SubsampledGaussian(rate=1.0, weight=3.0).divergence(2, sigma=1.0)  # α·weight/(2σ²)
            3.0
        """
        half_ratio = sigma**-2 / 2
        if self.rate == 1:
            return self.weight * order * half_ratio
        k = np.arange(2, order + 1, dtype=np.float64)
        exponents = k * (k - 1) * half_ratio
        # The probabilities sum to one, so the sum is 1 + Σ p_k·(e^a − 1): no digit is lost when a is tiny.
        terms = self._weights(order) + exponents + np.log(-np.expm1(-exponents))
        largest = float(np.max(terms))
        total = largest + math.log(np.sum(np.exp(terms - largest)))
        return self.weight * float(np.logaddexp(0.0, total)) / (order - 1)

    def epsilon(self, sigma: float, delta: float) -> float:
        """ε(δ) of noise of standard deviation σ (in units of B), rounded up."""
        orders = np.array(ORDERS, dtype=np.float64)
        conversions = np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
        least_from_here = np.minimum.accumulate(conversions[::-1])[::-1]
        best = math.inf
        for order, conversion, least in zip(ORDERS, conversions.tolist(), least_from_here.tolist(), strict=True):
            divergence = self.divergence(order, sigma)
            best = min(best, divergence + conversion)
            # Divergences grow with the order, so no later order can do better.
            if divergence + least >= best:
                break
        return max(0.0, best) * (1 + _ROUNDING)

    def calibrate(self, epsilon: float, delta: float) -> float:
        """The least σ, in units of B, with ε(δ) ≤ `epsilon`, to a relative 1e-6 and on the safe side."""
        from scipy.optimize import brentq

        def excess(log_sigma: float) -> float:
            return math.log((self.epsilon(math.exp(log_sigma), delta) + 1e-12) / epsilon)

        # Start where all coordinates together would be a plain Gaussian mechanism.
        low = high = math.log(max(self.rate * math.sqrt(self.weight) / epsilon, 1e-3))
        while excess(low) <= 0:
            low -= 1.0
        while excess(high) > 0:
            high += 1.0
        log_sigma = brentq(excess, low, high, xtol=1e-8) if low < high else high
        while excess(log_sigma) > 0:
            log_sigma += 1e-8
        return math.exp(log_sigma)


@dataclass(frozen=True)
class ReleaseBudget:
    """What the release of one round may spend, and on what.

    Args:
        epsilon: ε.
        delta: δ.
        clients: n, of the round.
        size: N, the number of coordinates.
        weight: as in `SubsampledGaussian`.

    Examples:
        >>> budget = ReleaseBudget(epsilon=1.0, delta=1e-5, clients=1000, size=1024, weight=1024.0)
        >>> sampling, sigma = budget.calibrate(64)
        >>> 0.999 < budget.spent(sampling, sigma) <= 1.0
        True
    """

    epsilon: float
    delta: float
    clients: int
    size: int
    weight: float

    def spent(self, sampling: CoordinateSampling, sigma: float) -> float:
        """The ε at δ that a release spends, the cap of the sampling included; infinite if that alone costs δ."""
        delta = self._delta_of_noise(sampling)
        return SubsampledGaussian(sampling.rate, self.weight).epsilon(sigma, delta) if delta > 0 else math.inf

    def calibrate(self, coordinates: int) -> tuple[CoordinateSampling, float]:
        """The capped sampling that keeps so many coordinates on average, and the σ in units of B that it needs."""
        sampling = capped_sampling(self.size, coordinates, _CAP_SHARE * self.delta * math.exp(-self.epsilon))
        accounting = SubsampledGaussian(sampling.rate, self.weight)
        return sampling, accounting.calibrate(self.epsilon, self._delta_of_noise(sampling))

    def default_coordinates(self) -> int:
        """The least power of two with at most twice the error (as bounded) of keeping every coordinate."""
        target = 2 * self._error(self.size)
        low, high = 0, self.size.bit_length() - 1
        while low < high:
            middle = (low + high) // 2
            if self._error(1 << middle) <= target:
                high = middle
            else:
                low = middle + 1
        return 1 << high

    def _delta_of_noise(self, sampling: CoordinateSampling) -> float:
        return self.delta - math.exp(self.epsilon) * sampling.overflow

    def _error(self, coordinates: int) -> float:
        """A bound of the squared error of the N means, in units of B²: sampling and rounding, and noise."""
        sampling, sigma = self.calibrate(coordinates)
        kept = self.clients * sampling.rate
        return self.weight / kept + self.size * (sigma / kept) ** 2
