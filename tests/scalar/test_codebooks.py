import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from sstq.scalar.codebooks import (
    Codebook,
    interpolation,
    optimized_codebook,
    panter_dite_codebook,
    stochastic_round,
    uniform_codebook,
)
from sstq.scalar.densities import Density

TYPICAL = Density.kashin(1.8, 2.575)


# --- the class ---


@pytest.mark.parametrize(
    "values",
    [
        *(
            [],
            [[-1.0, 1.0]],
            [1.0],
            np.linspace(-1, 1, 4097),
            [-0.9, 1.0],
            [-1.0, 0.9],
            [-1.0, 0.5, 0.4, 1.0],
        ),
        *([-1.0, odd, 0.0, 1.0] for odd in (math.nan, math.inf, -math.inf)),
    ],
)
def test_bad_codebooks_are_refused(values: list[float]) -> None:
    with pytest.raises(
        ValueError,
        match=r"values must be 2 to 4096 numbers from -1 to 1, in order, got \[",
    ):
        Codebook("bad", values)


def test_codebooks_are_values() -> None:
    book = uniform_codebook(3)
    assert book == uniform_codebook(3) != uniform_codebook(2)
    assert hash(book) == hash(uniform_codebook(3))
    assert (book.size, book.bits) == (8, 3)
    with pytest.raises(ValueError, match="read-only"):
        book.values[0] = 0.0


@pytest.mark.parametrize("bits", range(1, 13))
def test_uniform_codebook_is_an_exactly_symmetric_grid(bits: int) -> None:
    values = uniform_codebook(bits).values
    np.testing.assert_allclose(values, np.linspace(-1, 1, 1 << bits), atol=1e-15)
    np.testing.assert_allclose(
        panter_dite_codebook(bits, Density.uniform()).values, values, atol=1e-12
    )
    assert np.array_equal(values, -values[::-1])


# --- the surrogate optimum ---


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8, 12])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0, 10.0, 20.0])
def test_optimized_codebook_is_stationary_and_exactly_symmetric(
    bits: int, epsilon: float
) -> None:
    values = optimized_codebook(bits, epsilon).values
    assert np.array_equal(values, -values[::-1])
    assert math.fsum(values) == 0
    # Measured: gap_k² = gap_{k−1}² + 8λ·c_k at interior codewords. Next to the zeros, which stand for
    # codewords below 1e-150, it holds to within 8λ·1e-150.
    pull = 8 * values[1:-1] / math.expm1(epsilon)
    squares = np.diff(values) ** 2
    scale = np.maximum(np.maximum(squares[1:], squares[:-1]), np.abs(pull))
    assert (np.abs(squares[1:] - squares[:-1] - pull) <= 1e-9 * scale + 1e-145).all()


@pytest.mark.slow
@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_optimized_codebook_beats_slsqp_on_the_papers_formulation(
    bits: int, epsilon: float
) -> None:
    size = 1 << bits

    def objective(c: np.ndarray) -> float:
        return float((np.diff(c) ** 3).sum() / 12 + (c**2).sum() / math.expm1(epsilon))

    constraints = [
        {"type": "eq", "fun": lambda c: np.array([c[0] + 1, c[-1] - 1, c.sum()])},
        {"type": "ineq", "fun": np.diff},
    ]
    found = minimize(
        objective, np.linspace(-1, 1, size), method="SLSQP", constraints=constraints,
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    book = optimized_codebook(bits, epsilon)
    # SLSQP satisfies its constraints to about 1e-9 only, and may gain that much by violating them.
    assert objective(book.values) <= found.fun + 1e-8
    # Strong convexity, ℒ − ℒ* ≥ λ‖c − c*‖², turns the loss that SLSQP misses into a distance.
    miss = max(found.fun - objective(book.values), 0) + 1e-8
    assert np.sum((found.x - book.values) ** 2) <= miss * math.expm1(epsilon) + 1e-12


@pytest.mark.parametrize("bits", [4, 8])
def test_optimized_codebook_golden_values(bits: int) -> None:
    # Measured, ε = 3: Σc² = 2.4966 for M = 16 and M = 256; ±1, ±0.467, ±0.170, ±0.038, ±0.003, the rest ≈ 0.
    values = optimized_codebook(bits, 3.0).values
    assert (values**2).sum() == pytest.approx(2.4966, abs=5e-5)
    np.testing.assert_allclose(
        values[-5:], [0.003, 0.038, 0.170, 0.467, 1.0], atol=5e-4
    )
    assert np.abs(values[5:-5]).max() < 1e-4


# --- Panter–Dite ---


@pytest.mark.parametrize(
    "density", [TYPICAL, Density([0.5, 0.0, 0.0, 0.5]), Density([0.0, 0.5, 0.5, 0.0])]
)
@pytest.mark.parametrize("bits", [2, 4, 8, 12])
def test_panter_dite_gaps_carry_equal_shares_of_the_cube_root(
    density: Density, bits: int
) -> None:
    book = panter_dite_codebook(bits, density)
    weights = np.cbrt(density.masses)
    # Between the outermost codewords that were not moved to the anchors, shares are 1/(M − 1).
    cumulative = np.interp(
        book.values[1:-1],
        density.grid,
        np.append(0, np.cumsum(weights)) / weights.sum(),
    )
    np.testing.assert_allclose(
        cumulative, np.arange(1, book.size - 1) / (book.size - 1), atol=1e-9
    )
    assert np.array_equal(book.values, -book.values[::-1])


# --- rounding ---

CODEWORDS = st.lists(st.floats(-1, 1), min_size=6, max_size=6).map(
    lambda inner: np.array([-1.0, *sorted(inner), 1.0])
)
TINY = np.array([-1.0, -1.0, 0.0, 5e-324, 1e-300, 1.0, 1.0, 1.0])


@given(st.one_of(CODEWORDS, st.just(TINY)), st.floats(-1, 1), st.integers(0, 7))
def test_interpolation_reproduces_the_coordinate(
    values: np.ndarray, y: float, pick: int
) -> None:
    for point in (y, float(values[pick]), -1.0, 1.0):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lower, weight = interpolation(values, [point])
        k = int(lower[0])
        w = float(weight[0])
        assert 0 <= k <= 6
        assert 0 <= w <= 1
        assert (1 - w) * values[k] + w * values[k + 1] == pytest.approx(
            point, abs=4e-16
        )


def test_tokens_of_repeated_codewords_carry_the_coordinate() -> None:
    for y in (-1.0, 0.0, 5e-324, 1.0):
        for u in (0.0, 0.5, 1 - 2**-53):
            assert TINY[stochastic_round(TINY, [y], [u])[0]] == y


def test_rounding_is_unbiased(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = optimized_codebook(4, 3.0).values
    for y in (-0.99, -0.2, 1e-3, 0.6):
        tokens = stochastic_round(
            values, np.full(100_000, y), rng.uniform(size=100_000)
        )
        assert tokens.dtype == np.int64
        rounded = values[tokens]
        # z = 6 with the exact deviation √((y − c)(c′ − y)): a false failure once in 5·10^8.
        low = values[values <= y].max()
        high = values[values > y].min()
        assert set(rounded) <= {low, high}
        assert abs(rounded.mean() - y) < 6 * math.sqrt((y - low) * (high - y) / 100_000)


def test_coordinates_beyond_the_bound_by_rounding_are_clamped() -> None:
    lower, weight = interpolation(uniform_codebook(2).values, [-1.0000001, 1.0000001])
    assert lower.tolist() == [0, 2]
    assert weight.tolist() == [0.0, 1.0]
