"""The base of mechanisms on a Kashin representation: options and parts of the frame and of the representation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from sstq.array_types import Floats32, Ints
from sstq.checks import check_argument, check_number, check_option
from sstq.frames.kashin import (
    CERTIFIED_RESIDUAL,
    Kashin,
    certified,
    make_kashin,
    represent,
)
from sstq.frames.tight import FRAMES, Frame, default_frame_size
from sstq.mechanisms.agreement import FEW_ROWS, MOST_ROWS_PER_DIM, Solved, Word
from sstq.mechanisms.base import Batch, Mechanism, Rows, Unbiased

FrameName = Literal["hadamard", "orthogonal", "fourier"]
Recipe = Literal["certified", "paper"]

_MOST_STEPS = 128


@dataclass(frozen=True, eq=False, kw_only=True)
class KashinSolved(Solved):
    """The values of a mechanism on a Kashin representation, as named in `KashinMechanism`."""

    dim: int
    epsilon: float
    clip: float
    frame: FrameName
    frame_size: int
    frame_seed: Word
    kashin: Recipe
    level: float
    steps: int

    def limits(self) -> Mapping[str, int]:
        """40 rows per dimension, or 2048, and 128 steps: the paper's recipe takes 30."""
        return {
            "frame_size": max(MOST_ROWS_PER_DIM * self.dim, FEW_ROWS),
            "steps": _MOST_STEPS,
        }


class KashinMechanism(Mechanism):
    """A mechanism on the coefficients of a Kashin representation.

    Args:
        kashin: "certified" (default) or "paper", the paper's recipe, which is biased (see `sstq.frames.kashin`).
        level: the Kashin level K; the default is feasible for (dim, frame_size).
        steps: the number of steps of the representation, the same for every input.
        frame: "hadamard" (default), "orthogonal" or "fourier".
        frame_size: N; the default is 2^⌈log₂ 2.5d⌉.
        frame_seed: the public seed of the frame.
    """

    seed_option = "frame_seed"

    solved: KashinSolved
    decoder: Any = "unbiased"

    @cached_property
    def frame(self) -> Frame:
        """The tight frame in which vectors are represented."""
        solved = self.solved
        return FRAMES[solved.frame](solved.dim, solved.frame_size, solved.frame_seed)

    @cached_property
    def kashin(self) -> Kashin:
        """The recipe of the representation."""
        return Kashin(self.solved.kashin, self.solved.level, self.solved.steps)

    @property
    def bound(self) -> float:
        """B = K·clip/√N, the public bound of a coordinate."""
        return self.kashin.level * self.clip / math.sqrt(self.frame.size)

    @property
    def unbiased(self) -> Unbiased:
        """Always if the decoder is unbiased and the representation is certified, else never."""
        always = self.decoder == "unbiased" and certified(self.frame, self.kashin)
        return Unbiased.ALWAYS if always else Unbiased.NEVER

    @property
    def worst_directions(self) -> Rows:
        """The first and the last row of the frame."""
        return self.frame.ends()

    def _coefficients(self, batch: Batch, picks: Ints | None = None) -> Floats32:
        """The coefficients of the clipped rows in units of B, (n, N), or those at the picks, (n, k)."""
        unit = self.unit_ball(batch.rows, batch.report)
        report = batch.report
        coefficients, residuals = represent(
            self.frame, self.kashin, unit, picks, certify=report is not None
        )
        if report is not None:
            report.missed += int(
                (residuals > CERTIFIED_RESIDUAL * np.linalg.norm(unit, axis=1)).sum()
            )
        return coefficients


def solve_kashin(
    dim: int,
    frame_size: int | None,
    frame_seed: int,
    level: float | None,
    steps: int | None,
    frame: str = "hadamard",
    kashin: str = "certified",
) -> tuple[dict[str, Any], Frame, Kashin]:
    """Check the options of frame and representation; returns them with their defaults, and the two parts."""
    size = default_frame_size(dim) if frame_size is None else frame_size
    size = check_number("frame_size", size, dim, 2**32, integer=True)
    check_option("frame", frame, get_args(FrameName))
    check_option("kashin", kashin, get_args(Recipe))
    chosen = FRAMES[frame](dim, size, check_argument("frame_seed", frame_seed))
    level = None if level is None else check_argument("level", level)
    recipe = make_kashin(
        kashin, chosen, level, None if steps is None else check_argument("steps", steps)
    )
    solved = {"frame": chosen.name, "frame_size": size, "frame_seed": chosen.seed}
    return (
        solved | {"kashin": recipe.name, "level": recipe.level, "steps": recipe.steps},
        chosen,
        recipe,
    )
