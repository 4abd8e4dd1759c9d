"""The minimum-variance channel: of all unbiased ε-LDP channels with 2^b codes, the one of least E[w²] for a density.

`sstq.scalar.windows` finds its shape; this module makes integers of that.

Code i has the weight L_i in every row; a row may raise it to H_i = ⌊E·L_i⌋, E just below e^ε. What a row
lacks of 2^62 is one and the same integer for all rows: a window of that length over codes of lengths H_i − L_i.
Whatever the L_i, rows sum to 2^62 and no ratio exceeds e^ε. The tokens' positions are then *computed* from the
integers, c_k = Σ_i P(i|k)·w_i, so that the channel is unbiased as implemented.

Flat randomized response is such a channel as well, with equal lengths and a window of one code. With the uniform and
the optimized codebook it is always a candidate, and so is the solution for one bit less: the result is never worse than
flat channels of up to 2^8 codes, and never worse with more bits.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sstq.exactness import TOTAL, exp_lower
from sstq.scalar.channels import Channel, TableChannel
from sstq.scalar.codebooks import Codebook, optimized_codebook, rounding_moments, token_moments, uniform_codebook
from sstq.scalar.densities import Density, Vector
from sstq.scalar.windows import Windows, search, second_moment

OPTIMAL = "optimal"
"""The name of the channel, and of the codebook that belongs to it."""

# More codes than 2^5 gain a thousandth at most; flat channels are candidates up to 2^8.
_SEARCHED_BITS, _FLAT_BITS = 5, 8
_LARGEST_BIAS = Fraction(1, 1 << 51)
# Codes of less weight are left out, as are tokens that are closer.
_THIN, _CLOSE = 1 << 22, 1e-6


class OptimalChannel(NamedTuple):
    """A channel with the positions of its tokens and the decoding values of its codes, in units of B."""

    channel: Channel
    codebook: Codebook
    values: Vector

    def second_moment(self, density: Density) -> float:
        """Return E[w²] in units of B² for coordinates of that density, stochastic rounding included."""
        positions, first = np.unique(self.codebook.values, return_index=True)
        shares = token_moments(*rounding_moments(positions, density), density)[0]
        return float(shares @ self.channel.moments(self.values)[1][first])


def check_unbiased(channel: Channel, codebook: Codebook, values: Vector) -> None:
    """Refuse positions that are not Σ_i P(i|k)·w_i, in rational arithmetic, to the last place of a double."""
    for token, (mean, position) in enumerate(zip(_exact_means(channel.matrix, values), codebook.values, strict=True)):
        if abs(mean - Fraction(float(position))) > _LARGEST_BIAS:
            problem = f"token {token} stands for {position}, but its codes decode to {float(mean)!r} on average"
            raise ValueError(f"{problem}: the channel would be biased")


@lru_cache(maxsize=64)
def optimal_channel(bits: int, epsilon: float, density: Density) -> OptimalChannel:
    """Return the channel with 2^bits codes for a symmetric density; solved once, in up to a few seconds.

    It is the best of the search, the flat channels and the solution for one bit less.

    Examples:
        >>> solved = optimal_channel(2, 3.0, Density.kashin(1.6, 2.575))
        >>> solved.values.round(2), solved.codebook.size
        (array([-1.2 , -0.33,  0.33,  1.2 ]), 6)
    """
    codes, half = 1 << bits, 1 << (bits - 1)
    shapes = [search(bits, epsilon, density)] if bits <= _SEARCHED_BITS else []
    if bits <= _FLAT_BITS:
        books = uniform_codebook(bits), optimized_codebook(bits, epsilon)
        shapes += [Windows(book.values[half:], np.full(half, 0.5 / half), 0.5 / half) for book in books]
    best = sorted(shapes, key=lambda shape: second_moment(shape, epsilon, density)[0])[:1]
    candidates = [from_windows(shape, epsilon, codes) for shape in best]
    if bits > 1:
        smaller = optimal_channel(bits - 1, epsilon, density)
        candidates.append(_padded(smaller.channel.matrix, epsilon, smaller.codebook, smaller.values, codes))
    return min(candidates, key=lambda candidate: candidate.second_moment(density))


def from_windows(windows: Windows, epsilon: float, outputs: int) -> OptimalChannel:
    """Return the exact channel of that shape; codes that the shape does not need are never sent."""
    floor = 1 / (1 + math.expm1(epsilon) * windows.width)
    lows = [round(float(length) * floor * TOTAL) for length in windows.lengths]
    thick = [place for place, low in enumerate(lows) if low >= _THIN]
    lows, heights = [lows[place] for place in thick], windows.heights[thick] / windows.heights[-1]
    limit = exp_lower(epsilon)
    low = np.array(lows[::-1] + lows, dtype=object)
    ends = np.append(0, np.cumsum(low * limit.numerator // limit.denominator - low))
    width = TOTAL - low.sum()
    corners = [start for start in {*ends, *(ends - width)} if 0 <= start <= ends[-1] - width]
    starts = np.array(sorted(corners), dtype=object)
    overlap = np.minimum(ends[1:], starts[:, None] + width) - np.maximum(ends[:-1], starts[:, None])
    matrix = (low + np.maximum(overlap, 0)).astype(np.int64)
    values = _reaching_one(matrix[-1], np.concatenate([-heights[::-1], heights]))
    positions = np.array([float(mean) for mean in _exact_means(matrix, values)])
    positions[0], positions[-1] = -1.0, 1.0
    kept = _apart(positions)
    return _padded(matrix[kept], epsilon, Codebook(OPTIMAL, positions[kept]), values, outputs)


def _padded(matrix: NDArray[np.int64], epsilon: float, book: Codebook, values: Vector, codes: int) -> OptimalChannel:
    """Pad the channel with codes that are never sent."""
    spare = codes - len(values)
    channel = TableChannel(OPTIMAL, epsilon, np.pad(matrix, ((0, 0), (0, spare))))
    padded = np.pad(values, (0, spare))
    check_unbiased(channel, book, padded)
    padded.setflags(write=False)
    return OptimalChannel(channel, book, padded)


def _reaching_one(top: NDArray[np.int64], values: Vector) -> Vector:
    """Scale antisymmetric values so that the top token's mean is 1 to the last place of a double."""
    values = values / float(_exact_means(top[None], values)[0])
    lever = Fraction(int(top[-1]) - int(top[0]), TOTAL)
    for _ in range(3):
        # The scaled values are rounded one by one; the outermost pair makes up for what that leaves.
        missing = (1 - _exact_means(top[None], values)[0]) / lever
        values[-1] = float(Fraction(float(values[-1])) + missing)
        values[0] = -values[-1]
    return values


def _exact_means(matrix: NDArray[np.int64], values: Vector) -> list[Fraction]:
    """Σ_i P(i|k)·w_i for every row k, without rounding."""
    fractions = [Fraction(float(value)) for value in values]
    shared = max(fraction.denominator for fraction in fractions)  # powers of two: the largest is common to all
    numerators = np.array([int(fraction * shared) for fraction in fractions], dtype=object)
    return [Fraction(int(total), shared * TOTAL) for total in matrix.astype(object) @ numerators]


def _apart(positions: Vector) -> list[int]:
    """The places of symmetric positions that differ by more than rounding; of those that do not, the outer one."""
    kept: list[int] = []
    for place in range(len(positions) - 1, (len(positions) - 1) // 2 - 1, -1):
        if positions[place] >= 0 and (not kept or positions[kept[-1]] - positions[place] > _CLOSE):
            kept.append(place)
    return sorted({*kept, *(len(positions) - 1 - place for place in kept)})
