"""The expected error of a mean, and when it is unbiased."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from sstq.mechanisms.inputs import Floats, Rows


class Unbiased(StrEnum):
    """When the expected estimate is the (clipped) vector; only `ALWAYS` is truthy.

    Examples:
        >>> bool(Unbiased.ALWAYS), bool(Unbiased.OVER_FRAMES)
        (True, False)
    """

    NEVER = "never"
    OVER_FRAMES = "over frames"
    ALWAYS = "always"

    def __bool__(self) -> bool:
        return self is Unbiased.ALWAYS


@dataclass(frozen=True)
class ExpectedError:
    """The expected squared error of a mean: the squared bias and the variance, summed over the coordinates.

    Examples:
        >>> ExpectedError(bias2=0.01, variance=0.04).total
        0.05
    """

    bias2: float
    variance: float

    @property
    def total(self) -> float:
        """The mean squared error, bias² + variance."""
        return self.bias2 + self.variance


def mean_error(
    rows: Rows, truth: Callable[[Rows], Rows], row_error: Callable[[Rows], tuple[Floats, Floats]], parts: list[slice]
) -> ExpectedError:
    """The error of the mean of independent messages, one per row, computed a part of the rows at a time.

    `row_error` gives E[x̂] of each row and the variance of x̂ summed over the coordinates, and `truth` what x̂ estimates.
    """
    bias, variance, count = np.zeros(1), 0.0, len(rows)
    for part in parts:
        mean, variances = row_error(rows[part])
        # A huge clipped-off part, or its square, may be infinite, which is then the correct double.
        with np.errstate(over="ignore"):
            bias = bias + np.sum(mean - truth(rows[part]), axis=0)
        variance += float(np.sum(variances))
    with np.errstate(over="ignore"):
        return ExpectedError(float(np.sum((bias / count) ** 2)), variance / count**2)
