"""Section 2 of the paper: tight frames and Kashin representations."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from sstq.checks import check_number, check_option
from sstq.frames.tight import Frame

__all__ = ["least_level", "least_level_of", "row_norm_defect"]


def row_norm_defect(frame: Frame) -> float:
    """Lemma 2.3: the rows of an equal-norm tight frame with UᵀU = (N/d)·I have norm 1.

    Any tight frame has mean squared row norm 1, because tr(UUᵀ) = tr(UᵀU) = N; equal norms make each of them 1.

    Warning:
        The paper takes Haar frames for equal-norm ones. They are not: their squared norms spread by a quarter or so. It
        does no harm, because the bounds on the error need the mean of the squared norms only, which is 1 in any tight
        frame.

    Args:
        frame: any frame of `sstq.frames.tight`.

    Returns:
        The largest |‖u_j‖² − 1|: zero, to rounding, exactly when the lemma's premise holds.

    Examples:
        >>> from sstq.frames.tight import HadamardFrame, OrthogonalFrame
        >>> row_norm_defect(HadamardFrame(100, 256))
        0.0
        >>> row_norm_defect(OrthogonalFrame(100, 256)) > 0.1
        True
    """
    return float(np.abs(frame.squared_row_norms() - 1).max())


def least_level(dim: int, frame_size: int, *, vector: str = "any") -> float:
    """Theorem 2.4, from below: the least K with ‖y‖_∞ ≤ K‖x‖/√N and (d/N)Uᵀy = x.

    The theorem says that a K exists for frames with the uncertainty principle, “a constant dependent only on N/d”. The
    constant grows with ρ = N/d: y = Ux has the least norm of all representations, ‖y‖² = ρ‖x‖², hence N·B² ≥ ρ‖x‖² and

        K ≥ √ρ for every x, and K ≥ √(πρ/2) when the coefficients Ux look Gaussian (typical x, large d).

    Warning:
        The paper's experiments set K = 2 with N = 2^⌈log₂ 2.5d⌉, so ρ ∈ [2.5, 5): below √(πρ/2) for each of its
        dimensions, and below √ρ at d = 500 and 1000. See the page on the Kashin level.

    Args:
        dim: d.
        frame_size: N ≥ d.
        vector: "any" for √ρ, which no vector can beat; "typical" for √(πρ/2), in the limit of large d.

    Examples:
        >>> round(least_level(1000, 4096), 3), round(least_level(10_000, 32_768, vector="typical"), 3)
        (2.024, 2.269)
    """
    dim = check_number("dim", dim, 1, 2**30, integer=True)
    redundancy = check_number("frame_size", frame_size, dim, 2**32, integer=True) / dim
    factor = 1.0 if check_option("vector", vector, ("any", "typical")) == "any" else math.pi / 2
    return math.sqrt(factor * redundancy)


def least_level_of(frame: Frame, x: ArrayLike) -> float:
    """Theorem 2.4, from below, for one vector: K ≥ N^{3/2}·‖x‖/(d·‖Ux‖₁).

    By duality: ‖x‖² = ⟨x, (d/N)Uᵀy⟩ = (d/N)⟨Ux, y⟩ ≤ (d/N)·‖Ux‖₁·B. No recipe can go below for this x.

    Args:
        frame: the tight frame.
        x: (d,), finite and not zero.

    Examples:
        >>> from sstq.frames.tight import HadamardFrame
        >>> x = np.random.default_rng(0).standard_normal(1000)
        >>> round(least_level_of(HadamardFrame(1000, 4096), x), 2), round(least_level(1000, 4096, vector="typical"), 2)
        (2.55, 2.54)
    """
    vector = np.asarray(x, dtype=np.float64)
    if vector.shape != (frame.dim,) or not np.isfinite(vector).all() or not vector.any():
        raise ValueError(f"x must be finite, not zero and of shape ({frame.dim},), got shape {vector.shape}")
    unit = vector / np.linalg.norm(vector)
    total = float(np.abs(frame.analyze(unit[None])).sum())
    return float(frame.size**1.5 / (frame.dim * total))
