"""The metric-aware channels: Laplace kernels around the codeword, rounded to exact integers, and their codebook.

Given the codeword c of a token, the mechanism draws T on [-1, 1] with density ∝ exp(−r·|T − c|) and answers with the
nearest codeword (paper, Section 5). Everything is in units of B, so that the paper's rate ε/(2Δ) = ε/(4B) is r = ε/4.
Privacy does not depend on the kernel in floating point: the channel checks its integers exactly.

With identity decoding the answer z to a coordinate y of density f has the loss (paper, Appendix on ℒ*_MA-SSTQ)

    ℒ* = E[(y − z)²] = E[y²] − 2·Σ_k A_k·μ_k + Σ_k π_k·s_k,

where π_k = P(v = c_k) and A_k = E[y·1{v = c_k}] belong to the stochastic rounding, and μ_k = E[z|c_k], s_k = E[z²|c_k]
to the channel. It is the paper's Σ_k W_k∫(y − c_k)(c_{k+1} − y)f + Σ_i π_i·V_i rearranged: no division by gaps.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from sstq.array_types import Floats, Ints
from sstq.exactness import TOTAL, exp_lower, largest_ratio
from sstq.scalar.channels import Channel, TableChannel
from sstq.scalar.codebooks import (
    Codebook,
    panter_dite_codebook,
    rounding_moments,
    token_moments,
    uniform_codebook,
)
from sstq.scalar.densities import Density

Rate = Literal["calibrated", "paper"]

_SHRINKS = [0.0] + [1e-14 * 4**step for step in range(23)]
# A Voronoi cell less likely than this in every row is not used: its integer weights would be too coarse.
_THIN = 2.0**-40
# A log ratio of doubles above ε by less than this share is rounding, which the exact check takes care of.
_ROUNDING = 1e-12
_BITS_MAX_LOSS_OPTIMAL = 6
_SMALLEST_GAP = 1e-9
_SEARCH = {"maxiter": 500, "maxfun": 100_000, "ftol": 1e-13, "maxcor": 30}


def resolve_rate(values: Floats, epsilon: float, rate: Rate) -> float:
    """Return the decay r of the kernel: the paper's ε/4, or the largest whose matrix keeps to e^ε.

    The largest log ratio of the matrix has the closed form r·(3 + max(c_{M−1}, −c_2))/2, reached by the cell of an end
    (from 1 or -1) between the two end rows. For, as a function of the centre c, the probability of a cell [a, b] rises
    up to a and falls after b, because |d log Z/dc| ≤ r for the normaliser Z; Z is least at the ends; and seen from
    inside, the cell has at most 2/(1 + e^{−r(b−a)/2}) ≤ e^{r(b−a)} times the mass seen from its border. So the log
    ratio of a column is at most r·max(1 + b, 1 − a), and an end cell attains r·(1 + a) or r·(1 + b).

    "paper" spends only about half of the budget; "calibrated" spends all of it, r = 2ε/(3 + max(c_{M−1}, −c_2)), which
    is ε(M − 1)/(2M − 3) on a uniform codebook.
    """
    if rate == "paper":
        return epsilon / 4
    return 2 * epsilon / (3 + float(max(values[-2], -values[1])))


def laplace_probabilities(values: Floats, rate: float) -> Floats:
    """Return P[k, i], the probability of answering codeword i given codeword k (paper, Eq. for P_{i|k}).

    The codewords are strictly increasing from -1 to 1, the rate is the decay r > 0 of the kernel in units of 1/B.
    """
    half_gaps = np.diff(values) / 2
    middles = values[:-1] + half_gaps
    left = np.append(0.0, half_gaps)
    right = np.append(half_gaps, 0.0)
    distance = np.maximum(
        np.append(-1.0, middles) - values[:, None],
        values[:, None] - np.append(middles, 1.0),
    )
    # from inside its cell a codeword's distance is negative, and exp could overflow
    np.fill_diagonal(distance, 0.0)
    distance *= -rate
    weights: Floats = np.exp(distance, out=distance)
    # r·∫ of the kernel over each cell, from its near end; then over a codeword's own cell, from the codeword.
    weights *= -np.expm1(-rate * (left + right))
    np.fill_diagonal(weights, -np.expm1(-rate * left) - np.expm1(-rate * right))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def metric_aware_channel(
    codebook: Codebook, epsilon: float, rate: Rate = "calibrated"
) -> TableChannel:
    """Return the channel P(i|k) ∝ ∫ over the Voronoi cell of c_i of exp(−r·|t − c_k|) dt (paper, Section 5).

    The integers are floors of 2^62·P; what a row lacks goes to its largest weight. Rounding can push a ratio past e^ε,
    so the rate shrinks by 1e-14, 4e-14, 16e-14, … of itself until the integers pass the exact check. Equal codewords
    have equal rows; the cell belongs to the first of them, and the others are never sent. Nor is a cell with
    probability below 2^-40 in every row, or zero weight in some row: its weight goes to the row's largest.

    Examples:
        >>> 3.0 - 1e-9 < metric_aware_channel(uniform_codebook(4), 3.0).privacy_loss() <= 3.0
        True
    """
    start = resolve_rate(np.unique(codebook.values), epsilon, rate)
    return _exact_channel(
        "metric-aware", codebook, epsilon, start, laplace_probabilities
    )


def discrete_laplace_channel(codebook: Codebook, epsilon: float) -> TableChannel:
    """Return the channel P(i|k) ∝ exp(−r·|c_i − c_k|) on the codewords themselves (paper, Appendix G).

    The rate is r = ε/Δ with Δ = 2 (in units of B), which spends exactly ε on uniform codebooks. On others a column may
    spend more, because the rows have different normalisers: then r is the largest rate that keeps to ε. The integers
    are made and checked as in `metric_aware_channel`.
    """
    from scipy.optimize import brentq

    values = np.unique(codebook.values)

    def excess(rate: float) -> float:
        logs = np.log(discrete_laplace_probabilities(values, rate))
        return float(np.ptp(logs, axis=0).max()) - epsilon

    rate = epsilon / 2
    if excess(rate) > _ROUNDING * epsilon:
        rate = float(brentq(excess, 0.0, rate, xtol=1e-15))
    return _exact_channel(
        "discrete-laplace", codebook, epsilon, rate, discrete_laplace_probabilities
    )


def discrete_laplace_probabilities(values: Floats, rate: float) -> Floats:
    """Return P[k, i] ∝ exp(−r·|c_i − c_k|), the probability of answering codeword i given codeword k."""
    weights: Floats = np.exp(-rate * np.abs(values - values[:, None]))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _exact_channel(
    name: str,
    codebook: Codebook,
    epsilon: float,
    start: float,
    law: Callable[[Floats, float], Floats],
) -> TableChannel:
    """The law at the largest rate from `start` down whose integers pass the exact check."""
    limit = exp_lower(epsilon)
    distinct, first, inverse = np.unique(
        codebook.values, return_index=True, return_inverse=True
    )
    hopeless = 0.0
    for shrink in _SHRINKS:
        if shrink < hopeless:
            continue
        weights = _integer_weights(law(distinct, start * (1 - shrink)))
        ratio = largest_ratio(weights.max(axis=0), weights.min(axis=0))
        # A relative step s of the rate lowers the log ratio by about s·ε: far smaller steps than the excess would fail.
        hopeless = float(ratio / limit - 1) / (4 * epsilon)
        if ratio <= limit:
            matrix = np.zeros((codebook.size, codebook.size), dtype=np.int64)
            matrix[:, first] = weights[inverse]
            return TableChannel(name, epsilon, matrix)
    problem = f"with this codebook has no {name} channel in 62-bit weights"
    raise ValueError(f"epsilon = {epsilon} {problem}; use fewer bits")


def rescaling(channel: Channel, codebook: Codebook, density: Density) -> float:
    """Return the factor of a rescaled decoder: E[y²]/E[y·z] for a coordinate y of that density, decoded to z.

    It makes the regression of the decoded value on the coordinate the identity. What a vector's coordinates do not
    have in common with the density remains as bias.
    """
    positions, first = np.unique(codebook.values, return_index=True)
    means = token_moments(*rounding_moments(positions, density), density)[1]
    return float(
        density.moment(2) / (means @ channel.moments(codebook.values)[0][first])
    )


def _integer_weights(probabilities: Floats) -> Ints:
    """Integer rows that sum to 2^62, near the probabilities; every column is positive or zero throughout."""
    probabilities *= TOTAL
    weights = probabilities.astype(np.int64)
    weights[:, (weights.min(axis=0) <= 0) | (weights.max(axis=0) < _THIN * TOTAL)] = 0
    # Float rounding may leave a row above 2^62 by a few thousand; the difference may thus be of either sign.
    weights[np.arange(len(weights)), weights.argmax(axis=1)] += TOTAL - weights.sum(
        axis=1
    )
    return weights


def metric_aware_loss(
    codebook: Codebook, density: Density, epsilon: float, rate: Rate = "calibrated"
) -> float:
    """Return ℒ*_MA-SSTQ(Γ) = E[(y − z)²] in units of B² for a public density of y (paper, Section 5.1)."""
    values = np.unique(codebook.values)
    return _loss(values, density, resolve_rate(values, epsilon, rate))


def loss_optimal_codebook(
    bits: int, density: Density, epsilon: float, rate: Rate = "calibrated"
) -> Codebook:
    """Return the codebook of least ℒ*_MA-SSTQ (paper, Section 5.1) for a symmetric density.

    By a descent from the uniform and the Panter–Dite codebooks; a calibrated rate follows the codebook at every step.
    The loss is not convex, so the best of all that was seen is returned: never worse than the two starts.

    Examples:
        >>> loss_optimal_codebook(2, Density.uniform(), 3.0).values.round(3)
        array([-1.   , -0.292,  0.292,  1.   ])
    """
    if bits > _BITS_MAX_LOSS_OPTIMAL:
        problem = f"bits must be in [1, {_BITS_MAX_LOSS_OPTIMAL}] for a loss-optimal codebook, got {bits}"
        raise ValueError(
            f"{problem}: with more, the search takes minutes and gains nothing"
        )
    starts = [uniform_codebook(bits).values, panter_dite_codebook(bits, density).values]
    candidates = starts + [_descend(start, density, epsilon, rate) for start in starts]
    books = [Codebook("loss-optimal", values) for values in candidates]
    return min(books, key=lambda book: metric_aware_loss(book, density, epsilon, rate))


def _loss(values: Floats, density: Density, decay: float) -> float:
    shares, means = token_moments(*rounding_moments(values, density), density)
    answers = laplace_probabilities(values, decay) @ np.stack(
        [values, values**2], axis=1
    )
    return float(density.moment(2) - 2 * means @ answers[:, 0] + shares @ answers[:, 1])


def _descend(start: Floats, density: Density, epsilon: float, rate: Rate) -> Floats:
    """The codebook that L-BFGS reaches from `start` in the logarithms of the gaps, with numerical derivatives."""
    from scipy.optimize import minimize

    gap = np.arange(start.size - 1)
    variable = np.minimum(gap, gap[::-1])  # a gap and its mirror image share one

    def codewords(logs: Floats) -> Floats:
        gaps = np.exp(logs[variable])
        gaps *= 2 / gaps.sum()
        values = np.concatenate([[-1.0], -1.0 + np.cumsum(gaps[:-1]), [1.0]])
        return np.asarray((values - values[::-1]) / 2)

    def objective(logs: Floats) -> float:
        values = codewords(logs)
        return _loss(values, density, resolve_rate(values, epsilon, rate))

    logs = np.zeros(variable.max() + 1)
    logs[variable] = np.log(np.maximum(np.diff(start), _SMALLEST_GAP))
    bounds = [(np.log(_SMALLEST_GAP), np.log(2.0))] * logs.size
    return codewords(
        minimize(objective, logs, method="L-BFGS-B", bounds=bounds, options=_SEARCH).x
    )
