"""The mean of the clients' vectors, and where it lies, all coordinates at once."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Region:
    """A ball of Euclidean `radius` and a box of `half_width`, (d,); each holds the mean with probability `level`."""

    level: float
    radius: float
    half_width: NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Estimate:
    """The mean of the clients' vectors.

    Examples:
        >>> Estimate(np.full(100, 0.3), np.full(100, 0.01), count=1000)
        <Estimate of 100 numbers from 1,000 messages: norm 3 ± 0.1>

    Attributes:
        value: the mean, (d,).
        stderr: the standard error of each coordinate, (d,), from the messages themselves, with the bias that frames
            leave. The bias of a biased decoder is not in it, nor is what clipping cut off. nan for a single message.
        count: the number of messages.
        simulated: whether any of them came from a seed.
        estimator: "mean" of the messages' estimates, or "strata" (see `sstq.aggregation.strata`).
        note: what should be known of this estimate, in a sentence; empty if there is nothing.
        frame_bias: the norm of the bias that frames leave, for clients that all hold one vector of norm clip, as far as
            the scatter of the messages does not show it. It is in `stderr`, spread evenly over the coordinates: the
            noise alone is √(stderr² − frame_bias²/d).
        terms: how many independent terms `stderr` comes from: frames, if their scatter is taken; 0 for the messages.
        directions: in how many directions the noise is spread; None if as in independent coordinates.
    """

    value: NDArray[np.float64]
    stderr: NDArray[np.float64]
    count: int
    simulated: bool = False
    estimator: str = "mean"
    note: str = ""
    frame_bias: float = 0.0
    terms: int = 0
    directions: float | None = None

    def __repr__(self) -> str:
        size, error = (float(np.linalg.norm(vector)) for vector in (self.value, self.stderr))
        return f"<Estimate of {len(self.value):,} numbers from {self.count:,} messages: norm {size:.4g} ± {error:.2g}>"

    def region(self, level: float = 0.95) -> Region:
        """Where the mean of the (clipped) vectors lies with that probability: `radius` in norm, `half_width` each.

        Both are simultaneous, and both contain the bias that frames leave. They assume that the mean is normal, as it
        is for many messages, and that a biased decoder and clipping add nothing. The box is Šidák's: each coordinate
        has Student's quantile of level^(1/d), however the coordinates depend on each other. The ball has the quantile
        of a sum of squares with the effective number of directions as its degrees of freedom (Satterthwaite), plus that
        of the frames' bias, which is random over frame seeds.

        Examples:
            >>> found = Estimate(np.zeros(100), np.full(100, 0.1), count=1000).region(0.95)
            >>> round(found.radius, 2), round(float(found.half_width[0]), 2)
            (1.12, 0.35)
        """
        if not isinstance(level, (float, np.floating)) or not 0 < level < 1:
            raise ValueError(f"level must be a number between 0 and 1, both excluded, got {level!r}")
        from scipy.special import gammaincinv, stdtrit

        def reach(degrees: float) -> float:
            """The quantile of the length of a normal vector of so many directions, over its root mean square."""
            return math.sqrt(2 * float(gammaincinv(degrees / 2, level)) / degrees)

        stderr, terms = self.stderr, self.terms or self.count
        total, fourth = float(np.sum(stderr**2)), float(np.sum(stderr**4))
        spread = total**2 / fourth if fourth else 1.0
        noise = math.sqrt(max(total - self.frame_bias**2, 0.0)) if terms > 1 else math.nan
        degrees = spread if self.directions is None else max(1.0, min(spread, self.directions))
        radius = noise * reach(degrees) + self.frame_bias * reach(spread)
        tail = -math.expm1(math.log(level) / len(stderr)) / 2
        return Region(float(level), radius, -float(stdtrit(max(terms - 1, 1), tail)) * stderr)
