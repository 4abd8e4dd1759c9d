import math

import numpy as np
import pytest

from sstq.exactness import TOTAL, exp_lower, log_upper
from sstq.mechanisms.sphere import mean_chi
from sstq.mechanisms.two_level_draw import KClosest, uniform_below, whole_budget
from sstq.scalar.laws import Law


def test_mean_chi_recursion():
    for dim in (1, 2, 3, 10, 999, 10**6, 2**30):
        assert mean_chi(dim) * mean_chi(dim + 1) == pytest.approx(dim, rel=1e-12)
    assert mean_chi(1) == pytest.approx(math.sqrt(2 / math.pi), rel=1e-15)


def test_uniform_pick_is_exact_integer_arithmetic(seed):
    rng = np.random.default_rng(seed)
    words = np.concatenate(
        [
            rng.integers(0, 2**64, 500, dtype=np.uint64),
            np.array([0, 2**64 - 1], dtype=np.uint64),
        ]
    )
    for limit in (1, 2, 3, 7, 255, 4095, 4096):
        expected = [(word >> 2) * limit >> 62 for word in words.tolist()]
        assert uniform_below(words, np.full(len(words), limit)).tolist() == expected
        # The first word of every value.
        firsts = np.array(
            [-(-j * TOTAL // limit) for j in range(limit)], dtype=np.uint64
        )
        assert uniform_below(
            firsts << np.uint64(2), np.full(limit, limit)
        ).tolist() == list(range(limit))
        before = firsts[1:] - np.uint64(1)
        assert uniform_below(
            before << np.uint64(2), np.full(limit - 1, limit)
        ).tolist() == list(range(limit - 1))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("size", [2, 256, 4096])
def test_threshold_is_the_largest_private_one(epsilon, size):
    choice = whole_budget(epsilon, size, max(1, size // 9))
    bound = exp_lower(epsilon)
    assert choice.law().ratio() <= bound
    assert epsilon - 1e-9 < log_upper(choice.law().ratio()) <= epsilon
    assert (
        Law("two-level", size, [(choice.inside, choice.threshold + 1)]).ratio() > bound
    )


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
