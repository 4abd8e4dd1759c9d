"""Noisy histograms of sizes that nobody knows: bins of equal ratio, and what a histogram says of them.

The shares of a few people in hundreds of bins are mostly noise. So they are read as one of many shapes at any place, by
the likelihood of each (the average over all), and as further bumps where these are sure. Shapes are split at the mode,
with a normal or an exponential tail in the logarithm: exponential ones are power laws.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LOW = 1e-9
HIGH = 1e9
BINS = 240
EDGES = np.geomspace(LOW, HIGH, BINS + 1)
_LEFT = (0.05, 0.15, 0.4, 1.0)
_NORMAL = (0.05, 0.15, 0.4, 1.0)
_EXPONENTIAL = (0.1, 0.25, 0.45, 0.8)
# By chance one of all shapes and places is so many errors above in one of 50,000 studies. One false bin ruins a mean.
_SURE = 5.6
_BUMPS = 20


def bin_of(sizes: Floats) -> NDArray[np.int64]:
    """The bin of each size; those beyond the ends, and nan, are in the first or the last bin."""
    with np.errstate(all="ignore"):
        places = np.floor(np.log(sizes / LOW) / math.log(HIGH / LOW) * BINS)
    numbers = np.nan_to_num(places, nan=0.0, neginf=0.0, posinf=BINS)
    return np.asarray(np.clip(numbers, 0, BINS - 1), dtype=np.int64)


@cache
def _shapes() -> tuple[Floats, Floats]:
    """The shares of the bins by shape and place of the mode, (shapes·BINS, BINS), and their squared lengths."""
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
    return shapes, np.einsum("ij,ij->i", shapes, shapes)


def read_histogram(shares: Floats, error: float) -> tuple[Floats, Floats]:
    """The likely shares of all bins, from unbiased ones with this standard error; and those to choose a clip by.

    The first bin has those whose size is zero. The two differ if no shape is sure: many places are then likely, and a
    clip is chosen by the likeliest shape, or by zeros if these are sure.
    """
    zero = float(shares[0]) if shares[0] > _SURE * error else 0.0
    rest = np.concatenate([[0.0], shares[1:]])
    shapes, squares = _shapes()
    along = shapes @ rest
    mass = 1 - zero
    fit = (mass * along - mass**2 * squares / 2) / error**2
    best = int(np.argmax(fit))
    chosen = np.eye(BINS)[0]
    if mass <= 0:
        return chosen, chosen
    near = np.flatnonzero(fit > fit[best] - 12)
    weights = np.exp(fit[near] - fit[best])
    likely = mass * (weights @ shapes[near]) / weights.sum()
    likely[0] += zero
    if along[best] < _SURE * error * math.sqrt(squares[best]):
        return likely, chosen if zero else shapes[best]
    likely = _with_bumps(likely, rest, zero, error)
    return likely, likely


def _with_bumps(likely: Floats, rest: Floats, zero: float, error: float) -> Floats:
    """Likely shares and those bumps beside them that are sure, in the proportions that fit the histogram best."""
    from scipy.optimize import nnls

    shapes, squares = _shapes()
    parts = [np.append(0.0, likely[1:])]
    fitted = parts[0]
    for _ in range(_BUMPS):
        height = shapes @ (rest - fitted) / np.sqrt(squares)
        place = int(np.argmax(height))
        if height[place] < _SURE * error:
            break
        parts.append(shapes[place])
        fitted = nnls(np.transpose(parts), rest)[0] @ parts
    fitted = fitted * (1 - zero) / max(fitted.sum(), 1e-300)
    return np.append(zero + fitted[0], fitted[1:])


def visible(error: float) -> float:
    """The share of people that a group of one size must have to be seen beside others, with this error of a bin."""
    return min(1.0, _SURE * error / math.sqrt(float(_shapes()[1].max())))


def beyond(likely: Floats) -> Floats:
    """The share beyond each edge, (BINS + 1,)."""
    return np.append(np.cumsum(likely[::-1])[::-1], 0.0)


def excess(likely: Floats) -> Floats:
    """The mean of what is beyond each edge, (BINS + 1,): the most that clipping there can move a mean."""
    share = beyond(likely)
    parts = (share[:-1] + share[1:]) / 2 * np.diff(EDGES)
    return np.append(np.cumsum(parts[::-1])[::-1], 0.0)


def best_clip(likely: Floats, noise2: float, bias: float) -> float:
    """The edge with the least bias² + noise², if a clip of 1 has this noise² and clipping biases by a share of it."""
    risk = (bias * excess(likely)) ** 2 + noise2 * EDGES**2
    return float(EDGES[np.argmin(risk)])
