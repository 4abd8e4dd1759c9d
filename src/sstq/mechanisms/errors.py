"""Error types: when an estimate is unbiased, and the squared error of a mean."""

from dataclasses import dataclass
from enum import StrEnum


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
