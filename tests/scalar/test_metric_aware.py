import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from sstq.scalar.metric_aware import laplace_probabilities, resolve_rate

CODEWORDS = st.lists(st.floats(-0.999, 0.999), max_size=12).map(
    lambda inner: np.unique(np.round([-1.0, *inner, 1.0], 6))
)


def test_probabilities_are_the_cell_integrals() -> None:
    values, rate = np.array([-1.0, -0.7, 0.1, 0.2, 1.0]), 1.7
    bounds = np.concatenate([[-1.0], (values[1:] + values[:-1]) / 2, [1.0]])
    expected = np.array(
        [
            [
                quad(lambda t, c=centre: np.exp(-rate * abs(t - c)), a, b, points=[min(max(centre, a), b)])[0]
                for a, b in itertools.pairwise(bounds)
            ]
            for centre in values
        ]
    )
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(laplace_probabilities(values, rate), expected, rtol=1e-12)


@given(CODEWORDS, st.floats(0.01, 20))
def test_calibrated_rate_spends_the_budget_exactly(values: np.ndarray, epsilon: float) -> None:
    probabilities = laplace_probabilities(values, resolve_rate(values, epsilon, "calibrated"))
    loss = np.log(probabilities.max(axis=0) / probabilities.min(axis=0)).max()
    assert loss == pytest.approx(epsilon, rel=1e-10)


@given(CODEWORDS, st.floats(0.01, 20))
def test_paper_rate_is_never_above_the_calibrated_one(values: np.ndarray, epsilon: float) -> None:
    assert resolve_rate(values, epsilon, "paper") <= resolve_rate(values, epsilon, "calibrated")


@pytest.mark.parametrize(("size", "rate"), [(4, 1.80), (16, 1.55), (256, 1.503)])
def test_calibrated_rates_of_uniform_codebooks(size: int, rate: float) -> None:
    # FINDINGS 10 and DESIGN: ε(M − 1)/(2M − 3) at ε = 3.
    found = resolve_rate(np.linspace(-1, 1, size), 3.0, "calibrated")
    assert found == pytest.approx(rate, abs=1e-2 if size == 16 else 1e-3)
    assert found == pytest.approx(3 * (size - 1) / (2 * size - 3), rel=1e-14)


def test_an_unknown_rate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rate must be .calibrated. or .paper., got .fast."):
        resolve_rate(np.array([-1.0, 1.0]), 1.0, "fast")
