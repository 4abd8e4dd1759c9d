"""Codebooks: the M = 2^b values that a coordinate is rounded to, in units of the bound B, and the rounding.

Rounding happens before the channel: nothing here can cost privacy.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sstq.array_types import Floats, Ints
from sstq.checks import RANGES
from sstq.scalar.densities import Density

BITS_MAX = int(RANGES["bits"][1])

# Smaller codewords are 0. In the recursion their squares, near 1e-300, stay clear of underflow.
_SMALLEST = 1e-150


@dataclass(frozen=True, eq=False, repr=False)
class Codebook:
    """The codewords of a quantizer, in units of B.

    Args:
        name: where they come from.
        values: 2 to 2^12 numbers in increasing order, the first -1 and the last 1; they may repeat.

    Examples:
        >>> Codebook("mine", [-1.0, 0.0, 0.0, 1.0]).bits
        2
    """

    name: str
    values: Floats

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64) + 0.0  # + 0.0 turns −0 into 0
        sized = values.ndim == 1 and 2 <= values.size <= 1 << BITS_MAX
        # NaN is neither equal to anything nor in order.
        if not (
            sized
            and values[0] == -1
            and values[-1] == 1
            and (np.diff(values) >= 0).all()
        ):
            raise ValueError(
                f"values must be 2 to {1 << BITS_MAX} numbers from -1 to 1, in order, got {values}"
            )
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    def __repr__(self) -> str:
        return f"Codebook({self.name!r}, {self.values.tolist()})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Codebook)
            and self.name == other.name
            and np.array_equal(self.values, other.values)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.values.tobytes()))

    @property
    def size(self) -> int:
        """The number of codewords, M."""
        return self.values.size

    @property
    def bits(self) -> int:
        """The bits of a token, ⌈log₂ M⌉."""
        return (self.size - 1).bit_length()


def uniform_codebook(bits: int) -> Codebook:
    """Return the grid of M = 2^bits equidistant codewords."""
    size = 1 << bits
    return Codebook("uniform", np.arange(1 - size, size, 2) / (size - 1))


def panter_dite_codebook(bits: int, density: Density) -> Codebook:
    """Return the quantiles k/(M − 1) of the measure f^{1/3}, anchored at ±1 (paper, Section 5.1).

    It is the high-resolution optimum without privacy, for a symmetric density.
    """
    size = 1 << bits
    weights = np.cbrt(density.masses)
    cumulative = np.append(0.0, np.cumsum(weights))
    targets = np.arange(1, size - 1) / (size - 1) * cumulative[-1]
    cell = np.searchsorted(cumulative, targets, side="right") - 1
    inner = density.grid[cell] + (targets - cumulative[cell]) / weights[cell] * (
        2 / weights.size
    )
    values = np.concatenate([[-1.0], np.clip(inner, -1.0, 1.0), [1.0]])
    # Exactly symmetric, as the density is.
    return Codebook("panter-dite", np.maximum.accumulate((values - values[::-1]) / 2))


def optimized_codebook(bits: int, epsilon: float) -> Codebook:
    """Return the minimiser of Σ_k (c_{k+1} − c_k)³/12 + Σ_i c_i²/(e^ε − 1) (paper, Definition 4.1), strictly convex.

    Setting the derivative at an interior codeword to zero gives, with λ = 1/(e^ε − 1) and gap_k = c_{k+1} − c_k,

        gap_k² = gap_{k−1}² + 8λ·c_k.

    By symmetry the positive half p_1 < … < p_h = 1 decides, and the recursion makes it a function of p_1 alone, solved
    by bisection. Towards zero the codewords shrink doubly exponentially (p_k ≈ p_{k+1}²/8λ): those below 1e-150 are
    exactly 0.

    Examples:
        >>> optimized_codebook(2, 3.0).values.round(4)
        array([-1.   , -0.301,  0.301,  1.   ])
    """
    half = 1 << (bits - 1)
    strength = 8 / math.expm1(epsilon)
    # Without zeros the middle gap is 2·p_1; with zeros in the middle the gap before p_1 is p_1.
    if _outward(_SMALLEST, 2.0, strength, half)[-1] <= 1:
        positive = _solve_outward(2.0, strength, half)
    else:
        reach = _outward(_SMALLEST, 1.0, strength, half)
        positive = _solve_outward(
            1.0, strength, sum(value <= 1 for value in reach[: half - 1])
        )
    zeros = np.zeros(2 * (half - positive.size))
    return Codebook("optimized", np.concatenate([-positive[::-1], zeros, positive]))


def _outward(
    first: float, gap_factor: float, strength: float, count: int
) -> list[float]:
    """Up to ``count`` positive codewords from p_1 = first outward; stop at the first beyond 1."""
    value = first
    gap = gap_factor * first
    values = [value]
    while len(values) < count and value <= 1:
        gap = math.sqrt(gap * gap + strength * value)
        value += gap
        values.append(value)
    return values


def _solve_outward(gap_factor: float, strength: float, count: int) -> Floats:
    """The ``count`` positive codewords whose last is 1, by bisection on log p_1 (p_count increases with p_1)."""
    low = math.log(_SMALLEST)
    high = 0.0
    while low < (middle := (low + high) / 2) < high:
        values = _outward(math.exp(middle), gap_factor, strength, count)
        if len(values) == count and values[-1] <= 1:
            low = middle
        else:
            high = middle
    positive = np.array(_outward(math.exp(low), gap_factor, strength, count))
    positive[-1] = 1.0
    return positive


def interpolation(values: Floats, y: ArrayLike) -> tuple[Ints, Floats]:
    """Place coordinates y, clamped to [-1, 1], between adjacent codewords, which are in order and may repeat.

    Returns the lower token k ≤ M − 2 and the weight of token k + 1 in [0, 1], such that
    (1 − weight)·values[k] + weight·values[k + 1] = y. On a repeated codeword all weight is on one of its tokens.

    Examples:
        >>> interpolation(np.array([-1.0, 0.0, 0.0, 1.0]), [-1.0, -0.25, 0.0, 0.5, 1.0])
        (array([0, 0, 2, 2, 2]), array([0.  , 0.75, 0.  , 0.5 , 1.  ]))
    """
    clamped = np.clip(np.asarray(y, dtype=np.float64), -1.0, 1.0)
    lower = np.minimum(
        np.searchsorted(values, clamped, side="right") - 1, values.size - 2
    ).astype(np.int64)
    start = values[lower]
    gap = values[lower + 1] - start
    # The gap is zero only at y = 1 with a repeated last codeword; there either token is right.
    return lower, np.divide(
        clamped - start, gap, out=np.ones_like(clamped), where=gap > 0
    )


def stochastic_round(values: Floats, y: ArrayLike, uniforms: ArrayLike) -> Ints:
    """Round coordinates to tokens at random, without bias: E[values[token]] = y (paper, Algorithm 1).

    A coordinate c_k ≤ y ≤ c_{k+1} becomes token k + 1 with probability (y − c_k)/(c_{k+1} − c_k), else token k; one of
    the `uniforms` in [0, 1) decides.
    """
    lower, weight = interpolation(values, y)
    return lower + (np.asarray(uniforms) < weight)


def rounding_moments(values: Floats, density: Density) -> tuple[Floats, Floats]:
    """Return ∫ y^p·(share of the lower token)·f and ∫ y^p·(share of the upper)·f on each gap, rows p = 0, 1.

    The codewords are distinct; the point masses of the density are not in these integrals.
    """
    start = values[:-1]
    stop = values[1:]
    whole = density.integrals(start, stop)
    upper = (whole[1:] - start * whole[:2]) / (stop - start)
    return whole[:2] - upper, upper


def token_moments(lower: Floats, upper: Floats, density: Density) -> Floats:
    """Return P(v = c_k) and E[y·1{v = c_k}], as two rows, from the `rounding_moments` and the point masses at ±1."""
    tokens = np.zeros((2, lower.shape[1] + 1))
    tokens[:, :-1] += lower
    tokens[:, 1:] += upper
    tokens[:, 0] += density.edges[0] * np.array([1.0, -1.0])
    tokens[:, -1] += density.edges[1]
    return tokens
