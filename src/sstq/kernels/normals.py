"""Normal numbers from words by the Box–Muller formula, and vectors at a given distance from a pole.

Logarithm, sine and cosine are series of our own: additions, multiplications, one division and one square root, each
rounded as IEEE 754 says and never fused. So every processor and every vector width gives the same bits, which the
libraries of different machines do not, and LLVM makes vectors of the loop.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from sstq.kernels.simd import inner

# the bits of 1.0; with others as its fraction, a number in [1, 2)
_ONE = np.uint64(0x3FF0000000000000)
_FRACTION = np.uint64(52)
_UNUSED = np.uint64(12)
# Added to the bits of a number, it raises the exponent from √2 times a power of two on.
_FROM_ROOT = np.uint64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
# the bits of 2^52; an integer as its fraction is added to that
_TO_FLOAT = np.uint64(0x4330000000000000)
_SIGN = np.uint64(63)
_QUARTER = np.uint64(62)
_EIGHTH = np.uint64(1 << 61)
_TWO = np.uint64(2)


@njit(inline="always")
def _log(u: Any) -> Any:
    """Return ln u of a positive normal number below 1: e·ln 2 + ln m, 1/√2 ≤ m < √2, ln m = 2·artanh((m−1)/(m+1))."""
    bits = np.float64(u).view(np.uint64)
    exponent = (bits + _FROM_ROOT) >> _FRACTION
    m = np.uint64(bits - (exponent << _FRACTION) + _ONE).view(np.float64)
    e = np.uint64(exponent | _TO_FLOAT).view(np.float64) - (2.0**52 + 1023)
    z = np.divide(m - 1.0, m + 1.0)  # a plain division would test for zero
    y = z * z
    series = (((1 / 21 * y + 1 / 19) * y + 1 / 17) * y + 1 / 15) * y + 1 / 13
    series = ((((series * y + 1 / 11) * y + 1 / 9) * y + 1 / 7) * y + 1 / 5) * y + 1 / 3
    return e * math.log(2) + 2 * (z + z * (series * y))


@njit(inline="always")
def _sine(a: Any) -> Any:
    """Return sin a for |a| ≤ π/4, by Taylor's series."""
    y = a * a
    series = (
        (1 / 355687428096000 * y - 1 / 1307674368000) * y + 1 / 6227020800
    ) * y - 1 / 39916800
    series = (((series * y + 1 / 362880) * y - 1 / 5040) * y + 1 / 120) * y - 1 / 6
    return a + a * (series * y)


@njit(inline="always")
def _cosine(a: Any) -> Any:
    """Return cos a for |a| ≤ π/4, by Taylor's series."""
    y = a * a
    series = (
        (1 / 20922789888000 * y - 1 / 87178291200) * y + 1 / 479001600
    ) * y - 1 / 3628800
    series = (((series * y + 1 / 40320) * y - 1 / 720) * y + 1 / 24) * y - 1 / 2
    return 1.0 + series * y


@inner
def box_muller_row(radii: Any, angles: Any, cosines: Any, sines: Any) -> None:
    """Set cosines[i] and sines[i] to r·cos a and r·sin a, with r and a from one uint64 each.

    r = √(−2·ln u), u an odd multiple of 2^-53; a is uniform on the circle. The quarter of a, counted from −π/4, is in
    the two leading bits, and the place in it is again an odd multiple of 2^-53 of a quarter.
    """
    for i in range(radii.size):
        u = np.uint64(radii[i] >> _UNUSED | _ONE).view(np.float64) - 1.0 + 2.0**-53
        radius = np.sqrt(-2 * _log(u))
        turned = angles[i] + _EIGHTH
        place = (
            np.uint64(turned << _TWO >> _UNUSED | _ONE).view(np.float64)
            - 1.5
            + 2.0**-53
        )
        a = place * (math.pi / 2)
        sine = radius * _sine(a)
        cosine = radius * _cosine(a)
        # Quarters: (c, s), (−s, c), (−c, −s), (s, −c).
        second = turned >> _SIGN
        odd = turned >> _QUARTER & np.uint64(1)
        first = np.float64(sine if odd else cosine).view(np.uint64)
        other = np.float64(cosine if odd else sine).view(np.uint64)
        cosines[i] = np.uint64(first ^ (second ^ odd) << _SIGN).view(np.float64)
        sines[i] = np.uint64(other ^ second << _SIGN).view(np.float64)


def box_muller_rows(words: Any, numbers: Any) -> None:
    """Fill the rows of `numbers` from those of `words`: radii in the first half, angles in the second."""
    half = words.shape[1] // 2
    for row in range(words.shape[0]):
        box_muller_row(
            words[row, :half],
            words[row, half:],
            numbers[row, :half],
            numbers[row, half:],
        )


@inner
def _products(x: Any, y: Any) -> Any:
    """Return ⟨x, x⟩ and ⟨x, y⟩, added in an order that does not depend on the processor."""
    squares = np.zeros(8)
    products = np.zeros(8)
    whole = x.size // 8 * 8
    for i in range(0, whole, 8):
        for k in range(8):
            squares[k] += x[i + k] * x[i + k]
            products[k] += x[i + k] * y[i + k]
    for i in range(whole, x.size):
        squares[0] += x[i] * x[i]
        products[0] += x[i] * y[i]
    return squares.sum(), products.sum()


def draw_around(
    directions: Any,
    along: Any,
    across: Any,
    words: Any,
    vectors: Any,
    first: int,
    to_length: bool,
) -> None:
    """Set vectors[i] as `sstq.kernels.draw_around` defines it.

    The Householder reflection I − 2hhᵀ/‖h‖², h = u + s·e₁, takes e₁ to −s·u, s being the sign of u₁, so that ‖h‖² =
    2(1 + |u₁|) ≥ 2. It takes (−s·t, w) of R × R^(d−1) to its place, and nothing cancels.
    """
    dim = directions.shape[1]
    half = directions.shape[1] // 2
    numbers = np.empty(2 * half)
    for row in range(words.shape[0]):
        radii_and_angles = words[row, first : first + 2 * half]
        box_muller_row(
            radii_and_angles[:half],
            radii_and_angles[half:],
            numbers[:half],
            numbers[half:],
        )
        u = directions[row]
        used = numbers[: dim - 1]
        square, product = _products(used, u[1:])
        scale = across[row] / math.sqrt(square) if to_length else across[row]
        factor = scale * product / (1 + abs(u[0])) - along[row]
        sign = -1.0 if u[0] < 0 else 1.0
        vectors[row, 0] = -sign * along[row] - factor * (u[0] + sign)
        for i in range(dim - 1):
            vectors[row, i + 1] = np.float32(scale * used[i] - factor * u[i + 1])
