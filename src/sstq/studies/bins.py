"""Noisy histograms of sizes that nobody knows: bins of equal ratio, and what a histogram says of them.

The shares of a few people in hundreds of bins are mostly noise. So they are read as one of many shapes at any place, by
the likelihood of each (the average over all), and as further bumps where these are sure. Shapes are split at the mode,
with a normal or an exponential tail in the logarithm: exponential ones are power laws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.mechanisms import Frequencies

Floats = NDArray[np.float64]

LOW = 1e-9
HIGH = 1e9
BINS = 240
EDGES = np.geomspace(LOW, HIGH, BINS + 1)
_LEFT = (0.05, 0.15, 0.4, 1.0)
_NORMAL = (0.05, 0.15, 0.4, 1.0)
_EXPONENTIAL = (0.1, 0.25, 0.45, 0.8)
# One false bin ruins a mean. By chance one of all 7,680 shapes and places is so many errors above in one of 250,000
# histograms at most. Few hits are skewed, which adds a multiple of their skewness.
_SURE = 6.1
# The place is sure if all that are farther than a factor of 31 have this probability together.
_DOUBT = 1e-6
_ALIKE = 20
_BUMPS = 20


def bin_of(sizes: Floats) -> NDArray[np.int64]:
    """The bin of each size; those beyond the ends, and nan, are in the first or the last bin."""
    with np.errstate(all="ignore"):
        places = np.floor(np.log(sizes / LOW) / math.log(HIGH / LOW) * BINS)
    numbers = np.nan_to_num(places, nan=0.0, neginf=0.0, posinf=BINS)
    return np.asarray(np.clip(numbers, 0, BINS - 1), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Shapes:
    """The shares of the bins by shape and place of the mode, (shapes·BINS, BINS), with sums of squares and cubes."""

    shares: Floats
    places: NDArray[np.int64]
    squares: Floats
    cubes: Floats

    def least(self, error: float, skewness: float, errors: float = _SURE) -> Floats:
        """So many errors of the product of each shape and a histogram; more if few hits make these skewed."""
        length = np.sqrt(self.squares)
        skewed = skewness * self.cubes / length**3
        return np.asarray(length * error * _quantile(errors, skewed))


def _quantile(errors: float, skewness: Any) -> Any:
    """What a skewed error exceeds as often as a normal one does so many of its standard errors (Cornish, Fisher)."""
    return errors + (errors**2 - 1) / 6 * skewness


@cache
def _shapes() -> _Shapes:
    """Shapes of each spread on the left and on the right, with their modes at each place."""
    from scipy.special import ndtr

    steps = np.arange(-BINS, BINS + 1) * (math.log(HIGH / LOW) / BINS)
    rows = []
    for left in _LEFT:
        below = np.where(steps < 0, 2 * ndtr(np.minimum(steps, 0) / left), 1.0)
        tails = [
            (right, 2 * ndtr(np.maximum(steps, 0) / right) - 1) for right in _NORMAL
        ]
        tails += [
            (right, -np.expm1(-np.maximum(steps, 0) / right)) for right in _EXPONENTIAL
        ]
        for right, above in tails:
            shape = np.diff((below * left + above * right) / (left + right))
            rows += [shape[BINS - place : 2 * BINS - place] for place in range(BINS)]
    shapes = np.array(rows)
    places = np.tile(np.arange(BINS), len(rows) // BINS)
    return _Shapes(shapes, places, np.sum(shapes**2, axis=1), np.sum(shapes**3, axis=1))


@dataclass(frozen=True, eq=False)
class Histogram:
    """What a noisy histogram says.

    Attributes:
        likely: the likely shares of all bins.
        chosen: those to choose a clip by. They differ if no place is sure: then they are those of the likeliest shape.
        sure: whether the order of magnitude of most sizes is sure.
    """

    likely: Floats
    chosen: Floats
    sure: bool


def read_histogram(
    shares: Floats, error: float, skewness: float = 0.0, highest: int = BINS - 1
) -> Histogram:
    """What unbiased shares say, with this standard error and skewness where nobody is, if nobody is beyond `highest`.

    The first bin has those whose size is zero.
    """
    zero = float(shares[0])
    if zero <= error * _quantile(_SURE, skewness):
        zero = 0.0
    rest = np.concatenate([[0.0], shares[1:]])
    known = _shapes()
    along = known.shares @ rest
    mass = 1 - zero
    chosen = np.eye(BINS)[0]
    if mass <= 0:
        return Histogram(chosen, chosen, True)
    fit = (mass * along - mass**2 * known.squares / 2) / error**2
    fit[known.places > highest] = -np.inf
    best = int(np.argmax(fit))
    weights = np.exp(fit - fit[best])
    weights /= weights.sum()
    far = np.abs(known.places - known.places[best]) > _ALIKE
    sure = bool(weights[far].sum() < _DOUBT)
    sure |= bool(along[best] > known.least(error, skewness)[best])
    near = np.flatnonzero(weights > _DOUBT)
    likely = mass * (weights[near] @ known.shares[near]) / weights[near].sum()
    likely[0] += zero
    if not sure:
        # Asking more people helps if there are others than zeros.
        few = mass < 3 * error
        return Histogram(likely, chosen if zero else known.shares[best], few)
    likely = _with_bumps(likely, rest, zero, error, skewness, highest)
    return Histogram(likely, likely, True)


def _with_bumps(
    likely: Floats,
    rest: Floats,
    zero: float,
    error: float,
    skewness: float,
    highest: int,
) -> Floats:
    """Likely shares and those bumps beside them that are sure, in the proportions that fit the histogram best."""
    from scipy.optimize import nnls

    known = _shapes()
    least = known.least(error, skewness)
    least[known.places > highest] = np.inf
    parts = [np.append(0.0, likely[1:])]
    fitted = parts[0]
    for _ in range(_BUMPS):
        height = known.shares @ (rest - fitted) / least
        place = int(np.argmax(height))
        if height[place] < 1:
            break
        parts.append(known.shares[place])
        fitted = nnls(np.transpose(parts), rest)[0] @ parts
    fitted = fitted * (1 - zero) / max(fitted.sum(), 1e-300)
    return np.append(zero + fitted[0], fitted[1:])


def skewness(error: float, epsilon: float) -> float:
    """The skewness of the share of a bin where nobody is, from its standard error."""
    rates = Frequencies(BINS, epsilon).sets.rates
    other = rates.other
    return (1 - 2 * other) * error * rates.gap / (other * (1 - other))


def visible(error: float, skewness: float = 0.0) -> float:
    """The share of people that a group of one size must have to be seen beside others, with this error of a bin."""
    known = _shapes()
    return min(1.0, float(np.min(known.least(error, skewness) / known.squares)))


def beyond(likely: Floats) -> Floats:
    """The share beyond each edge, (BINS + 1,)."""
    return np.append(np.cumsum(likely[::-1])[::-1], 0.0)


def exceeded_by(likely: Floats, share: float) -> float:
    """The first edge that at most this share of those who are not zero are beyond."""
    others = beyond(likely)[1:]
    return float(EDGES[1 + int(np.argmax(others <= share * others[0]))])


def excess(likely: Floats) -> Floats:
    """The mean of what is beyond each edge, (BINS + 1,): the most that clipping there can move a mean."""
    share = beyond(likely)
    parts = (share[:-1] + share[1:]) / 2 * np.diff(EDGES)
    return np.append(np.cumsum(parts[::-1])[::-1], 0.0)


def best_clip(lost: Floats, noise2: float, bias: float) -> float:
    """The edge with the least bias² + noise²: a clip of 1 has this noise², and a share of `lost` is the bias."""
    risk = (bias * lost) ** 2 + noise2 * EDGES**2
    return float(EDGES[np.argmin(risk)])
