"""Smoothing curves over time: the average over drifts and over no or one jump, by the likelihood of each.

A curve moves by a random walk from period to period, and at most once it jumps. Each pair of a drift and a jump has its
Kalman filter and smoother; all run side by side. One drift by maximum likelihood would be too sure of itself: its bands
of 95 % hold in 86–90 % of the periods, and next to a jump in 58 %.

What moves one curve of a question usually moves others in the same period. So the period of a jump is told by all of
them: each curve expects its jump where the others have theirs, and less so in any other period.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sstq.array_types import Floats, Ints

# Variances of the drift and sizes of a jump, relative to the error of one period. Small drifts, around a twentieth of
# that error, are the likeliest; but three in ten curves may have any, up to several errors per period: without these a
# steep slope is taken for a jump, and the bands miss it.
_DRIFTS = np.array(
    [1e-6, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0]
)
_ANY_DRIFT = 0.3
_SMALL_DRIFT = np.exp(
    -(np.log10(np.maximum(_DRIFTS, 1e-4) / 2.5e-3) ** 2) / (2 * 0.6**2)
)
_DRIFT_PRIOR = (1 - _ANY_DRIFT) * _SMALL_DRIFT / _SMALL_DRIFT.sum()
_DRIFT_PRIOR += _ANY_DRIFT / len(_DRIFTS)
_JUMPS = (1.0, 2.0, 6.0)
# How likely there is a jump, that a curve jumps with others, and that it jumps where they do.
_JUMP_PROBABILITY = 0.7
_TAKES_PART = 0.3
_WITH_OTHERS = 0.6
# The errors of models and the spread between them count this much more, which makes up for curves that are no random
# walks, and for jumps whose period is not sure.
_WIDER = 1.25
_WIDER_BETWEEN = 1.8
_NEVER = 1e12


class Smoothed(NamedTuple):
    """A curve with its standard error by period, what was known of the last one then, and where it may have jumped.

    `jumps` has the probability of a jump before each period, by this curve alone; that of the first is 0.
    """

    value: Floats
    stderr: Floats
    jumps: Floats


class _Models(NamedTuple):
    """The drift, the period and the size of the jump of all models, and how likely they are beforehand (log).

    Period 0 is no jump. How likely a jump in each period is comes later.
    """

    drift: Floats
    at: Ints
    size: Floats
    prior: Floats


def smooth_together(raw: Floats, stderr: Floats) -> list[Smoothed]:
    """Smooth the curves of one question, (curves, periods); nan is a period without an estimate."""
    places = _places_by_others(raw, stderr)
    return [smooth(*each) for each in zip(raw, stderr, places, strict=True)]


def smooth(raw: Floats, stderr: Floats, places: Floats | None = None) -> Smoothed:
    """Smooth one curve, which needs an estimate in one period or more.

    Args:
        raw: the estimates of all periods; nan is a period without one.
        stderr: their standard errors.
        places: how likely a jump before each period is; that of the first is no jump.
    """
    if not np.isfinite(raw + stderr).any():
        unknown = np.full(len(raw), np.nan)
        return Smoothed(unknown, unknown, np.zeros(len(raw)))
    if places is None:
        places = _anywhere(len(raw))
    y, noise, unit = _in_errors(raw, stderr)
    models = _models(len(raw))
    mean, spread, fit = _filtered(y, noise, models)
    # Whether a curve jumped is told by itself alone: beside others that jump, a season would be told too often.
    jumps = _likely(fit + np.log(_anywhere(len(raw)))[models.at])
    jumps = np.bincount(models.at, jumps, len(raw)).astype(np.float64)
    jumps[0] = 0.0
    weight = _likely(fit + np.log(places)[models.at])
    kept = weight > 1e-7
    weight = weight[kept] / weight[kept].sum()
    left = _Models._make(part[kept] for part in models)
    mean, spread = _smoothed(mean[:, kept], spread[:, kept], left)
    value = mean @ weight
    between = (mean - value[:, None]) ** 2 @ weight
    variance = _WIDER**2 * (spread @ weight) + _WIDER_BETWEEN**2 * between
    return Smoothed(value * unit, np.sqrt(variance) * unit, jumps)


def _anywhere(periods: int) -> Floats:
    """How likely a jump before each period is, as far as one curve alone tells."""
    places = np.full(periods, _JUMP_PROBABILITY / max(1, periods - 1))
    places[0] = 1 - _JUMP_PROBABILITY
    return places


def _places_by_others(raw: Floats, stderr: Floats) -> Floats:
    """How likely a jump of each curve before each period is, as far as the others tell, (curves, periods).

    Shares that sum to 1 tell as much as all but one of them: each counts less, by one in their number.
    """
    anywhere = _anywhere(raw.shape[1])
    known = np.isfinite(raw + stderr)
    evidence = np.zeros_like(raw)
    for curve in np.flatnonzero(known.any(axis=1)):
        evidence[curve] = _evidence(raw[curve], stderr[curve])
    bound = np.allclose(raw.sum(axis=0)[known.all(axis=0)], 1.0)
    others = (1 - bound / len(raw)) * evidence.sum(axis=0) - evidence
    likely = np.log(anywhere) + others
    likely = np.apply_along_axis(_likely, 1, likely)
    return (1 - _WITH_OTHERS) * anywhere + _WITH_OTHERS * likely


def _likely(log: Floats) -> Floats:
    """Probabilities that sum to 1, from their logarithms up to a constant."""
    weight = np.exp(log - log.max())
    return np.asarray(weight / weight.sum())


def _evidence(raw: Floats, stderr: Floats) -> Floats:
    """How much likelier a curve is (log) if several jump before each period, and it may be one of them; 0 for none."""
    y, noise, _ = _in_errors(raw, stderr)
    models = _models(len(raw))
    fit = _filtered(y, noise, models)[2]
    top = fit.max()
    likely = np.bincount(models.at, np.exp(fit - top), len(raw)) + 1e-300
    takes_part = np.log(likely / likely[0]) + np.log(_TAKES_PART)
    evidence = np.logaddexp(np.log(1 - _TAKES_PART), takes_part)
    evidence[0] = 0.0
    return np.asarray(evidence)


def _in_errors(raw: Floats, stderr: Floats) -> tuple[Floats, Floats, float]:
    """A curve and its variances in units of a usual period's error, and this unit; what is not known is any value."""
    known = np.isfinite(raw + stderr)
    unit = float(np.median(stderr[known])) or 1e-150
    y = np.where(known, raw, raw[known][0]) / unit
    return y, np.where(known, (stderr / unit) ** 2, _NEVER), unit


def _models(periods: int) -> _Models:
    """All drifts with no jump, and with a jump of every size before every period."""
    later = np.arange(1, periods)
    at = np.concatenate([[0], np.tile(later, len(_JUMPS))])
    size = np.concatenate([[0.0], np.repeat(np.square(_JUMPS), len(later))])
    of_size = np.where(at > 0, -np.log(len(_JUMPS)), 0.0)
    drift = _DRIFTS[:, None]
    prior = np.log(_DRIFT_PRIOR)[:, None] + of_size
    return _Models._make(map(np.ravel, np.broadcast_arrays(drift, at, size, prior)))


def _filtered(
    y: Floats, noise: Floats, models: _Models
) -> tuple[Floats, Floats, Floats]:
    """The mean and variance after each period, (periods, models), and the log of prior and likelihood."""
    mean = np.empty((len(y), len(models.drift)))
    spread = np.empty_like(mean)
    mean[0] = y[0]
    spread[0] = noise[0]
    fit = models.prior.copy()
    for period in range(1, len(y)):
        before = spread[period - 1] + _moves(models, period)
        total = before + noise[period]
        off = y[period] - mean[period - 1]
        fit -= 0.5 * (np.log(total) + off**2 / total)
        mean[period] = mean[period - 1] + before / total * off
        spread[period] = before * noise[period] / total
    return mean, spread, fit


def _smoothed(mean: Floats, spread: Floats, models: _Models) -> tuple[Floats, Floats]:
    """The mean and variance of each period given all of them (Rauch, Tung and Striebel)."""
    for period in range(len(mean) - 2, -1, -1):
        before = spread[period] + _moves(models, period + 1)
        gain = spread[period] / before
        mean[period] += gain * (mean[period + 1] - mean[period])
        spread[period] += gain**2 * (spread[period + 1] - before)
    return mean, spread


def _moves(models: _Models, period: int) -> Floats:
    """The variance of the move into a period."""
    return np.asarray(models.drift + models.size * (models.at == period))
