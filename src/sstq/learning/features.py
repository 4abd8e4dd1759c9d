"""Public feature maps: what a device computes from its example before encoding.

Your own map can be any callable of an array (n, …) that returns (n, D), or a fitted transformer. Built-in maps have a
JSON form, so a device needs only the published question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.array_types import Floats, Floats32
from sstq.checks import check_argument, check_number, check_option
from sstq.files.strict_json import JsonObject
from sstq.inputs.arrays import as_vectors
from sstq.inputs.bounds import read_ranges
from sstq.inputs.plain_numbers import plain_numbers
from sstq.kernels.threads import row_chunks
from sstq.randomness import streams

FeatureMap = Any
"""A callable, a fitted transformer, or None for examples that are features already."""

_LARGEST_SIDE = 4096
# Columns in units of their spread end here: a longer tail would shrink all other columns at length 1.
MOST_SPREADS = 3.0
_LARGEST_COLUMN = 1e30
_MOST_COSINES = 1 << 14


@dataclass(frozen=True)
class Pixels:
    """Use the numbers of an example themselves as features.

    Examples:
        >>> Pixels()(np.ones((2, 3, 3))).shape
        (2, 9)
    """

    name: ClassVar[str] = "pixels"

    def __call__(self, X: ArrayLike) -> NDArray[Any]:
        """Return the examples as rows, (n, D)."""
        values = as_vectors(X)
        return values.reshape(len(values), -1)


@dataclass(frozen=True)
class Columns:
    """Columns of a table in units of their own spread, and a constant that keeps the length of a row.

    Values are (x − centre)/spread, at most 3 in magnitude; a missing value counts as the centre. The constant is √D for
    D columns: a classifier scales features to length 1, and without it a row twice as long would look the same.

    Args:
        centre: the public centre of every column.
        spread: the public spread of every column.
        constant: 1 with the constant, 0 without; the JSON of questions has no booleans.

    Examples:
        >>> Columns(centre=(50, 0), spread=(20, 1))([[90.0, np.nan]]).round(2)
        array([[2.  , 0.  , 1.41]])
    """

    name: ClassVar[str] = "columns"
    centre: Sequence[float]
    spread: Sequence[float]
    constant: int = 1

    def __post_init__(self) -> None:
        for name, least in (
            ("centre", -_LARGEST_COLUMN),
            ("spread", 1 / _LARGEST_COLUMN),
        ):
            values = getattr(self, name)
            if not isinstance(values, Sequence) or not values:
                raise ValueError(
                    f"{name} must be one number per column, got {values!r}"
                )
            checked = tuple(
                check_number(name, value, least, _LARGEST_COLUMN) for value in values
            )
            object.__setattr__(self, name, checked)
        check_number("constant", self.constant, 0, 1, integer=True)
        if len(self.centre) != len(self.spread):
            raise ValueError(
                f"spread must have as many numbers as centre, {len(self.centre)}, got {len(self.spread)}"
            )

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.centre) + self.constant

    def __call__(self, X: ArrayLike) -> Floats:
        """Compute the features of rows, (n, D + 1)."""
        rows = plain_numbers(X)
        if rows.ndim != 2 or rows.shape[1] != len(self.centre):
            raise ValueError(
                f"X must have {len(self.centre)} columns, got an array of shape {rows.shape}"
            )
        with np.errstate(all="ignore"):
            scaled = (rows.astype(np.float64) - self.centre) / self.spread
        scaled = np.where(
            np.isnan(scaled), 0.0, np.clip(scaled, -MOST_SPREADS, MOST_SPREADS)
        )
        if not self.constant:
            return scaled
        return np.column_stack(
            [scaled, np.full(len(scaled), math.sqrt(len(self.centre)))]
        )


@dataclass(frozen=True)
class GradientHistograms:
    """Square roots of histograms of oriented gradients, and of the mean of every channel, in square cells.

    Every pixel's gradient votes with its length for the two nearest of `angles` directions modulo 180 degrees. Images
    of 28 × 28 have (8 + 1)·7·7 = 441 features. Colour images have the gradients of their grey version.

    Args:
        shape: (rows, columns), or (channels, rows, columns), of an image.
        cell: the side of a cell in pixels; it must divide rows and columns.
        angles: the number of directions of a histogram.

    Examples:
        >>> GradientHistograms((28, 28))(np.random.default_rng(0).random((5, 784))).shape
        (5, 441)
    """

    name: ClassVar[str] = "gradients"
    shape: Sequence[int]
    cell: int = 4
    angles: int = 8

    def __post_init__(self) -> None:
        if not isinstance(self.shape, Sequence) or len(self.shape) not in (2, 3):
            raise ValueError(
                f"shape must be (rows, columns) or (channels, rows, columns), got {self.shape!r}"
            )
        shape = tuple(
            check_number("shape", side, 1, _LARGEST_SIDE, integer=True)
            for side in self.shape
        )
        cell = check_number("cell", self.cell, 1, min(shape[-2:]), integer=True)
        check_number("angles", self.angles, 2, 64, integer=True)
        if shape[-2] % cell or shape[-1] % cell:
            raise ValueError(
                f"cell must divide rows and columns, got cell={cell} for images of {shape[-2:]}"
            )
        object.__setattr__(self, "shape", shape)

    @property
    def _channels(self) -> int:
        return self.shape[0] if len(self.shape) == 3 else 1

    @property
    def _cells(self) -> tuple[int, int]:
        return self.shape[-2] // self.cell, self.shape[-1] // self.cell

    def __call__(self, X: ArrayLike) -> Floats32:
        """Compute the features of images, (n, …) with as many numbers as the shape has; nan in cells below zero."""
        values = as_vectors(X)
        if values.ndim < 2 or math.prod(values.shape[1:]) != math.prod(self.shape):
            got = f"an array of shape {values.shape}"
            raise ValueError(
                f"X must have {math.prod(self.shape)} pixels per image of {self.shape}, got {got}"
            )
        images = values.reshape(len(values), self._channels, *self.shape[-2:])
        features = np.empty(
            (len(images), self.angles + self._channels, *self._cells), np.float32
        )
        pixels = features.shape[1] * math.prod(self.shape[-2:])
        for part in row_chunks(len(images), 4 * pixels):
            with np.errstate(all="ignore"):
                features[part] = self._of(images[part].astype(np.float32))
        return features.reshape(len(features), -1)

    def _of(self, images: Floats32) -> Floats32:
        grey = images.mean(axis=1)
        across = np.zeros_like(grey)
        down = np.zeros_like(grey)
        across[:, :, 1:-1] = grey[:, :, 2:] - grey[:, :, :-2]
        down[:, 1:-1] = grey[:, 2:] - grey[:, :-2]
        length = np.hypot(across, down)
        angle = np.arctan2(down, across) * np.float32(self.angles / np.pi) % self.angles
        places = np.arange(self.angles, dtype=np.float32)[:, None, None]
        apart = np.abs(angle[:, None] - places)
        near = np.maximum(1 - np.minimum(apart, self.angles - apart), 0)
        planes = np.concatenate([length[:, None] * near, images], axis=1)
        rows, columns = self._cells
        cells = (len(images), -1, rows, self.cell, columns, self.cell)
        pooled = planes.reshape(cells).sum(axis=(3, 5))
        pooled[:, self.angles :] *= 2 / self.cell**2
        return np.asarray(np.sqrt(pooled), np.float32)

    @property
    def width(self) -> int:
        """The number of features."""
        return (self.angles + self._channels) * math.prod(self._cells)

    def cosines(self) -> tuple[Floats, Floats]:
        """Return fixed directions for features without examples: waves over cells and angles, low frequencies first.

        The orthonormal directions are rows, (D, D), with the frequency of each, (D,).
        """
        from scipy.fft import dct
        from scipy.linalg import block_diag

        # Angles are a circle: the constant, then a cosine and a sine of every frequency.
        turns = np.arange(1, self.angles + 1) // 2
        place = np.arange(self.angles)
        shift = np.where((turns > 0) & (place % 2 == 0), np.pi / 2, 0.0)
        waves = np.cos(
            2 * np.pi / self.angles * np.outer(turns, place) - shift[:, None]
        )
        channels = block_diag(unit_rows(waves), np.eye(self._channels))
        rows, columns = (
            dct(np.eye(count), axis=0, norm="ortho") for count in self._cells
        )
        directions = np.kron(channels, np.kron(rows, columns))
        first = np.concatenate([turns, np.zeros(self._channels)])
        second = np.hypot(*np.ogrid[: self._cells[0], : self._cells[1]])
        frequency = (first[:, None] + second.reshape(1, -1)).ravel()
        ranks = np.argsort(frequency, kind="stable")
        return directions[ranks], frequency[ranks]


@dataclass(frozen=True)
class FourierFeatures:
    """Random cosines of the columns of a table, which tell classes apart that no line separates.

    Feature j is cos(⟨w_j, z⟩/√D + b_j) for columns z in units of their spread, with normal w_j and uniform b_j from a
    public seed: random features of the Gaussian kernel (Rahimi and Recht, NIPS 2007).

    Args:
        centre: the public centre of every column.
        spread: the public spread of every column.
        count: the number of features.
        seed: the public seed.

    Examples:
        >>> FourierFeatures((50, 0), (20, 1), count=3)([[90.0, np.nan]]).shape
        (1, 3)
    """

    name: ClassVar[str] = "fourier"
    centre: Sequence[float]
    spread: Sequence[float]
    count: int = 600
    seed: int = 0

    def __post_init__(self) -> None:
        columns = self._columns
        object.__setattr__(self, "centre", columns.centre)
        object.__setattr__(self, "spread", columns.spread)
        check_number("count", self.count, 1, _MOST_COSINES, integer=True)
        check_argument("seed", self.seed)

    @property
    def width(self) -> int:
        """The number of features."""
        return self.count

    @property
    def _columns(self) -> Columns:
        return Columns(self.centre, self.spread, constant=0)

    def __call__(self, X: ArrayLike) -> Floats:
        """Compute the features of rows, (n, count)."""
        from scipy.special import ndtri

        columns = len(self.centre)
        random = streams.words(
            self.seed, "cosines", self.count * (columns + 1)
        ).reshape(self.count, -1)
        uniform = ((random >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
        weights = ndtri(uniform[:, :columns]) / math.sqrt(columns)
        phases = 2 * math.pi * uniform[:, columns]
        cosines: Floats = np.cos(self._columns(X) @ weights.T + phases)
        return cosines


_BUILT_IN = (Columns, Pixels, GradientHistograms, FourierFeatures)


def features_to_dict(features: FeatureMap) -> JsonObject | None:
    """The description of a built-in map; None for a map that devices must provide themselves."""
    if not isinstance(features, _BUILT_IN):
        return None
    options = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(features).items()
    }
    return {"name": features.name, **options}


def features_from_dict(data: Any) -> FeatureMap:
    """The map described by `features_to_dict`."""
    if data is None:
        return None
    kinds: dict[str, Callable[..., Any]] = {kind.name: kind for kind in _BUILT_IN}
    try:
        options = dict(data)
        named = options.pop("name", None)
        return kinds[check_option("the name of features", named, tuple(kinds))](
            **options
        )
    except TypeError as error:
        raise ValueError(f"features are malformed: {error}") from error


def mapped_features(features: FeatureMap, X: ArrayLike) -> Floats:
    """Compute the features of examples, (n, D), finite or not; without a map the examples are the features."""
    if features is None:
        values = X
    elif isinstance(features, _BUILT_IN):
        values = features(plain_numbers(X))
    elif hasattr(features, "transform"):
        values = features.transform(X)
    elif callable(features):
        values = features(X)
    else:
        raise ValueError(
            f"features must be a callable, a fitted transformer or None, got {features!r}"
        )
    mapped = plain_numbers(values)
    if mapped.ndim != 2:
        raise ValueError(f"features must have shape (n, D), got {mapped.shape}")
    return mapped.astype(np.float64, copy=False)


def apply_features(features: FeatureMap, X: ArrayLike) -> Floats:
    """Compute features for the owner of the examples; ValueError if they are not finite."""
    mapped = mapped_features(features, X)
    bad = np.flatnonzero(~np.isfinite(mapped).all(axis=1))
    if len(bad):
        raise ValueError(
            f"features must be finite, got nan or infinity in row {bad[0]}"
        )
    return mapped


def listed_ranges(
    bounds: Any,
    public: ArrayLike | None,
    columns: int | None,
    names: Sequence[str] | None = None,
) -> list[list[float]] | None:
    """The ends of every column, in the order of the columns; `columns` is their number, if it is known."""
    if bounds is None:
        return None
    if isinstance(bounds, Mapping) and names is not None:
        if odd := sorted(map(str, set(names) ^ set(bounds))):
            raise ValueError(
                f"bounds must have the columns of X, got others: {', '.join(odd)}"
            )
        bounds = {name: bounds[name] for name in names}
    elif np.shape(bounds) == (2,):
        columns = columns if public is None else apply_features(None, public).shape[1]
        if columns is None:
            raise ValueError(
                "bounds must be one pair per column in a deployment, which does not know their number"
            )
        bounds = np.tile(bounds, (columns, 1))
    return [[low, high] for _, low, high in read_ranges(bounds, columns or len(bounds))]


def scaled_columns(
    ranges: list[list[float]] | None, public: ArrayLike | None
) -> Columns:
    """The map of the columns of a table, scaled by their ends or else by public rows."""
    if ranges is not None:
        low, high = np.array(ranges).T
        # As spread as numbers drawn evenly between the ends.
        return Columns(
            ((low + high) / 2).tolist(), ((high - low) / math.sqrt(12)).tolist()
        )
    if public is None:
        raise ValueError(
            "columns need a scale: pass bounds={column: (low, high), …} or public=rows; "
            "for a classifier of features that have one already, pass features=your_map"
        )
    rows = apply_features(None, public)
    spread = rows.std(axis=0)  # a constant column keeps its unit
    return Columns(
        rows.mean(axis=0).tolist(), np.where(spread > 0, spread, 1.0).tolist()
    )


def unit_rows(values: Floats) -> Floats:
    """Scale rows to length 1; rows of zeros stay."""
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.where(lengths > 0, lengths, 1)
