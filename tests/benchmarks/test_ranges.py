import math

import numpy as np
import pytest

import sstq
from benchmarks import ranges
from sstq.studies import bins

PEOPLE = 400
REPEATS = 300


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 6.0])
def test_hits_by_law_are_those_of_messages(epsilon, seed):
    """The highest of all shapes in noise, of 300 histograms each: what is taken as sure depends on it.

    The means agree within 5.5 errors, which fails falsely once in 10⁷.
    """
    rng = np.random.default_rng(seed)
    held = np.where(np.arange(bins.BINS) == 60, PEOPLE, 0)
    mechanism = sstq.Frequencies(bins.BINS, epsilon)
    people = np.full(PEOPLE, 60)
    highest = []
    for by_law in (True, False):
        told = [
            ranges.told_shares(held, epsilon, rng)[0]
            if by_law
            else mechanism.aggregator()
            .update(mechanism.encode(people, rng=rng))
            .mean()
            .value
            for _ in range(REPEATS)
        ]
        shares = np.array(told)
        shares[:, 50:70] = 0.0
        known = bins._shapes()
        lengths = np.sqrt(known.squares)
        highest.append((shares @ known.shares.T / lengths).max(axis=1))
    error = math.hypot(*(np.std(each) for each in highest)) / math.sqrt(REPEATS)
    assert abs(np.mean(highest[0]) - np.mean(highest[1])) < 5.5 * error


@pytest.mark.slow
def test_errors_by_law_are_those_of_messages(seed, monkeypatch):
    """Squared errors of 24 studies each agree within a factor of 3: 4,000 people whose sizes are sure at ε = 6."""
    monkeypatch.setattr(ranges, "DIM", 10)
    ranges.noise_of_one.cache_clear()
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((4000, 10)) / math.sqrt(10)
    truth = vectors.mean(axis=0)
    squares = [
        np.mean(
            [np.sum((study(vectors, 6.0, one).mean - truth) ** 2) for one in range(24)]
        )
        for study in (ranges.by_law, ranges.from_messages)
    ]
    ranges.noise_of_one.cache_clear()
    assert 1 / 3 < squares[0] / squares[1] < 3


def test_the_chance_of_noise_is_a_bound(seed):
    """The sum over all shapes is above the share of 500 histograms: 0.2 and 0.02."""
    rng = np.random.default_rng(seed)
    known = bins._shapes()
    nobody = np.where(np.arange(bins.BINS) == 0, 1200, 0)
    shares, error = zip(
        *(ranges.told_shares(nobody, 3.0, rng) for _ in range(500)), strict=True
    )
    least = known.least(error[0], bins.skewness(error[0], 3.0), 4.0)
    heights = np.array(shares)
    heights[:, 0] = 0.0
    found = np.mean(np.any(heights @ known.shares.T > least, axis=1))
    bound = ranges.chance_of_noise(3.0, 1200, least)
    assert found < bound
    assert bound < 0.5
    sure = known.least(error[0], bins.skewness(error[0], 3.0))
    assert 1e-7 < ranges.chance_of_noise(3.0, 1200, sure) < 1e-5
