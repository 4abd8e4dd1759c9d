"""The codebook for flat randomized response: the minimiser of the paper's surrogate loss."""

import math

import numpy as np
from numpy.typing import NDArray

from sstq.exactness import check_epsilon
from sstq.scalar.codebooks.base import Codebook, check_bits

_SMALLEST = 1e-150
"""Smaller codewords are 0. In the recursion their squares, near 1e-300, stay clear of underflow."""


def surrogate_loss(codebook: Codebook, epsilon: float) -> float:
    """Return ℒ_SSTQ(Γ) = Σ_k (c_{k+1} − c_k)³/12 + Σ_i c_i²/(e^ε − 1), with B = 1 (paper, Definition 4.1).

    Examples:
        >>> from sstq.scalar.codebooks import uniform_codebook
        >>> round(surrogate_loss(uniform_codebook(1), np.log(3.0)), 6)
        1.666667
    """
    gaps = np.diff(codebook.values)
    return float((gaps**3).sum() / 12 + (codebook.values**2).sum() / math.expm1(check_epsilon(epsilon)))


def optimized_codebook(bits: int, epsilon: float) -> Codebook:
    """Return the minimiser of the surrogate loss (paper, Definition 4.1), which is strictly convex.

    Setting the derivative at an interior codeword to zero gives, with λ = 1/(e^ε − 1) and gap_k = c_{k+1} − c_k,

        gap_k² = gap_{k−1}² + 8λ·c_k.

    By symmetry the positive half p_1 < … < p_h = 1 decides, and the recursion makes it a function of p_1 alone, solved
    by bisection. Towards zero the codewords shrink doubly exponentially (p_k ≈ p_{k+1}²/8λ): those below 1e-150 are
    exactly 0 (FINDINGS 3).

    Args:
        bits: b, with M = 2^b codewords.
        epsilon: the budget of the flat channel the codebook is for.

    Examples:
        >>> optimized_codebook(2, 3.0).values.round(4)
        array([-1.   , -0.301,  0.301,  1.   ])

    """
    half = 1 << (check_bits(bits) - 1)
    strength = 8 / math.expm1(check_epsilon(epsilon))
    # Without zeros the middle gap is 2·p_1; with zeros in the middle the gap before p_1 is p_1.
    if _outward(_SMALLEST, 2.0, strength, half)[-1] <= 1:
        positive = _solve_outward(2.0, strength, half)
    else:
        reach = _outward(_SMALLEST, 1.0, strength, half)
        positive = _solve_outward(1.0, strength, sum(value <= 1 for value in reach[: half - 1]))
    zeros = np.zeros(2 * (half - positive.size))
    return Codebook("optimized", np.concatenate([-positive[::-1], zeros, positive]))


def _outward(first: float, gap_factor: float, strength: float, count: int) -> list[float]:
    """Return up to ``count`` positive codewords from p_1 = first outward; stop at the first beyond 1."""
    value, gap = first, gap_factor * first
    values = [value]
    while len(values) < count and value <= 1:
        gap = math.sqrt(gap * gap + strength * value)
        value += gap
        values.append(value)
    return values


def _solve_outward(gap_factor: float, strength: float, count: int) -> NDArray[np.float64]:
    """Return the ``count`` positive codewords whose last is 1, by bisection on log p_1 (p_count increases with p_1)."""
    low, high = math.log(_SMALLEST), 0.0
    while low < (middle := (low + high) / 2) < high:
        values = _outward(math.exp(middle), gap_factor, strength, count)
        if len(values) == count and values[-1] <= 1:
            low = middle
        else:
            high = middle
    positive = np.array(_outward(math.exp(low), gap_factor, strength, count))
    positive[-1] = 1.0
    return positive
