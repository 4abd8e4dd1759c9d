import math

import numpy as np
import pytest

from sstq.baselines import RRSC, CompressedPrivUnitG
from sstq.baselines.closest_candidates import _factor
from tests.contract.cases import reread


def total(mechanism):
    return mechanism.expected_mse(np.full(mechanism.dim, mechanism.dim**-0.5)).total / mechanism.dim


@pytest.mark.parametrize(
    ("bits", "expected"),
    # Measured: 0.871 with 3 bits, 0.747 with 8, at ε = 3.
    [(3, 0.871), (8, 0.747)],
)
def test_golden_errors(bits, expected):
    assert total(RRSC(10_000, 3.0, bits=bits)) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("dim", "bits"), [(2, 1), (9, 3), (64, 6)])
def test_candidates_are_a_regular_simplex(dim, bits):
    mechanism = RRSC(dim, 3.0, bits=bits)
    size = mechanism.size
    codes = np.arange(size)[:: max(1, size // 16)]
    vertices = mechanism._vectors(np.full(len(codes), 77, dtype=np.uint64), codes)
    expected = (size * np.eye(len(codes)) - 1) / (size - 1)
    np.testing.assert_allclose(vertices @ vertices.T, expected, atol=1e-6)


def test_client_and_server_mean_the_same_simplex():
    """The scores are ⟨s_m, u⟩ up to a positive factor and a common shift."""
    mechanism = RRSC(20, 3.0, bits=4)
    direction = np.random.default_rng(1).standard_normal((1, 20))
    scores = mechanism._scores(mechanism._gaussians(np.array([5], dtype=np.uint64)), direction)[0]
    vertices = mechanism._vectors(np.full(16, 5, dtype=np.uint64), np.arange(16))
    np.testing.assert_allclose((scores - scores.mean()) * math.sqrt(16 / 15), vertices @ direction[0], atol=1e-8)


def test_rotation_is_uniform(seed):
    """The first vertex of 4,000 clients at d = M = 4: moments of the sphere, 8 z-tests at |z| < 6 (2e-8)."""
    mechanism, count = RRSC(4, 3.0, bits=2), 4000
    seeds = mechanism._seeds(seed + np.arange(count, dtype=np.uint64))
    for code in (0, 3):
        first = mechanism._vectors(seeds, np.full(count, code))
        for power, mean in ((1, 0.0), (2, 1 / 4), (4, 3 / 24)):
            values = first[:, 1] ** power
            assert abs(values.mean() - mean) < 6 * values.std() / count**0.5
        crossed = first[:, 0] * first[:, 1]
        assert abs(crossed.mean()) < 6 * crossed.std() / count**0.5


def test_nearly_dependent_candidates_do_not_fail():
    assert np.isfinite(_factor(np.ones((1, 2, 1)))).all()


@pytest.mark.parametrize(("dim", "bits", "most"), [(2, 2, 1), (255, 8, 7)])
def test_a_simplex_needs_as_many_dimensions(dim, bits, most):
    message = rf"bits must be an integer in \[1, {most}\], got {bits}"
    with pytest.raises(ValueError, match=message):
        RRSC(dim, 3.0, bits=bits)
    with pytest.raises(ValueError, match=message):
        reread(RRSC(1 << bits, 3.0, bits=bits), dim=dim)


# --- compressed PrivUnitG ---


@pytest.mark.parametrize(("bits", "expected"), [(3, 0.9938), (8, 0.7501), (12, 0.7430)])
def test_measured_errors(bits, expected):
    # Ours, at d = 10,000 and ε = 3; the optimum, PrivUnitG's, is 0.7425; independent rows with 3 bits: 0.993.
    assert total(CompressedPrivUnitG(10_000, 3.0, bits=bits)) == pytest.approx(expected, abs=1e-4)


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
