"""Kashin representations: coefficients of a vector in a tight frame, all of them of about the same size.

A redundant frame has many y with (d/N)·Uᵀy = x, and one of them has every |y_j| ≤ B = K·clip/√N. The bound is public
and every client clamps to it, so privacy never rests on the solver. The solver decides whether the representation is
exact, and the residual is the certificate by which a client can tell.

Coordinates are in the unit t = y·√d/clip, in which the least-norm representation has root mean square 1 and the bound
is β = K/√ρ, ρ = N/d. No K below √ρ is possible for any vector (N·B² ≥ ‖y‖² ≥ ρ·clip²), and typical ones need
β ≥ √(π/2) = 1.2533, so the paper's K = 2 with ρ ∈ [2.5, 5) cannot be reached. Two recipes:

* ``certified``: projections onto a box that grows to ±β, t ← clip(t + r·√d·U(x − (d/N)Uᵀy), ±b), at a feasible level,
  for a fixed public number of steps. Every other step is a little longer than to x itself, and those between go as far
  as the last of them fell short (Barzilai and Borwein's quotient). Once less is missing than the box has yet to grow,
  nothing is clamped and one step is exact: to a relative residual of 1e-5 for all but adversarial inputs.
* ``paper``: the paper's recipe to the letter (K = 2, thirty rounds that each clip the residual's coefficients, one that
  does not), then the clamp that privacy requires. It is off by 19–31 % of ‖x‖: biased, kept to reproduce the figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq import kernels
from sstq.array_types import Floats, Floats32, Ints
from sstq.frames.tight import Frame, HadamardFrame
from sstq.kernels.threads import row_chunks

CERTIFIED_RESIDUAL = 1e-5
"""The relative residual ‖x − (d/N)Uᵀy‖/‖x‖ up to which a representation counts as exact."""

PAPER_LEVEL = 2.0
PAPER_ROUNDS = 30

# Lengths of steps, in units of the way to x: the first; those in turns with the long ones, for redundant frames and for
# others; and the long ones at least. To the same certificate ADMM, Nesterov's momentum, Chebyshev's step lengths,
# Douglas and Rachford's scheme and Anderson acceleration took 18 to 30 transforms at d = 819 … 25,450; this takes 12.
_FIRST_STEP = 1.2
_SHORT_STEP = 1.4
_PLAIN_STEP = 1.0
_LONG_STEP = 3.0
# A frame is redundant from N = 2d on. The quotient is a mean over the components of the error; the slowest need more.
_REDUNDANT = 2.0
_STRETCH = 2.5
# By how much of β the box grows in all, times the number of steps. Smaller ones leave less room for the last steps;
# larger ones clamp more, and the representation's norm and with it the estimate's error grow.
_GROWTH = 0.36

# β(ρ): the level at which the certified recipe succeeds on random, heavy-tailed, spike, constant, block, sparse and
# Hadamard inputs within the default number of steps, with a margin, and the least level of small dimensions, whose
# frames are less regular. `python -m benchmarks levels` measures both again. For ρ near 1 there is next to no choice of
# y, and the level keeps nearly all coordinates of y = Ux unclamped.
_LEVELS = {
    1.0: 6.0,
    1.05: 5.0,
    1.1: 4.0,
    1.2: 3.2,
    1.35: 2.6,
    1.5: 2.5,
    1.75: 2.3,
    2.0: 2.2,
    2.5: 1.8,
}
_SMALL_DIM_LEVELS = {32: 2.3, 128: 2.2, 512: 2.0}

# β(ρ) of large frames: where the steps of a lowered level certify the same inputs, with 0.05 to spare
# (`python -m benchmarks tuned_levels`).
_LOWERED_LEVELS = {2.5: 1.7, 3.2: 1.65, 4.0: 1.6, 5.0: 1.55}
_LOWERED_SIZE = 4096

# Large frames are regular enough for fewer steps, and they are where steps cost. Lower levels leave less room.
_STEPS = 10
_STEPS_LARGE = 8
_STEPS_LOWERED = 16
_LARGE_SIZE = 8192


def default_level(dim: int, size: int) -> float:
    """Return the default Kashin level K for N = `size` frame vectors in R^`dim`: β(ρ)·√ρ from a measured table."""
    redundancy = size / dim
    beta = float(np.interp(redundancy, list(_LEVELS), list(_LEVELS.values())))
    least = next(
        (level for limit, level in _SMALL_DIM_LEVELS.items() if dim < limit), 0.0
    )
    return max(beta, least) * math.sqrt(redundancy)


def default_steps(dim: int, size: int, level: float | None = None) -> int:
    """Return the default number of steps of the certified recipe at a level, or at the default one."""
    if level is not None and level < default_level(dim, size):
        return _STEPS_LOWERED
    return _STEPS_LARGE if size >= _LARGE_SIZE else _STEPS


def least_level(dim: int, size: int) -> float:
    """The lowest level K that certifies, by measurement; the default level where nothing better is known."""
    redundancy = size / dim
    level = default_level(dim, size)
    if size < _LOWERED_SIZE or redundancy < min(_LOWERED_LEVELS):
        return level
    lowered = float(
        np.interp(redundancy, list(_LOWERED_LEVELS), list(_LOWERED_LEVELS.values()))
    )
    return min(level, math.sqrt(redundancy) * lowered)


@dataclass(frozen=True)
class Kashin:
    """A recipe for representing vectors: its name, level K and number of steps, all public."""

    name: str
    level: float
    steps: int

    @property
    def exact(self) -> bool:
        """Whether the representation reconstructs the vector (for all but adversarial inputs)."""
        return self.name == "certified"

    def bound(self, frame: Frame) -> float:
        """β = K/√ρ, the bound in the unit t = y·√d/clip."""
        return self.level / math.sqrt(frame.redundancy)

    def schedule(self, frame: Frame) -> Floats32:
        """One row (ω, γ, cap, bound) per step: t' = clip(t + clip(r·a, ±cap), ±bound), r = max(ω, min(γ·q, 16)).

        a and q are those of `sstq.kernels.kashin_pick`.
        """
        beta = self.bound(frame)
        if self.name == "paper":
            truncated = np.full(
                (self.steps, 4), (1.0, 0.0, beta, np.inf), dtype=np.float32
            )
            return np.concatenate(
                [truncated, np.array([(1.0, 0.0, np.inf, beta)], dtype=np.float32)]
            )
        short = _SHORT_STEP if frame.redundancy >= _REDUNDANT else _PLAIN_STEP
        rows = np.full((self.steps, 4), (short, 0.0, np.inf, beta), dtype=np.float32)
        # From the end, so that the last step is an exact one; the first two come before there is a quotient.
        rows[-2::-2, :2] = _LONG_STEP, _STRETCH
        rows[:2, :2] = short, 0.0
        rows[0, 0] = _FIRST_STEP
        rows[-1, 0] = _PLAIN_STEP
        rows[:, 3] *= (
            np.linspace(1 - _GROWTH / self.steps, 1, self.steps)
            if self.steps > 1
            else 1
        )
        return rows


def make_kashin(
    name: str, frame: Frame, level: float | None = None, steps: int | None = None
) -> Kashin:
    """Return the recipe with this name, with the defaults for the frame."""
    if level is None:
        level = PAPER_LEVEL if name == "paper" else default_level(frame.dim, frame.size)
    if steps is None:
        steps = (
            PAPER_ROUNDS
            if name == "paper"
            else default_steps(frame.dim, frame.size, level)
        )
    return Kashin(name, level, steps)


def certified(frame: Frame, recipe: Kashin) -> bool:
    """Whether measurements show that all but adversarial vectors meet their certificate at this level and steps.

    Nothing is solved. A lower level than the measured ones may still suffice: check with `represent`.
    """
    feasible = recipe.level >= least_level(frame.dim, frame.size)
    return (
        recipe.exact
        and feasible
        and recipe.steps >= default_steps(frame.dim, frame.size, recipe.level)
    )


def represent(
    frame: Frame,
    recipe: Kashin,
    x: Floats32,
    picks: Ints | None = None,
    *,
    certify: bool = True,
) -> tuple[Floats32, Floats]:
    """Compute the representations of the rows of x, (n, d), each of norm at most 1, or only the coordinates `picks`.

    Returns the coefficients in units of B, (n, N) or those at the picks, (n, k), all in [-1, 1]; and the residuals
    ‖x − (d/N)Uᵀy‖, (n,), or (0,) without `certify`.

    Examples:
        >>> frame = HadamardFrame(dim=16, size=64, seed=3)
        >>> x = np.eye(1, 16, dtype=np.float32)
        >>> values, residuals = represent(frame, make_kashin("certified", frame), x)
        >>> bool(np.abs(values).max() <= 1), bool(residuals[0] < 1e-5)
        (True, True)
    """
    schedule = recipe.schedule(frame)
    if isinstance(frame, HadamardFrame) and frame.rounds == 1:
        columns, signs, _ = frame.mixing
        places = columns, signs, frame.size
        t, residuals = kernels.kashin_pick(x, *places, schedule, picks, certify=certify)
    else:
        t = np.empty(
            (len(x), frame.size) if picks is None else picks.shape, dtype=np.float32
        )
        residuals = np.empty(len(x))
        for part in row_chunks(len(x), frame.size):
            whole, residuals[part] = _represent_generic(frame, x[part], schedule)
            t[part] = (
                whole
                if picks is None
                else np.take_along_axis(whole, picks[part], axis=1)
            )
        residuals = residuals if certify else residuals[:0]
    # The clamp of the last step keeps t/β in [-1, 1], up to rounding.
    return np.asarray(
        np.clip(t / schedule[-1, -1], np.float32(-1), np.float32(1))
    ), residuals


def _represent_generic(
    frame: Frame, x: NDArray[Any], schedule: Floats32
) -> tuple[Floats32, Floats]:
    """The recipe for any frame, as it is written in the module's description."""
    residual = vectors = x.astype(np.float64)
    root = frame.dim**0.5
    t = np.zeros((len(x), frame.size))
    # ‖a‖², ⟨a, s⟩ and ‖s‖² of the last step, and the quotient of the step before it.
    power = product = moved = quotient = np.zeros(len(x))
    for relaxation, stretch, cap, bound in schedule.astype(np.float64):
        a = root * frame.analyze(residual)
        rate = np.maximum(
            relaxation, np.minimum(stretch * quotient, kernels.LONGEST_STEP)
        )
        new = np.clip(t + np.clip(rate[:, None] * a, -cap, cap), -bound, bound)
        quotient = moved / np.maximum(
            2 * product - power + np.sum(a**2, axis=1), kernels.LEAST_REDUCTION
        )
        power = np.sum(a**2, axis=1)
        product = np.sum(a * (new - t), axis=1)
        moved = np.sum((new - t) ** 2, axis=1)
        t = new
        residual = vectors - frame.synthesize(t / root)
    return t.astype(np.float32), np.linalg.norm(residual, axis=1)
