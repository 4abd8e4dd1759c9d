"""Unbiased stochastic rounding of coordinates to codewords.

A coordinate y between two adjacent codewords c_k ≤ y ≤ c_{k+1} becomes token k + 1 with probability
(y − c_k)/(c_{k+1} − c_k) and token k otherwise, so that the token's codeword has mean y (paper, Algorithm 1). This
happens before the channel, so nothing here can cost privacy.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


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
