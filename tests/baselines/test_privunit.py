import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, special

from sstq.baselines.caps import Cap
from sstq.baselines.privunit import PrivUnit, PrivUnitG
from sstq.exactness import TOTAL, exp_lower

VARIANTS = {
    "privunit": (PrivUnit, {}),
    "hemisphere": (PrivUnit, {"split": "hemisphere"}),
    "privunitg": (PrivUnitG, {}),
}
all_variants = pytest.mark.parametrize("variant", VARIANTS)


def make(variant, dim=12, epsilon=3.0, **changes):
    mechanism, options = VARIANTS[variant]
    return mechanism(dim=dim, epsilon=epsilon, **options | changes)


def integral(density, coordinate, power, low, high):
    return integrate.quad(
        lambda a: density(a) * coordinate(a) ** power,
        low,
        high,
        epsabs=1e-14,
        limit=400,
    )[0]


@pytest.mark.parametrize("dim", [2, 3, 300])
@pytest.mark.parametrize("epsilon", [0.1, 12.0])
def test_cap_against_quadrature(dim, epsilon):
    """Mass, gain and second moments of both caps by numerical integration of their densities."""
    sphere = Cap.optimal(dim, epsilon)
    gauss = Cap.optimal(dim, epsilon, on_sphere=False)
    # On the sphere t = cos θ with density sin^(d−2) θ; the Gaussian coordinate is g/√d.
    weight = special.beta(0.5, (dim - 1) / 2)
    cases = [
        (
            sphere,
            lambda a: math.sin(a) ** (dim - 2) / weight,
            math.cos,
            math.acos(sphere.threshold),
            math.pi,
            1.0,
        ),
        (
            gauss,
            lambda a: math.exp(-a * a / 2) / math.sqrt(2 * math.pi),
            lambda a: -a / dim**0.5,
            -gauss.threshold * dim**0.5,
            12.0,
            1 - 1 / dim,
        ),
    ]
    for cap, density, coordinate, edge, end, across in cases:
        start = 0.0 if cap is sphere else -12.0
        mass = cap.mass / TOTAL
        inside = cap.inside / TOTAL
        levels = ((start, edge, inside / mass), (edge, end, (1 - inside) / (1 - mass)))
        moments = [
            sum(
                level * integral(density, coordinate, power, low, high)
                for low, high, level in levels
            )
            for power in (0, 1, 2)
        ]
        assert moments[0] == pytest.approx(1, rel=1e-7)
        assert moments[1] == pytest.approx(cap.gain, rel=1e-6)
        if cap is sphere:
            assert moments[2] == pytest.approx(cap.power_along, rel=1e-6)
        else:
            assert cap.power == pytest.approx(across + moments[2], rel=1e-6)


@pytest.mark.parametrize("on_sphere", [True, False])
@pytest.mark.parametrize("dim", [2, 1000])
@pytest.mark.parametrize("epsilon", [0.1, 16.0])
def test_the_optimal_cap_is_optimal(on_sphere, dim, epsilon):
    best = Cap.optimal(dim, epsilon, on_sphere)
    least = best.power / best.gain**2
    for mass in np.geomspace(1e-9, 0.5, 60):
        other = Cap.of_mass(dim, epsilon, round(mass * TOTAL), on_sphere)
        assert other.power / other.gain**2 >= least * (1 - 1e-9)
    if on_sphere:
        assert best.threshold == pytest.approx(best.gain, rel=1e-6)


@all_variants
def test_extreme_words_give_finite_vectors(variant):
    words = np.array([0, 1, 2**52, 2**63, 2**64 - 1], dtype=np.uint64)
    for dim in (2, 3, 1001):
        for epsilon in (0.1, 16.0):
            cap = make(variant, dim=dim, epsilon=epsilon).cap
            grid = np.stack(np.meshgrid(words, words, words), axis=-1).reshape(-1, 3)
            table = np.repeat(grid[:, 2:], cap.words, axis=1)
            table[:, :2] = grid[:, :2]
            vectors = cap.draw(np.tile(np.eye(dim)[1], (len(table), 1)), table)
            assert np.all(np.isfinite(vectors))
            assert np.all(np.abs(vectors) < 20)


# Privacy.


def test_the_levels_keep_epsilon_exactly():
    for on_sphere in (True, False):
        for epsilon in (0.01, math.pi, 20.0):
            for cap in (
                Cap.optimal(50, epsilon, on_sphere),
                Cap.of_mass(50, epsilon, TOTAL // 2, on_sphere),
            ):
                p = Fraction(cap.inside, TOTAL)
                a = Fraction(cap.mass, TOTAL)
                assert p / a * (1 - a) / (1 - p) <= exp_lower(epsilon)
                # One unit more would be too much.
                p = Fraction(cap.inside + 1, TOTAL)
                assert p / a * (1 - a) / (1 - p) > exp_lower(epsilon)
                assert cap.privacy_loss() <= epsilon


def ranks(mechanism, vectors, u):
    """The mass beyond ⟨v, u⟩ under P: uniform in (0, 1) if v came from P, whatever the dimension."""
    t = np.asarray(vectors, dtype=np.float64) @ u
    if isinstance(mechanism, PrivUnitG):
        return special.ndtr(-t * mechanism.dim**0.5)
    tail = 0.5 * special.betaincc(0.5, (mechanism.dim - 1) / 2, np.minimum(t**2, 1))
    return np.where(t > 0, tail, 1 - tail)


@pytest.mark.parametrize(
    ("variant", "dim"), [("privunit", 3), ("hemisphere", 40), ("privunitg", 40)]
)
def test_the_density_along_the_vector_has_its_two_levels(variant, dim, seed):
    """In ranks it is a step function: histograms of both sides with 8 bins each, at |z| < 6 (3e-8)."""
    mechanism = make(variant, dim=dim, epsilon=2.0)
    x = np.full(dim, dim**-0.5)
    count = 20_000
    bins = 8
    mass = mechanism.cap.mass / TOTAL
    inside = mechanism.cap.inside / TOTAL
    observed = ranks(
        mechanism,
        mechanism.encode(np.tile(x, (count, 1)), rng=seed).column("vector"),
        x,
    )
    for low, high, share in ((0.0, mass, inside), (mass, 1.0, 1 - inside)):
        # Single precision on the wire may move a vector over an edge, but hardly ever.
        counts = np.histogram(observed, np.linspace(low, high, bins + 1))[0]
        expected = count * share / bins
        assert np.all(np.abs(counts - expected) < 6 * np.sqrt(expected) + 3)


def test_the_whole_output_on_the_circle(seed):
    """At d = 2 the angle is all of the output: its density has two levels for every x, antipodal and short ones too.

    6 vectors, 12 bins each, |z| < 6: false-failure rate 2e-7.
    """
    mechanism = make("privunit", dim=2, epsilon=1.5)
    count = 40_000
    bins = 12
    mass = mechanism.cap.mass / TOTAL
    inside = mechanism.cap.inside / TOTAL
    edges = np.linspace(-np.pi, np.pi, bins + 1)
    turns = edges / (2 * np.pi)
    # Over the angle from x, in turns, the distribution function has the slope p/A up to A/2, (1 − p)/(1 − A) beyond.
    slopes = inside / mass, (1 - inside) / (1 - mass)
    shares = np.diff(
        slopes[1] * turns
        + (slopes[0] - slopes[1]) * np.clip(turns, -mass / 2, mass / 2)
    )
    low = (1 - inside) / (1 - mass) / bins
    high = inside / mass / bins
    for x in ([1, 0], [-1, 0], [0, -1], [0.6, 0.8], [0.3, 0.4], [0, 0]):
        x = np.array(x, dtype=float)
        v = (
            mechanism.encode(np.tile(x, (count, 1)), rng=seed)
            .column("vector")
            .astype(float)
        )
        u = x / np.linalg.norm(x) if x.any() else np.array([1.0, 0.0])
        angle = np.arctan2(u[0] * v[:, 1] - u[1] * v[:, 0], v @ u)
        kept = (1 + np.linalg.norm(x)) / 2
        expected = kept * shares + (1 - kept) * np.roll(shares, bins // 2)
        counts = np.histogram(angle, edges)[0]
        assert np.all(np.abs(counts - count * expected) < 6 * np.sqrt(count * expected))
        assert np.all((expected >= low * (1 - 1e-9)) & (expected <= high * (1 + 1e-9)))
    assert high / low <= math.exp(mechanism.epsilon) * (1 + 1e-12)


@pytest.mark.parametrize("dim", [2, 3, 50])
def test_the_longest_vector_that_the_words_can_make_is_accepted(dim):
    """Scripted words at both ends of their range, at the largest and the smallest epsilon."""
    for epsilon in (0.01, 20.0):
        mechanism = PrivUnitG(dim=dim, epsilon=epsilon)
        words = np.array(
            [[0] * mechanism.cap.words, [2**64 - 1] * mechanism.cap.words],
            dtype=np.uint64,
        )
        drawn = mechanism.cap.draw(np.tile(np.eye(dim)[0], (2, 1)), words)
        along = np.abs(drawn[:, 0]) * dim**0.5
        assert along.max() < 12
