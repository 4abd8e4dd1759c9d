import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from sstq.exactness import TOTAL, exp_lower
from sstq.scalar.codebooks import (
    Codebook,
    interpolation,
    optimized_codebook,
    panter_dite_codebook,
    uniform_codebook,
)
from sstq.scalar.densities import Density
from sstq.scalar.metric_aware import (
    discrete_laplace_channel,
    laplace_probabilities,
    loss_optimal_codebook,
    metric_aware_loss,
    resolve_rate,
)

TYPICAL = Density.kashin(1.8, 2.575)
SKEWED = Density(np.arange(1, 65) / 2080 * 0.9, edges=(0.02, 0.08))
CODEWORDS = st.lists(st.floats(-0.999, 0.999), max_size=12).map(
    lambda inner: np.unique(np.round([-1.0, *inner, 1.0], 6))
)


def test_probabilities_are_the_cell_integrals() -> None:
    values = np.array([-1.0, -0.7, 0.1, 0.2, 1.0])
    rate = 1.7
    bounds = np.concatenate([[-1.0], (values[1:] + values[:-1]) / 2, [1.0]])
    expected = np.array(
        [
            [
                quad(
                    lambda t, c=centre: np.exp(-rate * abs(t - c)),
                    a,
                    b,
                    points=[min(max(centre, a), b)],
                )[0]
                for a, b in itertools.pairwise(bounds)
            ]
            for centre in values
        ]
    )
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        laplace_probabilities(values, rate), expected, rtol=1e-12
    )


@given(CODEWORDS, st.floats(0.01, 20))
def test_calibrated_rate_spends_the_budget_exactly(
    values: np.ndarray, epsilon: float
) -> None:
    probabilities = laplace_probabilities(
        values, resolve_rate(values, epsilon, "calibrated")
    )
    loss = np.log(probabilities.max(axis=0) / probabilities.min(axis=0)).max()
    assert loss == pytest.approx(epsilon, rel=1e-10)


@given(CODEWORDS, st.floats(0.01, 20))
def test_paper_rate_is_never_above_the_calibrated_one(
    values: np.ndarray, epsilon: float
) -> None:
    assert resolve_rate(values, epsilon, "paper") <= resolve_rate(
        values, epsilon, "calibrated"
    )


# --- the metric-aware loss and its optimum ---


def loss_by_quadrature(values: np.ndarray, density: Density, rate: float) -> float:
    """Evaluate E[(y − z)²] point by point: rounding, channel, squared error; midpoints of a fine grid for y."""
    points = (np.arange(cells := 1024 * 512) + 0.5) * (2 / cells) - 1
    weights = np.repeat(density.masses, cells // density.masses.size) * (
        density.masses.size / cells
    )
    points = np.concatenate([points, [-1.0, 1.0]])
    weights = np.concatenate([weights, density.edges])
    lower, share = interpolation(values, points)
    matrix = laplace_probabilities(values, rate)
    first = matrix @ values
    second = matrix @ values**2
    mean = (1 - share) * first[lower] + share * first[lower + 1]
    square = (1 - share) * second[lower] + share * second[lower + 1]
    return float(weights @ (points**2 - 2 * points * mean + square))


@pytest.mark.parametrize("density", [TYPICAL, SKEWED])
@pytest.mark.parametrize("rate", ["paper", "calibrated"])
def test_metric_aware_loss_is_the_expected_squared_error(
    density: Density, rate: str
) -> None:
    for book in (
        uniform_codebook(3),
        Codebook("odd", [-1.0, -0.9, -0.2, 0.1, 0.15, 0.3, 0.3, 1.0]),
    ):
        values = np.unique(book.values)
        expected = loss_by_quadrature(values, density, resolve_rate(values, 3.0, rate))
        assert metric_aware_loss(book, density, 3.0, rate) == pytest.approx(
            expected, rel=1e-6
        )


@pytest.mark.parametrize("density", [TYPICAL, SKEWED])
def test_metric_aware_loss_without_privacy_is_the_rounding_error(
    density: Density,
) -> None:
    # Paper, Section 5.1: ε → ∞ leaves Σ_k∫(y − c_k)(c_{k+1} − y)f.
    book = panter_dite_codebook(4, density)
    start = book.values[:-1]
    stop = book.values[1:]
    mass, first, second = density.integrals(start, stop)
    distortion = (-second + (start + stop) * first - start * stop * mass).sum()
    assert metric_aware_loss(book, density, 1e5, "paper") == pytest.approx(
        distortion, rel=1e-9
    )


@pytest.mark.parametrize("rate", ["paper", "calibrated"])
@pytest.mark.parametrize(
    ("density", "bits", "epsilon"),
    [
        *((Density.uniform(64), 2, epsilon) for epsilon in (0.5, 3.0)),
        *((Density([0.5, 0.0, 0.0, 0.5]), 2, epsilon) for epsilon in (0.5, 3.0)),
        pytest.param(TYPICAL, 4, 3.0, marks=pytest.mark.slow),
    ],
)
def test_loss_optimal_codebook_is_no_worse_than_the_others(
    density: Density, bits: int, epsilon: float, rate: str
) -> None:
    book = loss_optimal_codebook(bits, density, epsilon, rate)
    best = metric_aware_loss(book, density, epsilon, rate)
    for other in (uniform_codebook(bits), panter_dite_codebook(bits, density)):
        assert best <= metric_aware_loss(other, density, epsilon, rate)
    assert np.array_equal(book.values, -book.values[::-1])


def test_loss_optimal_arguments() -> None:
    with pytest.raises(
        ValueError, match=r"bits must be in \[1, 6\] for a loss-optimal codebook, got 7"
    ):
        loss_optimal_codebook(7, TYPICAL, 3.0)


# --- the discrete Laplace channel ---


def largest(channel):
    """The largest ratio in a column, by rational arithmetic over all pairs of rows."""
    columns = [[int(w) for w in column if w] for column in channel.matrix.T]
    return max(Fraction(max(column), min(column)) for column in columns if column)


@pytest.mark.parametrize("bits", [1, 2, 4, 6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
def test_uniform_codebooks_spend_exactly_epsilon(bits, epsilon):
    channel = discrete_laplace_channel(uniform_codebook(bits), epsilon)
    assert all(sum(map(int, row)) == TOTAL for row in channel.matrix)
    assert largest(channel) <= exp_lower(epsilon)
    assert float(largest(channel)) == pytest.approx(np.exp(epsilon), rel=1e-9)
    values = channel_values = uniform_codebook(bits).values
    law = np.exp(-epsilon * np.abs(values - channel_values[:, None]) / 2)
    np.testing.assert_allclose(
        channel.probabilities(), law / law.sum(axis=1, keepdims=True), rtol=1e-9
    )


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 8.0])
@pytest.mark.parametrize(
    "codebook",
    [
        Codebook("mine", [-1.0, 0.9, 0.95, 1.0]),
        Codebook("mine", [-1, -0.01, 0, 1]),
        optimized_codebook(5, 3.0),
    ],
    ids=["one-sided", "middle", "repeated"],
)
def test_other_codebooks_keep_to_epsilon(codebook, epsilon):
    channel = discrete_laplace_channel(codebook, epsilon)
    assert all(sum(map(int, row)) == TOTAL for row in channel.matrix)
    assert 0.99 * epsilon < np.log(float(largest(channel)))
    assert largest(channel) <= exp_lower(epsilon)
