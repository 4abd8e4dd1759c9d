"""Estimates: the mean of the clients' vectors with standard errors and simultaneous confidence regions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.array_types import Floats
from sstq.inputs.bounds import Bounds


@dataclass(frozen=True)
class Region:
    """A ball of Euclidean `radius` and a box of `half_width`, (d,); each contains the mean with probability `level`.

    Examples:
        >>> Region(0.95, radius=0.1, half_width=np.full(2, 0.08)).level
        0.95
    """

    level: float
    radius: float
    half_width: Floats


@dataclass(frozen=True, repr=False)
class Estimate:
    """An estimate of the mean of the clients' vectors.

    Examples:
        >>> Estimate(np.full(100, 0.3), np.full(100, 0.01), count=1000)
        <Estimate of 100 numbers from 1,000 messages: norm 3 ± 0.1>

    Attributes:
        value: the mean, (d,).
        stderr: the standard error of each coordinate, (d,), from the messages themselves, with the bias that frames
            leave. It does not include the bias of a biased decoder or of clipping. nan for a single message.
            If people send several messages, it is the error around the mean of these very people, and is too large
            by how much they differ, because nobody knows which messages come from one person.
        count: the number of messages.
        simulated: whether any message was simulated with a seed.
        note: a warning about this estimate with a remedy, as one sentence; may be empty.
        frame_bias: the norm of the bias that frames leave, for clients that all hold one vector of norm clip. It is in
            `stderr`, spread evenly over the coordinates: the noise alone is √(stderr² − frame_bias²/d).
        directions: the effective number of directions of the noise; None for independent coordinates.
        bias_directions: the effective number of directions of the frames' bias.
        messages: the number of messages per person.
        largest: the most that one message changes a coordinate of the mean, one number or (d,); 0 where it is not
            known. The scatter of few messages may miss all that is rare.
        longest: the norm of the most that one message changes the mean, likewise.
        names: the names of the coordinates, if the mechanism has bounds with names; otherwise empty.
        columns: the columns of a collector's table of such estimates.
        table_file: the name of the file that `sstq aggregate` writes `table` to.
    """

    table_file: ClassVar[str] = "mean.csv"

    columns: ClassVar[tuple[str, ...]] = (
        "coordinate",
        "label",
        "value",
        "stderr",
        "half_width",
    )

    value: Floats
    stderr: Floats
    count: int
    simulated: bool = False
    note: str = ""
    frame_bias: float = 0.0
    directions: float | None = None
    bias_directions: int = 1
    messages: int = 1
    largest: float | Floats = 0.0
    longest: float = 0.0
    names: tuple[str, ...] = ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.value, dtype=dtype, copy=copy)

    def table(self, level: float = 0.95) -> list[dict[str, Any]]:
        """Return a row per coordinate: its number, its name, the mean, stderr and half_width (of `region(level)`).

        Examples:
            >>> Estimate(np.array([0.5]), np.array([0.1]), count=100).table()[0]["value"]
            0.5
        """
        cells = (
            range(len(self.value)),
            self.names or [""] * len(self.value),
            self.value.tolist(),
            self.stderr.tolist(),
            self.region(level).half_width.tolist(),
        )
        return [
            dict(zip(Estimate.columns, row, strict=True))
            for row in zip(*cells, strict=True)
        ]

    def summary(self, level: float = 0.95) -> dict[str, Any]:
        """Return what one glance tells, as JSON values: the mean of each named column, or the norms of a vector."""
        if self.names:
            return {"columns": {row.pop("label"): row for row in self.table(level)}}
        norms = norms_of(self.value, self.stderr)
        return {"mean_norm": norms["norm"], "measured_error_norm": norms["error"]}

    def details(self, level: float = 0.95) -> dict[str, Any]:  # noqa: ARG002 (a hook)
        """Return what a collector shows beside the coordinates, by name: `groups` or `questions`."""
        return {}

    @classmethod
    def rows_of(
        cls,
        stored: Mapping[str, Any],
        labels: Sequence[str],
        group_labels: Sequence[str],  # noqa: ARG003 (of private groups)
    ) -> Iterator[Sequence[Any]]:
        """Yield the rows of a collector's table from the JSON values of an estimate, by the names of coordinates."""
        half_width = stored["region"]["half_width"]
        numbers = (stored["value"], stored["stderr"], half_width)
        yield from zip(range(len(labels)), labels, *numbers, strict=True)

    def files(self, level: float = 0.95) -> dict[str, Any]:
        """Return what `sstq aggregate` writes, by name: arrays and tables, of which it shows the last."""
        return {
            "mean.npy": self.value,
            "stderr.npy": self.stderr,
            self.table_file: self.table(level),
        }

    def followed(self) -> Iterator[tuple[str, Any, float, float, int]]:
        """Yield what a panel follows: question, item, estimate, standard error, and whether it is a share of answers.

        Such shares are divided by the share of those who have an answer after smoothing: ratios of few are biased.
        """
        for item, (value, error) in enumerate(
            zip(self.value, self.stderr, strict=True)
        ):
            yield "", item, value, error, 0

    def to_frame(self, level: float = 0.95) -> Any:
        """Return a pandas DataFrame with a row per coordinate: its mean, stderr and half_width (of `region(level)`).

        Needs ``pip install pandas``.
        """
        columns = {
            "mean": self.value,
            "stderr": self.stderr,
            "half_width": self.region(level).half_width,
        }
        return data_frame(columns, index=list(self.names) or None)

    def __repr__(self) -> str:
        size, error = (
            float(np.linalg.norm(vector)) for vector in (self.value, self.stderr)
        )
        what = f"{len(self.value):,} numbers from {self.count:,} messages"
        return f"<{type(self).__name__} of {what}: norm {size:.4g} ± {error:.2g}>"

    def plot(
        self,
        *,
        labels: Sequence[str] | None = None,
        level: float = 0.95,
        axes: Any = None,
    ) -> Any:
        """Draw every coordinate with its simultaneous interval (`region`), as bars or, if there are many, as a band.

        Needs ``pip install 'sstq[plots]'``.

        Args:
            labels: the names of the coordinates; by default `names`.
            level: the probability of the region.
            axes: Matplotlib axes to draw on; a new figure if None.

        Returns:
            The Matplotlib figure.

        Examples:
            >>> figure = Estimate(np.array([0.3, -0.1]), np.full(2, 0.05), count=1000).plot(labels=["rain", "sun"])
            >>> figure.savefig("estimate.png")  # doctest: +SKIP
        """
        from sstq.plots.estimates import draw_estimate

        return draw_estimate(self, labels, level, axes)

    @property
    def people(self) -> float:
        """The number of people who sent the messages; a fraction if some messages are missing."""
        return self.count / self.messages

    def region(self, level: float = 0.95) -> Region:
        """Return the region of the mean of the (clipped) vectors: `radius` in norm, `half_width` per coordinate.

        Both are simultaneous, and both include the bias that frames leave: the probability is over messages and frame
        seeds. They assume that noise and bias are normal, as they are for many messages, and that a biased decoder and
        clipping add nothing. People are taken as drawn from a population, whose mean the region contains; it contains
        the mean of the very people who answered at least as often. If people send several messages, it contains only
        the latter.

        The box is Šidák's: each coordinate has Student's quantile of level^(1/d), however the coordinates depend on
        each other. The ball has the quantile of a sum of squares with the effective number of directions, (tr Σ)²/tr Σ²
        of the covariance Σ of noise and bias together (Satterthwaite), over a variance that is estimated (Fisher's F).
        Where few messages hit a coordinate, or nearly all are alike, their scatter may miss what is rare. So both
        variances are larger by z²/3 times the square of what one message changes at most, z being the normal quantile
        (as in Bernstein's inequality): nothing beside the scatter of many messages.
        The frames' bias is almost orthogonal to the mean, so it has d − 1 directions (for GroupUnit, those
        of one block).

        Examples:
            >>> region = Estimate(np.zeros(100), np.full(100, 0.1), count=1000).region(0.95)
            >>> round(region.radius, 2), round(float(region.half_width[0]), 2)
            (1.12, 0.35)
        """
        from scipy.special import fdtri, ndtri

        dim = len(self.value)
        tail = _tail(level, dim)
        if self.count < 2:
            return Region(float(level), math.nan, np.full(dim, math.nan))
        bias2 = self.frame_bias**2
        noise2 = self.noise2
        rare2 = (float(ndtri(tail)) * self.largest) ** 2 / 3
        half_width = student(level, dim, self.count) * np.sqrt(
            noise2 + rare2 + bias2 / self.bias_directions
        )
        rare2 = (float(ndtri((1 - level) / 2)) * self.longest) ** 2 / 3
        noise = float(np.sum(noise2))
        # The noise is taken as even over the directions of the bias: tr(Σ·Σ') = tr Σ·tr Σ'/d.
        square = (
            noise**2 / self._noise_directions
            + 2 * noise * bias2 / dim
            + bias2**2 / self.bias_directions
        )
        degrees = (noise + bias2) ** 2 / square if square else 1.0
        reach = float(fdtri(degrees, degrees * (self.count - 1), level))
        return Region(
            float(level), math.sqrt((noise + bias2 + rare2) * reach), half_width
        )

    def in_units(self, bounds: Bounds) -> Self:
        """Return an estimate of scaled columns in their units. The bias of frames is then part of the noise.

        Examples:
            >>> bounds = Bounds((("age", 0.0, 110.0), ("bmi", 10.0, 60.0)), clip=1.0)
            >>> estimate = Estimate(np.array([0.5**0.5, 0.0]), np.full(2, 0.01), count=100).in_units(bounds)
            >>> estimate.value.round(1), estimate.names
            (array([110.,  35.]), ('age', 'bmi'))
        """
        spread = np.sqrt(self.noise2 + self.frame_bias**2 / self.bias_directions)
        return replace(
            self,
            value=bounds.outward(self.value),
            stderr=spread * bounds.scale,
            largest=self.largest * bounds.scale,
            longest=self.longest * float(np.max(bounds.scale)),
            frame_bias=0.0,
            directions=None,
            names=bounds.names,
        )

    @property
    def noise2(self) -> Floats:
        """The variance of each coordinate without the bias that frames leave, (d,)."""
        return np.maximum(self.stderr**2 - self.frame_bias**2 / len(self.stderr), 0.0)

    @property
    def _noise_directions(self) -> float:
        """The effective number of directions of the noise, at most (tr Σ)²/tr Σ² of its covariance Σ."""
        total = float(np.sum(self.noise2))
        fourth = float(np.sum(self.noise2**2))
        spread = total**2 / fourth if fourth else 1.0
        return (
            spread
            if self.directions is None
            else max(1.0, min(spread, self.directions))
        )


def data_frame(table: Any, index: Any = None) -> Any:
    """Return a table as a pandas DataFrame."""
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise ImportError("to_frame needs pandas: pip install pandas") from error
    return pandas.DataFrame(table, index=index)


def student(level: float, items: int, count: int) -> float:
    """Student's quantile for so many items at once (Šidák); nan for fewer than two messages."""
    from scipy.special import stdtrit

    return -float(stdtrit(count - 1, _tail(level, items))) if count > 1 else math.nan


def _tail(level: float, items: int) -> float:
    """The probability of one end of an interval, of so many items at once."""
    if not isinstance(level, (float, np.floating)) or not 0 < level < 1:
        raise ValueError(
            f"level must be a number between 0 and 1, both excluded, got {level!r}"
        )
    return -math.expm1(math.log(level) / items) / 2


def norms_of(value: ArrayLike, stderr: ArrayLike) -> dict[str, float | None]:
    """Return the norms of a mean and of its standard errors (root mean square); None for those of nan.

    Examples:
        >>> norms_of([3.0, 4.0], [float("nan")] * 2)
        {'norm': 5.0, 'error': None}
    """
    norms = {
        "norm": float(np.linalg.norm(value)),
        "error": float(np.linalg.norm(stderr)),
    }
    return {name: None if math.isnan(norm) else norm for name, norm in norms.items()}
