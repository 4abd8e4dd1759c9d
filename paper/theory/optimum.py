"""What nobody can beat without bias: the least error of one ε-LDP message, and PrivUnit in fewer bits."""

from __future__ import annotations

import math

import sstq
from paper.theory.representations import check_epsilon
from sstq.checks import check_number

__all__ = ["least_unbiased_mse", "quantized_privunit_mse"]

# The grid reaches this many standard deviations of a coordinate of a random unit vector: fewer than two of 10⁹
# coordinates lie beyond it and are clamped.
_REACH = 6.0


def least_unbiased_mse(dim: int, epsilon: float, *, clip: float = 1.0) -> float:
    """The least worst-case error of all unbiased ε-LDP estimators of one vector of norm clip.

    Asi, Feldman and Talwar (2022, Theorem 1) show that PrivUnit with its best cap attains it, so it is that mechanism's
    exact error. The minimax rate that the paper cites, d/min(ε, ε²) (Duchi and Rogers 2019), is its order.

    Examples:
        >>> round(least_unbiased_mse(10_000, 3.0) / 10_000, 4)
        0.7425
    """
    dim = check_number("dim", dim, 2, 2**24, integer=True)
    mechanism = sstq.mechanism(
        "privunit", dim=dim, epsilon=check_epsilon(epsilon), clip=clip
    )
    return float(mechanism.typical_error().total)


def quantized_privunit_mse(
    dim: int, epsilon: float, bits: int, *, clip: float = 1.0
) -> float:
    """PrivUnit's error when each coordinate of its vector is rounded at random to one of 2^bits values.

    Section 7 says that 16·d or 8·d bits would do. Rounding comes after the privacy, so it costs none. With a uniform
    grid of step h on ±6/√d the unbiased rounding of a coordinate adds h²/6 on average.

    Examples:
        >>> exact = least_unbiased_mse(1000, 3.0)
        >>> [round(100 * (quantized_privunit_mse(1000, 3.0, bits) / exact - 1), 4) for bits in (4, 8, 16)]
        [10.681, 0.037, 0.0]
    """
    bits = check_number("bits", bits, 2, 32, integer=True)
    step = 2 * _REACH / math.sqrt(dim) / (2**bits - 1)
    exact = least_unbiased_mse(dim, epsilon, clip=clip)
    return float(exact + (exact + clip**2) * dim * step**2 / 6)
