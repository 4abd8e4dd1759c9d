"""Appendix A of the paper, the error of a fixed geometry (vqSGD), and the orders of Table 1."""

from __future__ import annotations

import math

from paper.theory.flat_response import probability_gap
from paper.theory.representations import check_epsilon
from sstq.checks import check_argument, check_number

__all__ = ["error_orders", "simplex_mse", "vqsgd_mse", "vqsgd_mse_bound"]


def vqsgd_mse(dim: int, epsilon: float, *, clip: float = 1.0) -> float:
    """Theorem A.1's exact error: clip²·(d·((e^ε + 2d − 1)/(e^ε − 1))² − 1) for ‖x‖ = clip.

    It equals clip²·(d − 1 + 4d²/(e^ε − 1) + 4d³/(e^ε − 1)²).

    Warning:
        “Θ(d³/ε²)” holds for ε ≤ 1, where the error is between 1.35 and 9 times d³/ε². Without that it is
        Θ(d + d³/(e^ε − 1)²): at ε = log(1 + 2d) it is 4d − 1, linear in d.

    Examples:
        >>> round(vqsgd_mse(100, 3.0, clip=0.2))
        527
        >>> round(vqsgd_mse(100, math.log(201.0)))
        399
    """
    dim = check_number("dim", dim, 1, 2**60, integer=True)
    clip = check_number("clip", clip, 1e-100, 1e100)
    return clip**2 * (dim / probability_gap(2 * dim, epsilon) ** 2 - 1)


def vqsgd_mse_bound(dim: int, epsilon: float, *, clip: float = 1.0) -> float:
    """Theorem A.1, the lower bound: the error of vqSGD is at least 4d³/(e^ε − 1)²·clip²."""
    dim = check_number("dim", dim, 1, 2**60, integer=True)
    clip = check_number("clip", clip, 1e-100, 1e100)
    return clip**2 * 4 * dim**3 / math.expm1(check_epsilon(epsilon)) ** 2


def simplex_mse(dim: int, epsilon: float, *, clip: float = 1.0) -> float:
    """Remark A.2, corrected: a simplex in the place of the cross-polytope has clip²·(d²((e^ε + d)/(e^ε − 1))² − 1).

    Warning:
        The remark says that simplices, having d + 1 vertices, share the Θ(d³/ε²) of the cross-polytope. They are worse,
        Θ(d⁴/ε²) for ε ≤ 1: a simplex that contains the unit ball has vertices at distance at least d (Euler's
        inequality; d for the regular one), the cross-polytope at √d.
    """
    dim = check_number("dim", dim, 1, 2**60, integer=True)
    clip = check_number("clip", clip, 1e-100, 1e100)
    return clip**2 * ((dim / probability_gap(dim + 1, epsilon)) ** 2 - 1)


def error_orders(dim: int, epsilon: float, bits: int = 4) -> dict[str, float]:
    """Table 1 as printed: the order of each mechanism's error on the unit sphere, without its constant.

    Warning:
        The orders of vqSGD, PrivUnit and dense SQKR hold for ε ≤ 1. Beyond, d/ε² is too low for PrivUnit (no mechanism
        falls faster than d/ε) and for dense SQKR (its error levels off at (π/2)·(K²/ρ)·d), and d³/ε² is too high for
        vqSGD. Subsampled SQKR with a given b₀ holds for ε ≥ 1 as well.

    Returns:
        Orders by mechanism and variant.
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
