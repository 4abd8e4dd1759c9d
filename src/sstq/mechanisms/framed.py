"""What mechanisms on a tight frame share: the frame's options, and those of a bounded representation in it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

from sstq.checks import check_argument, check_number, check_option
from sstq.frames.kashin import Kashin, make_kashin
from sstq.frames.tight import Frame, default_frame_size, make_frame
from sstq.mechanisms.base import Mechanism

__all__ = ["FrameName", "FramedMechanism", "KashinMechanism", "Recipe", "build_frame", "build_recipe"]

FrameName = Literal["hadamard", "orthogonal", "fourier"]
Recipe = Literal["certified", "paper"]


class FramedMechanism(Mechanism):
    """A mechanism whose public seed is that of its frame."""

    seed_option: ClassVar[str] = "frame_seed"

    frame: Frame

    def _reseeded(self, seed: int) -> dict[str, Any]:
        return {"frame": replace(self.frame, seed=seed)}

    def _frame_options(self) -> dict[str, Any]:
        """The options of the frame, as JSON values."""
        return {"frame_size": self.frame.size, "frame_seed": str(self.frame.seed)}

    @property
    def _row_cost(self) -> int:
        return self.frame.size


class KashinMechanism(FramedMechanism):
    """A mechanism on the coefficients of a Kashin representation."""

    kashin: Kashin

    @property
    def bound(self) -> float:
        """B = K·clip/√N, the public bound of a coordinate."""
        return self.kashin.level * self.clip / math.sqrt(self.frame.size)

    def _kashin_options(self) -> dict[str, Any]:
        """The common options and those of frame and representation, as JSON values."""
        common = {"dim": self.dim, "epsilon": self.epsilon, "clip": self.clip, "frame": self.frame.name}
        recipe = {"kashin": self.kashin.name, "level": self.kashin.level, "steps": self.kashin.steps}
        return common | recipe | self._frame_options()


def build_frame(name: str, dim: int, size: int | None, seed: int) -> Frame:
    """The frame of that name, of the default size unless one is given."""
    size = default_frame_size(dim) if size is None else size
    size = check_number("frame_size", size, dim, 2**32, integer=True)
    return make_frame(name, dim, size, check_argument("frame_seed", seed))


def build_recipe(name: str, frame: Frame, level: float | None, steps: int | None) -> Kashin:
    """The recipe of that name with the level and steps given, or the frame's defaults."""
    check_option("kashin", name, get_args(Recipe))
    level = None if level is None else check_argument("level", level)
    steps = None if steps is None else check_argument("steps", steps)
    return make_kashin(name, frame, level, steps)
