"""What the answers of a survey of norms say: shares above thresholds, quantiles, and what clipping would take away.

The share of clients above threshold t_j is S(t_j) = (share of yes − q)/(p − q) without bias. Two things follow.

* A point estimate: the decreasing sequence in [0, 1] that is closest to these shares (isotonic regression, weighted by
  the number of answers). It is biased by less than the shares' standard errors, and only where noise contradicts
  monotony or the range.
* A band that holds everywhere at once: by monotony S(t_j) is at most the mean of S over t_i, …, t_j, and at least that
  over t_j, …, t_k. Clopper–Pearson limits for blocks of 1, 2, 4, … thresholds, with the allowed error shared out among
  them all (Bonferroni), bound S from both sides. They are exact for clients drawn from a population. All intervals of a
  profile follow from this one band and hold together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_number

__all__ = ["Interval", "NormProfile"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval that holds the truth."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class NormProfile:
    """The distribution of norms as far as a survey tells.

    Attributes:
        thresholds: t_j, ascending.
        answers: how many answers there are for each threshold.
        raw: the unbiased estimate of the share above each threshold; nan without answers. Noise may take it out of
            [0, 1].
        stderr: the standard error of `raw`.
        above: the estimate of the shares, decreasing and within [0, 1].
        low: the lower side of the band.
        high: its upper side.
        simulated: whether any answer came from a seed.
    """

    thresholds: Floats
    answers: NDArray[np.int64]
    raw: Floats
    stderr: Floats
    above: Floats
    low: Floats
    high: Floats
    simulated: bool = False

    @classmethod
    def from_counts(
        cls, thresholds: Floats, counts: NDArray[np.int64], gain: float, confidence: float, *, simulated: bool = False
    ) -> NormProfile:
        """The profile of (K, 2) counts of no and yes, answered through a channel with the given p − q."""
        answers = counts.sum(axis=1)
        share = counts[:, 1] / np.where(answers > 0, answers, 1)
        raw = np.where(answers > 0, _inverted(share, gain), np.nan)
        stderr = np.where(answers > 1, np.sqrt(share * (1 - share) / np.maximum(answers - 1, 1)) / gain, np.inf)
        low, high = _band(counts, gain, 1 - confidence)
        above = np.clip(_decreasing(np.nan_to_num(raw), answers.astype(np.float64)), 0.0, 1.0)
        return cls(thresholds, answers, raw, stderr, above, low, high, simulated)

    def quantile(self, q: float) -> Interval:
        """The norm that a share q of the clients does not exceed.

        Shares are taken as linear between thresholds, and as 1 at norm zero. Beyond the highest threshold the value is
        infinite, and so is an upper end that the answers do not settle.

        Examples:
            >>> counts = np.array([[0, 1000], [500, 500], [1000, 0]])
            >>> profile = NormProfile.from_counts(np.array([1.0, 2.0, 4.0]), counts, gain=1.0, confidence=0.95)
            >>> profile.quantile(0.75)
            Interval(value=3.0, low=2.0, high=4.0)
        """
        level = 1 - check_number("q", q, 0, 1)
        surely_above, surely_below = self.low > level, self.high <= level
        return Interval(
            value=self._crossing(level),
            low=float(self.thresholds[surely_above][-1]) if surely_above.any() else 0.0,
            high=float(self.thresholds[surely_below][0]) if surely_below.any() else math.inf,
        )

    def share_above(self, norm: float) -> Interval:
        """The share of clients whose norms are above this one, at most the highest threshold.

        Examples:
            >>> counts = np.array([[0, 1000], [500, 500], [1000, 0]])
            >>> profile = NormProfile.from_counts(np.array([1.0, 2.0, 4.0]), counts, gain=1.0, confidence=0.95)
            >>> profile.share_above(3.0).value
            0.25
        """
        norm = check_number("norm", norm, 0, float(self.thresholds[-1]))
        knots, shares = self._curve(self.above)
        before = np.searchsorted(self.thresholds, norm, side="right")
        after = np.searchsorted(self.thresholds, norm)
        return Interval(
            value=float(np.interp(norm, knots, shares)),
            low=float(self.low[after]),
            high=float(np.append(1.0, self.high)[before]),
        )

    def mean_excess(self, clip: float) -> Interval:
        """E[(‖x‖ − clip)⁺] up to the highest threshold: no mean of clipped vectors is further off than that.

        ‖E[x − clipped x]‖ ≤ E‖x − clipped x‖ = E[(‖x‖ − clip)⁺] = ∫ S(t) dt from clip on. The value counts shares only
        as far out as the band is sure that there is anybody, because a share that noise alone may have made would be
        multiplied by the whole range. So it is a low estimate for heavy tails; the upper end of the interval counts all
        that the band allows. Norms beyond the highest threshold are counted as if they were at it.
        """
        clip = check_number("clip", clip, 0, float(self.thresholds[-1]))
        knots, seen = self._curve(np.where(self.low > 0, self.above, 0.0))
        points = np.append(clip, knots[knots > clip])
        widths, shares = np.diff(points), np.interp(points, knots, seen)
        value = float(widths @ (shares[1:] + shares[:-1]) / 2)
        # Between two thresholds the share is at most that of the left one and at least that of the right one.
        right = np.searchsorted(self.thresholds, points[1:])
        most = np.append(1.0, self.high)
        return Interval(value, float(widths @ self.low[right]), float(widths @ most[right]))

    def _curve(self, shares: Floats) -> tuple[Floats, Floats]:
        """The norms and shares between which the curve is linear; everybody's norm is at least zero."""
        return np.append(0.0, self.thresholds), np.append(1.0, shares)

    def _crossing(self, level: float) -> float:
        """The least norm at which the estimated share is down to the level."""
        if self.above[-1] > level:
            return math.inf
        knots, shares = self._curve(self.above)
        right = int(np.argmax(shares <= level))
        if right == 0:
            return 0.0
        fall = shares[right - 1] - shares[right]
        return float(knots[right] - (level - shares[right]) / fall * (knots[right] - knots[right - 1]))


def _inverted(share: Floats, gain: float) -> Floats:
    """The share of true yes behind a share of yes: (share − q)/(p − q) with q = (1 − (p − q))/2."""
    return 0.5 + (share - 0.5) / gain


def _decreasing(values: Floats, weights: Floats) -> Floats:
    """The decreasing sequence of least weighted squared distance, by pooling adjacent violators.

    Examples:
        >>> _decreasing(np.array([0.9, 0.4, 0.6, 0.1]), np.array([1.0, 1.0, 3.0, 1.0]))
        array([0.9 , 0.55, 0.55, 0.1 ])
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pool = (value, weight, 1)
        while pools and (pools[-1][0] < pool[0] or not pool[1] or not pools[-1][1]):
            before = pools.pop()
            total = before[1] + pool[1]
            mean = (before[0] * before[1] + pool[0] * pool[1]) / total if total else pool[0]
            pool = (mean, total, before[2] + pool[2])
        pools.append(pool)
    return np.repeat([mean for mean, _, _ in pools], [length for _, _, length in pools])


def _band(counts: NDArray[np.int64], gain: float, error: float) -> tuple[Floats, Floats]:
    """Limits of all shares that hold together but for the given probability."""
    from scipy.special import betaincinv

    size = len(counts)
    lengths = [1 << k for k in range(size.bit_length()) if 1 << k <= size]
    # Every block has a lower and an upper limit.
    each = error / (2 * sum(size - length + 1 for length in lengths))
    low, high = np.zeros(size), np.ones(size)
    sums = np.concatenate([[[0, 0]], np.cumsum(counts, axis=0)])
    for length in lengths:
        no, yes = (sums[length:] - sums[:-length]).T.astype(np.float64)
        # Clopper–Pearson: quantiles of Beta(yes, no + 1) and Beta(yes + 1, no).
        least = np.where(yes > 0, betaincinv(np.maximum(yes, 1), no + 1, each), 0.0)
        most = np.where(no > 0, betaincinv(yes + 1, np.maximum(no, 1), 1 - each), 1.0)
        # A block bounds the share at its first threshold from below and at its last one from above.
        low[: size - length + 1] = np.maximum(low[: size - length + 1], _inverted(least, gain))
        high[length - 1 :] = np.minimum(high[length - 1 :], _inverted(most, gain))
    # What holds at a threshold holds for all before it (at least) or after it (at most).
    low = np.maximum.accumulate(low[::-1])[::-1]
    high = np.minimum.accumulate(high)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
