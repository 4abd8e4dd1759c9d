"""The distribution of norms from a survey's answers, and the clip of least predicted error.

The share of clients above threshold t_j is S(t_j) = (share of yes − q)/(p − q) without bias. Two things follow.

* A point estimate: the decreasing sequence in [0, 1] closest to these shares (isotonic regression, weighted by the
  number of answers). It is biased only where noise contradicts monotony or the range, by less than a standard error.
* A band that holds everywhere at once: by monotony S(t_j) is at most the mean of S over t_i, …, t_j, and at least that
  over t_j, …, t_k. Clopper–Pearson limits for blocks of 1, 2, 4, … thresholds, with the allowed error shared out among
  them all (Bonferroni), bound S from both sides, exactly for clients drawn from a population. All intervals of a
  profile follow from this band and hold together.

A mean of n clients with clip c is off by at most

    bias(c) = E[(‖x‖ − c)⁺],    noise(c) = r·c,

r being the mechanism's root mean square error of such a mean in units of clip. (All of the bias is there if what is cut
off points in one direction.) The predicted squared error bias² + noise² is convex in c.

A rule of thumb needs no tail: clip at the quantile 1 − r, the c* with S(c*) = r. For c > c*, bias(c*) ≤ bias(c) + r·c;
for c < c*, r·c* ≤ bias(c) + r·c and bias(c*) ≤ bias(c). With A = bias(c), B = noise(c) the squared error at c* is at
most A² + (A + B)² or (A + B)² + B², so at most (3 + √5)/2·(A² + B²): the error is at most 1.62 times the least one.

The survey cannot see a share of clients within the noise, so the clip is computed from what is surely there. In trials
its error was at worst 1.55 times the least one, but the error that is *seen* is up to 10 times too low for heavy tails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_number
from sstq.mechanisms.base import Mechanism

Floats = NDArray[np.float64]

_STEPS = 20  # at which the error between two thresholds is looked at


class Interval(NamedTuple):
    """An estimate and the interval that holds the truth."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class NormProfile:
    """The distribution of norms, as far as a survey determines it.

    Attributes:
        thresholds: t_j, ascending.
        answers: the number of answers per threshold.
        raw: the unbiased estimate of the share above each threshold, perhaps outside [0, 1]; nan without answers.
        above: the estimate of the shares, decreasing and within [0, 1].
        low: the lower side of the band; `high` is the upper one.
        simulated: whether any answer came from a seed.

    Examples:
        >>> counts = np.array([[0, 1000], [500, 500], [1000, 0]])
        >>> profile = NormProfile.from_counts(np.array([1.0, 2.0, 4.0]), counts, gain=1.0, confidence=0.95)
        >>> profile.quantile(0.75)
        Interval(value=3.0, low=2.0, high=4.0)
        >>> profile.share_above(3.0).value
        0.25
    """

    thresholds: Floats
    answers: NDArray[np.int64]
    raw: Floats
    above: Floats
    low: Floats
    high: Floats
    simulated: bool = False

    @classmethod
    def from_counts(
        cls, thresholds: Floats, counts: NDArray[np.int64], gain: float, confidence: float, *, simulated: bool = False
    ) -> NormProfile:
        """Compute the profile from (K, 2) counts of no and yes, answered through a channel with this p − q."""
        answers = counts.sum(axis=1)
        share = counts[:, 1] / np.where(answers > 0, answers, 1)
        raw = np.where(answers > 0, _inverted(share, gain), np.nan)
        low, high = _band(counts, gain, 1 - confidence)
        above = np.clip(_decreasing(raw, answers.astype(np.float64)), 0.0, 1.0)
        return cls(thresholds, answers, raw, above, low, high, simulated)

    def quantile(self, q: float) -> Interval:
        """Return the norm that a share q of the clients does not exceed.

        Shares are linear between thresholds, and 1 at norm zero. Values beyond the highest threshold are infinite.
        """
        level = 1 - check_number("q", q, 0, 1)
        low = self.thresholds[self.low > level].max(initial=0.0)
        high = self.thresholds[self.high <= level].min(initial=math.inf)
        value = math.inf
        if self.above[-1] <= level:
            knots, shares = self._curve(self.above)
            ends = np.maximum(1, np.argmax(shares <= level)) - [0, 1]
            value = float(np.interp(level, shares[ends], knots[ends]))
        return Interval(value, float(low), float(high))

    def share_above(self, norm: float) -> Interval:
        """Return the share of clients whose norms exceed this one, which is at most the highest threshold."""
        norm = check_number("norm", norm, 0, float(self.thresholds[-1]))
        low = self.low[np.searchsorted(self.thresholds, norm)]
        high = np.append(1.0, self.high)[np.searchsorted(self.thresholds, norm, side="right")]
        return Interval(float(np.interp(norm, *self._curve(self.above))), float(low), float(high))

    def mean_excess(self, clip: float) -> Interval:
        """E[(‖x‖ − clip)⁺] up to the highest threshold: no mean of clipped vectors is further off than that.

        ‖E[x − clipped x]‖ ≤ E‖x − clipped x‖ = E[(‖x‖ − clip)⁺] = ∫ S(t) dt from clip on. The value counts shares only
        as far out as the band is sure that there is anybody, so it is a low estimate for heavy tails; the upper end of
        the interval counts all that the band allows. Norms beyond the highest threshold count as if they were at it.
        """
        clip = check_number("clip", clip, 0, float(self.thresholds[-1]))
        knots, seen = self._curve(np.where(self.low > 0, self.above, 0.0))
        points = np.append(clip, knots[knots > clip])
        widths = np.diff(points)
        # Between two thresholds the share is at most that of the left one and at least that of the right one.
        right = np.searchsorted(self.thresholds, points[1:])
        value = np.trapezoid(np.interp(points, knots, seen), points)
        low, high = widths @ self.low[right], widths @ np.append(1.0, self.high)[right]
        return Interval(float(value), float(low), float(high))

    def _curve(self, shares: Floats) -> tuple[Floats, Floats]:
        """The norms and shares between which the curve is linear, from norm zero on."""
        return np.append(0.0, self.thresholds), np.append(1.0, shares)


def _inverted(share: Floats, gain: float) -> Floats:
    """The share of true yes behind a share of yes: (share − q)/(p − q) with q = (1 − (p − q))/2."""
    return 0.5 + (share - 0.5) / gain


def _decreasing(values: Floats, weights: Floats) -> Floats:
    """The decreasing sequence of least weighted squared distance; where there is no weight, the neighbour's value."""
    from scipy.optimize import isotonic_regression

    known = weights > 0
    fit = isotonic_regression(values[known], weights=weights[known], increasing=False).x
    return np.asarray(fit[np.maximum(np.cumsum(known) - 1, 0)])


def _band(counts: NDArray[np.int64], gain: float, error: float) -> tuple[Floats, Floats]:
    """Limits of all shares that hold together but for the given probability."""
    from scipy.special import betaincinv

    size = len(counts)
    lengths = [1 << k for k in range(size.bit_length())]
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
    low, high = np.maximum.accumulate(low[::-1])[::-1], np.minimum.accumulate(high)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


@dataclass(frozen=True)
class ClipChoice:
    """The suggested clip.

    Attributes:
        clip: the clip of least error as far as the survey shows.
        clipped: the share of clients whose vectors would be clipped.
        bias: how far clipping can move the mean; the value is a low estimate (`NormProfile.mean_excess`).
        noise: the root mean square error of the mechanism at this clip.
        note: a remark on this choice, with a remedy; may be empty.
    """

    clip: float
    clipped: Interval
    bias: Interval
    noise: float
    note: str = ""

    @property
    def error(self) -> float:
        """The error of the mean as far as the survey shows, √(bias² + noise²)."""
        return math.hypot(self.bias.value, self.noise)

    @property
    def largest_error(self) -> float:
        """The same with the largest bias that the survey does not rule out."""
        return math.hypot(self.bias.high, self.noise)


def relative_error(mechanism: Mechanism, clients: int) -> float:
    """Return the root mean square error of a mean of this many typical vectors of norm clip, in units of clip.

    Examples:
        >>> import sstq
        >>> round(relative_error(sstq.SSTQ(dim=1000, epsilon=3.0, bits=2, clip=0.1), clients=100_000), 2)
        0.14
    """
    return math.sqrt(mechanism.typical_error(clients).total) / mechanism.clip


def suggest_clip(profile: NormProfile, mechanism: Mechanism, clients: int) -> ClipChoice:
    """Suggest the clip of least predicted error for a mean of `clients` clients by this mechanism.

    The mechanism's own clip does not matter.

    Examples:
        >>> import sstq
        >>> counts = np.array([[0, 100_000], [50_000, 50_000], [100_000, 0]])
        >>> profile = NormProfile.from_counts(np.array([1.0, 2.0, 4.0]), counts, gain=1.0, confidence=0.95)
        >>> 2 < suggest_clip(profile, sstq.FrameUnit(dim=10, epsilon=4.0), clients=100_000).clip <= 4
        True
    """
    rate = relative_error(mechanism, clients)
    lowest, *_, highest = profile.thresholds.tolist()
    tried = np.geomspace(lowest, highest, _STEPS * (len(profile.thresholds) - 1) + 1).clip(lowest, highest)
    errors = [math.hypot(profile.mean_excess(clip).value, rate * clip) for clip in tried.tolist()]
    best = float(tried[np.argmin(errors)])
    remarks = []
    if rate >= 1:
        noise = f"the noise of the mean is {rate:.3g} times clip for every clip"
        remarks.append(f"{noise}: use more clients or a larger ε")
    if best == highest:
        remarks.append("the best clip is at or above the highest threshold: repeat the survey with a larger highest")
    elif best == lowest:
        remarks.append("the best clip is at or below the lowest threshold: repeat the survey with a smaller lowest")
    if profile.high[-1] > 0:
        remarks.append(
            f"up to {100 * profile.high[-1]:.2g} % of the clients may be above the highest threshold, "
            f"{highest:g}, and the bias from the part of their norms beyond it is not included here"
        )
    return ClipChoice(best, profile.share_above(best), profile.mean_excess(best), rate * best, "; ".join(remarks))
