"""The setting of the error bounds besides ε and b: the dimension, the frame, the Kashin level and the clip."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sstq.checks import check_argument, check_number
from sstq.frames.kashin import default_level
from sstq.frames.tight import default_frame_size

__all__ = ["Setting", "check_epsilon", "make_setting"]


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


def make_setting(dim: int, level: float | None, frame_size: int | None, clip: float) -> Setting:
    """Create the setting, with the library's defaults for None.

    A level below √ρ is refused: no vector has a representation there (see `paper.theory.least_level`).

    Examples:
        >>> make_setting(500, None, None, 1.0).frame_size
        2048
        >>> make_setting(500, 2.0, 2048, 1.0)
        Traceback (most recent call last):
        ...
        sstq.checks.ArgumentError: level must be a number in [2.02386, 1e+06], got 2.0
    """
    dim = check_number("dim", dim, 1, 2**30, integer=True)
    size = default_frame_size(dim) if frame_size is None else frame_size
    size = check_number("frame_size", size, dim, 2**32, integer=True)
    level = default_level(dim, size) if level is None else level
    return Setting(
        dim,
        size,
        check_number("level", level, math.sqrt(size / dim), 1e6),
        check_number("clip", clip, 1e-100, 1e100),
    )
