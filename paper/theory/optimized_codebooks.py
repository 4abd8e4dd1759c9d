"""Section 4 and Appendix C of the paper: the loss of a codebook for flat randomized response, and its minimiser."""

from __future__ import annotations

import math

import numpy as np

from paper.theory.flat_response import probability_gap
from paper.theory.setting import check_epsilon, make_setting
from sstq.checks import check_number
from sstq.scalar.codebooks import BITS_MAX, Codebook
from sstq.scalar.densities import Density

__all__ = [
    "flat_loss",
    "flat_second_moment",
    "optimized_mse_bound",
    "rounding_variance",
    "surrogate_curvature",
]


def rounding_variance(codebook: Codebook, density: Density) -> float:
    """E[Var(v | y)] = Σ_k ∫(y − c_k)(c_{k+1} − y)f(y)dy, the variance of stochastic rounding, in units of B².

    Coordinates at exactly ±B are codewords and are not rounded, so the point masses add nothing.

    Args:
        codebook: the codewords.
        density: a public density of the coordinates, both in units of B.

    Examples:
        >>> from sstq.scalar.codebooks import uniform_codebook
        >>> round(rounding_variance(uniform_codebook(1), Density.uniform()), 12)  # 1 − E[y²]
        0.666666666667
    """
    lower, upper = codebook.values[:-1], codebook.values[1:]
    mass, first, second = density.integrals(lower, upper)
    return float(np.sum((lower + upper) * first - lower * upper * mass - second))


def flat_loss(codebook: Codebook, epsilon: float, density: Density) -> float:
    """Section 4: ℒ*_SSTQ(Γ) = E[Var(v | y)] + Σc²/(e^ε − 1), the part of the error that the codebook decides.

    With the uniform density it is the surrogate loss of Definition 4.1 (`sstq.scalar.codebooks.surrogate_loss`).

    Args:
        codebook: the codewords Γ.
        epsilon: ε in [1e-6, 32].
        density: a public density of the coordinates.

    Returns:
        The loss in units of B².

    Examples:
        >>> from sstq.scalar.codebooks import surrogate_loss, uniform_codebook
        >>> book = uniform_codebook(4)
        >>> abs(flat_loss(book, 3.0, Density.uniform()) - surrogate_loss(book, 3.0)) < 1e-12
        True
    """
    penalty = float(np.sum(codebook.values**2)) / math.expm1(check_epsilon(epsilon))
    return rounding_variance(codebook, density) + penalty


def flat_second_moment(codebook: Codebook, epsilon: float, density: Density) -> float:
    """Section 4, an identity: E[ỹ²] = (ℒ*_SSTQ(Γ) + E[y²])/(p − q) for a zero-mean codebook.

    It is exact: E‖x̂ − x‖² = d·(K²/ρ)·E[ỹ²]/B² − 1 for a unit x whose coordinates have this density.

    Args:
        codebook: the codewords Γ; they must add up to zero.
        epsilon: ε in [1e-6, 32].
        density: the density of the coordinates.

    Returns:
        E[ỹ²] in units of B².

    Examples:
        >>> from sstq.scalar.codebooks import optimized_codebook
        >>> density = Density.censored_gaussian(1.8)
        >>> round(1.8**2 * flat_second_moment(optimized_codebook(2, 3.0), 3.0, density), 2)
        1.95
    """
    total = math.fsum(codebook.values)
    if abs(total) > 1e-9:
        raise ValueError(f"codebook must add up to 0, got {total:g}: its flat estimate would be biased")
    gap = probability_gap(codebook.size, epsilon)
    return (flat_loss(codebook, epsilon, density) + density.moment(2)) / gap


def surrogate_curvature(codebook: Codebook, epsilon: float) -> float:
    """Theorem 4.2: ℒ_SSTQ is strictly convex, its Hessian being at least 2/(e^ε − 1), with one minimiser Γ*.

    The Hessian is DᵀDiag(gaps/2)D + 2λ·I in units of B. A shift of all codewords is in the kernel of D, so the least
    eigenvalue is 2λ = 2/(e^ε − 1) exactly, for every ordered codebook.

    Warning:
        “Globally” means on ordered codebooks. The loss is a sum of cubes of the gaps, and where a gap is negative
        enough the Hessian is not positive. `Codebook` admits ordered codewords only.

    Args:
        codebook: the codewords.
        epsilon: ε in [1e-6, 32].

    Returns:
        The least eigenvalue of the Hessian.

    Examples:
        >>> from sstq.scalar.codebooks import uniform_codebook
        >>> abs(surrogate_curvature(uniform_codebook(4), np.log(3.0)) - 1.0) < 1e-12
        True
    """
    from scipy.linalg import eigvalsh_tridiagonal

    halves = np.diff(codebook.values) / 2
    diagonal = np.append(halves, 0.0) + np.append(0.0, halves) + 2 / math.expm1(check_epsilon(epsilon))
    return float(eigvalsh_tridiagonal(diagonal, -halves, select="i", select_range=(0, 0))[0])


def optimized_mse_bound(
    dim: int,
    epsilon: float,
    bits: int,
    *,
    level: float | None = None,
    frame_size: int | None = None,
    clip: float = 1.0,
) -> float:
    """Theorem 4.3 with the constants of its proof: the error of SSTQ with the optimized codebook Γ*, any ‖x‖ ≤ clip.

    With λ = 1/(e^ε − 1) and m any integer from 1 to (M − 1)/2,

        E‖x̂ − x‖² ≤ d·(K²/ρ)·clip²/(p − q)·(1 + 1/(6m²) + λ(m + 1)(2m + 1)/(3m) − 2/(3(M − 1)²)),

    and the function takes the best m. It holds without the theorem's condition on M, which only keeps the best m in
    range.

    Warning:
        The statement includes b = 1 (for ε ≤ log 1.25), but the proof then has no m to choose. There Γ* = {−B, B}, and
        `flat_mse_bound` is the answer, exact up to ‖x‖².

    Args:
        dim: d.
        epsilon: ε in [1e-6, 32].
        bits: b in [2, 12].
        level: K ≥ √(N/d); the default is the library's.
        frame_size: N ≥ d; the default is 2^⌈log₂ 2.5d⌉.
        clip: the bound on ‖x‖.

    Examples:
        >>> from sstq import SSTQ
        >>> exact = SSTQ(dim=100, epsilon=3.0, bits=8).expected_mse(np.full(100, 0.1)).total
        >>> exact < optimized_mse_bound(100, 3.0, 8) < 4 * exact
        True
    """
    size = 1 << _check_bits(bits)
    penalty = 1 / math.expm1(check_epsilon(epsilon))
    m = np.arange(1, (size - 1) // 2 + 1)
    best = np.min(1 / (6 * m**2) + penalty * (m + 1) * (2 * m + 1) / (3 * m))
    loss = 1 + float(best) - 2 / (3 * (size - 1) ** 2)
    return make_setting(dim, level, frame_size, clip).scale * loss / probability_gap(size, epsilon)


def _check_bits(bits: int) -> int:
    """With one bit the proof has no m to choose: see the warning of `optimized_mse_bound`."""
    checked: int = check_number("bits", bits, 2, BITS_MAX, integer=True)
    return checked
