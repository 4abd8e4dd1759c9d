import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from sstq.baselines.mmrc import MMRC, _caps
from sstq.exactness import TOTAL, exp_lower
from tests.contract.cases import reread


def total(mechanism):
    return mechanism.expected_mse(np.full(mechanism.dim, mechanism.dim**-0.5)).total / mechanism.dim


@pytest.mark.parametrize(("bits", "expected"), [(8, 1.034), (11, 0.951)])
def test_golden_errors_of_the_common_split(bits, expected):
    # Measured: 1.034 and 0.951 at ε = 3, on a PrivUnit that itself has 0.910. That one halves the budget and takes
    # the cap of Bhowmick et al.'s sufficient condition (16a); a full-budget cap has the same error with 63.7 % for p.
    assert total(MMRC(10_000, 3.0, bits=bits, split=0.5, cap="bound")) == pytest.approx(expected, rel=0.005)
    assert total(MMRC(10_000, 3.0, bits=bits, split=0.637)) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("arguments", "spent"), [({"split": 0.5, "cap": "bound"}, 2.807), ({"split": 0.637}, 3.0)])
def test_the_reference_of_the_common_split(arguments, spent):
    """PrivUnit itself: 0.910 (measured); the sufficient condition leaves a part of ε unspent."""
    masses, ratios, _, means = _caps(10_000, 3.0, np.array([arguments["split"]]), arguments.get("cap", "tight"))
    p = 1 / (1 + math.exp(-3.0 * arguments["split"]))
    alignment = means[0] * (p - masses[0]) / (1 - masses[0])
    assert 1 / alignment**2 / 10_000 == pytest.approx(0.910, rel=0.002)
    assert math.log(ratios[0]) == pytest.approx(spent, abs=1e-3)
    assert MMRC(10_000, 3.0, bits=11, **arguments).privacy_loss() == pytest.approx(spent, abs=1e-3)


@pytest.mark.parametrize(("bits", "expected"), [(8, 1.012), (11, 0.944)])
def test_the_authors_code_clips_at_e_to_epsilon(bits, expected):
    """The docstring's comparison: the same cap, normalised weights kept within [c₁·e^−ε/M, c₁/M] instead of c₂/M."""
    dim, epsilon, size = 10_000, 3.0, 1 << bits
    masses, _, _, means = _caps(dim, epsilon, np.array([0.5]), "bound")
    p = 1 / (1 + math.exp(-epsilon / 2))
    c1, c2 = p / masses[0], (1 - p) / (1 - masses[0])
    i = np.arange(1, size)
    each_inside = np.minimum(c1 / (i * c1 + (size - i) * c2), c1 / size)
    each_outside = np.maximum((1 - i * each_inside) / (size - i), c1 * math.exp(-epsilon) / size)
    inside = np.concatenate([[0.0], 1 - (size - i) * each_outside, [1.0]])
    alignment = (
        means[0] * (stats.binom.pmf(np.arange(size + 1), size, masses[0]) @ inside - masses[0]) / (1 - masses[0])
    )
    assert 1 / alignment**2 / dim == pytest.approx(expected, abs=1e-3)
    # One and all but one inside are the extremes; with none or all of them inside every candidate has 1/M.
    assert math.log(each_inside.max() / each_outside.min()) == pytest.approx(epsilon, abs=1e-9)
    ours = MMRC(dim, epsilon, bits=bits, split=0.5, cap="bound")
    assert total(ours) > 1.005 * expected
    assert ours.privacy_loss() < 2.81


@pytest.mark.parametrize(("bits", "expected"), [(3, 1.9099), (8, 0.8665), (11, 0.7837)])
def test_measured_errors_of_the_best_split(bits, expected):
    # Ours, at d = 10,000 and ε = 3.
    assert total(MMRC(10_000, 3.0, bits=bits)) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("cap", ["tight", "bound"])
@pytest.mark.parametrize(("bits", "epsilon"), [(1, 1.0), (3, 0.1), (3, 3.0), (8, 3.0), (8, 12.0), (11, 6.0)])
def test_default_split_is_the_best(bits, epsilon, cap):
    best = MMRC(100, epsilon, bits=bits, cap=cap)
    for split in np.linspace(0, 1, 12):
        assert MMRC(100, epsilon, bits=bits, split=split, cap=cap).alignment < best.alignment * (1 + 1e-7)


@pytest.mark.parametrize("arguments", [{}, {"split": 0.5}, {"split": 0.9}, {"split": 0.5, "cap": "bound"}])
@pytest.mark.parametrize(("bits", "epsilon"), [(1, 3.0), (3, 0.5), (5, 8.0), (8, 3.0)])
def test_thresholds_are_the_published_rule(bits, epsilon, arguments):
    """π_in = c₁/M for θ ≤ θ̄, π_out = c₂/M for θ > θ̄ (Shah et al., MMRC), and c₂/M ≤ π ≤ c₁/M always."""
    mechanism = MMRC(50, epsilon, bits=bits, **arguments)
    size = mechanism.size
    masses, ratios, _, _ = _caps(50, epsilon, np.array([mechanism.split]), mechanism.cap)
    mass, ratio = float(masses[0]), float(ratios[0])
    outer = 1 / (1 + mass * (ratio - 1))
    inner = ratio * outer
    for i in range(1, size):
        inside = i / size * inner if i <= mass * size else 1 - (1 - i / size) * outer
        assert mechanism.thresholds[i] / TOTAL == pytest.approx(inside, rel=1e-12)
        assert outer * (1 - 1e-12) <= size * inside / i <= inner * (1 + 1e-12)
        assert outer * (1 - 1e-12) <= size * (1 - inside) / (size - i) <= inner * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 3.0, 16.0])
@pytest.mark.parametrize("bits", [1, 3, 6])
def test_every_pair_of_counts_is_within_e_to_the_epsilon(bits, epsilon):
    """All numbers of words of all candidates for all i, one by one: the bound is not only that of the law."""
    mechanism = MMRC(20, epsilon, bits=bits)
    size = mechanism.size
    weights = set()
    for inside, threshold in enumerate(mechanism.thresholds):
        for members, weight in ((inside, threshold), (size - inside, TOTAL - threshold)):
            firsts = [-(-j * TOTAL // members) for j in range(members + 1)] if members else []
            weights |= {weight * (high - low) for low, high in itertools.pairwise(firsts)}
    assert min(weights) > 0
    assert Fraction(max(weights), min(weights)) <= exp_lower(epsilon)


def test_plain_minimal_random_coding_is_refused():
    """A mutant: importance weights with a normaliser that depends on x are not ε-LDP, and the check says so."""
    size = 16
    thresholds = [
        int(TOTAL * (i * math.exp(3)) / (i * math.exp(3) + size - i)) if 0 < i < size else i // size * TOTAL
        for i in range(size + 1)
    ]
    with pytest.raises(ValueError, match=r"the draw is not 3\.0-LDP"):
        reread(MMRC(16, 3.0, bits=4), thresholds=[str(threshold) for threshold in thresholds])


@pytest.mark.parametrize("place", [1, 8, 15])
@pytest.mark.parametrize("value", ["0", str(TOTAL), str(TOTAL // 2), "1.5", "-1", "01", " 1", "١"])
def test_tampered_thresholds_are_refused(place, value):
    mechanism = MMRC(16, 3.0, bits=4)
    thresholds = mechanism.to_dict()["thresholds"]
    thresholds[place] = value
    with pytest.raises(ValueError, match=r"thresholds? .*must be|LDP|alignment must be|true does not occur"):
        reread(mechanism, thresholds=thresholds)


def rim_density(a, exponent, angle, power):
    """The density of the angle relative to that at the rim, times a power of the cosine."""
    return math.cos(a) ** power * (math.sin(a) / math.sin(angle)) ** exponent


@pytest.mark.parametrize("dim", [2, 3, 4, 30, 10_000])
def test_cap_against_quadrature(dim):
    """Mass and mean of a cap by numerical integration over the angle, density ∝ sin^(d−2)."""
    from scipy.integrate import quad

    for cap in ("tight", "bound") if dim > 2 else ("tight",):
        for share in (0.0, 0.4, 0.9, 1.0):
            (mass,), (ratio,), (square,), (mean,) = _caps(dim, 2.0, np.array([share]), cap)
            angle = math.acos(math.sqrt(square))
            # No further into the cap than matters.
            start = max(0.0, angle - 40 / math.sqrt(dim))
            inside, moment, quarter = (
                quad(rim_density, start, end, args=(dim - 2, angle, power))[0]
                for power, end in ((0, angle), (1, angle), (0, math.pi / 2))
            )
            assert mean == pytest.approx(moment / inside, rel=1e-8)
            assert mass == pytest.approx(inside / (2 * quarter), rel=1e-8)
            assert ratio <= math.exp(2.0) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": -0.1}, r"split must be a number in \[0, 1\], got -0.1"),
        ({"cap": "loose"}, "cap must be 'tight' or 'bound', got 'loose'"),
        ({"dim": 1}, r"dim must be an integer in \[2, "),
        ({"dim": 2, "cap": "bound"}, "dim must be at least 3 for cap='bound', got 2"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MMRC(**{"dim": 16, "epsilon": 3.0, "bits": 3} | arguments)
