"""Tables 1 and 2 of the paper: the bits of each mechanism, and the order of its error."""

from __future__ import annotations

from paper.theory.setting import check_epsilon
from sstq.baselines.sqkr_coders import paper_k
from sstq.checks import check_argument, check_number
from sstq.frames.tight import default_frame_size

__all__ = ["communication_table", "error_orders"]


def communication_table(
    dim: int, epsilon: float = 3.0, bits: int = 4, *, frame_size: int | None = None
) -> dict[str, int]:
    """Table 2 as printed: the bits that a client sends in a round.

    Warning:
        SQKR's line counts k·(⌈log₂ d⌉ + 1) bits, with room for an index below d. The coordinates are those of the
        Kashin representation, of which there are N: k·(⌈log₂ N⌉ + 1), 68 and 76 bits instead of 64 and 72. And it
        counts k = 4 while the errors in the paper's figure are those of k = 3.

    Args:
        dim: d.
        epsilon: ε in [1e-6, 32], which decides SQKR's k = min(⌈2ε⌉, 4).
        bits: SSTQ's b in [1, 12].
        frame_size: N ≥ d; the default is 2^⌈log₂ 2.5d⌉.

    Returns:
        Bits by mechanism, under the names of the registry.

    Examples:
        >>> communication_table(25_450)
        {'clean': 814400, 'privunit': 814400, 'vqsgd': 16, 'sqkr': 64, 'sstq': 20}
    """
    dim = check_number("dim", dim, 1, 2**30, integer=True)
    size = default_frame_size(dim) if frame_size is None else frame_size
    size = check_number("frame_size", size, dim, 2**32, integer=True)
    index = (dim - 1).bit_length()
    return {
        "clean": 32 * dim,
        "privunit": 32 * dim,
        "vqsgd": index + 1,
        "sqkr": paper_k(check_epsilon(epsilon)) * (index + 1),
        "sstq": (size - 1).bit_length() + check_argument("bits", bits),
    }


def error_orders(dim: int, epsilon: float, bits: int = 4) -> dict[str, float]:
    """Table 1 as printed: the order of each mechanism's error on the unit sphere, without its constant.

    Warning:
        The orders of vqSGD, PrivUnit and dense SQKR hold for ε ≤ 1. Beyond, d/ε² is too low for PrivUnit (no mechanism
        falls faster than d/ε) and for dense SQKR (its error levels off at (π/2)·(K²/ρ)·d), and d³/ε² is too high for
        vqSGD. Subsampled SQKR with a given b₀ holds for ε ≥ 1 as well.

    Args:
        dim: d.
        epsilon: ε in [1e-6, 32].
        bits: b in [1, 12], SSTQ's b and SQKR's b₀.

    Returns:
        Orders by mechanism and variant.

    Examples:
        >>> orders = error_orders(100, 2.0)
        >>> orders["privunit"], orders["sstq flat"], orders["sstq flat optimized"]
        (25.0, 12900.0, 900.0)
    """
    dim = check_number("dim", dim, 1, 2**30, integer=True)
    epsilon = check_epsilon(epsilon)
    size = 1 << check_argument("bits", bits)
    low = min(epsilon, epsilon**2)
    return {
        "vqsgd": dim**3 / epsilon**2,
        "sqkr dense": dim / epsilon**2,
        "sqkr": dim / min(low, bits),
        "privunit": dim / epsilon**2,
        "sstq flat": dim * (1 + size**2 / low),
        "sstq flat optimized": dim * (1 + size / low),
        "sstq metric-aware": dim * (1 + 1 / min((size - 1) ** 2, low)),
    }
