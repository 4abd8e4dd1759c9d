"""Water-filling against a numerical optimum, and the level of energy from noisy class sums."""

import numpy as np
import pytest
from scipy.optimize import minimize

from sstq.learning.directions import energy_level, energy_profile, length_shares


def loss(shares, energies, noise):
    return np.sum(energies * noise / (energies * shares + noise))


@pytest.mark.parametrize("noise", [0.001, 0.02, 0.3])
def test_shares_are_the_numerical_optimum(seed, noise):
    energies = np.sort(np.random.default_rng(seed).uniform(0.01, 1, 6))[::-1]
    shares = length_shares(energies, noise)
    padded = np.pad(shares, (0, 6 - len(shares)))
    assert shares.sum() == pytest.approx(1)
    assert np.all(shares > 0)
    best = minimize(
        loss,
        np.full(6, 1 / 6),
        (energies, noise),
        bounds=[(0, 1)] * 6,
        constraints={"type": "eq", "fun": lambda t: t.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert loss(padded, energies, noise) <= best.fun * (1 + 1e-6)


def test_more_people_get_more_directions():
    energies = energy_profile(500, decay=1.0)
    counts = [len(length_shares(energies, noise)) for noise in (1.0, 0.1, 0.01, 0.001)]
    assert counts == sorted(counts)
    assert counts[0] < 5 < 30 < counts[-1] < 500


def test_the_level_is_found_where_noise_is_small(seed):
    rng = np.random.default_rng(seed)
    noises = np.full(60, 0.01)
    for level in (0.3, 1.0, 3.0):
        energies = energy_profile(60, 1.0, level)
        means = rng.standard_normal((10, 60)) * np.sqrt(energies + noises)
        # The log of the level has a standard error of about √(2/600) = 0.06: 0.35 is over five of them and the prior.
        assert (
            abs(
                np.log(energy_level(np.mean(means**2, axis=0), noises, 10, 1.0) / level)
            )
            < 0.35
        )


def test_the_level_is_one_where_noise_is_all():
    noises = np.full(20, 1e6)
    assert energy_level(noises, noises, 10, 1.0) == pytest.approx(1.0, rel=0.05)
