import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from sstq.scalar.codebooks import (
    Codebook,
    interpolation,
    loss_optimal_codebook,
    metric_aware_loss,
    optimized_codebook,
    panter_dite_codebook,
    stochastic_round,
    surrogate_loss,
    uniform_codebook,
)
from sstq.scalar.codebooks.loss_optimal import _calibrated_gradient, _loss, _loss_gradient
from sstq.scalar.densities import Density
from sstq.scalar.laplace import laplace_probabilities, resolve_rate

GAUSSIAN = Density.censored_gaussian(1.8, cells=256)
SKEWED = Density(np.arange(1, 65) / 2080 * 0.9, edges=(0.02, 0.08))


def feasible(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw an ordered, anchored, symmetric (hence zero-sum) codebook."""
    half = np.sort(rng.uniform(0, 1, size // 2) ** rng.choice([1, 4]))
    half[-1] = 1.0
    return np.concatenate([-half[::-1], half])


# --- the class ---


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], r"values has shape \(0,\)"),
        ([[-1.0, 1.0]], r"values has shape \(1, 2\)"),
        ([1.0], r"values has shape \(1,\)"),
        (np.linspace(-1, 1, 8192), r"values has shape \(8192,\)"),
        ([-1.0, math.nan, 0.0, 1.0], "NaN"),
        ([-0.9, 1.0], r"values\[0\] = -0.9"),
        ([-1.0, 0.9], r"values\[-1\] = 0.9"),
        ([-1.0, 0.5, 0.4, 1.0], r"values\[2\] = 0.4 is below"),
    ],
)
def test_bad_codebooks_are_refused(values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Codebook("bad", values)


def test_codebooks_are_values() -> None:
    book = uniform_codebook(3)
    assert book == uniform_codebook(3) != uniform_codebook(2)
    assert hash(book) == hash(uniform_codebook(3))
    assert (book.size, book.bits) == (8, 3)
    with pytest.raises(ValueError, match="read-only"):
        book.values[0] = 0.0


@pytest.mark.parametrize("bits", [0, 13, 2.0, True, "4"])
def test_bad_bits_are_refused(bits: object) -> None:
    with pytest.raises(ValueError, match=r"bits = .* is not an integer in \[1, 12\]"):
        uniform_codebook(bits)


@pytest.mark.parametrize("bits", range(1, 13))
def test_uniform_codebook_is_an_exactly_symmetric_grid(bits: int) -> None:
    values = uniform_codebook(bits).values
    np.testing.assert_allclose(values, np.linspace(-1, 1, 1 << bits), atol=1e-15)
    assert np.array_equal(values, -values[::-1])


# --- the surrogate optimum ---


@pytest.mark.parametrize("bits", range(1, 13))
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 3.0, 6.0, 10.0, 20.0])
def test_optimized_codebook_is_stationary_and_exactly_symmetric(bits: int, epsilon: float) -> None:
    values = optimized_codebook(bits, epsilon).values
    assert np.array_equal(values, -values[::-1])
    assert math.fsum(values) == 0
    # FINDINGS 3: gap_k² = gap_{k−1}² + 8λ·c_k at interior codewords. Next to the zeros, which stand for
    # codewords below 1e-150, it holds to within 8λ·1e-150.
    pull = 8 * values[1:-1] / math.expm1(epsilon)
    squares = np.diff(values) ** 2
    scale = np.maximum(np.maximum(squares[1:], squares[:-1]), np.abs(pull))
    assert (np.abs(squares[1:] - squares[:-1] - pull) <= 1e-9 * scale + 1e-145).all()


@pytest.mark.slow
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
def test_optimized_codebook_beats_slsqp_on_the_papers_formulation(bits: int, epsilon: float) -> None:
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
    assert surrogate_loss(book, epsilon) <= found.fun + 1e-8
    # Strong convexity, ℒ − ℒ* ≥ λ‖c − c*‖², turns the loss that SLSQP misses into a distance.
    miss = max(found.fun - surrogate_loss(book, epsilon), 0) + 1e-8
    assert np.sum((found.x - book.values) ** 2) <= miss * math.expm1(epsilon) + 1e-12


@pytest.mark.parametrize("bits", [4, 8])
def test_optimized_codebook_golden_values(bits: int) -> None:
    # FINDINGS 3, ε = 3: Σc² = 2.4966 for M = 16 and M = 256; ±1, ±0.467, ±0.170, ±0.038, ±0.003, the rest ≈ 0.
    values = optimized_codebook(bits, 3.0).values
    assert (values**2).sum() == pytest.approx(2.4966, abs=5e-5)
    np.testing.assert_allclose(values[-5:], [0.003, 0.038, 0.170, 0.467, 1.0], atol=5e-4)
    assert np.abs(values[5:-5]).max() < 1e-4


@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(0.01, 20), st.floats(0, 1))
def test_surrogate_loss_is_convex(seed: int, bits: int, epsilon: float, share: float) -> None:
    rng = np.random.default_rng(seed)
    first, second = feasible(rng, 1 << bits), feasible(rng, 1 << bits)
    mixed = surrogate_loss(Codebook("mix", share * first + (1 - share) * second), epsilon)
    ends = [surrogate_loss(Codebook("end", values), epsilon) for values in (first, second)]
    assert mixed <= (share * ends[0] + (1 - share) * ends[1]) * (1 + 1e-12)


@given(st.integers(0, 2**32), st.floats(0.01, 20))
def test_surrogate_hessian_is_at_least_two_lambda(seed: int, epsilon: float) -> None:
    # Paper, proof of Theorem 4.2: ∇²ℒ = Dᵀ diag(gap/2) D + 2λI ⪰ 2λI on the feasible set.
    values = feasible(np.random.default_rng(seed), 16)
    difference = np.diff(np.eye(16), axis=0)
    floor = 2 / math.expm1(epsilon)
    hessian = difference.T @ np.diag(np.diff(values) / 2) @ difference + floor * np.eye(16)
    assert np.linalg.eigvalsh(hessian).min() >= floor * (1 - 1e-9) - 1e-14
    # The formula is the Hessian of the function itself: compare a second difference along a random direction.
    direction = np.random.default_rng(seed + 1).normal(size=16)

    def along(step: float) -> float:
        c = values + step * direction
        return float((np.diff(c) ** 3).sum() / 12 + (c**2).sum() / math.expm1(epsilon))

    second = (along(1e-3) - 2 * along(0) + along(-1e-3)) / 1e-6
    assert second == pytest.approx(direction @ hessian @ direction, rel=1e-5, abs=1e-7)


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(2, 8), st.floats(0.01, 20), st.floats(1e-6, 0.3))
def test_perturbations_never_lower_the_surrogate_loss(seed: int, bits: int, epsilon: float, size: float) -> None:
    rng = np.random.default_rng(seed)
    book = optimized_codebook(bits, epsilon)
    moved = np.sort(np.clip(book.values + size * rng.normal(size=book.size), -1, 1))
    moved[[0, -1]] = -1, 1
    moved = (moved - moved[::-1]) / 2
    best = surrogate_loss(book, epsilon)
    assert surrogate_loss(Codebook("moved", moved), epsilon) >= best * (1 - 1e-13)


# --- Panter–Dite ---


@pytest.mark.parametrize("bits", range(1, 13))
def test_panter_dite_of_the_uniform_density_is_uniform(bits: int) -> None:
    np.testing.assert_allclose(
        panter_dite_codebook(bits, Density.uniform()).values, uniform_codebook(bits).values, atol=1e-12
    )


@pytest.mark.parametrize("density", [GAUSSIAN, SKEWED, Density([0.5, 0.0, 0.0, 0.5]), Density([0.0, 1.0, 0.0, 0.0])])
@pytest.mark.parametrize("bits", [2, 4, 8, 12])
def test_panter_dite_gaps_carry_equal_shares_of_the_cube_root(density: Density, bits: int) -> None:
    book = panter_dite_codebook(bits, density)
    weights = np.cbrt(density.masses)
    # Between the outermost codewords that were not moved to the anchors, shares are 1/(M − 1).
    cumulative = np.interp(book.values[1:-1], density.grid, np.append(0, np.cumsum(weights)) / weights.sum())
    np.testing.assert_allclose(cumulative, np.arange(1, book.size - 1) / (book.size - 1), atol=1e-9)
    if density.symmetric:
        assert np.array_equal(book.values, -book.values[::-1])


def test_panter_dite_reaches_its_high_resolution_distortion() -> None:
    # Paper, Section 5.1: Σ∫(y − c_k)(c_{k+1} − y)f → (∫f^{1/3})³/(6(M − 1)²) = 4·C_f/(6(M − 1)²).
    density = Density.censored_gaussian(1.8, cells=4096)
    book = panter_dite_codebook(8, density)
    start, stop = book.values[:-1], book.values[1:]
    mass, first, second = density.integrals(start, stop)
    distortion = (-second + (start + stop) * first - start * stop * mass).sum()
    assert distortion == pytest.approx(4 * density.shape_factor() / (6 * 255**2), rel=1e-3)


def test_panter_dite_needs_mass_inside() -> None:
    with pytest.raises(ValueError, match="no mass strictly between"):
        panter_dite_codebook(2, Density([0.0], edges=(0.5, 0.5)))


# --- the metric-aware loss and its optimum ---


def loss_by_quadrature(values: np.ndarray, density: Density, rate: float) -> float:
    """Evaluate E[(y − z)²] point by point: rounding, channel, squared error; midpoints of a fine grid for y."""
    points = (np.arange(400_000) + 0.5) / 200_000 - 1
    weights = density.pdf(points) / 200_000
    points = np.concatenate([points, [-1.0, 1.0]])
    weights = np.concatenate([weights, density.edges])
    lower, share = interpolation(values, points)
    matrix = laplace_probabilities(values, rate)
    first, second = matrix @ values, matrix @ values**2
    mean = (1 - share) * first[lower] + share * first[lower + 1]
    square = (1 - share) * second[lower] + share * second[lower + 1]
    return float(weights @ (points**2 - 2 * points * mean + square))


@pytest.mark.parametrize("density", [GAUSSIAN, SKEWED])
@pytest.mark.parametrize("rate", ["paper", "calibrated"])
def test_metric_aware_loss_is_the_expected_squared_error(density: Density, rate: str) -> None:
    for book in (uniform_codebook(3), Codebook("odd", [-1.0, -0.9, -0.2, 0.1, 0.15, 0.3, 0.3, 1.0])):
        values = np.unique(book.values)
        expected = loss_by_quadrature(values, density, resolve_rate(values, 3.0, rate))
        assert metric_aware_loss(book, density, 3.0, rate) == pytest.approx(expected, rel=1e-6)


def test_metric_aware_loss_by_simulation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    book, n = uniform_codebook(3), 400_000
    cell = rng.choice(GAUSSIAN.masses.size + 2, size=n, p=np.append(GAUSSIAN.masses, GAUSSIAN.edges))
    inside = (cell + rng.uniform(size=n)) / 128 - 1
    y = np.where(cell == 256, -1.0, np.where(cell == 257, 1.0, inside))
    token = stochastic_round(book.values, y, rng.uniform(size=n))
    matrix = laplace_probabilities(book.values, resolve_rate(book.values, 3.0, "calibrated"))
    code = (rng.uniform(size=(n, 1)) > np.cumsum(matrix, axis=1)[token]).sum(axis=1)
    errors = (y - book.values[np.minimum(code, 7)]) ** 2
    # z = 6: a false failure once in 5·10^8 runs.
    assert abs(errors.mean() - metric_aware_loss(book, GAUSSIAN, 3.0)) < 6 * errors.std() / math.sqrt(n)


@pytest.mark.parametrize("density", [GAUSSIAN, SKEWED])
def test_metric_aware_loss_without_privacy_is_the_rounding_error(density: Density) -> None:
    # Paper, Section 5.1: ε → ∞ leaves Σ_k∫(y − c_k)(c_{k+1} − y)f.
    book = panter_dite_codebook(4, density)
    start, stop = book.values[:-1], book.values[1:]
    mass, first, second = density.integrals(start, stop)
    distortion = (-second + (start + stop) * first - start * stop * mass).sum()
    assert metric_aware_loss(book, density, 1e5, "paper") == pytest.approx(distortion, rel=1e-9)


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("density", [GAUSSIAN, SKEWED])
def test_loss_gradient(calibrated: bool, density: Density) -> None:
    values = np.array([-1.0, -0.8, -0.35, 0.1, 0.15, 0.3, 0.77, 1.0])
    rate = resolve_rate(values, 3.0, "calibrated")
    gradient = (_calibrated_gradient if calibrated else _loss_gradient)(values, density, rate)
    for k in range(1, 7):
        step = np.zeros(8)
        step[k] = 1e-5
        losses = [
            _loss(c, density, resolve_rate(c, 3.0, "calibrated") if calibrated else rate)
            for c in (values + step, values - step)
        ]
        assert gradient[k] == pytest.approx((losses[0] - losses[1]) / 2e-5, abs=1e-7)


@pytest.mark.parametrize("density", [Density.uniform(64), GAUSSIAN, SKEWED, Density([0.5, 0.0, 0.0, 0.5])])
@pytest.mark.parametrize("rate", ["paper", "calibrated"])
@pytest.mark.parametrize("bits", [1, 2, 4, 6])
def test_loss_optimal_codebook_is_no_worse_than_the_others(density: Density, rate: str, bits: int) -> None:
    for epsilon in (0.5, 3.0):
        book = loss_optimal_codebook(bits, density, epsilon, rate)
        best = metric_aware_loss(book, density, epsilon, rate)
        for other in (uniform_codebook(bits), panter_dite_codebook(bits, density)):
            assert best <= metric_aware_loss(other, density, epsilon, rate)
        if density.symmetric:
            assert np.array_equal(book.values, -book.values[::-1])


@given(st.integers(0, 2**32), st.floats(1e-4, 0.1))
@settings(max_examples=50)
def test_perturbations_do_not_lower_the_loss_of_the_optimum(seed: int, size: float) -> None:
    book = OPTIMUM
    moved = np.sort(np.clip(book.values + size * np.random.default_rng(seed).normal(size=book.size), -1, 1))
    moved[[0, -1]] = -1, 1
    moved = (moved - moved[::-1]) / 2
    assert metric_aware_loss(Codebook("moved", moved), GAUSSIAN, 3.0) >= metric_aware_loss(book, GAUSSIAN, 3.0) - 1e-12


OPTIMUM = loss_optimal_codebook(3, GAUSSIAN, 3.0)


def test_loss_optimal_arguments() -> None:
    with pytest.raises(ValueError, match=r"bits = 9 is not in \[1, 8\]"):
        loss_optimal_codebook(9, GAUSSIAN, 3.0)
    with pytest.raises(ValueError, match=r"epsilon = 0\.0 is not positive"):
        metric_aware_loss(uniform_codebook(1), GAUSSIAN, 0.0)
    with pytest.raises(ValueError, match="rate = 'best'"):
        metric_aware_loss(uniform_codebook(1), GAUSSIAN, 1.0, "best")


# --- rounding ---

CODEWORDS = st.lists(st.floats(-1, 1), min_size=6, max_size=6).map(lambda inner: np.array([-1.0, *sorted(inner), 1.0]))
TINY = np.array([-1.0, -1.0, 0.0, 5e-324, 1e-300, 1.0, 1.0, 1.0])


@given(st.one_of(CODEWORDS, st.just(TINY)), st.floats(-1, 1), st.integers(0, 7))
def test_interpolation_reproduces_the_coordinate(values: np.ndarray, y: float, pick: int) -> None:
    for point in (y, float(values[pick]), -1.0, 1.0):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lower, weight = interpolation(values, [point])
        k, w = int(lower[0]), float(weight[0])
        assert 0 <= k <= 6
        assert 0 <= w <= 1
        assert (1 - w) * values[k] + w * values[k + 1] == pytest.approx(point, abs=4e-16)


def test_tokens_of_repeated_codewords_carry_the_coordinate() -> None:
    for y in (-1.0, 0.0, 5e-324, 1.0):
        for u in (0.0, 0.5, 1 - 2**-53):
            assert TINY[stochastic_round(TINY, [y], [u])[0]] == y


def test_rounding_is_unbiased(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = optimized_codebook(4, 3.0).values
    for y in (-0.99, -0.2, 1e-3, 0.6):
        tokens = stochastic_round(values, np.full(100_000, y), rng.uniform(size=100_000))
        assert tokens.dtype == np.int64
        rounded = values[tokens]
        # z = 6 with the exact deviation √((y − c)(c′ − y)): a false failure once in 5·10^8.
        low, high = values[values <= y].max(), values[values > y].min()
        assert set(rounded) <= {low, high}
        assert abs(rounded.mean() - y) < 6 * math.sqrt((y - low) * (high - y) / 100_000)


def test_coordinates_beyond_the_bound_by_rounding_are_clamped() -> None:
    lower, weight = interpolation(uniform_codebook(2).values, [-1.0000001, 1.0000001])
    assert lower.tolist() == [0, 2]
    assert weight.tolist() == [0.0, 1.0]
