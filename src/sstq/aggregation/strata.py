"""Strata: one mean per coordinate, so that drawing the coordinates at random adds nothing to the error.

The messages of coordinate j form a stratum. The plain mean of d·w·u_j weighs a stratum by how many clients happened to
land in it; its variance is made of E[w²]. The mean of a stratum, ȳ_j, divides by the count that did land there, and

    x̂ = (d/N)·Σ_j ȳ_j·u_j / P,    ȳ_j = 0 for an empty stratum,    P = 1 − (1 − 1/N)^n,

has a variance made of Var[w] alone: smaller by about the square of the clients' mean coordinate. P, the probability
that a stratum is not empty, makes it unbiased over the coin for any number n of clients who answered. Given how many
landed in each stratum, who did is a uniformly random choice: nothing is assumed on how alike the clients are.

The price: E[1/count] exceeds 1/E[count] by a factor near 1 + N/n. So strata are used from n ≥ 8N on, where it is at
most 18 %. That rule looks at the number of messages only: it costs neither privacy nor unbiasedness.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.estimates import Estimate
from sstq.aggregation.sums import FrameAggregator, trace_of_square
from sstq.frames.tight import Frame

MESSAGES_PER_STRATUM = 8


def uses_strata(messages: int, strata: int) -> bool:
    """Whether this many messages are averaged by strata: at least eight per coordinate."""
    return messages >= MESSAGES_PER_STRATUM * strata


class StratifiedAggregator(FrameAggregator):
    """The sums of a `FrameAggregator`, averaged by strata if there are at least eight messages per coordinate.

    The standard errors come from within the strata. They hold for clients drawn from a population; around the mean of
    the very clients who answered they are too large, like those of the plain mean.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.SSTQ(dim=4, epsilon=4.0, bits=2, coin="public")
        >>> messages = mechanism.encode(np.full((1000, 4), 0.5), rng=1, clients=np.arange(1000))
        >>> mechanism.aggregator().update(messages).mean().estimator
        'strata'
    """

    def __init__(self, mechanism: Any) -> None:
        if not getattr(mechanism, "uniform_index", False):
            owner = type(mechanism).__name__
            raise ValueError(f"mechanism must draw coordinates without looking at the data for strata, got {owner}")
        super().__init__(mechanism)

    def _mean(self) -> Estimate:
        """Return the mean so far with its standard error."""
        frame, scale = self._mechanism.frame, self._mechanism.decoding_scale
        if not uses_strata(self._count, frame.size):
            return super()._mean()
        counts = self._state[:, 0].astype(np.float64)
        totals, squares = self._coordinate_totals(), self._coordinate_squares()
        some, several, _ = _count_chances(self._count, frame.size)
        means = totals / (np.maximum(counts, 1) * some)
        # Products of two different messages estimate the square of the true mean, so this estimates E[x̂²] − E[x̂]²; in
        # a stratum of two or more it is the variance of the messages over their number (but for the two chances).
        pairs = np.maximum(counts * (counts - 1), 1) * several
        variances = means**2 - (totals**2 - squares) * (counts > 1) / pairs
        value = np.asarray(frame.synthesize(means[None] * scale)[0], dtype=np.float64)
        variances *= (frame.dim / frame.size * scale) ** 2
        stderr = np.sqrt(np.maximum(frame.column_power(variances), 0.0))
        square = trace_of_square(frame, variances, np.zeros(frame.dim))
        directions = max(1.0, float(np.sum(stderr**2)) ** 2 / square) if square else 1.0
        # A message of a stratum of few counts more than the others.
        largest, longest = (size / (frame.size * max(1.0, float(counts.min()))) for size in self._largest())
        known = (value, stderr, self._count, self._simulated)
        return Estimate(*known, estimator="strata", directions=directions, largest=largest, longest=longest)


def stratified_variance(frame: Frame, messages: int, first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The variance of a mean by strata, summed over the coordinates of x̂, of clients drawn from a population.

    `first` and `second` are E[w] and E[w²] of a message in each coordinate. A stratum is not empty with probability P,
    and then a mean over its count, so that the variance is (d/N)²·Σ_j ‖u_j‖²·(E[1/count]/P²·Var[w] + (1/P − 1)·E[w]²).
    Whether one stratum is empty tells next to nothing of another.
    """
    some, _, inverse = _count_chances(messages, frame.size)
    strata = inverse / some**2 * (second - first**2) + (1 / some - 1) * first**2
    return (frame.dim / frame.size) ** 2 * float(strata @ frame.squared_row_norms())


def _count_chances(messages: int, strata: int) -> tuple[float, float, float]:
    """Moments of the number of messages in a stratum: P(≥ 1), P(≥ 2) and E[1/count; ≥ 1].

    The count is binomial, with `messages` trials of probability 1/strata; all comes from its own terms.
    """
    expected = messages / strata
    if strata == 1:
        return 1.0, 1.0, 1 / messages
    if expected > 1e6:
        # The next terms of the series are below 1e-11 of it.
        return 1.0, 1.0, (1 + (1 - 1 / strata) / expected) / expected
    reach = 40 * (expected**0.5 + 1)  # beyond 40 standard deviations there is nothing that a double could hold
    count = np.arange(max(0, int(expected - reach)), min(messages, int(expected + reach)) + 1, dtype=np.float64)
    steps = np.log((messages - count[:-1]) / (count[1:] * (strata - 1)))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    chance = np.exp(logs - logs.max())
    chance /= chance.sum()
    none, one = (float(chance[count == k].sum()) for k in (0, 1))
    return 1 - none, 1 - none - one, float(np.sum(chance[count > 0] / count[count > 0]))
