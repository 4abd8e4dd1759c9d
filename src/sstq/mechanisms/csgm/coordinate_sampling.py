"""Which coordinates a client sends, decided in secret: Poisson sampling, capped so that messages are of one length.

Poisson sampling keeps each of N coordinates independently with probability γ. The number K of kept ones is then
binomial, and given K the kept set is uniform among the sets of that size. So a client draws K, from the binomial
distribution conditioned on K ≤ most, and a 128-bit seed; SHAKE-128 of the seed gives a uniform set of K coordinates.
Both travel in the message, and nobody but the trusted aggregator may see them: sampling amplifies privacy only against
those who do not know who sent what.

The cap costs privacy next to nothing: the conditioned distribution is within η = P(K > most) of the Poisson one in
total variation, so (ε, δ₀) becomes (ε, δ₀ + e^ε·η). η is bounded by Chernoff's exp(−N·KL((most + 1)/N ‖ γ)).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sstq.randomness.secret import unit_interval

__all__ = ["SEED_WORDS", "CoordinateSampling", "capped_sampling"]

SEED_WORDS = 2
"""The 64-bit words of a seed."""

# The binomial probabilities further from the mean than this many standard deviations are below the least double.
_DEVIATIONS = 40


@dataclass(frozen=True)
class CoordinateSampling:
    """Poisson sampling of `size` coordinates (a power of two), `expected` on average and never more than `most`.

    Examples:
        >>> sampling = CoordinateSampling(size=1024, expected=16, most=60)
        >>> sampling.overflow < 1e-15
        True
        >>> len(sampling.chosen(np.array([1, 2], dtype=np.uint64), 5))
        5
    """

    size: int
    expected: int
    most: int

    def __post_init__(self) -> None:
        if not 1 <= self.expected <= self.most <= self.size:
            raise ValueError(
                f"coordinates must be in [1, {self.size}] with the most of a message between them and {self.size}, "
                f"got {self.expected} and {self.most}"
            )

    @property
    def rate(self) -> float:
        """γ."""
        return self.expected / self.size

    @property
    def dense(self) -> bool:
        """Whether every coordinate is always kept."""
        return self.expected == self.size

    @property
    def overflow(self) -> float:
        """An upper bound of η, the probability that Poisson sampling keeps more than `most`."""
        if self.most == self.size:
            return 0.0
        p, q = (self.most + 1) / self.size, self.rate
        outside = (1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0
        return math.exp(-self.size * (p * math.log(p / q) + outside))

    @cached_property
    def _sizes(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The values of K and their probabilities given K ≤ most."""
        deviation = math.sqrt(self.expected * (1 - self.rate))
        lowest = max(0, math.floor(self.expected - _DEVIATIONS * (deviation + 1)))
        k = np.arange(lowest, self.most + 1)
        # Ratios of neighbours, summed: differences of log-factorials would lose six digits at N = 2^22.
        steps = np.log((self.size - k[:-1]) / (k[:-1] + 1)) + math.log(self.rate) - math.log1p(-self.rate)
        logs = np.concatenate([[0.0], np.cumsum(steps)])
        weights = np.exp(logs - logs.max())
        return k, weights / weights.sum()

    def counts(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """One K for each random word."""
        if self.dense:
            return np.full(len(words), self.size)
        k, probabilities = self._sizes
        cumulative = np.cumsum(probabilities)[:-1]
        drawn: NDArray[np.int64] = k[np.searchsorted(cumulative, unit_interval(words), side="right")]
        return drawn

    @cached_property
    def inclusion(self) -> tuple[float, float]:
        """The probability that a coordinate is kept, and that two given ones are."""
        if self.dense:
            return 1.0, 1.0
        k, probabilities = self._sizes
        first = float(probabilities @ k) / self.size
        pairs = self.size * (self.size - 1)
        return first, float(probabilities @ (k * (k - 1.0))) / pairs if pairs else 0.0

    def chosen(self, seed: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
        """The kept coordinates, ascending: the first `count` distinct ones of the seed's stream.

        The stream is SHAKE-128 of the seed's 16 bytes, read as little-endian 32-bit numbers of which the top log₂ N
        bits count. When more than half are kept, the stream names those that are not.
        """
        if 2 * count > self.size:
            kept = np.ones(self.size, dtype=np.bool_)
            kept[self._distinct(seed, self.size - count)] = False
            return np.flatnonzero(kept)
        return np.sort(self._distinct(seed, count))

    def _distinct(self, seed: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
        shift = 32 - (self.size - 1).bit_length()
        stream = hashlib.shake_128(np.ascontiguousarray(seed, dtype="<u8").tobytes())
        # On average N·log(N/(N − count)) ≤ 1.4·count draws hold as many distinct ones.
        draws = math.ceil(-self.size * math.log1p(-count / self.size)) + 2 * math.isqrt(count) + 8
        while True:
            indices = np.frombuffer(stream.digest(4 * draws), dtype="<u4").astype(np.int64) >> shift
            distinct, first = np.unique(indices, return_index=True)
            if len(distinct) >= count:
                found: NDArray[np.int64] = distinct[np.argsort(first)[:count]]
                return found
            draws *= 2


def capped_sampling(size: int, expected: int, largest_overflow: float) -> CoordinateSampling:
    """The sampling with the least cap whose overflow is at most `largest_overflow`.

    Examples:
        >>> capped_sampling(65_536, 1000, 1e-12).most
        1242
    """
    low, high = expected, size
    while low < high:
        middle = (low + high) // 2
        if CoordinateSampling(size, expected, middle).overflow <= largest_overflow:
            high = middle
        else:
            low = middle + 1
    return CoordinateSampling(size, expected, high)
