"""Where the mean of the clients' vectors lies, all coordinates at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Region", "region"]


@dataclass(frozen=True)
class Region:
    """A ball and a box around an estimate; each holds the expected mean with probability `level`.

    Attributes:
        level: the probability.
        radius: of the ball, in Euclidean norm.
        half_width: of the box, (d,): how far each coordinate may be off, all of them at once.
    """

    level: float
    radius: float
    half_width: NDArray[np.float64]


def region(
    level: float, stderr: NDArray[np.float64], terms: int, directions: float | None = None, frame_bias: float = 0.0
) -> Region:
    """The region of errors that are normal in the limit of many terms.

    The box is Šidák's: each coordinate has Student's quantile of level^(1/d), which holds however the coordinates
    depend on each other. The ball has the quantile of a sum of squares with the effective number of directions as its
    degrees of freedom (Satterthwaite); that of the frames' bias, which is random over frame seeds, is added to it.

    Args:
        level: the probability, between 0 and 1.
        stderr: the standard errors, the frames' bias included, (d,).
        terms: how many independent terms they come from.
        directions: in how many directions the noise is spread; as coordinates that are independent unless given.
        frame_bias: the root mean square norm of the bias within the standard errors.

    Examples:
        >>> found = region(0.95, np.full(100, 0.1), terms=1000)
        >>> round(found.radius, 2), round(float(found.half_width[0]), 2)
        (1.12, 0.35)
    """
    if not isinstance(level, (float, np.floating)) or not 0 < level < 1:
        raise ValueError(f"level must be a number between 0 and 1, both excluded, got {level!r}")
    from scipy.special import gammaincinv, stdtrit

    def reach(degrees: float) -> float:
        """The quantile of the length of a normal vector of so many directions, over its root mean square."""
        return math.sqrt(2 * float(gammaincinv(degrees / 2, level)) / degrees)

    total, fourth = float(np.sum(stderr**2)), float(np.sum(stderr**4))
    spread = total**2 / fourth if fourth else 1.0
    noise = math.sqrt(max(total - frame_bias**2, 0.0)) if terms > 1 else math.nan
    degrees = spread if directions is None else max(1.0, min(spread, directions))
    radius = noise * reach(degrees) + frame_bias * reach(spread)
    tail = -math.expm1(math.log(level) / len(stderr)) / 2
    return Region(float(level), radius, -float(stdtrit(max(terms - 1, 1), tail)) * stderr)
