"""Section 4 and Appendix C of the paper: the loss of a codebook for flat randomized response, and its minimiser."""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from paper.theory.flat_response import probability_gap
from paper.theory.representations import SettingOptions, check_epsilon, make_setting
from sstq.checks import check_number
from sstq.scalar.codebooks import BITS_MAX, Codebook
from sstq.scalar.densities import Density

__all__ = [
    "flat_second_moment",
    "optimized_mse_bound",
    "rounding_variance",
    "surrogate_curvature",
    "surrogate_loss",
]


def rounding_variance(codebook: Codebook, density: Density) -> float:
    """E[Var(v | y)] = Σ_k ∫(y − c_k)(c_{k+1} − y)f(y)dy, the variance of stochastic rounding, in units of B².

    Coordinates at exactly ±B are codewords and are not rounded, so the point masses add nothing.
    """
    lower = codebook.values[:-1]
    upper = codebook.values[1:]
    mass, first, second = density.integrals(lower, upper)
    return float(np.sum((lower + upper) * first - lower * upper * mass - second))


def flat_second_moment(codebook: Codebook, epsilon: float, density: Density) -> float:
    """Section 4, an identity: E[ỹ²] = (ℒ*_SSTQ(Γ) + E[y²])/(p − q) for a zero-mean codebook.

    ℒ*_SSTQ(Γ) = E[Var(v | y)] + Σc²/(e^ε − 1) is the part of the error that the codebook decides. It is exact:
    E‖x̂ − x‖² = d·(K²/ρ)·E[ỹ²]/B² − 1 for a unit x whose coordinates have this density.

    Returns:
        E[ỹ²] in units of B².
    """
    total = math.fsum(codebook.values)
    if abs(total) > 1e-9:
        raise ValueError(
            f"codebook must add up to 0, got {total:g}: its flat estimate would be biased"
        )
    gap = probability_gap(codebook.size, epsilon)
    loss = rounding_variance(codebook, density) + float(
        np.sum(codebook.values**2)
    ) / math.expm1(check_epsilon(epsilon))
    return (loss + density.moment(2)) / gap


def surrogate_loss(codebook: Codebook, epsilon: float) -> float:
    """ℒ_SSTQ(Γ) = Σ_k (c_{k+1} − c_k)³/12 + Σ_i c_i²/(e^ε − 1), with B = 1 (Definition 4.1)."""
    penalty = np.sum(codebook.values**2) / math.expm1(check_epsilon(epsilon))
    return float(np.sum(np.diff(codebook.values) ** 3) / 12 + penalty)


def surrogate_curvature(codebook: Codebook, epsilon: float) -> float:
    """Theorem 4.2: ℒ_SSTQ is strictly convex, its Hessian being at least 2/(e^ε − 1), with one minimiser Γ*.

    The Hessian is DᵀDiag(gaps/2)D + 2λ·I in units of B. A shift of all codewords is in the kernel of D, so the least
    eigenvalue is 2λ = 2/(e^ε − 1) exactly, for every ordered codebook.

    Warning:
        “Globally” means on ordered codebooks. The loss is a sum of cubes of the gaps, and where a gap is negative
        enough the Hessian is not positive. `Codebook` admits ordered codewords only.

    Returns:
        The least eigenvalue of the Hessian.
    """
    from scipy.linalg import eigvalsh_tridiagonal

    halves = np.diff(codebook.values) / 2
    diagonal = (
        np.append(halves, 0.0)
        + np.append(0.0, halves)
        + 2 / math.expm1(check_epsilon(epsilon))
    )
    return float(
        eigvalsh_tridiagonal(diagonal, -halves, select="i", select_range=(0, 0))[0]
    )


def optimized_mse_bound(
    dim: int, epsilon: float, bits: int, **options: Unpack[SettingOptions]
) -> float:
    """Theorem 4.3 with the constants of its proof: the error of SSTQ with the optimized codebook Γ*, any ‖x‖ ≤ clip.

    With λ = 1/(e^ε − 1) and m any integer from 1 to (M − 1)/2,

        E‖x̂ − x‖² ≤ d·(K²/ρ)·clip²/(p − q)·(1 + 1/(6m²) + λ(m + 1)(2m + 1)/(3m) − 2/(3(M − 1)²)),

    and the function takes the best m. It holds without the theorem's condition on M, which only keeps the best m in
    range.

    Warning:
        The statement includes b = 1 (for ε ≤ log 1.25), but the proof then has no m to choose. There Γ* = {−B, B}, and
        `flat_mse_bound` is the answer, exact up to ‖x‖².
    """
    size = 1 << _check_bits(bits)
    penalty = 1 / math.expm1(check_epsilon(epsilon))
    m = np.arange(1, (size - 1) // 2 + 1)
    best = np.min(1 / (6 * m**2) + penalty * (m + 1) * (2 * m + 1) / (3 * m))
    loss = 1 + float(best) - 2 / (3 * (size - 1) ** 2)
    return make_setting(dim, **options).scale * loss / probability_gap(size, epsilon)


def _check_bits(bits: int) -> int:
    """With one bit the proof has no m to choose: see the warning of `optimized_mse_bound`."""
    checked: int = check_number("bits", bits, 2, BITS_MAX, integer=True)
    return checked
