"""Section 2 of the paper: Kashin representations, and the setting of all bounds: d, N, K and the clip."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.checks import check_argument, check_number, check_option
from sstq.frames.kashin import default_level
from sstq.frames.tight import Frame, default_frame_size

__all__ = [
    "Recipe",
    "least_level",
    "least_level_of",
    "run_recipe",
    "uncertainty",
    "uncertainty_level",
]

# Sets of rows that `uncertainty` tries at most, in all and at a time.
_SETS_MAX = 1_000_000
_SETS_AT_A_TIME = 20_000


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
    factor = (
        1.0
        if check_option("vector", vector, ("any", "typical")) == "any"
        else math.pi / 2
    )
    return math.sqrt(factor * redundancy)


def least_level_of(frame: Frame, x: ArrayLike) -> float:
    """Theorem 2.4, from below, for one vector: K ≥ N^{3/2}·‖x‖/(d·‖Ux‖₁).

    By duality: ‖x‖² = ⟨x, (d/N)Uᵀy⟩ = (d/N)⟨Ux, y⟩ ≤ (d/N)·‖Ux‖₁·B. No recipe can go below for this x.
    """
    total = float(np.abs(frame.analyze(_unit(frame, x)[None])).sum())
    return float(frame.size**1.5 / (frame.dim * total))


def _unit(frame: Frame, x: ArrayLike) -> NDArray[np.float64]:
    vector = np.asarray(x, dtype=np.float64)
    if (
        vector.shape != (frame.dim,)
        or not np.isfinite(vector).all()
        or not vector.any()
    ):
        raise ValueError(
            f"x must be finite, not zero and of shape ({frame.dim},), got shape {vector.shape}"
        )
    return np.asarray(vector / np.linalg.norm(vector))


@dataclass(frozen=True)
class Recipe:
    """What the recipe of Appendix F does to a unit vector.

    Attributes:
        residuals: the norm of what is missing after each truncated round, (rounds,); η is the first of them.
        last_increment: the largest |coefficient| that the untruncated last round adds, in units of B.
        largest: the largest |coefficient| of the result, in units of B; above 1 it must be clamped for privacy.
    """

    residuals: NDArray[np.float64]
    last_increment: float
    largest: float


def run_recipe(
    frame: Frame, x: ArrayLike, *, level: float = 2.0, rounds: int = 30
) -> Recipe:
    """Appendix F: rounds that each add the residual's coefficients truncated at B, and one that adds them as they are.

    Warning:
        The appendix takes the last increment, at most η³⁰·B, for the excess over B. But a coefficient is the sum of all
        rounds' increments, each up to B. And η, the residual after one round, is 0.24 to 0.35 and not about 0.4.

    Examples:
        >>> from sstq.frames.tight import HadamardFrame
        >>> recipe = run_recipe(HadamardFrame(100, 256, seed=1), np.random.default_rng(0).standard_normal(100))
        >>> bool(recipe.residuals[-1] < 1e-6), recipe.last_increment < 1e-6, recipe.largest > 1.5
        (True, True, True)
    """
    vector = _unit(frame, x)
    bound = level / math.sqrt(frame.size)
    coefficients = np.zeros(frame.size)
    residual = vector
    residuals = np.empty(rounds)
    for number in range(rounds):
        coefficients += np.clip(frame.analyze(residual[None])[0], -bound, bound)
        residual = (
            vector
            - frame.dim
            / frame.size
            * frame.rows(np.arange(frame.size)).T
            @ coefficients
        )
        residuals[number] = np.linalg.norm(residual)
    last = frame.analyze(residual[None])[0]
    return Recipe(
        residuals,
        float(np.abs(last).max() / bound),
        float(np.abs(coefficients + last).max() / bound),
    )


def uncertainty(frame: Frame, count: int) -> float:
    """The uncertainty principle behind Theorem 2.4: the largest ‖√(d/N)·Σ_{j∈I} a_j u_j‖/‖a‖ over all |I| ≤ `count`.

    Lyubarskii and Vershynin (2010, Section 3) ask for a number below 1 with |I| a fixed share of N. All sets are
    tried, at most a million, so the frame must be small.

    Examples:
        >>> from sstq.frames.tight import OrthogonalFrame
        >>> frame = OrthogonalFrame(4, 16, seed=0)
        >>> 0.5 < uncertainty(frame, 2) < uncertainty(frame, 3) < 1
        True
    """
    count = check_number("count", count, 1, frame.size, integer=True)
    sets = math.comb(frame.size, count)
    if sets > _SETS_MAX:
        raise ValueError(
            f"count must leave at most {_SETS_MAX:,} sets of rows to try, got {sets:,}"
        )
    rows = math.sqrt(frame.dim / frame.size) * frame.rows(np.arange(frame.size))
    chosen = np.array(list(itertools.combinations(range(frame.size), count)))
    parts = np.array_split(chosen, -(-sets // _SETS_AT_A_TIME))
    return max(
        float(np.linalg.norm(rows[part], ord=2, axis=(1, 2)).max()) for part in parts
    )


def uncertainty_level(frame: Frame, count: int) -> float:
    """Theorem 2.4 as Lyubarskii and Vershynin prove it (2010, Theorem 3.5): K = 1/((1 − η)√δ), δ = count/N.

    It holds for every vector. ValueError where η of `uncertainty` is 1, and the principle says nothing.
    """
    eta = uncertainty(frame, count)
    if eta >= 1 - 1e-9:
        raise ValueError(
            f"count must be small enough for η < 1, got count = {count} with η = {eta:g}"
        )
    return 1 / ((1 - eta) * math.sqrt(count / frame.size))


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
    size = options.get("frame_size")
    level = options.get("level")
    clip = options.get("clip", 1.0)
    size = check_number(
        "frame_size",
        default_frame_size(dim) if size is None else size,
        dim,
        2**32,
        integer=True,
    )
    level = (
        default_level(dim, size)
        if level is None
        else check_number("level", level, math.sqrt(size / dim), 1e6)
    )
    return Setting(dim, size, level, check_number("clip", clip, 1e-100, 1e100))
