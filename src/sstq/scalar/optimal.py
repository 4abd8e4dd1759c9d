"""The minimum-variance channel: of all unbiased ε-LDP channels with 2^b codes, the one of least E[w²] for a density.

Write q_i for the least probability of code i over all inputs; ε-LDP lets any input raise it to e^ε·q_i. For
an input y the second moment Σ P(i|y)·w_i² is least, given Σ P = 1 and Σ P·w = y, when the raised codes are those whose
w lies between two values (complementary slackness with the quadratic w² − μw − λ). So lay the codes side by side in the
order of w, each as long as its q_i: the raised ones fill a *window*, whose length is the same for all inputs and which
slides from left to right as y grows. The second moment is a convex, piecewise linear function of y with slope
w_l + w_r, the sum of the values at the window's two ends; its corners, where an end of the window crosses from one code
to the next, are the tokens, and stochastic rounding between tokens attains everything in between. So a channel is a
length and a value per code and the window's width, all symmetric about 0, and its expected second moment is a smooth
function of them, which BFGS minimises.

In integers code i has the weight L_i in every row, and a row may raise it to H_i = ⌊E·L_i⌋, E just below e^ε. What a
row lacks of 2^62 is the same for all rows: a window of that length over codes of lengths H_i − L_i. Whatever the L_i,
rows sum to 2^62 and no ratio exceeds e^ε. The tokens' positions are then *computed* from the integers,
c_k = Σ_i P(i|k)·w_i, so that the channel is unbiased as implemented.

Flat randomized response has equal lengths and a window of one code. With the uniform and the optimized codebook, up to
2^8 codes, it is always a candidate, and so is the solution for one bit less.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sstq.array_types import Floats, Ints
from sstq.exactness import TOTAL, exp_lower
from sstq.scalar.channels import Channel, TableChannel
from sstq.scalar.codebooks import (
    Codebook,
    optimized_codebook,
    rounding_moments,
    token_moments,
    uniform_codebook,
)
from sstq.scalar.densities import Density

OPTIMAL = "optimal"
"""The name of the channel, and of the codebook that belongs to it."""

# More codes than 2^5 gain a thousandth at most; flat channels are candidates up to 2^8.
_SEARCHED_BITS = 5
_FLAT_BITS = 8
_LARGEST_BIAS = Fraction(1, 1 << 51)
# Codes of less weight are left out, as are tokens that are closer.
_THIN = 1 << 22
_CLOSE = 1e-6
# In the search, closer tokens are the same.
_SAME = 1e-11
_SEARCH = {"gtol": 1e-6, "maxiter": 300}
_LOG_BOUNDS = (math.log(1e-9), 5.0)


class Windows(NamedTuple):
    """A symmetric channel by its positive half: values w > 0 up to a common factor, their codes' lengths, the window.

    Both halves together have length 1; the window's width is in (0, 1).
    """

    heights: Floats
    lengths: Floats
    width: float


class OptimalChannel(NamedTuple):
    """A channel with the positions of its tokens and the decoding values of its codes, in units of B."""

    channel: Channel
    codebook: Codebook
    values: Floats

    def second_moment(self, density: Density) -> float:
        """Return E[w²] in units of B² for coordinates of that density, stochastic rounding included."""
        positions, first = np.unique(self.codebook.values, return_index=True)
        shares = token_moments(*rounding_moments(positions, density), density)[0]
        return float(shares @ self.channel.moments(self.values)[1][first])


def check_unbiased(channel: Channel, codebook: Codebook, values: Floats) -> None:
    """Refuse positions that are not Σ_i P(i|k)·w_i, in rational arithmetic, to the last place of a double."""
    for token, (mean, position) in enumerate(
        zip(_exact_means(channel.matrix, values), codebook.values, strict=True)
    ):
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
    codes = 1 << bits
    half = 1 << (bits - 1)
    shapes = []
    if bits <= _SEARCHED_BITS:
        # Near the window of the piecewise mechanism (Wang et al., ICDE 2019), which has infinitely many codes.
        near = round(codes / (math.exp(epsilon / 2) + 1))
        tops = {1, near - 1, near, near + 1} & {*range(1, half + 1)}
        shapes += [_descend(half, top, epsilon, density) for top in sorted(tops)]
    if bits <= _FLAT_BITS:
        books = uniform_codebook(bits), optimized_codebook(bits, epsilon)
        shapes += [
            Windows(book.values[half:], np.full(half, 0.5 / half), 0.5 / half)
            for book in books
        ]
    best = sorted(shapes, key=lambda shape: second_moment(shape, epsilon, density)[0])[
        :1
    ]
    candidates = [from_windows(shape, epsilon, codes) for shape in best]
    if bits > 1:
        smaller = optimal_channel(bits - 1, epsilon, density)
        candidates.append(
            _padded(
                smaller.channel.matrix, epsilon, smaller.codebook, smaller.values, codes
            )
        )
    return min(candidates, key=lambda candidate: candidate.second_moment(density))


def from_windows(windows: Windows, epsilon: float, outputs: int) -> OptimalChannel:
    """Return the exact channel of that shape; codes that the shape does not need are never sent."""
    floor = 1 / (1 + math.expm1(epsilon) * windows.width)
    lows = [round(float(length) * floor * TOTAL) for length in windows.lengths]
    thick = [place for place, low in enumerate(lows) if low >= _THIN]
    lows = [lows[place] for place in thick]
    heights = windows.heights[thick] / windows.heights[-1]
    limit = exp_lower(epsilon)
    low = np.array(lows[::-1] + lows, dtype=object)
    ends = np.append(0, np.cumsum(low * limit.numerator // limit.denominator - low))
    width = TOTAL - low.sum()
    corners = [
        start for start in {*ends, *(ends - width)} if 0 <= start <= ends[-1] - width
    ]
    starts = np.array(sorted(corners), dtype=object)
    overlap = np.minimum(ends[1:], starts[:, None] + width) - np.maximum(
        ends[:-1], starts[:, None]
    )
    matrix = (low + np.maximum(overlap, 0)).astype(np.int64)
    values = _reaching_one(matrix[-1], np.concatenate([-heights[::-1], heights]))
    positions = np.array([float(mean) for mean in _exact_means(matrix, values)])
    positions[0] = -1.0
    positions[-1] = 1.0
    kept = _apart(positions)
    return _padded(
        matrix[kept], epsilon, Codebook(OPTIMAL, positions[kept]), values, outputs
    )


def _padded(
    matrix: Ints, epsilon: float, book: Codebook, values: Floats, codes: int
) -> OptimalChannel:
    """Pad the channel with codes that are never sent."""
    spare = codes - len(values)
    channel = TableChannel(OPTIMAL, epsilon, np.pad(matrix, ((0, 0), (0, spare))))
    padded = np.pad(values, (0, spare))
    check_unbiased(channel, book, padded)
    padded.setflags(write=False)
    return OptimalChannel(channel, book, padded)


def _reaching_one(top: Ints, values: Floats) -> Floats:
    """Scale antisymmetric values so that the top token's mean is 1 to the last place of a double."""
    values = values / float(_exact_means(top[None], values)[0])
    lever = Fraction(int(top[-1]) - int(top[0]), TOTAL)
    for _ in range(3):
        # The scaled values are rounded one by one; the outermost pair makes up for what that leaves.
        missing = (1 - _exact_means(top[None], values)[0]) / lever
        values[-1] = float(Fraction(float(values[-1])) + missing)
        values[0] = -values[-1]
    return values


def _exact_means(matrix: Ints, values: Floats) -> list[Fraction]:
    """Σ_i P(i|k)·w_i for every row k, without rounding."""
    fractions = [Fraction(float(value)) for value in values]
    # powers of two: the largest is common to all
    shared = max(fraction.denominator for fraction in fractions)
    numerators = np.array(
        [int(fraction * shared) for fraction in fractions], dtype=object
    )
    return [
        Fraction(int(total), shared * TOTAL)
        for total in matrix.astype(object) @ numerators
    ]


def _apart(positions: Floats) -> list[int]:
    """The places of symmetric positions that differ by more than rounding; of those that do not, the outer one."""
    kept: list[int] = []
    for place in range(len(positions) - 1, (len(positions) - 1) // 2 - 1, -1):
        if positions[place] >= 0 and (
            not kept or positions[kept[-1]] - positions[place] > _CLOSE
        ):
            kept.append(place)
    return sorted({*kept, *(len(positions) - 1 - place for place in kept)})


def _descend(half: int, codes_at_top: int, epsilon: float, density: Density) -> Windows:
    """The channel that BFGS reaches from equal codes in logarithms of the steps between values and of the lengths.

    The outermost window holds exactly the `codes_at_top` largest values. Wherever it ends between two codes instead,
    the values' common factor has a kink as a function of the width, and least values sit at kinks.
    """
    from scipy.optimize import minimize

    top = slice(half - codes_at_top, None)
    heights = (np.arange(half) + 0.5) / half
    steps = np.diff(heights, prepend=0.0) / heights[-1]
    point = np.log(np.concatenate([steps, np.full(half, 0.5 / half)]))

    def windows_of(logs: Floats) -> Windows:
        lengths = np.exp(logs[half:] - logs[half:].max())
        lengths /= 2 * lengths.sum()
        return Windows(
            np.cumsum(np.exp(logs[:half])), lengths, float(lengths[top].sum())
        )

    unit = second_moment(windows_of(point), epsilon, density)[0]

    def objective(free: Floats) -> tuple[float, Floats]:
        logs = np.clip(free, *_LOG_BOUNDS)
        windows = windows_of(logs)
        steps = np.exp(logs[:half])
        loss, by_height, by_length, by_width = second_moment(windows, epsilon, density)
        by_length[top] += by_width
        by_step = np.cumsum(by_height[::-1])[::-1]  # a step raises every value above it
        by_log_length = windows.lengths * (by_length - 2 * windows.lengths @ by_length)
        return loss / unit, np.where(
            logs == free, np.concatenate([steps * by_step, by_log_length]) / unit, 0.0
        )

    descent = minimize(objective, point, jac=True, method="BFGS", options=_SEARCH)
    return windows_of(np.clip(descent.x, *_LOG_BOUNDS))


def _slid(ends: Floats, width: float) -> tuple[Floats, Floats]:
    """Where the window begins at the corners of the second moment, and how much of each code it then covers."""
    starts = np.unique(np.clip(np.concatenate([ends, ends - width]), 0.0, 1 - width))
    overlap = np.minimum(ends[1:], starts[:, None] + width) - np.maximum(
        ends[:-1], starts[:, None]
    )
    return starts, np.maximum(overlap, 0.0)


def _rounded(means: Floats, density: Density) -> tuple[Ints, Floats, Floats]:
    """The gaps between tokens with these means; per gap, mass and first moment of what is rounded down, and up."""
    positions = np.maximum.accumulate(np.clip(means, -1.0, 1.0))
    positions[0] = -1.0
    positions[-1] = 1.0
    # Where the window slides within one code nothing changes: the gaps between tokens are elsewhere.
    gaps = np.flatnonzero(np.diff(positions) > _SAME)
    positions = np.append(positions[gaps], 1.0)
    positions[0] = -1.0
    lower, upper = rounding_moments(positions, density)
    # The point masses belong to the outermost gaps.
    lower[:, 0] += density.edges[0] * np.array([1.0, -1.0])
    upper[:, -1] += density.edges[1]
    return gaps, lower, upper


def _reach_derivatives(
    v: Floats, ends: Floats, width: float, floor: float, boost: float
) -> tuple[Floats, float]:
    """The derivatives of the top token's mean by the ends of the codes and, but for the least ones, by the width."""
    top = 1 - width
    by_end = floor * boost * (v[:-1] - v[1:]) * (ends[1:-1] > top)
    by_width = floor * boost * float(v[np.searchsorted(ends[1:-1], top, side="right")])
    return by_end, by_width


def second_moment(
    windows: Windows, epsilon: float, density: Density
) -> tuple[float, Floats, Floats, float]:
    """Return E[w²] under the density, the values scaled so that the tokens reach ±1, with its derivatives.

    They are by the heights, the lengths (moving a positive code and its mirror image) and the width.
    """
    boost = math.expm1(epsilon)
    width = windows.width
    v = np.concatenate([-windows.heights[::-1], windows.heights])
    lengths = np.concatenate([windows.lengths[::-1], windows.lengths])
    ends = np.append(0.0, np.cumsum(lengths))
    ends[-1] = 1.0
    floor = 1 / (1 + boost * width)  # the sum of all least probabilities
    starts, raised = _slid(ends, width)
    probabilities = floor * (lengths + boost * raised)
    means = probabilities @ v
    reach = float(means[-1])
    gaps, lower, upper = _rounded(means / reach, density)
    below = probabilities[gaps]
    above = probabilities[gaps + 1]
    middles = (starts[gaps] + starts[gaps + 1]) / 2
    loss = float(lower[0] @ (below @ v**2) + upper[0] @ (above @ v**2))
    left = v[np.searchsorted(ends[1:-1], middles)]
    right = v[np.searchsorted(ends[1:-1], middles + width)]
    slope = left + right
    mass = lower[0] + upper[0]
    first = lower[1] + upper[1]
    # Derivatives of the moment at a fixed mean: those of Σ P·(v² − slope·v), as the window's place adapts.
    mean_probabilities = lower[0] @ below + upper[0] @ above
    sloped = (lower[0] * slope) @ below + (upper[0] * slope) @ above
    by_v = 2 * v * mean_probabilities - sloped + (slope @ mass) * floor * lengths
    inside = (ends[1:-1] > middles[:, None]) & (ends[1:-1] < (middles + width)[:, None])
    drop = v[:-1] - v[1:]
    boosted = boost * inside
    by_end = (
        floor
        * drop
        * ((v[:-1] + v[1:]) * (mass @ (1 + boosted)) - (slope * mass) @ boosted)
    )
    # the relative change of all least probabilities with the width
    shrink = -boost * floor
    by_width = shrink * (loss - reach * float(slope @ first)) - floor * boost * float(
        (left * right) @ mass
    )
    # The values are scaled by the reach: its own derivatives.
    reach_by_v = probabilities[-1] - floor * lengths
    reach_by_end, raised_by_width = _reach_derivatives(v, ends, width, floor, boost)
    reach_by_width = shrink * reach + raised_by_width
    pull = float(slope @ first) - 2 * loss / reach
    by_v = (by_v + pull * reach_by_v) / reach**2
    by_end = (by_end + pull * reach_by_end) / reach**2
    # a length moves all ends after it
    by_code = np.append(np.cumsum(by_end[::-1])[::-1], 0.0)
    half = len(windows.heights)
    return (
        loss / reach**2,
        by_v[half:] - by_v[half - 1 :: -1],
        by_code[half:] + by_code[half - 1 :: -1],
        float((by_width + pull * reach_by_width) / reach**2),
    )
