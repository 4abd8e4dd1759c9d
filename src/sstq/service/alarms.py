r"""Two tests that no honest crowd fails, whatever its data: the norm of the mean, and how often each message occurs.

A mean of vectors of norm at most clip has no larger norm; an estimate that has, by more than its error, is an alarm.
The mechanism's law bounds the probability of every code from both sides, a ≤ P(code) ≤ b, for any data. So of n
messages of different honest people a share q > b of one code has probability at most exp(−n·KL(q‖b)), and a share q < a
at most exp(−n·KL(q‖a)) (Chernoff; Hoeffding 1963 for probabilities that differ). An alarm is a code beyond that bound.

A campaign is looked at whenever its messages have grown by an eighth. Look i may fail with probability α/(i·(i + 1)),
half of it for each test, shared by all codes: over all looks and codes together at most α = 0.001.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation import Aggregator, FamilyAggregator
from sstq.aggregation.estimates import Estimate
from sstq.aggregation.sums import FrameAggregator
from sstq.exactness import TOTAL
from sstq.mechanisms import FrameUnit, Mechanism
from sstq.mechanisms.laws import TwoLevelLaw

__all__ = ["ALARM", "ALPHA", "Cells", "cells_of", "largest_honest_count", "look", "noticed_share", "threshold"]

ALPHA = 1e-3
"""The probability of a false alarm per campaign, over all looks and codes."""

ALARM = "alarm: "
"""What a test says begins with this if it fails."""

GROWTH = 1.125
"""There is a look whenever the messages have grown by this factor."""

_FIRST = 100  # with fewer messages the error of the mean is not known well
_POWERLESS = 0.5


@dataclass(frozen=True)
class Cells:
    """How often each code occurred, and the bounds that the law has for its probability.

    Attributes:
        counts: of the codes that occurred.
        size: the number of codes.
        lower: the least probability of a code, for any data.
        upper: the largest one.
        frames: the number of frames that codes are spread over evenly.
        what: the name of a code.
    """

    counts: NDArray[np.int64]
    size: int
    lower: float
    upper: float
    frames: int
    what: str


def look(mechanism: Mechanism, aggregator: Aggregator[Any], estimate: Estimate) -> dict[str, str]:
    """Return what the tests say of the sums of a campaign; nothing with too few messages."""
    if aggregator.count < _FIRST:
        return {}
    return {
        "norm": _norm(mechanism, estimate, threshold(aggregator.count)),
        "counts": _counts(cells_of(mechanism, aggregator), aggregator.count),
    }


def threshold(count: int) -> float:
    """The probability that one test of a look after this many messages may fail with."""
    number = 1 + int(math.log(count / _FIRST) / math.log(GROWTH))
    return ALPHA / 2 / (number * (number + 1))


def _norm(mechanism: Mechanism, estimate: Estimate, level: float) -> str:
    clip = getattr(mechanism, "clip", None)
    if clip is None:
        return "not tested: the mechanism has no clip"
    norm, radius = float(np.linalg.norm(estimate.value)), estimate.region(1 - level).radius
    if norm - clip > radius:
        return f"{ALARM}the mean has norm {norm:.3g}, more than clip = {clip:.3g} and its error {radius:.2g}"
    return "passed"


def _counts(cells: Cells | None, count: int) -> str:
    if cells is None:
        return "not tested: the sums of this mechanism do not tell how often each message occurred"
    surprise = _surprise(cells, count)
    if surprise > math.log(2 * cells.size / threshold(count)):
        return (
            f"{ALARM}how often some {cells.what}s occur is impossible for honest clients (probability below "
            f"{threshold(count):.1g}): some clients do not follow the protocol"
        )
    share = noticed_share(cells, count)
    if share > _POWERLESS:
        return (
            f"no power: {count:,} messages are too few for {cells.size:,} different {cells.what}s, so attackers who "
            "spread over the frames are not noticed"
        )
    return f"passed; {100 * share:.2g} % of attackers who all send alike would be noticed"


def _surprise(cells: Cells, count: int) -> float:
    """The largest of −log of the Chernoff bounds over all codes."""
    most = int(cells.counts.max(initial=0))
    least = int(cells.counts.min(initial=0)) if len(cells.counts) == cells.size else 0
    above = count * _divergence(most / count, cells.upper) if most > count * cells.upper else 0.0
    below = count * _divergence(least / count, cells.lower) if least < count * cells.lower else 0.0
    return max(above, below)


def _divergence(q: float, p: float) -> float:
    """The Kullback–Leibler divergence of a coin with probability q from one with p, in nats."""
    inside = q * math.log(q / p) if q else 0.0
    return inside + ((1 - q) * math.log((1 - q) / (1 - p)) if q < 1 else 0.0)


def largest_honest_count(cells: Cells, count: int) -> int:
    """The largest number of equal messages that raises no alarm."""
    limit = math.log(2 * cells.size / threshold(count))
    low, high = math.floor(count * cells.upper), count
    while low < high:
        middle = (low + high + 1) // 2
        if count * _divergence(middle / count, cells.upper) > limit:
            high = middle - 1
        else:
            low = middle
    return low


def noticed_share(cells: Cells, count: int) -> float:
    """The smallest share of attackers that is noticed for sure if they send one code, the same in every frame."""
    needed = (largest_honest_count(cells, count) + 1) * cells.frames / count
    lower = cells.lower * cells.frames
    return max(0.0, (needed - lower) / (1 - lower))


def cells_of(mechanism: Mechanism, aggregator: Aggregator[Any]) -> Cells | None:
    """Return how often each code occurred, as far as the sums tell; None if they do not."""
    sums = aggregator.sums()
    if isinstance(aggregator, FamilyAggregator):
        bounds, frames = _bounds(mechanism), int(getattr(mechanism, "frames", 1))
        if bounds is None:
            return None
        counts = sums[:, 1:].reshape(-1)
        return Cells(counts[counts > 0], 2 * aggregator.numbers, bounds[0] / frames, bounds[1] / frames, frames, "row")
    if isinstance(aggregator, FrameAggregator):
        size, bounds = len(sums), _bounds(mechanism)
        if isinstance(mechanism, FrameUnit) and bounds is not None:
            net = np.rint(aggregator._coordinate_totals()).astype(np.int64)
            counts = np.concatenate([sums[:, 0] + net, sums[:, 0] - net]) // 2
            return Cells(counts, 2 * size, *bounds, 1, "row")
        # The coordinate is drawn without looking at the data.
        return Cells(sums[:, 0], size, 1 / size, 1 / size, 1, "coordinate")
    return None


def _bounds(mechanism: Mechanism) -> tuple[float, float] | None:
    """The least and the largest probability of a row within a frame, for any data."""
    law = mechanism.law()
    if not isinstance(law, TwoLevelLaw):
        return None
    least = law.least()
    return float(least), min(1.0, float(law.ratio() * least) + 1 / TOTAL)
