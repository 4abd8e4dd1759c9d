"""The metric-aware channel: a truncated Laplace on the codewords, rounded to exact integers."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sstq.exactness import TOTAL, check_epsilon, exp_lower, largest_ratio
from sstq.scalar.channels.table import TableChannel
from sstq.scalar.codebooks import Codebook
from sstq.scalar.laplace import THIN, Rate, laplace_probabilities, resolve_rate

_SHRINKS = [0.0] + [1e-14 * 4**step for step in range(23)]


def metric_aware_channel(codebook: Codebook, epsilon: float, rate: Rate = "calibrated") -> TableChannel:
    """Return the channel P(i|k) ∝ ∫ over the Voronoi cell of c_i of exp(−r·|t − c_k|) dt (paper, Section 5).

    The integers are floors of 2^62·P; what a row lacks goes to its largest weight. Rounding can push a ratio past e^ε,
    so the rate shrinks by 1e-14, 4e-14, 16e-14, … of itself until the integers pass the exact check. Equal codewords
    have equal rows; the cell belongs to the first of them, and the others are never sent. Nor is a cell with
    probability below 2^-40 in every row, or zero weight in some row: its weight goes to the row's largest.

    Args:
        codebook: the codewords, in units of B.
        epsilon: the privacy budget.
        rate: "calibrated" spends all of the budget, "paper" (r = ε/4) about half of it (FINDINGS 2).

    Examples:
        >>> from sstq.scalar.codebooks import uniform_codebook
        >>> round(metric_aware_channel(uniform_codebook(4), 3.0, rate="paper").privacy_loss(), 2)
        1.45
        >>> 3.0 - 1e-9 < metric_aware_channel(uniform_codebook(4), 3.0).privacy_loss() <= 3.0
        True

    """
    limit = exp_lower(check_epsilon(epsilon))
    distinct, first, inverse = np.unique(codebook.values, return_index=True, return_inverse=True)
    start = resolve_rate(distinct, epsilon, rate)
    hopeless = 0.0
    for shrink in _SHRINKS:
        if shrink < hopeless:
            continue
        weights = _integer_weights(laplace_probabilities(distinct, start * (1 - shrink)))
        ratio = _ratio(weights)
        # A relative step s of the rate lowers the log ratio by about s·ε: far smaller steps than the excess would fail.
        hopeless = float(ratio / limit - 1) / (4 * epsilon)
        if ratio <= limit:
            matrix = np.zeros((codebook.size, codebook.size), dtype=np.int64)
            matrix[:, first] = weights[inverse]
            return TableChannel("metric-aware", float(epsilon), matrix)
    raise ValueError(
        f"epsilon = {epsilon} with this codebook has no metric-aware channel in 62-bit weights; take fewer bits"
    )


def _integer_weights(probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return integer rows that sum to 2^62, near the probabilities; every column is positive or zero throughout."""
    probabilities *= TOTAL
    weights = probabilities.astype(np.int64)
    weights[:, (weights.min(axis=0) <= 0) | (weights.max(axis=0) < THIN * TOTAL)] = 0
    # Float rounding may leave a row above 2^62 by a few thousand; the difference may thus be of either sign.
    weights[np.arange(len(weights)), weights.argmax(axis=1)] += TOTAL - weights.sum(axis=1)
    return weights


def _ratio(weights: NDArray[np.int64]) -> Fraction:
    bottoms = weights.min(axis=0)
    return largest_ratio(weights.max(axis=0)[bottoms > 0], bottoms[bottoms > 0])
