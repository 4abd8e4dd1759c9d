import math

import numpy as np
import pytest

from sstq.baselines.compressed_privunitg import CompressedPrivUnitG
from sstq.baselines.rrsc import RRSC


def total(mechanism):
    return mechanism.expected_mse(np.full(mechanism.dim, mechanism.dim**-0.5)).total / mechanism.dim


@pytest.mark.parametrize(("bits", "expected"), [(3, 0.9938), (8, 0.7501), (10, 0.7444), (12, 0.7430)])
def test_measured_errors(bits, expected):
    # Ours, at d = 10,000 and ε = 3; independent rows with 3 bits: 0.993 (measured).
    assert total(CompressedPrivUnitG(10_000, 3.0, bits=bits)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 6.0])
def test_approaches_privunitg(epsilon):
    """With many candidates the error is that of the optimal Gaussian cap, min over q of (1/d-free) 1/μ²."""
    from scipy.stats import norm

    mass = np.linspace(0.0005, 0.5, 20_000)
    inside = mass * math.exp(epsilon) / (mass * math.exp(epsilon) + 1 - mass)
    optimum = np.min((mass * (1 - mass) / (norm.pdf(norm.isf(mass)) * (inside - mass))) ** 2)
    measured = total(CompressedPrivUnitG(10_000, epsilon, bits=12))
    assert optimum < measured + 1e-4
    assert measured == pytest.approx(optimum, rel=0.005)


def test_independent_candidates_cost_more_than_a_simplex():
    # E‖z‖²/μ² of both differ by the factor M/(M − 1), but for terms of order 1/d.
    for bits in (1, 3, 8):
        ratio = total(CompressedPrivUnitG(10_000, 3.0, bits=bits)) / total(RRSC(10_000, 3.0, bits=bits))
        assert ratio == pytest.approx(2**bits / (2**bits - 1), rel=1e-3)


@pytest.mark.parametrize("dim", [1, 2])
def test_power_at_tiny_dimensions(dim, seed):
    """E‖z‖² counts the selection: 2 z-tests at |z| < 6 (4e-9)."""
    mechanism, count = CompressedPrivUnitG(dim, 3.0, bits=4, seed=seed), 20_000
    x = np.eye(dim)[0]
    decoded = mechanism.decode(mechanism.encode(np.tile(x, (count, 1)), rng=seed, clients=np.arange(count)))
    squared = np.sum((decoded - x) ** 2, axis=1)
    assert mechanism._power > 1.1
    assert abs(squared.mean() - mechanism.expected_mse(x).total) < 6 * squared.std() / count**0.5
    assert abs(decoded[:, 0].mean() - 1) < 6 * decoded[:, 0].std() / count**0.5
