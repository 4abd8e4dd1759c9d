import math

import numpy as np
import pytest

from sstq.baselines.mmrc import MMRC, CapDraw, _caps, _thresholds
from sstq.exactness import TOTAL, exp_lower


@pytest.mark.parametrize(("bits", "epsilon"), [(1, 1.0), (8, 3.0), (8, 12.0)])
def test_the_split_is_the_best(bits, epsilon):
    best, size = MMRC(100, epsilon, bits=bits), 1 << bits
    for split in np.linspace(0, 1, 12):
        masses, squares, _ = _caps(100, epsilon, np.array([split]))
        thresholds = _thresholds(size, float(masses[0]), exp_lower(epsilon))
        other = CapDraw(math.sqrt(squares[0]), thresholds, split, epsilon)
        assert MMRC._alignment(other, 100) < best.alignment * (1 + 1e-7)


@pytest.mark.parametrize(("bits", "epsilon"), [(1, 3.0), (5, 8.0)])
def test_thresholds_are_the_published_rule(bits, epsilon):
    """π_in = c₁/M for θ ≤ θ̄, π_out = c₂/M for θ > θ̄ (Shah et al., MMRC), and c₂/M ≤ π ≤ c₁/M always."""
    mechanism = MMRC(50, epsilon, bits=bits)
    size, ratio = mechanism.size, math.exp(epsilon)
    mass = float(_caps(50, epsilon, np.array([mechanism.split]))[0][0])
    outer = 1 / (1 + mass * (ratio - 1))
    inner = ratio * outer
    for i in range(1, size):
        inside = i / size * inner if i <= mass * size else 1 - (1 - i / size) * outer
        assert mechanism.thresholds[i] / TOTAL == pytest.approx(inside, rel=1e-12)
        assert outer * (1 - 1e-12) <= size * inside / i <= inner * (1 + 1e-12)
        assert outer * (1 - 1e-12) <= size * (1 - inside) / (size - i) <= inner * (1 + 1e-12)


def rim_density(a, exponent, angle, power):
    """The density of the angle relative to that at the rim, times a power of the cosine."""
    return math.cos(a) ** power * (math.sin(a) / math.sin(angle)) ** exponent


@pytest.mark.parametrize("dim", [2, 3, 10_000])
def test_cap_against_quadrature(dim):
    """Mass and mean of a cap by numerical integration over the angle, density ∝ sin^(d−2)."""
    from scipy.integrate import quad

    for share in (0.0, 0.4, 0.9, 1.0):
        (mass,), (square,), (mean,) = _caps(dim, 2.0, np.array([share]))
        angle = math.acos(math.sqrt(square))
        # No further into the cap than matters.
        start = max(0.0, angle - 40 / math.sqrt(dim))
        inside, moment, quarter = (
            quad(rim_density, start, end, args=(dim - 2, angle, power))[0]
            for power, end in ((0, angle), (1, angle), (0, math.pi / 2))
        )
        assert mean == pytest.approx(moment / inside, rel=1e-8)
        assert mass == pytest.approx(inside / (2 * quarter), rel=1e-8)
