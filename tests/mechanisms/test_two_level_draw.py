import math

import numpy as np
import pytest

from sstq.exactness import TOTAL, exp_lower, log_upper
from sstq.mechanisms.laws import Law
from sstq.mechanisms.sphere import mean_chi
from sstq.mechanisms.two_level_draw import KClosest, k_closest, normal_order_statistics, uniform_below


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        # Exact: 1/√π, 3/(2√π). The others: Harter, Expected values of normal order statistics, Biometrika 1961.
        (2, [1 / math.sqrt(math.pi)]),
        (3, [1.5 / math.sqrt(math.pi), 0.0]),
        (10, [1.53875, 1.00136, 0.65606, 0.37576, 0.12267]),
        (100, [2.50759]),
    ],
)
def test_known_order_statistics(count, expected):
    means = normal_order_statistics(count)[0]
    np.testing.assert_allclose(means[: len(expected)], expected, atol=6e-6)
    np.testing.assert_allclose(means, -means[::-1], atol=1e-11)


def test_order_statistics_against_adaptive_quadrature():
    from scipy.integrate import quad
    from scipy.stats import beta, norm

    for count, rank in [(5, 0), (256, 31), (4096, 0)]:
        law = beta(count - rank, rank + 1)
        low, high = norm.ppf(law.ppf([1e-16, 1 - 1e-14]))
        for power, values in zip((1, 2), normal_order_statistics(count), strict=True):
            exact, _ = quad(
                lambda x, p=power, law=law: x**p * law.pdf(norm.cdf(x)) * norm.pdf(x),
                low,
                high,
                epsabs=1e-12,
                limit=200,
            )
            assert values[rank] == pytest.approx(exact, rel=1e-8, abs=1e-8)


def test_mean_chi_recursion():
    for dim in (1, 2, 3, 10, 999, 10**6, 2**30):
        assert mean_chi(dim) * mean_chi(dim + 1) == pytest.approx(dim, rel=1e-12)
    assert mean_chi(1) == pytest.approx(math.sqrt(2 / math.pi), rel=1e-15)


def test_uniform_pick_is_exact_integer_arithmetic(seed):
    rng = np.random.default_rng(seed)
    words = np.concatenate([rng.integers(0, 2**64, 500, dtype=np.uint64), np.array([0, 2**64 - 1], dtype=np.uint64)])
    for limit in (1, 2, 3, 7, 255, 4095, 4096):
        expected = [(word >> 2) * limit >> 62 for word in words.tolist()]
        assert uniform_below(words, np.full(len(words), limit)).tolist() == expected
        # The first word of every value.
        firsts = np.array([-(-j * TOTAL // limit) for j in range(limit)], dtype=np.uint64)
        assert uniform_below(firsts << np.uint64(2), np.full(limit, limit)).tolist() == list(range(limit))
        before = firsts[1:] - np.uint64(1)
        assert uniform_below(before << np.uint64(2), np.full(limit - 1, limit)).tolist() == list(range(limit - 1))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("size", [2, 256, 4096])
def test_threshold_is_the_largest_private_one(epsilon, size):
    choice = k_closest(epsilon, size, lambda first, second: 1 / first**2)
    bound = exp_lower(epsilon)
    assert choice.law().ratio() <= bound
    assert epsilon - 1e-9 < log_upper(choice.law().ratio()) <= epsilon
    assert Law("two-level", size, [(choice.inside, choice.threshold + 1)]).ratio() > bound


def test_best_k_beats_its_neighbours():
    choice = k_closest(3.0, 256, lambda first, second: 1 / first**2)
    for inside in (1, choice.inside - 1, choice.inside + 1, 255):
        probability = inside * math.exp(3) / (inside * math.exp(3) + 256 - inside)
        other = KClosest(256, inside, int(probability * (1 - 1e-12) * TOTAL))
        assert other.moments()[0] < choice.moments()[0]


def test_ties_go_to_the_smaller_index():
    choice = k_closest(3.0, 8, lambda first, second: 1 / first**2)
    assert choice.inside == 1
    words = np.zeros((1, 2), dtype=np.uint64)
    assert choice.draw(np.zeros((1, 8)), words).tolist() == [0]
    assert choice.draw(np.array([[0, 0, 5.0, 5.0, 0, 5.0, 0, 0]]), words).tolist() == [2]


@pytest.mark.parametrize(
    ("inside", "threshold", "message"),
    [
        (0, 1 << 61, "inside must be"),
        (8, 1 << 61, "inside must be"),
        (1.0, 1 << 61, "inside must be"),
        (True, 1 << 61, "inside must be"),
        (1, 0, "threshold must be"),
        (1, 1 << 62, "threshold must be"),
        (1, "1", "threshold must be"),
    ],
)
def test_bad_integers_are_refused(inside, threshold, message):
    with pytest.raises(ValueError, match=message):
        KClosest(8, inside, threshold)
