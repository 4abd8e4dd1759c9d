"""What RRSC, MMRC and compressed PrivUnitG have in common, each tested on all three; then RRSC, and the last."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from sstq.baselines import MMRC, RRSC, CompressedPrivUnitG
from sstq.baselines.candidates import _factor
from sstq.exactness import TOTAL, exp_lower
from sstq.mechanisms.two_level_draw import KClosest
from sstq.randomness import streams
from tests.contract.cases import reread
from tests.scripted import ScriptedBits

CLASSES = [RRSC, MMRC, CompressedPrivUnitG]
DIM = 16

all_classes = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.name)


def intervals(breaks):
    """The ranges [first, last] between the breaks, of the 62-bit words."""
    edges = sorted({0, TOTAL, *(b for b in breaks if 0 < b < TOTAL)})
    return [(low, high - 1) for low, high in itertools.pairwise(edges)]


def distribution(mechanism, x, client):
    """The exact probability of every code, from what the encoder does at both ends of every range of its words.

    Within a range of the first and of the second channel word the code is constant; the ranges come from all thresholds
    and from the places j·2^62/k of all uniform choices, and both ends of each are tried.
    """
    size = mechanism.size
    first = intervals(threshold for _, threshold in mechanism.choice.law().weights)
    second = intervals(-(-j * TOTAL // k) for k in range(1, size + 1) for j in range(1, k))
    unit = (x / mechanism.clip).astype(np.float32)
    norm = math.sqrt(float(np.sum(unit.astype(np.float64) ** 2)))
    flipped = Fraction(max(0, math.ceil(Fraction((1 - norm) / 2) * 2**53)), 2**53)
    total = [Fraction(0)] * size
    for sign_word, sign_probability in ((0, flipped), (2**64 - 1, 1 - flipped)):
        if not sign_probability:
            continue
        cells = [(a, b, corner) for a in first for b in second for corner in itertools.product((0, 1), repeat=2)]
        words = np.array([(sign_word, a[i] << 2, b[j] << 2) for a, b, (i, j) in cells], dtype=np.uint64)
        rows, ids = mechanism.clip * np.tile(unit, (len(cells), 1)), np.full(len(cells), client, dtype=np.uint64)
        (codes,) = mechanism._encode_rows(rows, ids, ScriptedBits(words.ravel()), None)
        corners = codes.reshape(-1, 4)
        assert np.all(corners == corners[:, :1])
        for (a, b, _), code in zip(cells[::4], corners[:, 0].tolist(), strict=True):
            total[code] += sign_probability * Fraction((a[1] - a[0] + 1) * (b[1] - b[0] + 1), TOTAL**2)
    assert sum(total) == 1
    return total


def inputs(dim, clip):
    e = np.eye(dim)
    constant, alternating = np.ones(dim) / dim**0.5, np.resize([1.0, -1.0], dim) / dim**0.5
    return [clip * x for x in (e[0], -e[0], e[-1], constant, -constant, alternating, 0.3 * constant, 0 * e[0])]


def worst_ratio(mechanism, clients=3):
    """The largest ratio of the probabilities of one code, over clients and all pairs of inputs; None if unbounded."""
    worst = Fraction(1)
    for client in range(clients):
        laws = [distribution(mechanism, x, client) for x in inputs(mechanism.dim, mechanism.clip)]
        for p, q in itertools.permutations(laws, 2):
            if any(b == 0 < a for a, b in zip(p, q, strict=True)):
                return None
            worst = max(worst, *(a / b for a, b in zip(p, q, strict=True) if a))
    return worst


class FirstAccepted(KClosest):
    """A mutant: rejection sampling on a short public list, which sends the first candidate inside."""

    def draw(self, scores, words):
        accepted = np.min(np.argsort(-scores, axis=1)[:, : self.inside], axis=1)
        return np.where(words[:, 0] >> np.uint64(2) < self.threshold, accepted, super().draw(scores, words))


@pytest.mark.slow
def test_enumeration_catches_mutants():
    # With ε = 1 three of eight candidates are inside, of which the first takes all and the others are never sent.
    first = CompressedPrivUnitG(8, 1.0, bits=3)
    assert first.choice.inside == 3
    object.__setattr__(first, "choice", FirstAccepted(8, 3, first.choice.threshold))
    assert worst_ratio(first, 2) is None
    greedy = RRSC(8, 1.0, bits=3)
    object.__setattr__(greedy.choice, "threshold", greedy.choice.threshold + 2**10)
    assert worst_ratio(greedy, 1) > exp_lower(1.0)
    # Importance weights whose normaliser depends on x: minimal random coding without the modification.
    plain = MMRC(8, 1.0, bits=3)
    weights = [(i * math.exp(1), 8 - i) for i in range(1, 8)]
    object.__setattr__(plain.choice, "thresholds", (0, *(int(TOTAL * a / (a + b)) for a, b in weights), TOTAL))
    assert worst_ratio(plain, 12) > exp_lower(1.0)


@all_classes
@pytest.mark.parametrize(("epsilon", "dim", "bits"), [(20.0, 2, 1), (0.01, 300, 8), (1.0, 2**30, 3)])
def test_stable_for_all_budgets_and_dimensions(cls, epsilon, dim, bits):
    mechanism = cls(dim, epsilon, bits=bits)
    assert 0 < mechanism.privacy_loss() <= epsilon
    assert np.isfinite(mechanism.decoding_scale)
    # No unbiased estimate is shorter than what it estimates.
    assert mechanism._power / mechanism.alignment**2 > 1 - 1e-9


def test_candidates_are_the_documented_stream():
    mechanism = CompressedPrivUnitG(13, 3.0, bits=2, seed=4)
    ids = np.array([3, 2**40], dtype=np.uint64)
    seeds = mechanism._seeds(ids)
    np.testing.assert_array_equal(seeds, streams.words_of(4, "cand", ids))
    made = mechanism._gaussians(seeds)
    for row, seed in zip(made, seeds.tolist(), strict=True):
        words = streams.words(seed, "normals", 4 * 8).reshape(4, 8)
        for candidate, drawn in zip(row, words.tolist(), strict=True):
            pairs = [
                (math.sqrt(-2 * math.log(((w >> 32) + 1) / 2**32)), 2 * math.pi * (w & 0xFFFFFFFF) / 2**32)
                for w in drawn
            ]
            expected = [r * f(a) for r, a in pairs for f in (math.cos, math.sin)][:13]
            np.testing.assert_allclose(candidate, expected, atol=1e-5)
    np.testing.assert_array_equal(mechanism._gaussians(seeds, np.array([3, 1]))[:, 0], made[[0, 1], [3, 1]])


def test_candidates_are_standard_normal(seed):
    """Kolmogorov–Smirnov on a million numbers and four moments, at p > 1e-9 and |z| < 6."""
    from scipy.stats import kstest

    mechanism = CompressedPrivUnitG(512, 1.0, bits=8)
    numbers = mechanism._gaussians(seed + np.arange(8, dtype=np.uint64))
    flat = numbers.ravel()
    assert kstest(flat, "norm").pvalue > 1e-9
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(flat**power) - mean) < 6 * (variance / flat.size) ** 0.5
    # Neighbours, cosine and sine of one word, and the same place in two candidates or clients are uncorrelated.
    for a, b in (
        (numbers[:, :, 1:], numbers[:, :, :-1]),
        (numbers[:, 1:], numbers[:, :-1]),
        (numbers[1:], numbers[:-1]),
    ):
        assert abs(np.mean(a * b)) < 6 / a.size**0.5
        assert abs(np.mean((a**2 - 1) * (b**2 - 1))) < 6 * 2 / a.size**0.5


def test_rrsc_takes_as_many_bits_as_the_dimension_allows():
    assert [RRSC(dim, 2.0).bits for dim in (3, 100, 1000)] == [1, 6, 8]


# --- RRSC ---


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
