"""Squared errors of baselines for a vector of norm clip: the paper's, others' and those that were measured."""

import math

import numpy as np
import pytest

import sstq


def error(name, dim, epsilon=3.0, **options):
    mechanism = sstq.mechanism(name, dim=dim, epsilon=epsilon, **options)
    return mechanism.expected_mse(np.full(dim, mechanism.clip * dim**-0.5)).total


@pytest.mark.parametrize(
    ("name", "dim", "options", "expected", "tolerance"),
    [
        # Paper, MSE versus dimension (ε = 3, C = 0.2): 767 is the hemisphere, 2.9 the optimum.
        ("privunit", 10_000, {"split": "hemisphere", "clip": 0.2}, 767, 0.005),
        ("privunit", 100, {"clip": 0.2}, 2.9, 0.02),
        # The optimum is 0.7425·d in the limit.
        ("privunit", 1_000_000, {}, 742_500, 1e-3),
        ("privunitg", 1_000_000, {}, 742_500, 1e-3),
        # Paper, Appendix A; its figure prints 561 (a Monte-Carlo value) and 4.4e8.
        ("vqsgd", 100, {"clip": 0.2}, 527.0, 2e-3),
        ("vqsgd", 10_000, {"clip": 0.2}, 4.4e8, 2e-3),
    ],
)
def test_errors_at_epsilon_3(name, dim, options, expected, tolerance):
    assert error(name, dim, **options) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("dim", "epsilon"), [(1, 20.0), (100, 3.0), (10**6, 0.01)])
def test_the_formula_of_vqsgd(dim, epsilon):
    # Rounding an integer weight up takes less than M = 2d of 2^62 from the others, hence from a gap of ε·2^62/M.
    slack = 1e-9 + 2 * (2 * dim) ** 2 / 2**62 / epsilon
    expected = dim * (1 + 2 * dim / math.expm1(epsilon)) ** 2 - 1
    assert error("vqsgd", dim, epsilon) == pytest.approx(expected, rel=2 * slack)
    assert epsilon - 1e-6 < sstq.VqSGD(dim, epsilon).privacy_loss() <= epsilon


@pytest.mark.parametrize(
    ("epsilon", "projected", "excess"),
    [(3.0, 512, 0.0013), (16.0, 512, 0.0206), (3.0, 256, 0.0027)],
)
def test_the_price_of_projecting(epsilon, projected, excess):
    """The excess over PrivUnit in R^d that the docstring states, with 512 dimensions and with half as many."""
    projection = error("projunit", 100_000, epsilon, projected=projected)
    assert projection / error("privunit", 100_000, epsilon) - 1 == pytest.approx(
        excess, abs=2.5e-4
    )
    assert sstq.ProjUnit(100_000, epsilon).projected == 512
