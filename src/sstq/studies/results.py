"""What every result of a study is, and the results of studies of ranges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from sstq.aggregation import Estimate, Region
from sstq.aggregation.estimates import data_frame
from sstq.array_types import Floats
from sstq.studies.bins import skewness, visible


class StudyResult(ABC):
    """The result of a study: a table, and what is known besides.

    Attributes:
        epsilon: the total ε per person.

    Examples:
        >>> class Share(StudyResult):
        ...     def __init__(self, share, epsilon):
        ...         self.share, self.epsilon = share, epsilon
        ...     def columns(self, level=0.95):
        ...         return {"item": ["odd"], "share": [self.share]}
        >>> Share(0.25, epsilon=1.0).details()
        {'item': ['odd'], 'share': [0.25]}
    """

    epsilon: float

    @abstractmethod
    def columns(self, level: float = 0.95) -> dict[str, Any]:
        """Return the columns of the table by name, with intervals of this level."""

    @property
    def note(self) -> str:
        """What the table does not show, as one sentence; may be empty."""
        return ""

    def details(self, level: float = 0.95) -> dict[str, Any]:
        """Return what a collector shows, by name: the columns first, then other texts, numbers, arrays and dicts."""
        return self.columns(level)

    def to_frame(self, level: float = 0.95) -> Any:
        """Return the table as a pandas DataFrame. Needs ``pip install pandas``."""
        return data_frame(self.columns(level))


def share_of(found: tuple[float, float]) -> dict[str, float]:
    """A share of people and its standard error, by name."""
    return dict(zip(("share", "stderr"), found, strict=True))


@dataclass(frozen=True, repr=False)
class RangeResult(StudyResult):
    """A mean of vectors whose range nobody knew.

    Attributes:
        estimate: the mean, with the errors of noise alone.
        bias: the most that clipping may have moved it, from the norms that people told.
        clip: the largest distance from `centre` that counts; farther vectors are moved to it.
        centre: what was subtracted from the vectors; zero if nothing was.
        beyond: the share of people beyond the clip, and the standard error of one bin of norms.
        people: the number of people who answered.
        epsilon: the total ε per person.
    """

    estimate: Estimate
    bias: float
    clip: float
    centre: Floats
    beyond: tuple[float, float]
    people: int
    epsilon: float

    def __repr__(self) -> str:
        size = float(np.linalg.norm(self.mean))
        error = float(np.linalg.norm(self.estimate.stderr))
        clipped = f"clip {self.clip:.3g}, {100 * self.beyond[0]:.3g} % beyond"
        people = f"{self.people:,} people at a total ε of {self.epsilon:g}"
        told = f"norm {size:.4g} ± {error:.2g}, {clipped}; {self.note}"
        return f"<Mean of {people}: {told}>"

    @property
    def mean(self) -> Floats:
        """The mean, (dim,)."""
        return self.estimate.value

    @property
    def note(self) -> str:
        """What the region leaves out."""
        error = self.beyond[1]
        share = f"{visible(error, skewness(error, self.epsilon)):.2g}"
        return (
            f"a group of less than {100 * float(share):g} % of the people with far longer vectors is not seen, "
            "and the region leaves out how far it would move the mean"
        )

    def region(self, level: float = 0.95) -> Region:
        """Return the region of the mean of all vectors, with what clipping may have moved it, as far as `note` says."""
        if self.estimate.count == 1:
            # One message has no scatter: it is off by its own length and that of a vector at most.
            length = float(np.linalg.norm(self.mean - self.centre))
            reach = length + self.clip + self.bias
            return Region(level, reach, np.full(len(self.mean), reach))
        noise = self.estimate.region(level)
        return Region(level, noise.radius + self.bias, noise.half_width + self.bias)

    def columns(self, level: float = 0.95) -> dict[str, Any]:
        """The mean of every coordinate, its error and the half_width of `region(level)`."""
        half_width = self.region(level).half_width
        return {
            "mean": self.mean,
            "stderr": self.estimate.stderr,
            "half_width": half_width,
        }

    def details(self, level: float = 0.95) -> dict[str, Any]:
        """Return also the clip, what it leaves out, and the centre."""
        return self.columns(level) | {
            "clip": self.clip,
            "bias": self.bias,
            "beyond": share_of(self.beyond),
            "centre": self.centre,
        }

    def plot(self, *, level: float = 0.95) -> Any:
        """Draw every coordinate with its interval; returns the Matplotlib figure."""
        from sstq.plots.studies import draw_range

        return draw_range(self, level)


@dataclass(frozen=True)
class BoundsResult(StudyResult):
    """Bounds of columns that nobody knew.

    Attributes:
        bounds: the least and the largest value by column, for the argument `bounds` of mechanisms.
        beyond: the share of people beyond them, by column; unbiased, so it may be negative.
        stderr: its standard error.
        people: the number of people who answered.
        epsilon: the total ε per person.
    """

    bounds: dict[str, tuple[float, float]]
    beyond: dict[str, float]
    stderr: dict[str, float]
    people: int
    epsilon: float

    def columns(self, level: float = 0.95) -> dict[str, Any]:  # noqa: ARG002 (there are no intervals)
        """The bounds, with the share of people beyond and its error."""
        low, high = zip(*self.bounds.values(), strict=True)
        left = {
            "beyond": list(self.beyond.values()),
            "stderr": list(self.stderr.values()),
        }
        return {"column": list(self.bounds), "low": low, "high": high} | left

    def plot(self) -> Any:
        """Draw the bounds of every column on one scale per column; returns the Matplotlib figure."""
        from sstq.plots.studies import draw_bounds

        return draw_bounds(self)
