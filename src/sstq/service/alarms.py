r"""Two tests that no honest crowd fails, whatever its data: the norm of the mean, and how often each message occurs.

A mean of vectors of norm at most clip has no larger norm; an estimate that has, by more than its error, is an alarm.
With bounds it is an estimate of a column that is beyond them by more than its error.
The mechanism's law bounds the probability of every code from both sides, a ≤ P(code) ≤ b, for any data. So of n
messages of different honest people a share q > b of one code has probability at most exp(−n·KL(q‖b)), and a share q < a
at most exp(−n·KL(q‖a)) (Chernoff; Hoeffding 1963 for probabilities that differ). An alarm is a code beyond that bound.

A campaign is looked at whenever its messages have grown by an eighth. Look i may fail with probability α/(i·(i + 1)),
half of it for each test, shared by all codes: over all looks and codes together at most α = 0.001.
"""

import math
from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from sstq.aggregation import Aggregator
from sstq.aggregation.estimates import Estimate
from sstq.array_types import Floats, Ints
from sstq.exactness import TOTAL
from sstq.inputs.bounds import Ranges
from sstq.mechanisms import Mechanism
from sstq.scalar.laws import Law

ALPHA = 1e-3
"""The probability of a false alarm per campaign, over all looks and codes."""

ALARM = "alarm: "
"""What a test says begins with this if it fails."""

GROWTH = 1.125
"""There is a look whenever the messages have grown by this factor."""

_FIRST = 100  # with fewer messages the error of the mean is not known well
_POWERLESS = 0.5


class Cells(NamedTuple):
    """How often each code occurred, the number of codes, and the bounds of the law for the probability of one.

    `counts` has the codes that occurred. A draw over `size / frames` codes is spread over the frames evenly, whatever
    the data are; of Frequencies these are multipliers. `what` is the name of a code.
    """

    counts: Ints
    size: int
    lower: float
    upper: float
    frames: int = 1
    what: str = "message"


def look(
    mechanism: Mechanism, aggregator: Aggregator[Estimate], estimate: Estimate
) -> dict[str, str]:
    """Return what the tests say of the sums of a campaign; nothing below 100 messages."""
    if aggregator.count < _FIRST:
        return {}
    counts = _counts(cells_of(mechanism, aggregator), aggregator.count)
    return {
        "norm": _norm(mechanism, estimate, threshold(aggregator.count)),
        "counts": counts,
    }


def threshold(count: int) -> float:
    """The probability that one test of a look after this many messages may fail with."""
    number = 1 + int(math.log(count / _FIRST) / math.log(GROWTH))
    return ALPHA / 2 / (number * (number + 1))


def _norm(mechanism: Mechanism, estimate: Estimate, level: float) -> str:
    clip = mechanism.clip
    norm = float(np.linalg.norm(estimate.value))
    region = estimate.region(1 - level)
    radius = region.radius
    if not np.isfinite(norm + radius):
        return "not tested: the error of the mean is not known yet"
    if mechanism.bounds is not None:
        return _within(mechanism.bounds, estimate.value, region.half_width)
    if norm - clip > radius:
        return f"{ALARM}the mean has norm {norm:.3g}, more than clip = {clip:.3g} and its error {radius:.2g}"
    return "passed"


def _within(ranges: Ranges, means: Floats, errors: Floats) -> str:
    for (name, low, high), mean, error in zip(ranges, means, errors, strict=True):
        if not low - error <= mean <= high + error:
            return (
                f"{ALARM}the mean of {name} is {mean:.3g}, beyond its bounds {low:.3g} and {high:.3g} "
                f"by more than its error {error:.2g}"
            )
    return "passed"


def _counts(cells: Cells | None, count: int) -> str:
    if cells is None:
        return "not tested: the sums of this mechanism do not tell how often each message occurred"
    most = int(cells.counts.max())
    # A code that is not among the counts occurred never.
    least = int(cells.counts.min()) if len(cells.counts) == cells.size else 0
    if max(
        surprise(most, count, cells.upper),
        surprise(least, count, cells.lower, below=True),
    ) > _limit(cells, count):
        return (
            f"{ALARM}how often some {cells.what}s occur is impossible for honest clients (probability below "
            f"{threshold(count):.1g}): some clients do not follow the protocol"
        )
    share = noticed_share(cells, count)
    if share > _POWERLESS:
        return (
            f"no power: there are {cells.size:,} different {cells.what}s, more than {count:,} messages tell apart, so "
            "attackers who spread over the frames are not noticed"
        )
    return (
        f"passed; {100 * share:.2g} % of attackers who all send alike would be noticed"
    )


def _limit(cells: Cells, count: int) -> float:
    return math.log(2 * cells.size / threshold(count))


def surprise(times: int, count: int, p: float, *, below: bool = False) -> float:
    """−log of the Chernoff bound for a code of probability p at most (at least) that occurs so often (so rarely)."""
    q = times / count
    if (q >= p) if below else (q <= p):
        return 0.0
    inside = q * math.log(q / p) if q else 0.0
    return count * (inside + ((1 - q) * math.log((1 - q) / (1 - p)) if q < 1 else 0.0))


def noticed_share(cells: Cells, count: int) -> float:
    """The smallest share of attackers that is noticed for sure if they send one code, the same in every frame."""
    noticed = bisect_right(
        range(count + 1),
        _limit(cells, count),
        key=lambda times: surprise(times, count, cells.upper),
    )
    lower = cells.lower * cells.frames
    return max(0.0, (noticed * cells.frames / count - lower) / (1 - lower))


def cells_of(mechanism: Mechanism, aggregator: Aggregator[Estimate]) -> Cells | None:
    """Return how often each code occurred, as far as the sums tell; None if they do not."""
    sums = aggregator.counted()
    law = mechanism.law() if mechanism.exact else None
    sent = aggregator.estimator.sent(sums)
    if sent is not None and isinstance(law, Law) and law.kind == "two-level":
        counts, size = sent
        lower = float(law.least())
        upper = min(1.0, float(law.ratio() * law.least()) + 1 / TOTAL)
        frames = size // law.size
        return Cells(counts, size, lower / frames, upper / frames, frames)
    coordinates = mechanism.uniform_coordinates(sums.state)
    if coordinates is not None:
        size = len(coordinates)
        return Cells(coordinates, size, 1 / size, 1 / size, what="coordinate")
    return None
