"""Expected errors: when an estimate is unbiased, and the squared error of a mean."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from sstq.kernels.threads import row_chunks
from sstq.mechanisms.inputs import Rows

if TYPE_CHECKING:
    from sstq.mechanisms.base import Mechanism


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


def mean_error(mechanism: "Mechanism", rows: Rows, repeats: int) -> ExpectedError:
    """The error of the mean of these rows, each held by this many clients."""
    count, bias, variance = len(rows), np.zeros(1), 0.0
    # A huge clipped-off part, or its square, may be infinite, which is then the correct double.
    with np.errstate(over="ignore"):
        for part in row_chunks(count, max(mechanism._row_cost, mechanism.estimate_dim)):
            mean, variances = mechanism._row_error(rows[part])
            bias = bias + np.sum(mean - mechanism._estimated(rows[part]), axis=0)
            variance += float(np.sum(variances))
        bias2 = float(np.sum((bias / count) ** 2))
    independent = variance / count**2 / (repeats * mechanism.messages)
    return ExpectedError(bias2, mechanism._variance_of_mean(rows, repeats, independent))
