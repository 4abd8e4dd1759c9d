"""The bases of mechanisms on a tight frame: options of the frame, and of a bounded representation in it."""

import math
from dataclasses import replace
from typing import Any, Literal, get_args

from sstq.checks import check_argument, check_number, check_option
from sstq.frames.kashin import Kashin, certified, make_kashin
from sstq.frames.tight import Frame, default_frame_size, make_frame
from sstq.mechanisms.base import Mechanism, Unbiased

FrameName = Literal["hadamard", "orthogonal", "fourier"]
Recipe = Literal["certified", "paper"]


class FramedMechanism(Mechanism):
    """A mechanism whose public seed, `frame_seed`, is that of its frame and of its public coin."""

    seed_option = "frame_seed"

    frame: Frame

    def _reseeded(self, seed: int) -> dict[str, Any]:
        return {"frame": replace(self.frame, seed=seed)}

    def _frame_options(self) -> dict[str, Any]:
        return {"frame_size": self.frame.size, "frame_seed": str(self.frame.seed)}

    @property
    def _row_cost(self) -> int:
        return self.frame.size


class KashinMechanism(FramedMechanism):
    """A mechanism on the coefficients of a Kashin representation.

    Args:
        kashin: "certified" (default) or "paper", the paper's recipe, which is biased (see `sstq.frames.kashin`).
        level: the Kashin level K; the default is feasible for (dim, frame_size).
        steps: the number of steps of the representation, the same for every input.
        frame: "hadamard" (default), "orthogonal" or "fourier".
        frame_size: N; the default is 2^⌈log₂ 2.5d⌉.
        frame_seed: the public seed of the frame and of the public coin.
    """

    kashin: Kashin

    def _take_frame(
        self, size: int | None, seed: int, level: float | None, steps: int | None, name: str, kashin: str
    ) -> None:
        """Check and keep the frame, the representation in it, and whether that is unbiased."""
        size = default_frame_size(self.dim) if size is None else size
        size = check_number("frame_size", size, self.dim, 2**32, integer=True)
        frame = make_frame(name, self.dim, size, check_argument("frame_seed", seed))
        check_option("kashin", kashin, get_args(Recipe))
        level = self._default_level(frame) if level is None else check_argument("level", level)
        steps = None if steps is None else check_argument("steps", steps)
        recipe = make_kashin(kashin, frame, level, steps)
        unbiased = Unbiased.ALWAYS if certified(frame, recipe) else Unbiased.NEVER
        self._set(frame=frame, kashin=recipe, unbiased=unbiased)

    def _default_level(self, frame: Frame) -> float | None:  # noqa: ARG002 (for subclasses)
        """The default level K; None for the paper's."""
        return None

    @property
    def bound(self) -> float:
        """B = K·clip/√N, the public bound of a coordinate."""
        return self.kashin.level * self.clip / math.sqrt(self.frame.size)

    def _kashin_options(self) -> dict[str, Any]:
        """The common options and those of frame and representation, as JSON values."""
        recipe = {"kashin": self.kashin.name, "level": self.kashin.level, "steps": self.kashin.steps}
        return self._common() | {"frame": self.frame.name} | recipe | self._frame_options()
