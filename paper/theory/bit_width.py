"""Section 5 of the paper on the best bit width of a codebook, and the exact answer."""

from __future__ import annotations

import math

from paper.theory.optimized_codebooks import flat_second_moment
from paper.theory.setting import check_epsilon
from sstq.checks import check_argument, check_option
from sstq.scalar.codebooks import BITS_MAX, optimized_codebook, uniform_codebook
from sstq.scalar.densities import Density

__all__ = ["balanced_bits", "best_flat_bits", "stated_bits"]


def stated_bits(epsilon: float) -> int:
    """Section 5, as printed: the metric-aware channel needs b = O(⌈log₂ ε⌉) bits; this is ⌈log₂ ε⌉.

    Warning:
        It fails for ε ≤ 1, where it is 0 or less, though no fewer than one bit can be sent; and it does not solve the
        equation that it is derived from, which has √ε in the place of ε (see `balanced_bits`).

    Args:
        epsilon: ε in [1e-6, 32].

    Examples:
        >>> [stated_bits(epsilon) for epsilon in (0.5, 1.0, 3.0, 10.0)]
        [-1, 0, 2, 4]
    """
    return math.ceil(math.log2(check_epsilon(epsilon)))


def balanced_bits(epsilon: float) -> int:
    """Section 5, solved: the least b with (2^b − 1)² ≥ ε ∧ ε², that is ⌈log₂(1 + √(ε ∧ ε²))⌉.

    There the bound's term for rounding, 1/(2^b − 1)², falls below its term for privacy, 1/(ε ∧ ε²).

    Warning:
        The balance is between two terms of a bound whose constants are 2 and 256, so it says little about the error
        itself. For every ε from 0.5 to 20 alike, the metric-aware error is three times its limit at b = 1, 22–26 %
        above it at b = 2, 4 % at b = 3 and 1 % at b = 4. And what it converges to is shrinkage (see
        `metric_aware_bias_bound`).

    Args:
        epsilon: ε in [1e-6, 32].

    Examples:
        >>> [balanced_bits(epsilon) for epsilon in (0.5, 1.0, 3.0, 10.0)]
        [1, 1, 2, 3]
    """
    epsilon = check_epsilon(epsilon)
    return math.ceil(math.log2(1 + math.sqrt(min(epsilon, epsilon**2))))


def best_flat_bits(epsilon: float, codebook: str = "optimized", *, beta: float = 1.8) -> int:
    """The b of least exact error of the flat channel, for typical vectors at level β = K/√ρ.

    The paper has no formula for it; Remark 3.3 says that there is a trade-off. It grows as ε/(3 log 2), not as a
    logarithm: rounding costs about 1/M², randomized response M/(e^ε − 1) more, so that the best M is about e^{ε/3}.

    Args:
        epsilon: ε in [0.01, 20], the budgets of mechanisms.
        codebook: "optimized" or "uniform".
        beta: K/√ρ above 1.2533; the library's default from d = 512 on is 1.8.

    Examples:
        >>> [best_flat_bits(epsilon) for epsilon in (0.5, 1.0, 3.0, 6.0)]
        [1, 1, 2, 3]
    """
    check_argument("epsilon", epsilon)
    optimized = check_option("codebook", codebook, ("optimized", "uniform")) == "optimized"
    density = Density.censored_gaussian(beta)

    def error(bits: int) -> float:
        book = optimized_codebook(bits, epsilon) if optimized else uniform_codebook(bits)
        return flat_second_moment(book, epsilon, density)

    return min(range(1, BITS_MAX + 1), key=error)
