"""Unbiased stochastic rounding of coordinates to codewords.

A coordinate y between two adjacent codewords c_k ≤ y ≤ c_{k+1} becomes token k + 1 with probability
(y − c_k)/(c_{k+1} − c_k) and token k otherwise, so that the token's codeword has mean y (paper, Algorithm 1). This
happens before the channel, so nothing here can cost privacy.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.scalar.densities import Density


def interpolation(values: NDArray[np.float64], y: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Place coordinates between adjacent codewords.

    Args:
        values: codewords in increasing order from -1 to 1; they may repeat.
        y: coordinates in [-1, 1], any shape. What lies beyond by rounding is clamped.

    Returns:
        ``(lower, weight)``: the lower token k ≤ M − 2 and the weight of token k + 1 in [0, 1], such that
        (1 − weight)·values[k] + weight·values[k + 1] = y. On a repeated codeword, all of the weight is on one of the
        tokens that carry it.

    Examples:
        >>> lower, weight = interpolation(np.array([-1.0, 0.0, 0.0, 1.0]), [-1.0, -0.25, 0.0, 0.5, 1.0])
        >>> lower, weight
        (array([0, 0, 2, 2, 2]), array([0.  , 0.75, 0.  , 0.5 , 1.  ]))

    """
    clamped = np.clip(np.asarray(y, dtype=np.float64), -1.0, 1.0)
    lower = np.minimum(np.searchsorted(values, clamped, side="right") - 1, values.size - 2).astype(np.int64)
    start = values[lower]
    gap = values[lower + 1] - start
    # The gap is zero only at y = 1 with a repeated last codeword; there either token is right.
    weight = np.divide(clamped - start, gap, out=np.ones_like(clamped), where=gap > 0)
    return lower, weight


def stochastic_round(values: NDArray[np.float64], y: ArrayLike, uniforms: ArrayLike) -> NDArray[np.int64]:
    """Round coordinates to tokens at random, without bias.

    Args:
        values: codewords in increasing order from -1 to 1; they may repeat.
        y: coordinates in [-1, 1].
        uniforms: one number of [0, 1) for each coordinate.

    Returns:
        Token indices with E[values[token]] = y.

    Examples:
        >>> stochastic_round(np.array([-1.0, 0.0, 0.0, 1.0]), [-0.25, -0.25, 1.0], [0.74, 0.76, 0.999])
        array([1, 0, 3])

    """
    lower, weight = interpolation(values, y)
    return lower + (np.asarray(uniforms) < weight)


def rounding_moments(values: NDArray[np.float64], density: Density) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ∫ y^p·(share of the lower token)·f and ∫ y^p·(share of the upper)·f on each gap, rows p = 0, 1.

    Args:
        values: distinct codewords in increasing order from -1 to 1.
        density: of the coordinates; its point masses are not in these integrals.

    Examples:
        >>> rounding_moments(np.array([-1.0, 1.0]), Density.uniform())[0]
        array([[ 0.5       ],
               [-0.16666667]])

    """
    start, stop = values[:-1], values[1:]
    whole = density.integrals(start, stop)
    upper = (whole[1:] - start * whole[:2]) / (stop - start)
    return whole[:2] - upper, upper


def token_moments(lower: NDArray[np.float64], upper: NDArray[np.float64], density: Density) -> NDArray[np.float64]:
    """Return P(v = c_k) and E[y·1{v = c_k}], as two rows, from the `rounding_moments` and the point masses at ±1.

    Examples:
        >>> density = Density.uniform()
        >>> token_moments(*rounding_moments(np.array([-1.0, 0.0, 1.0]), density), density)[0]
        array([0.25, 0.5 , 0.25])

    """
    tokens = np.zeros((2, lower.shape[1] + 1))
    tokens[:, :-1] += lower
    tokens[:, 1:] += upper
    tokens[:, 0] += density.edges[0] * np.array([1.0, -1.0])
    tokens[:, -1] += density.edges[1]
    return tokens
