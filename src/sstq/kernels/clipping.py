"""Lengths of rows, and clipping to the unit ball, in two sweeps over a row that is in the cache after the first.

The order of all additions is fixed, so the result is the same for every number of threads and every vector width.
"""

import math
from typing import Any

import numpy as np

from sstq.kernels.simd import add_squares, inner

# Norms between these come from squares that neither overflowed nor lost digits to underflow.
_SAFE_LOW = 1e-140
_SAFE_HIGH = 1e150
_LEAST_EXPONENT = -1022


@inner
def norm(row: Any, scale: float) -> float:
    """Return the Euclidean norm of scale·row, in double precision."""
    s = np.zeros(8)
    whole = row.size // 8
    add_squares(row, np.int64(whole), scale, s)
    for i in range(whole * 8, row.size):
        s[0] += (scale * np.float64(row[i])) ** 2
    return math.sqrt(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])))


@inner
def measure(row: Any, clip: float) -> Any:
    """Return (scale, length, natural): length = ‖scale·row‖, and natural·length = ‖row‖/clip.

    The scale is 1, or the power of two, which multiplies exactly, that brings the largest magnitude into [1/2, 1), or
    nearly so if all of the row is subnormal: where squares might overflow or underflow without it.
    """
    length = norm(row, 1.0)
    if _SAFE_LOW < length < _SAFE_HIGH:
        return 1.0, length, 1 / clip
    largest = 0.0
    for i in range(row.size):
        largest = max(largest, abs(np.float64(row[i])))
    exponent = (
        max(math.frexp(largest)[1], _LEAST_EXPONENT) if largest > 0 else _LEAST_EXPONENT
    )
    scale = math.ldexp(1.0, -exponent)
    # Half of 2^exponent, which may be one more than the largest number. Infinite still, if the row is longer than clip.
    return scale, norm(row, scale), 2 * (math.ldexp(1.0, exponent - 1) / clip)


def clip_rows(x: Any, unit: Any, longer: Any, clip: float) -> None:
    """Write every row of x, clipped to norm `clip` and divided by it, to unit; longer tells which were clipped."""
    for row in range(x.shape[0]):
        scale, length, natural = measure(x[row], clip)
        longer[row] = natural * length > 1
        factor = 1 / length if longer[row] else natural
        for i in range(x.shape[1]):
            unit[row, i] = np.float32(scale * np.float64(x[row, i]) * factor)
