"""The passes of `sstq.kernels.vectors` in plain loops, for compilers that refuse explicit vectors.

Same names, arguments and order of additions: the results are the same, bit for bit. A *lane* is a place in what would
be a vector of VECTOR_WIDTH floats; a column is taken lane by lane. Places are unsigned, because Numba asks of a signed
one whether it counts from the end. LLVM copies these small functions into their callers.
"""

from typing import Any

import numba
import numpy as np

VECTOR_WIDTH = 8

# A radix-R pass holds R vectors in registers. AVX-512 has enough of them for 16, but on an AMD processor that was up to
# twice as slow as 8 from N = 2^14 on, and a tenth faster at 2^12.
MAX_RADIX_BITS = 3
# Sums are kept in so many parts, whatever the vectors are, so that the order of additions is the same everywhere; and
# bytes are counted so many at a time.
SQUARE_LANES, SUM_LANES, COUNTED_AT_A_TIME = 8, 16, 32


@numba.njit
def _one(x: Any, i: Any, s: Any, y: Any, j: Any, r: Any) -> None:  # noqa: ARG001 (one signature with the others)
    """The float at x[i], stored at y[j]."""
    y[j] = x[i]


@numba.njit
def _two(x: Any, i: Any, s: Any, y: Any, j: Any, r: Any) -> None:
    """Butterfly of the two floats from x[i] at the stride s, stored from y[j] at the stride r."""
    a, b = x[i], x[i + s]
    y[j], y[j + r] = a + b, a - b


@numba.njit
def _four(x: Any, i: Any, s: Any, y: Any, j: Any, r: Any) -> None:
    """Butterfly of four floats."""
    a, b, c, d = x[i], x[i + s], x[i + 2 * s], x[i + 3 * s]
    a, b, c, d = a + b, a - b, c + d, c - d
    y[j], y[j + r], y[j + 2 * r], y[j + 3 * r] = a + c, b + d, a - c, b - d


@numba.njit
def _eight(x: Any, i: Any, s: Any, y: Any, j: Any, r: Any) -> None:
    """Butterfly of eight floats."""
    a, b, c, d = x[i], x[i + s], x[i + 2 * s], x[i + 3 * s]
    e, f, g, h = x[i + 4 * s], x[i + 5 * s], x[i + 6 * s], x[i + 7 * s]
    a, b, c, d, e, f, g, h = a + b, a - b, c + d, c - d, e + f, e - f, g + h, g - h
    a, b, c, d, e, f, g, h = a + c, b + d, a - c, b - d, e + g, f + h, e - g, f - h
    y[j], y[j + r], y[j + 2 * r], y[j + 3 * r] = a + e, b + f, c + g, d + h
    y[j + 4 * r], y[j + 5 * r], y[j + 6 * r], y[j + 7 * r] = a - e, b - f, c - g, d - h


@numba.njit
def transform_vector(x: Any, offset: int) -> None:
    """Hadamard transform of the VECTOR_WIDTH floats from x[offset], in place."""
    first, one = np.uint64(offset), np.uint64(1)
    _eight(x, first, one, x, first, one)


@numba.njit
def add_squares(x: Any, count: int, scale: float, sums: Any) -> None:
    """Add (scale·x[8·i + k])², i < count, to sums[k] for every k < 8, in double precision."""
    for i in range(count):
        for k in range(SQUARE_LANES):
            sums[k] += (scale * np.float64(x[SQUARE_LANES * i + k])) ** 2


@numba.njit
def count_above(x: Any, count: int, bar: Any) -> Any:
    """How many of the first count·COUNTED_AT_A_TIME entries of the int8 array x are larger than `bar`."""
    total: Any = 0
    for j in range(count * COUNTED_AT_A_TIME):
        total += np.int64(x[j] > bar)
    return total


def _make_butterfly(across: Any) -> Any:
    @numba.njit
    def butterfly(x: Any, offset: int, stride: int, y: Any, y_offset: int, y_stride: int) -> None:
        """Butterfly of one column of x, stored to a column of y (which may be the same)."""
        for lane in range(VECTOR_WIDTH):
            across(x, np.uint64(offset + lane), np.uint64(stride), y, np.uint64(y_offset + lane), np.uint64(y_stride))

    return butterfly


def _make_masked_butterfly(butterfly: Any, count: int) -> Any:
    @numba.njit
    def masked_butterfly(x: Any, offset: int, stride: int, mask: Any, mask_offset: int, mask_stride: int) -> None:
        """Butterfly of one column, zero where the mask's bit is 0, butterfly again; in place."""
        butterfly(x, offset, stride, x, offset, stride)
        for k in range(count):
            word = np.int64(mask[mask_offset + k * mask_stride])
            for lane in range(VECTOR_WIDTH):
                place = np.uint64(offset + k * stride + lane)
                x[place] = x[place] if word >> lane & 1 else np.float32(0)
        butterfly(x, offset, stride, x, offset, stride)

    return masked_butterfly


def _make_clipped_butterfly(butterfly: Any, count: int) -> Any:
    @numba.njit
    def clipped_butterfly(
        a: Any, offset: int, t: Any, t_offset: int, stride: int, factors: Any, sums: Any, lane: int
    ) -> None:
        """Butterfly of one column of a, one relaxed projection step, butterfly again; a and t change in place.

        The products a·a, a·(t' − t) and (t' − t)² are added to the SUM_LANES sums of each, from that of `lane` on.
        """
        scale, rate, cap, box = factors
        butterfly(a, offset, stride, a, offset, stride)
        for k in range(count):
            for i in range(VECTOR_WIDTH):
                place, t_place = np.uint64(offset + k * stride + i), np.uint64(t_offset + k * stride + i)
                before, old = a[place], t[t_place]
                new = min(max(old + min(max(before * rate, -cap), cap), -box), box)
                taken = new - old
                t[t_place] = new
                a[place] = before * scale - taken
                sums[lane + i] += before * before
                sums[SUM_LANES + lane + i] += before * taken
                sums[2 * SUM_LANES + lane + i] += taken * taken
        butterfly(a, offset, stride, a, offset, stride)

    return clipped_butterfly


_butterflies = {count: _make_butterfly(across) for count, across in ((1, _one), (2, _two), (4, _four), (8, _eight))}
_, butterfly2, butterfly4, butterfly8 = _butterflies.values()
masked1, masked2, masked4, masked8 = (_make_masked_butterfly(each, count) for count, each in _butterflies.items())
clipped1, clipped2, clipped4, clipped8 = (_make_clipped_butterfly(each, count) for count, each in _butterflies.items())


@numba.njit
def transform_base(x: Any, offset: int) -> None:
    """Hadamard transform of the floats of 2^MAX_RADIX_BITS vectors from x[offset], in place."""
    for block in range(offset, offset + (VECTOR_WIDTH << MAX_RADIX_BITS), VECTOR_WIDTH):
        transform_vector(x, block)
    butterfly8(x, offset, VECTOR_WIDTH, x, offset, VECTOR_WIDTH)
