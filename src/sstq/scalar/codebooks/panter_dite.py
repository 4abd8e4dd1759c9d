"""The codebook of high-resolution theory for a public density of the coordinates."""

import numpy as np

from sstq.scalar.codebooks.base import Codebook, check_bits
from sstq.scalar.densities import Density


def panter_dite_codebook(bits: int, density: Density) -> Codebook:
    """Return the codebook with point density ∝ f^{1/3}, anchored at ±1 (paper, Section 5.1).

    The codewords are the quantiles k/(M − 1) of the measure f^{1/3}, the high-resolution optimum without privacy.

    Args:
        bits: b, with M = 2^b codewords.
        density: a public density of the coordinates in [-1, 1].

    Examples:
        >>> panter_dite_codebook(2, Density.uniform()).values.round(4)
        array([-1.    , -0.3333,  0.3333,  1.    ])

    """
    size = 1 << check_bits(bits)
    weights = np.cbrt(density.masses)
    if not weights.any():
        raise ValueError("density has no mass strictly between -1 and 1, where the codewords should go")
    cumulative = np.append(0.0, np.cumsum(weights))
    targets = np.arange(1, size - 1) / (size - 1) * cumulative[-1]
    cell = np.searchsorted(cumulative, targets, side="right") - 1
    inner = density.grid[cell] + (targets - cumulative[cell]) / weights[cell] * (2 / weights.size)
    values = np.concatenate([[-1.0], np.clip(inner, -1.0, 1.0), [1.0]])
    if density.symmetric:
        values = (values - values[::-1]) / 2
    return Codebook("panter-dite", np.maximum.accumulate(values))
