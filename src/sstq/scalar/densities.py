"""Public densities of Kashin coordinates, in units of the bound B.

Some codebooks, the minimum-variance channel and predictions of error need one. It must be
public: a model, the shipped table of typical representations, or samples of public data, never the clients' data
(paper, Section 5.1).
"""

import json
import math
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

import numpy as np
from numpy.typing import ArrayLike

from sstq.array_types import Floats, Ints

_CELLS = 1024

KASHIN_TABLE = "kashin_densities.json"
"""The densities of typical representations, which `python -m benchmarks densities` makes again."""


@dataclass(frozen=True, eq=False)
class Density:
    """A piecewise constant density on equal cells of [-1, 1], with a point mass at each end.

    Clamped coordinates are exactly at ±1, so the ends have point masses.

    Args:
        masses: probability of each cell, from -1 to 1.
        edges: the point masses at -1 and at +1.

    Examples:
        >>> density = Density([0.25, 0.25], edges=(0.25, 0.25))
        >>> density.moment(2)
        0.6666666666666666
    """

    masses: Floats
    edges: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        masses = np.array(self.masses, dtype=np.float64)
        masses.setflags(write=False)
        object.__setattr__(self, "masses", masses)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Density)
            and self.edges == other.edges
            and np.array_equal(self.masses, other.masses)
        )

    def __hash__(self) -> int:
        return hash((self.edges, self.masses.tobytes()))

    @classmethod
    def uniform(cls, cells: int = _CELLS) -> "Density":
        """Return the uniform density 1/2, the surrogate of the paper's Definition 4.1."""
        return cls(np.full(cells, 1.0 / cells))

    @classmethod
    def kashin(cls, beta: float, redundancy: float) -> "Density":
        """Return the density of a typical vector's certified representation at level β = K/√ρ, measured.

        The table holds histograms for Gaussian directions, β from 1 to 6 and ρ = N/d from 1 to 16, interpolated
        linearly in both. Beyond it the ends count, but above β = 6 nothing is clamped: the coordinates are Gaussian.

        Examples:
            >>> density = Density.kashin(1.8, redundancy=2.575)
            >>> sum(density.edges) < 0.01, round(1.8**2 * density.moment(2), 2)
            (True, 1.06)
        """
        betas, redundancies, shares = _kashin_table()
        if beta > betas[-1]:
            return cls.gaussian(beta / math.sqrt(2), cells=2 * (shares.shape[2] - 1))
        row, right = _between(betas, beta)
        column, upper = _between(redundancies, redundancy)
        corners = shares[row : row + 2, column : column + 2]
        half = (
            np.tensordot(
                np.outer([1 - right, right], [1 - upper, upper]), corners, axes=2
            )
            / 2
        )
        half /= 2 * math.fsum(half.tolist())
        return cls(
            np.concatenate([half[-2::-1], half[:-1]]),
            (float(half[-1]), float(half[-1])),
        )

    @classmethod
    def gaussian(cls, u: float, cells: int = _CELLS) -> "Density":
        """Return the law of clip(G/(u√2), ±1) for a standard Gaussian G."""
        # P(t ≤ τ) = (1 + erf(u·τ))/2 inside; mirroring makes the symmetry exact.
        masses = (
            np.diff(
                [
                    math.erf(u * point)
                    for point in np.linspace(-1.0, 1.0, cells + 1).tolist()
                ]
            )
            / 2
        )
        masses = (masses + masses[::-1]) / 2
        edge = math.erfc(u) / 2
        return cls(masses, (edge, edge))

    @cached_property
    def grid(self) -> Floats:
        """The boundaries of the cells, from -1 to 1."""
        return np.linspace(-1.0, 1.0, self.masses.size + 1)

    def integrals(self, lower: ArrayLike, upper: ArrayLike) -> Floats:
        """Return ∫f, ∫y·f and ∫y²·f of the continuous part over [lower, upper], exactly, stacked on the first axis."""
        return self._primitives(upper) - self._primitives(lower)

    def moment(self, order: int) -> float:
        """Return E[y^order] for order 0, 1 or 2, the point masses included."""
        atoms = self.edges[0] * (-1.0) ** order + self.edges[1]
        return float(self.integrals(-1.0, 1.0)[order] + atoms)

    def _cell(self, y: Floats) -> Ints:
        cells = self.masses.size
        return np.clip(np.floor((y + 1) * (cells / 2)), 0, cells - 1).astype(np.int64)

    @cached_property
    def _cumulative(self) -> Floats:
        """The primitives at the boundaries of the cells: a row each for 1, y and y²."""
        left = self.grid[:-1]
        right = self.grid[1:]
        height = self.masses * (self.masses.size / 2)
        steps = [height * (right**power - left**power) / power for power in (1, 2, 3)]
        return np.concatenate([np.zeros((3, 1)), np.cumsum(steps, axis=1)], axis=1)

    def _primitives(self, points: ArrayLike) -> Floats:
        y = np.asarray(points, dtype=np.float64)
        cell = self._cell(y)
        left = self.grid[cell]
        height = self.masses[cell] * (self.masses.size / 2)
        inner = np.stack(
            [height * (y**power - left**power) / power for power in (1, 2, 3)]
        )
        return np.asarray(self._cumulative[:, cell] + inner)


@cache
def _kashin_table() -> tuple[Floats, Floats, Floats]:
    """The levels β, the redundancies ρ and, for each pair, the shares of |t| in the cells of [0, 1) and at 1."""
    table = json.loads(
        files("sstq.scalar").joinpath(KASHIN_TABLE).read_text(encoding="utf-8")
    )
    shares = np.array(table["per_million"], dtype=np.float64) / 1e6
    return np.array(table["beta"]), np.array(table["redundancy"]), shares


def _between(grid: Floats, value: float) -> tuple[int, float]:
    """Return the grid point below a value and the weight of the one above; beyond the grid, its end."""
    place = int(
        np.clip(np.searchsorted(grid, value, side="right") - 1, 0, len(grid) - 2)
    )
    return place, float(
        np.clip((value - grid[place]) / (grid[place + 1] - grid[place]), 0, 1)
    )
