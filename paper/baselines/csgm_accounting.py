"""Privacy of the coordinate-subsampled Gaussian mechanism: which coordinates a client sends, and Rényi accounting.

Poisson sampling keeps each of N coordinates with probability γ; a client draws their number K from the binomial
distribution cut at `most`, and a 128-bit seed, whose SHAKE-128 gives a uniform set of K. For an integer order α ≥ 2 one
coordinate y_j, u = y_j² ≤ B², has the Rényi divergence (I. Mironov, K. Talwar, L. Zhang, *Rényi differential privacy of
the sampled Gaussian mechanism*, 2019, Theorem 5 and Section 3.3)

    f_α(u) = 1/(α − 1)·log Σ_k C(α, k)·(1 − γ)^(α − k)·γ^k·exp((k² − k)·u/(2σ²)),

and all of them together at most N·f_α(B²), or (E/B²)·f_α(B²) if Σ_j y_j² ≤ E.
"""

import hashlib
import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, NoReturn, Self

import numpy as np

from sstq.extending import Floats, Ints, Words, check_number, unit_interval

# The binomial probabilities further from the mean than this many standard deviations are below the least double.
_DEVIATIONS = 40

# From 64 on each is a quarter more than the one before.
ORDERS = (
    *range(2, 65),
    80,
    100,
    125,
    157,
    197,
    247,
    309,
    387,
    484,
    605,
    757,
    947,
    1184,
    1480,
    1850,
    2313,
    2892,
    3615,
)
ORDERS += (4519, 5649, 7062, 8828, 11_035, 13_794, 16_384)
"""The integer orders α tried. Small budgets need large ones: the best α is about 1 + 2·log(1/δ)/ε."""

# The share of δ that the cap on the length of a message may cost.
_CAP_SHARE = 2.0**-10
# Between these is the logarithm of every σ, in units of B, that `Release` takes.
_LOG_SIGMAS = math.log(1e-6), math.log(1e12)
# The accounting is in doubles; its relative error is below this, and the result is rounded up by it.
_ROUNDING = 1e-9


def overflow(size: int, expected: int, most: int) -> float:
    """An upper bound of η, the probability that Poisson sampling keeps more than `most`."""
    if most == size:
        return 0.0
    p = (most + 1) / size
    q = expected / size
    outside = (1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0
    return math.exp(-size * (p * math.log(p / q) + outside))


def divergence(rate: float, weight: float, order: int, sigma: float) -> float:
    """weight·f_α(B²) for an integer order α ≥ 2, with σ in units of B.

    `rate` is γ, and `weight` E/B², how many coordinates may be at the bound: N, or fewer under a bound on the energy.
    """
    half_ratio = sigma**-2 / 2
    if rate == 1:
        return weight * order * half_ratio
    k = np.arange(2, order + 1, dtype=np.float64)
    exponents = k * (k - 1) * half_ratio
    # The probabilities sum to one, so the sum is 1 + Σ p_k·(e^a − 1): no digit is lost when a is tiny.
    terms = _log_weights(rate, order) + exponents + np.log(-np.expm1(-exponents))
    largest = float(np.max(terms))
    total = largest + math.log(np.sum(np.exp(terms - largest)))
    return weight * float(np.logaddexp(0.0, total)) / (order - 1)


@lru_cache(maxsize=512)
def _log_weights(rate: float, order: int) -> Floats:
    """Logarithms of C(α, k)·(1 − γ)^(α − k)·γ^k for k = 2 … α."""
    from scipy.special import gammaln

    k = np.arange(2, order + 1)
    binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    return np.asarray(binomial + (order - k) * math.log1p(-rate) + k * math.log(rate))


def spent(rate: float, weight: float, sigma: float, delta: float) -> float:
    """ε(δ) of noise of standard deviation σ, in units of B, at the best order, rounded up."""
    best = math.inf
    for order in ORDERS:
        renyi = divergence(rate, weight, order, sigma)
        # Divergences grow with the order, and the conversion takes off at most 0.11, at δ = 0.1: the best is found.
        if renyi > best + 0.11:
            break
        best = min(
            best, renyi + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        )
    return max(0.0, best) * (1 + _ROUNDING)


def least_sigma(rate: float, weight: float, epsilon: float, delta: float) -> float:
    """The least σ, in units of B, with ε(δ) ≤ `epsilon`, to a relative 1e-6 and on the safe side."""
    from scipy.optimize import brentq

    def excess(log_sigma: float) -> float:
        return math.log(
            (spent(rate, weight, math.exp(log_sigma), delta) + 1e-12) / epsilon
        )

    log_sigma = float(brentq(excess, *_LOG_SIGMAS, xtol=1e-8))
    while excess(log_sigma) > 0:
        log_sigma += 1e-8
    return math.exp(log_sigma)


@dataclass(frozen=True)
class Release:
    """What is released in a round: which coordinates are kept, the noise, and the (ε, δ) that it may spend.

    Of `size` coordinates, a power of two, `expected` are kept on average and never more than `most`. `sigma` is the
    standard deviation of the noise in units of B, and `weight` E/B².
    """

    epsilon: float
    delta: float
    weight: float
    size: int
    expected: int
    most: int
    sigma: float

    def __post_init__(self) -> None:
        check_number("sigma", self.sigma, 1e-6, 1e12)
        check_number("coordinates", self.expected, 1, self.size, integer=True)
        check_number("most", self.most, self.expected, self.size, integer=True)

    @classmethod
    def calibrated(
        cls, epsilon: float, delta: float, weight: float, size: int, coordinates: int
    ) -> Self:
        """The release with just enough noise that keeps so many of `size` coordinates on average."""
        kept = check_number("coordinates", coordinates, 1, size, integer=True)
        spare = _CAP_SHARE * delta * math.exp(-epsilon)
        most = kept + bisect_left(
            range(kept, size),
            True,
            key=lambda most: overflow(size, kept, most) <= spare,
        )
        left = delta - math.exp(epsilon) * overflow(size, kept, most)
        return cls(
            epsilon,
            delta,
            weight,
            size,
            kept,
            most,
            least_sigma(kept / size, weight, epsilon, left),
        )

    @classmethod
    def default(
        cls,
        epsilon: float,
        delta: float,
        weight: float,
        size: int,
        clients: int,
        bits: int,
    ) -> Self:
        """The release of the least power of two of coordinates with at most twice the error of keeping all.

        In small frames the seed makes such a message longer than all coefficients, which are then kept.
        """
        make = partial(cls.calibrated, epsilon, delta, weight, size)
        whole = make(size)
        powers = range(size.bit_length() - 1)
        most = 2 * whole.error(clients)
        least = make(
            1
            << bisect_left(
                powers, True, key=lambda power: make(1 << power).error(clients) <= most
            )
        )
        return (
            least
            if least.most * bits + least.most.bit_length() + 128 < size * bits
            else whole
        )

    def law(self) -> NoReturn:
        """ValueError: outcomes are continuous."""
        raise ValueError("a release has no integer weights for its outcomes")

    def privacy_loss(self) -> float:
        """The ε spent at δ, the cap of the sampling included, rounded up; infinite if the cap alone costs δ."""
        left = self.delta - math.exp(self.epsilon) * overflow(
            self.size, self.expected, self.most
        )
        return spent(self.rate, self.weight, self.sigma, left) if left > 0 else math.inf

    def error(self, clients: int) -> float:
        """A bound of the squared error of the N means, in units of B²: sampling and rounding, and noise."""
        kept = clients * self.rate
        return self.weight / kept + self.size * (self.sigma / kept) ** 2

    @property
    def rate(self) -> float:
        """γ."""
        return self.expected / self.size

    @property
    def dense(self) -> bool:
        """Whether every coordinate is always kept."""
        return self.expected == self.size

    @cached_property
    def _sizes(self) -> tuple[Ints, Floats]:
        """The values of K and their probabilities given K ≤ most."""
        if self.dense:
            return np.array([self.size]), np.ones(1)
        deviation = math.sqrt(self.expected * (1 - self.rate))
        lowest = max(0, math.floor(self.expected - _DEVIATIONS * (deviation + 1)))
        k = np.arange(lowest, self.most + 1)
        # Ratios of neighbours, summed: differences of log-factorials would lose six digits at N = 2^22.
        steps = (
            np.log((self.size - k[:-1]) / (k[:-1] + 1))
            + math.log(self.rate)
            - math.log1p(-self.rate)
        )
        logs = np.concatenate([[0.0], np.cumsum(steps)])
        weights = np.exp(logs - logs.max())
        return k, weights / weights.sum()

    def counts(self, words: Words) -> Ints:
        """One K for each random word."""
        k, probabilities = self._sizes
        cumulative = np.cumsum(probabilities)[:-1]
        return np.asarray(
            k[np.searchsorted(cumulative, unit_interval(words), side="right")]
        )

    @cached_property
    def inclusion(self) -> tuple[float, float]:
        """The probability that a coordinate is kept, and that two given ones are."""
        k, probabilities = self._sizes
        pairs = max(1, self.size * (self.size - 1))
        return float(probabilities @ k) / self.size, float(
            probabilities @ (k * (k - 1.0))
        ) / pairs

    def chosen(self, seed: Words, count: int) -> Any:
        """The kept coordinates, ascending: all, or the first `count` distinct ones of the seed's stream.

        That is SHAKE-128 of the seed's 16 bytes, as little-endian 32-bit numbers of which the top log₂ N bits count.
        When more than half are kept, the stream names those that are not.
        """
        if self.dense:
            return slice(None)
        if 2 * count > self.size:
            kept = np.ones(self.size, dtype=np.bool_)
            kept[self._distinct(seed, self.size - count)] = False
            return np.flatnonzero(kept)
        return np.sort(self._distinct(seed, count))

    def _distinct(self, seed: Words, count: int) -> Ints:
        shift = 32 - (self.size - 1).bit_length()
        stream = hashlib.shake_128(np.ascontiguousarray(seed, dtype="<u8").tobytes())
        # On average N·log(N/(N − count)) ≤ 1.4·count draws hold as many distinct ones.
        draws = (
            math.ceil(-self.size * math.log1p(-count / self.size))
            + 2 * math.isqrt(count)
            + 8
        )
        while True:
            indices = (
                np.frombuffer(stream.digest(4 * draws), dtype="<u4").astype(np.int64)
                >> shift
            )
            distinct, first = np.unique(indices, return_index=True)
            if len(distinct) >= count:
                return np.asarray(distinct[np.argsort(first)[:count]])
            draws *= 2
