"""The truncated Laplace kernel on codewords, in floating point.

Given the codeword c of a token, the metric-aware mechanism draws T on [-1, 1] with density ∝ exp(−r·|T − c|) and
answers with the nearest codeword (paper, Section 5). Everything is in units of B, so that the paper's rate
ε/(2Δ) = ε/(4B) is r = ε/4. Nothing here is trusted with privacy: the channel checks its integers exactly.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Rate = Literal["calibrated", "paper"]

THIN = 2.0**-40
"""A Voronoi cell less likely than this in every row is not used: its integer weights would be too coarse."""


def laplace_probabilities(values: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """Return P[k, i], the probability of answering codeword i given codeword k (paper, Eq. for P_{i|k}).

    Args:
        values: strictly increasing codewords from -1 to 1.
        rate: the decay r > 0 of the kernel, in units 1/B.

    Examples:
        >>> laplace_probabilities(np.array([-1.0, 1.0]), rate=np.log(3)).round(4)
        array([[0.75, 0.25],
               [0.25, 0.75]])

    """
    starts, stops = cell_bounds(values)
    masses, own = _cell_masses(values, rate)
    distance = np.maximum(starts - values[:, None], values[:, None] - stops)
    np.fill_diagonal(distance, 0.0)  # from inside its cell a codeword's distance is negative, and exp could overflow
    distance *= -rate
    weights = np.exp(distance, out=distance)
    weights *= masses
    np.fill_diagonal(weights, own)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def cell_bounds(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where the Voronoi cell of each codeword starts and stops.

    Examples:
        >>> cell_bounds(np.array([-1.0, 0.0, 1.0]))
        (array([-1. , -0.5,  0.5]), array([-0.5,  0.5,  1. ]))
    """
    middles = values[:-1] + np.diff(values) / 2
    return np.append(-1.0, middles), np.append(middles, 1.0)


def resolve_rate(values: NDArray[np.float64], epsilon: float, rate: Rate) -> float:
    """Return the decay r of the kernel: the paper's ε/4, or the largest whose matrix keeps to e^ε.

    The largest log ratio of the matrix has the closed form r·(3 + max(c_{M−1}, −c_2))/2, reached by the cell of an end
    (from 1 or -1) between the two end rows. For, as a function of the centre c, the probability of a cell [a, b] rises
    up to a and falls after b, because |d log Z/dc| ≤ r for the normaliser Z; Z is least at the ends; and seen from
    inside, the cell has at most 2/(1 + e^{−r(b−a)/2}) ≤ e^{r(b−a)} times the mass seen from its border. So the log
    ratio of a column is at most r·max(1 + b, 1 − a), and an end cell attains r·(1 + a) or r·(1 + b).

    Args:
        values: strictly increasing codewords from -1 to 1.
        epsilon: the privacy budget.
        rate: "paper" spends only about half of the budget (FINDINGS 2); "calibrated" spends all of it,
            r = 2ε/(3 + max(c_{M−1}, −c_2)), which is ε(M − 1)/(2M − 3) on a uniform codebook.

    Examples:
        >>> grid = np.linspace(-1, 1, 4)
        >>> resolve_rate(grid, 3.0, "paper"), round(resolve_rate(grid, 3.0, "calibrated"), 12)
        (0.75, 1.8)

    """
    if rate not in get_args(Rate):
        raise ValueError(f"rate = {rate!r} is not one of {', '.join(get_args(Rate))}")
    if rate == "paper":
        return epsilon / 4
    return 2 * epsilon / (3 + float(max(values[-2], -values[1])))


def _cell_masses(values: NDArray[np.float64], rate: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return r·∫ of the kernel over each cell: starting at its near end, and seen from its own codeword."""
    half_gaps = np.diff(values) / 2
    left, right = np.append(0.0, half_gaps), np.append(half_gaps, 0.0)
    return -np.expm1(-rate * (left + right)), -np.expm1(-rate * left) - np.expm1(-rate * right)
