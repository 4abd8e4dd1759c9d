"""Section 2 of the paper: Kashin representations, and the setting of all bounds: d, N, K and the clip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from sstq.checks import check_argument, check_number, check_option
from sstq.frames.kashin import default_level
from sstq.frames.tight import Frame, default_frame_size

__all__ = ["least_level", "least_level_of"]


def least_level(dim: int, frame_size: int, *, vector: str = "any") -> float:
    """Theorem 2.4, from below: the least K with ‖y‖_∞ ≤ K‖x‖/√N and (d/N)Uᵀy = x.

    The theorem says that a K exists for frames with the uncertainty principle, “a constant dependent only on N/d”. The
    constant grows with ρ = N/d: y = Ux has the least norm of all representations, ‖y‖² = ρ‖x‖², hence N·B² ≥ ρ‖x‖² and

        K ≥ √ρ for every x, and K ≥ √(πρ/2) when the coefficients Ux look Gaussian (typical x, large d).

    Warning:
        The paper's experiments set K = 2 with N = 2^⌈log₂ 2.5d⌉, so ρ ∈ [2.5, 5): below √(πρ/2) for each of its
        dimensions, and below √ρ at d = 500 and 1000. See the page on the Kashin level.

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
    """
    vector = np.asarray(x, dtype=np.float64)
    if vector.shape != (frame.dim,) or not np.isfinite(vector).all() or not vector.any():
        raise ValueError(f"x must be finite, not zero and of shape ({frame.dim},), got shape {vector.shape}")
    unit = vector / np.linalg.norm(vector)
    total = float(np.abs(frame.analyze(unit[None])).sum())
    return float(frame.size**1.5 / (frame.dim * total))


def check_epsilon(epsilon: float) -> float:
    """Check ε in [1e-6, 32]: the formulas hold beyond the budgets of mechanisms."""
    return float(check_argument("epsilon", epsilon, low=1e-6, high=32))


@dataclass(frozen=True)
class Setting:
    """A checked dimension d, frame size N, Kashin level K and clip."""

    dim: int
    frame_size: int
    level: float
    clip: float

    @property
    def beta2(self) -> float:
        """β² = K²/ρ with ρ = N/d: the squared bound of a coordinate in units of clip²/d, so that d²·B² = d·β²·clip²."""
        return self.level**2 * self.dim / self.frame_size

    @property
    def scale(self) -> float:
        """d·β²·clip² = d²·B², which multiplies every bound on the error."""
        return self.dim * self.beta2 * self.clip**2


class SettingOptions(TypedDict, total=False):
    """What every bound takes by name: K, N and the clip, which is 1 unless given."""

    level: float | None
    frame_size: int | None
    clip: float


def make_setting(dim: int, **options: Unpack[SettingOptions]) -> Setting:
    """Create the setting, with the library's defaults for None and for what is left out.

    A level below √ρ is refused: no vector has a representation there (see `paper.theory.least_level`).

    Examples:
        >>> make_setting(500).frame_size
        2048
        >>> make_setting(500, level=2.0, frame_size=2048)
        Traceback (most recent call last):
        ...
        sstq.checks.ArgumentError: level must be a number in [2.02386, 1e+06], got 2.0
    """
    dim = check_number("dim", dim, 1, 2**30, integer=True)
    size, level, clip = options.get("frame_size"), options.get("level"), options.get("clip", 1.0)
    size = check_number("frame_size", default_frame_size(dim) if size is None else size, dim, 2**32, integer=True)
    level = default_level(dim, size) if level is None else check_number("level", level, math.sqrt(size / dim), 1e6)
    return Setting(dim, size, level, check_number("clip", clip, 1e-100, 1e100))
