"""The clip of least predicted error, for a distribution of norms.

A mean of n clients with clip c is off by at most

    bias(c) = E[(‖x‖ − c)⁺],    noise(c) = r·c,

r being the mechanism's root mean square error of such a mean in units of clip. (All of the bias is there if what is cut
off points in one direction.) The predicted squared error bias² + noise² is convex in c.

A rule of thumb needs no tail: clip at the quantile 1 − r. Let S(c) be the share of norms above c and c* the quantile,
S(c*) = r. For c > c*, bias(c*) ≤ bias(c) + r·c; for c < c*, r·c* ≤ bias(c) + r·c and bias(c*) ≤ bias(c). With
A = bias(c), B = noise(c) the squared error at c* is at most A² + (A + B)² or (A + B)² + B², so at most
(3 + √5)/2·(A² + B²): the error is at most 1.62 times the least one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sstq.array_types import Floats
from sstq.checks import ArgumentError, check_argument
from sstq.mechanisms import Mechanism

# A clip is found up to this part of the largest norm; a bin counts as so many norms.
_PRECISION = 1e-6
_STEPS = 20

__all__ = ["ClipChoice", "relative_error", "suggest_clip"]


@dataclass(frozen=True)
class ClipChoice:
    """The suggested clip.

    Attributes:
        clip: the clip of least predicted error.
        clipped: the share of clients whose vectors would be clipped.
        bias: how far clipping can move the mean.
        noise: the root mean square error of the mechanism at this clip.
        note: a remark on this choice, with a remedy; may be empty.
    """

    clip: float
    clipped: float
    bias: float
    noise: float
    note: str = ""

    @property
    def error(self) -> float:
        """The predicted error of the mean, √(bias² + noise²)."""
        return math.hypot(self.bias, self.noise)


def relative_error(mechanism: Mechanism, clients: int) -> float:
    """Return the root mean square error of a mean of this many typical vectors of norm clip, in units of clip.

    Examples:
        >>> import sstq
        >>> round(relative_error(sstq.SSTQ(dim=1000, epsilon=3.0, bits=2, clip=0.1), clients=100_000), 2)
        0.14
    """
    return math.sqrt(mechanism.typical_error(clients).total) / mechanism.clip


def suggest_clip(
    norms: ArrayLike,
    mechanism: Mechanism,
    clients: int,
    *,
    weights: ArrayLike | None = None,
) -> ClipChoice:
    """Suggest the clip of least predicted error for a mean of `clients` clients by this mechanism.

    Args:
        norms: the norms of vectors that you hold or that are public; or the edges of the bins of a histogram.
        mechanism: the mechanism, whose own clip does not matter.
        clients: n, the clients of the mean.
        weights: how frequent each norm is, or each bin between two edges; all alike by default.

    Examples:
        A private survey asks for the logarithm of the norm. Of the people in its last bins only those count whom it
        tells from its noise.

        >>> import sstq
        >>> norms = np.random.default_rng(0).lognormal(sigma=0.5, size=50_000)
        >>> survey = sstq.Survey(epsilon=0.5, questions={"norm": sstq.Number(-3.0, 3.0, bins=16)})
        >>> answers = survey.aggregator()
        >>> _ = answers.update(survey.encode({"norm": np.log(norms)}, rng=1))
        >>> lengths = answers.mean()["norm"]
        >>> last = np.flatnonzero(lengths.cdf_band()[1] < 1).max()
        >>> weights = np.diff(np.where(np.arange(16) <= last, lengths.cdf, 1.0), prepend=0)
        >>> mechanism = sstq.FrameUnit(dim=64, epsilon=3.0, clients=50_000)
        >>> by_survey = suggest_clip(np.exp(lengths.edges), mechanism, 50_000, weights=weights)
        >>> best = suggest_clip(norms, mechanism, 50_000)
        >>> 0.5 < by_survey.clip / best.clip < 1.5
        True
    """
    points, shares = _distribution(norms, weights)
    rate = relative_error(mechanism, check_argument("clients", clients, of="crowd"))
    highest = float(points.max())

    def bias(clip: float) -> float:
        return float(shares @ np.maximum(points - clip, 0.0))

    from scipy.optimize import minimize_scalar

    search = {
        "bounds": (0.0, highest),
        "method": "bounded",
        "options": {"xatol": _PRECISION * highest},
    }
    best = float(
        minimize_scalar(lambda clip: math.hypot(bias(clip), rate * clip), **search).x
    )
    remarks = []
    if rate >= 1:
        remarks.append(
            f"the noise of the mean is {rate:.3g} times clip for every clip: use more clients or a larger ε"
        )
    if len(points) > np.size(norms) and best > points[-_STEPS]:
        remarks.append(
            "the best clip is in the last bin, beyond which norms may go on: ask again with a wider range"
        )
    return ClipChoice(
        best,
        float(shares @ (points > best)),
        bias(best),
        rate * best,
        "; ".join(remarks),
    )


def _distribution(norms: ArrayLike, weights: ArrayLike | None) -> tuple[Floats, Floats]:
    """Norms and their shares; the people of a bin are spread evenly over it."""
    values = np.asarray(norms, dtype=np.float64)
    shares = (
        np.ones(len(values))
        if weights is None
        else np.asarray(weights, dtype=np.float64)
    )
    if (
        values.ndim != 1
        or not len(values)
        or not np.all((values >= 0) & (values < np.inf))
    ):
        raise ArgumentError(
            "norms", f"must be one or more finite numbers ≥ 0, got shape {values.shape}"
        )
    if (
        len(shares) not in (len(values), len(values) - 1)
        or not np.all(shares >= 0)
        or not 0 < shares.sum() < np.inf
    ):
        raise ArgumentError(
            "weights",
            f"must be numbers ≥ 0, one per norm or bin, not all zero, got {len(shares)}",
        )
    if len(shares) < len(values):
        if np.any(np.diff(values) <= 0):
            raise ArgumentError("norms", "must increase, as edges of bins do")
        within = (np.arange(_STEPS) + 0.5) / _STEPS
        values = (values[:-1, None] + np.diff(values)[:, None] * within).ravel()
        shares = np.repeat(shares, _STEPS)
    return values, shares / shares.sum()
