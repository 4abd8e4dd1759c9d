"""Minimum-variance channels in exact integers: windows that slide over integer weights, and the tokens they make.

Code i has the integer weight L_i in every row; a row may raise it to H_i = ⌊E·L_i⌋, E just below e^ε. What a row lacks
of 2^62 is one and the same integer S for all rows: it fills a window of that length, laid over the codes side by side
with lengths H_i − L_i. Whatever the L_i, the rows sum to 2^62 and no ratio exceeds e^ε: there is nothing to round or to
repair. The tokens' positions are then *computed* from the integers, c_k = Σ_i P(i|k)·w_i, so that the channel is
unbiased as implemented.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.exactness import TOTAL, exp_lower
from sstq.scalar.channels.base import Channel
from sstq.scalar.channels.flat import FlatChannel
from sstq.scalar.channels.optimal_search import Windows
from sstq.scalar.channels.serial import channel_from_dict
from sstq.scalar.channels.table import TableChannel
from sstq.scalar.codebooks import Codebook, rounding_moments, token_moments
from sstq.scalar.densities import Density

OPTIMAL = "optimal"
"""The name of the channel, and of the codebook that belongs to it."""

_LARGEST_BIAS = Fraction(1, 1 << 51)
_THIN = 1 << 22
_CLOSE = 1e-6
_CORRECTIONS = 3


@dataclass(frozen=True, eq=False)
class OptimalChannel:
    """A channel with the tokens and decoding values that make it unbiased; all of it is checked, in exact arithmetic.

    Args:
        channel: the integer weights, a row for each token and a column for each code.
        codebook: the positions of the tokens, in units of B.
        values: the decoding value of each code, in units of B.

    Examples:
        >>> from sstq.scalar.channels import flat_channel
        >>> from sstq.scalar.codebooks import uniform_codebook
        >>> matrix = flat_channel(1, 3.0).matrix
        >>> OptimalChannel(TableChannel("optimal", 3.0, matrix), uniform_codebook(1), [-1.2, 1.2])
        Traceback (most recent call last):
        ...
        ValueError: token 0 stands for -1.0, but its codes decode to -1.0861... on average: the channel would be biased

    """

    channel: Channel
    codebook: Codebook
    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        values.setflags(write=False)
        object.__setattr__(self, "values", values)
        check_unbiased(self.channel, self.codebook, values)

    def second_moment(self, density: Density) -> float:
        """E[w²] in units of B² for coordinates of that density, stochastic rounding included.

        Examples:
            >>> from sstq.scalar.channels import optimal_channel
            >>> round(1.6**2 * optimal_channel(2, 3.0, Density.kashin(1.6, 2.575)).second_moment(Density.uniform()), 1)
            1.6
        """
        return decoded_second_moment(self.channel, self.codebook, self.values, density)

    def to_dict(self) -> dict[str, Any]:
        """The integers, positions and decoding values, for JSON."""
        return {
            "channel": self.channel.to_dict(),
            "positions": self.codebook.values.tolist(),
            "values": self.values.tolist(),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "OptimalChannel":
        """The channel whose `to_dict` this is, everything checked again."""
        return cls(channel_from_dict(fields["channel"]), Codebook(OPTIMAL, fields["positions"]), fields["values"])


def decoded_second_moment(channel: Channel, codebook: Codebook, values: NDArray[np.float64], density: Density) -> float:
    """E[w²] of the decoded coordinate, in units of B², for coordinates of that density.

    Examples:
        >>> from sstq.scalar.channels import flat_channel, unbiased_decoder
        >>> from sstq.scalar.codebooks import uniform_codebook
        >>> channel, book = flat_channel(1, 3.0), uniform_codebook(1)
        >>> round(decoded_second_moment(channel, book, unbiased_decoder(channel, book), Density.uniform()), 4)
        1.2206
    """
    positions, first = np.unique(codebook.values, return_index=True)
    shares = token_moments(*rounding_moments(positions, density), density)[0]
    return float(shares @ channel.moments(values)[1][first])


def check_unbiased(channel: Channel, codebook: Codebook, values: NDArray[np.float64]) -> None:
    """Refuse positions that are not Σ_i P(i|k)·w_i, in rational arithmetic, to the last place of a double."""
    if not np.isfinite(values).all() or values.shape != (channel.outputs,) or codebook.size != channel.inputs:
        raise ValueError(
            f"{codebook.size} positions and {values.size} values do not belong to a channel of {channel.inputs} tokens "
            f"and {channel.outputs} codes"
        )
    for token, (mean, position) in enumerate(zip(_exact_means(channel.matrix, values), codebook.values, strict=True)):
        if abs(mean - Fraction(float(position))) > _LARGEST_BIAS:
            raise ValueError(
                f"token {token} stands for {position}, but its codes decode to {float(mean)!r} on average: "
                "the channel would be biased"
            )


def from_windows(windows: Windows, epsilon: float, outputs: int) -> OptimalChannel:
    """The exact channel of that shape; codes that the shape does not need are never sent."""
    floor = 1 / (1 + math.expm1(epsilon) * windows.width)
    lows = [round(float(length) * floor * TOTAL) for length in windows.lengths]
    thick = [place for place, low in enumerate(lows) if low >= _THIN]
    heights = windows.heights[thick] / windows.heights[-1]
    return _slide([lows[place] for place in thick], heights, epsilon, outputs)


def from_flat(channel: FlatChannel, codebook: Codebook, outputs: int) -> OptimalChannel:
    """Flat randomized response on a symmetric codebook, as one of these channels."""
    half = codebook.size // 2
    return _slide([channel.other] * half, codebook.values[half:], channel.epsilon, outputs)


def embedded(smaller: OptimalChannel, outputs: int) -> OptimalChannel:
    """The same channel with more codes, none of which is ever sent."""
    spare = outputs - smaller.channel.outputs
    matrix = np.pad(smaller.channel.matrix, ((0, 0), (0, spare)))
    channel = TableChannel(OPTIMAL, smaller.channel.epsilon, matrix)
    return OptimalChannel(channel, smaller.codebook, np.pad(smaller.values, (0, spare)))


def _slide(lows: list[int], heights: NDArray[np.float64], epsilon: float, outputs: int) -> OptimalChannel:
    """The channel of the least weights ``lows`` and values ∝ ``heights`` of the positive codes, smallest first."""
    limit = exp_lower(epsilon)
    low = np.array(lows[::-1] + lows, dtype=object)
    ends = np.append(0, np.cumsum(low * limit.numerator // limit.denominator - low))
    width = TOTAL - low.sum()
    last = ends[-1] - width
    if not 0 < width <= ends[-1]:
        raise ValueError(f"the least weights sum to {low.sum()}: no window makes rows of 2^62 out of them")
    starts = np.array(sorted({start for start in [*ends, *(ends - width)] if 0 <= start <= last}), dtype=object)
    overlap = np.minimum(ends[1:], starts[:, None] + width) - np.maximum(ends[:-1], starts[:, None])
    matrix = (low + np.maximum(overlap, 0)).astype(np.int64)
    values = _reaching_one(matrix[-1], np.concatenate([-heights[::-1], heights]))
    positions = np.array([float(mean) for mean in _exact_means(matrix, values)])
    positions[0], positions[-1] = -1.0, 1.0
    kept = _apart(positions)
    matrix = np.pad(matrix[kept], ((0, 0), (0, outputs - len(low))))
    channel = TableChannel(OPTIMAL, float(epsilon), matrix)
    return OptimalChannel(channel, Codebook(OPTIMAL, positions[kept]), np.pad(values, (0, outputs - len(low))))


def _reaching_one(top: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale antisymmetric values so that the top token's mean is 1 to the last place of a double."""
    values = values / float(_exact_means(top[None], values)[0])
    lever = Fraction(int(top[-1]) - int(top[0]), TOTAL)
    for _ in range(_CORRECTIONS):
        # The scaled values are rounded one by one; the outermost pair makes up for what that leaves.
        missing = (1 - _exact_means(top[None], values)[0]) / lever
        values[-1] = float(Fraction(float(values[-1])) + missing)
        values[0] = -values[-1]
    return values


def _exact_means(matrix: NDArray[np.int64], values: NDArray[np.float64]) -> list[Fraction]:
    """Σ_i P(i|k)·w_i for every row k, without rounding."""
    fractions = [Fraction(float(value)) for value in values]
    shared = max(fraction.denominator for fraction in fractions)  # powers of two: the largest is common to all
    numerators = np.array(
        [fraction.numerator * (shared // fraction.denominator) for fraction in fractions], dtype=object
    )
    return [Fraction(int(total), shared * TOTAL) for total in matrix.astype(object) @ numerators]


def _apart(positions: NDArray[np.float64]) -> list[int]:
    """The places of symmetric positions that differ by more than rounding; of those that do not, the outer one."""
    kept: list[int] = []
    for place in range(len(positions) - 1, (len(positions) - 1) // 2 - 1, -1):
        if positions[place] >= 0 and (not kept or positions[kept[-1]] - positions[place] > _CLOSE):
            kept.append(place)
    return sorted({*kept, *(len(positions) - 1 - place for place in kept)})
