import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sstq.frames.kashin import make_kashin, represent
from sstq.frames.tight import HadamardFrame
from sstq.scalar.densities import Density

MASSES = arrays(np.float64, st.integers(1, 9), elements=st.floats(0, 1)).filter(lambda a: a.sum() > 1e-3)


@given(MASSES, st.floats(0, 0.4), st.floats(0, 0.4), st.floats(-1, 1), st.floats(-1, 1))
def test_integrals_are_those_of_the_pdf(weights: np.ndarray, low: float, high: float, a: float, b: float) -> None:
    density = Density(weights / weights.sum() * (1 - low - high), (low, high))
    a, b = min(a, b), max(a, b)
    cuts = np.unique(np.concatenate([[a, b], density.grid[(density.grid > a) & (density.grid < b)]]))
    middles = (cuts[:-1] + cuts[1:]) / 2
    cells = density.masses.size
    heights = density.masses[np.minimum(((middles + 1) * cells / 2).astype(int), cells - 1)] * cells / 2
    for power, value in enumerate(density.integrals(a, b)):
        pieces = heights * np.diff(cuts ** (power + 1)) / (power + 1)
        assert value == pytest.approx(pieces.sum(), abs=1e-12)
    assert density.moment(0) == pytest.approx(1, abs=1e-12)


def test_from_samples_keeps_the_atoms_and_the_moments() -> None:
    t = np.clip(np.random.default_rng(1).normal(size=100_000) * 0.6, -1, 1)
    density = Density.from_samples(t)
    assert density.edges == (np.mean(t == -1), np.mean(t == 1))
    # A histogram moves a sample by at most the width of a cell, 2/1024.
    assert density.moment(2) == pytest.approx(np.mean(t**2), abs=2 / 1024)
    assert density.moment(1) == pytest.approx(np.mean(t), abs=2 / 1024)


@pytest.mark.parametrize(
    ("masses", "edges", "message"),
    [
        ([0.5, 0.4], (0.0, 0.0), "must sum to 1, got 0.9"),
        ([1.5, -0.5], (0.0, 0.0), "non-negative"),
        ([math.nan], (0.0, 0.0), "finite"),
        ([], (0.5, 0.5), "masses must be a vector and edges a pair, got shapes"),
        ([[1.0]], (0.0, 0.0), "vector"),
    ],
)
def test_bad_densities_are_refused(masses: list[float], edges: tuple[float, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Density(masses, edges)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"cells must be an integer in \[1, 1048576\], got 0"):
        Density.uniform(cells=0)
    with pytest.raises(ValueError, match="values must be"):
        Density.from_samples([0.0, 1.5])
    with pytest.raises(ValueError, match="values must be"):
        Density.from_samples([math.nan])


@pytest.mark.parametrize(
    ("dim", "size", "beta"), [(1600, 4096, 1.8), (1600, 4096, 1.63), (1000, 4096, 2.07), (3000, 4096, 2.6)]
)
def test_kashin_density_is_that_of_the_certified_solver(dim: int, size: int, beta: float, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((16, dim))
    unit = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    frame = HadamardFrame(dim, size, seed=seed)
    recipe = make_kashin("certified", frame, beta * (size / dim) ** 0.5)
    t = represent(frame, recipe, unit)[0].astype(float)
    density = Density.kashin(beta, size / dim)
    # Interpolation is off by up to half a per cent, 65,536 coordinates by as much at six standard errors.
    assert np.mean(t**2) == pytest.approx(density.moment(2), rel=0.02)
    # The table counts the coordinates that pile up just below the bound as being at it.
    assert np.mean(np.abs(t) >= 1 - 1 / 256) == pytest.approx(sum(density.edges), abs=0.012)


@pytest.mark.parametrize("beta", [0.5, 1.0, 1.8, 6.0, 6.001, 50.0])
@pytest.mark.parametrize("redundancy", [1.0, 1.01, 4.0, 100.0])
def test_kashin_density_exists_everywhere(beta: float, redundancy: float) -> None:
    density = Density.kashin(beta, redundancy)
    assert density.symmetric
    assert density.moment(0) == pytest.approx(1)


@pytest.mark.parametrize(("beta", "redundancy"), [(0.0, 2.0), (-1.0, 2.0), (np.nan, 2.0), (1.8, 0.9), (1.8, np.inf)])
def test_kashin_density_needs_a_level_and_a_redundancy(beta: float, redundancy: float) -> None:
    with pytest.raises(ValueError, match=r"(beta|redundancy) must be a number in .*, got "):
        Density.kashin(beta, redundancy)
