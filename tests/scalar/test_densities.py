import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sstq.frames.kashin import make_kashin, represent
from sstq.frames.tight import HadamardFrame
from sstq.scalar.densities import Density

MASSES = arrays(np.float64, st.integers(1, 9), elements=st.floats(0, 1)).filter(
    lambda a: a.sum() > 1e-3
)


@given(MASSES, st.floats(0, 0.4), st.floats(0, 0.4), st.floats(-1, 1), st.floats(-1, 1))
def test_integrals_are_those_of_the_pdf(
    weights: np.ndarray, low: float, high: float, a: float, b: float
) -> None:
    density = Density(weights / weights.sum() * (1 - low - high), (low, high))
    a, b = min(a, b), max(a, b)
    cuts = np.unique(
        np.concatenate([[a, b], density.grid[(density.grid > a) & (density.grid < b)]])
    )
    middles = (cuts[:-1] + cuts[1:]) / 2
    cells = density.masses.size
    heights = (
        density.masses[np.minimum(((middles + 1) * cells / 2).astype(int), cells - 1)]
        * cells
        / 2
    )
    for power, value in enumerate(density.integrals(a, b)):
        pieces = heights * np.diff(cuts ** (power + 1)) / (power + 1)
        assert value == pytest.approx(pieces.sum(), abs=1e-12)
    assert density.moment(0) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("dim", "size", "beta"),
    [(1600, 4096, 1.8), (1600, 4096, 1.63), (1000, 4096, 2.07), (3000, 4096, 2.6)],
)
def test_kashin_density_is_that_of_the_certified_solver(
    dim: int, size: int, beta: float, seed: int
) -> None:
    x = np.random.default_rng(seed).standard_normal((16, dim))
    unit = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    frame = HadamardFrame(dim, size, seed=seed)
    recipe = make_kashin("certified", frame, beta * (size / dim) ** 0.5)
    t = represent(frame, recipe, unit)[0].astype(float)
    density = Density.kashin(beta, size / dim)
    # Interpolation is off by up to half a per cent, 65,536 coordinates by as much at six standard errors.
    assert np.mean(t**2) == pytest.approx(density.moment(2), rel=0.02)
    # The table counts the coordinates that pile up just below the bound as being at it.
    assert np.mean(np.abs(t) >= 1 - 1 / 256) == pytest.approx(
        sum(density.edges), abs=0.012
    )


@pytest.mark.parametrize("beta", [0.5, 1.0, 1.8, 6.0, 6.001, 50.0])
@pytest.mark.parametrize("redundancy", [1.0, 1.01, 4.0, 100.0])
def test_kashin_density_exists_everywhere(beta: float, redundancy: float) -> None:
    density = Density.kashin(beta, redundancy)
    assert density.edges[0] == density.edges[1]
    assert np.array_equal(density.masses, density.masses[::-1])
    assert density.moment(0) == pytest.approx(1)
