"""Bands of surveys hold as often as they say; `python -m benchmarks surveys` counts a thousand rounds of each case."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks import surveys
from benchmarks.survey_bands import cases, square_wave

ROUNDS = 150


@pytest.mark.parametrize(
    "case",
    [case for case in cases() if case.people < 1000],
    ids=lambda case: f"{case.name}, {case.epsilon:g}",
)
def test_bands_of_few_people_hold(case, seed):
    """A band that holds 94 % is below this with probability 1e-7."""
    missed, unknown = case.missed(ROUNDS, seed)
    told = ROUNDS - unknown
    assert told - missed >= binom.ppf(1e-7, told, 0.94)


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("size", [2, 3, 8, 16, 51, 200])
def test_variances_of_all_shares_are_never_above_the_peers(size, epsilon):
    """Whole sets that do not fit into 25 bits are not used."""
    shares = np.eye(size)[0]
    ours, whole, *peers = (
        float(np.sum(surveys._noise(shares, *rates(size, epsilon))))
        for rates in (
            surveys.our_rates, surveys.subset_rates, surveys.unary_rates, surveys.hashing_rates, surveys.adaptive_rates
        )
    )  # fmt: skip
    assert ours <= min(peers) * (1 + 1e-9)
    fits = math.comb(size, max(1, round(size / (math.exp(epsilon) + 1)))) <= 2**25
    assert ours <= whole * (1 + 1e-9 if fits else 1.01)


def test_fake_data_hide_one_question_and_not_a_record():
    assert surveys.record_loss(1.0, 3) == pytest.approx(math.log(3 * (math.e - 1) + 1))
    assert surveys.record_loss(surveys.record_epsilon(1.0, 3), 3) == pytest.approx(1.0)


def test_the_square_wave_finds_a_smooth_distribution(seed):
    """100,000 people at ε = 4: the distribution function is within 0.03, over ten standard errors."""
    rng = np.random.default_rng(seed)
    values = rng.beta(2, 3, 100_000)
    found = np.cumsum(square_wave(values, 4.0, 20, rng))
    assert (
        np.abs(found - np.mean(values[:, None] <= np.arange(1, 21) / 20, axis=0)).max()
        < 0.03
    )
