"""Composed losses are never below exact sums, and hardly above them, down to a δ of 1e-60."""

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest

from sstq.accounting.losses import Losses, Sum, _roots, _transform
from tests.accounting.references import optimal_delta

STEP = 2.0**-6


def response(epsilon, step=STEP):
    """Randomized response: the loss is ±ε."""
    return Losses.on_grid(np.array([epsilon]), np.array([1 / (1 + math.exp(-epsilon))]), 0.0, step)


def exact_delta(pairs, total):
    """sup P − e^ε·Q of a product of pairs of distributions, in rational arithmetic."""
    scale, result = Fraction(math.exp(total)), Fraction(0)
    for chosen in product(*(list(zip(*pair, strict=True)) for pair in pairs)):
        first = math.prod((p for p, _ in chosen), start=Fraction(1))
        second = math.prod((q for _, q in chosen), start=Fraction(1))
        result += max(Fraction(0), first - scale * second)
    return result


@pytest.mark.parametrize("count", [1, 2, 3, 40, 1000])
@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6, 1e-15, 1e-60])
def test_randomized_response_composes_as_the_theorem_says(count, delta):
    """Kairouz, Oh, Viswanath 2015, with ε on the grid, so that nothing is split."""
    epsilon = 4 * STEP
    losses = Sum(response(epsilon), count, delta)
    total = losses.epsilon(delta, count * epsilon)
    exact = optimal_delta(epsilon, count, max(total, 1e-9))
    assert exact <= delta * (1 + 1e-9)
    if 1e-6 < total < count * epsilon * (1 - 1e-9):
        assert exact >= delta * (1 - 1e-2)
    for share in (0.0, 0.1, 0.5, 0.9):  # it holds far from the δ that it is sharp for, too
        assert losses.delta(share * count * epsilon) >= optimal_delta(
            epsilon, count, max(1e-9, share * count * epsilon)
        )


def random_pair(generator, size):
    """A symmetric pair of distributions on 2·size outcomes, with losses that the finest grid here resolves."""
    while True:
        weights = [Fraction(int(weight), 1000) for weight in generator.integers(1, 1000, 2 * size)]
        first = [weight / sum(weights) for weight in weights]
        second = first[size:] + first[:size]
        if all(abs(math.log(p / q)) > 0.05 for p, q in zip(first, second, strict=True)):
            return first, second


def on_grid(pair, step):
    outcomes = [(p, q) for p, q in zip(*pair, strict=True) if p > q]
    losses = np.array([math.log(p / q) for p, q in outcomes])
    return Losses.on_grid(losses, np.array([float(p) for p, _ in outcomes]), 0.0, step)


@pytest.mark.parametrize("step", [2.0**-8, 2.0**-3, 1.0])
def test_sums_of_losses_stay_above_the_exact_ones(seed, step):
    """However coarse the grid is; a fine one is close."""
    generator = np.random.default_rng(seed)
    for outcomes, count in ((2, 2), (3, 2), (2, 4), (1, 5)):
        pair = random_pair(generator, outcomes)
        losses = Sum(on_grid(pair, step), count, 1e-2)
        for total in (0.0, 0.3, 1.0, 3.0):
            exact = float(exact_delta([pair] * count, total))
            assert exact <= losses.delta(total)
            if step < 0.01:
                assert losses.delta(total) <= exact * 1.01 + 1e-4


def test_infinite_losses_are_paid_for_by_every_message():
    losses = Losses.on_grid(np.array([0.5]), np.array([0.2]), 1e-3, STEP)
    assert Sum(losses, 1, 1e-3).delta(5.0) == pytest.approx(1e-3, rel=1e-6)
    assert 10e-3 <= Sum(losses, 10, 1e-3).delta(50.0) <= 10e-3 * (1 + 1e-5)
    assert Sum(losses, 10, 1e-3).epsilon(1e-3, 7.0) == 7.0


def test_masses_and_losses_only_grow_on_the_grid(seed):
    generator = np.random.default_rng(seed)
    losses, masses = generator.uniform(0.001, 3, 500), generator.uniform(0, 1e-3, 500)
    grid = Losses.on_grid(losses, masses, 0.0, STEP)
    places = STEP * np.arange(1, len(grid.masses) + 1)
    second = np.sum(grid.masses * np.exp(-places))
    # Mass below the first point of the grid is partly without loss; all else is on it.
    assert np.sum(grid.masses) == pytest.approx(np.sum(masses), abs=np.sum(masses[losses < STEP]) + 1e-6)
    assert second <= np.sum(masses * np.exp(-losses)) * (1 + 1e-6)
    for total in (0.0, 0.5, 1.7):
        exact = float(np.sum(masses * np.maximum(-np.expm1(total - losses), 0.0)))
        assert exact <= Sum(grid, 1, 1e-3).delta(total) <= exact * 1.001


def test_a_long_transform_is_done_on_a_coarser_grid(monkeypatch):
    fine = Sum(response(0.5), 300, 1e-6)
    monkeypatch.setattr("sstq.accounting.losses._SIZE_MAX", 256)
    coarse = Sum(response(0.5), 300, 1e-6)
    for total in (60.0, 70.0, 76.0):
        exact = optimal_delta(0.5, 300, total)
        assert exact <= fine.delta(total) <= exact * 1.001 + 1e-12
        assert fine.delta(total) <= coarse.delta(total) <= 3 * exact


@pytest.mark.parametrize("log_size", [1, 2, 3, 4, 7, 9])
def test_the_transform_is_as_good_as_its_theorem(log_size, seed):
    """Against 40 digits of mpmath: roots good to 8u, and transforms to t·14u of their norm."""
    size, unit = 1 << log_size, 2.0**-53
    with mpmath.workdps(40):
        exact = [mpmath.expjpi(mpmath.mpf(-2 * k) / size) for k in range(size)]
        roots = _roots(size)
        assert len(roots) == size // 2
        assert max(abs(mpmath.mpc(root) - true) for root, true in zip(roots, exact, strict=False)) < 8 * unit
        values = np.random.default_rng(seed).dirichlet(np.ones(size)) if size > 2 else np.array([0.3, 0.7])
        found, held = _transform(values), [mpmath.mpf(value) for value in values]
        wanted = [mpmath.fdot((held[j], exact[j * k % size]) for j in range(size)) for k in range(size)]
        error = mpmath.norm([mpmath.mpc(one) - true for one, true in zip(found, wanted, strict=True)])
        assert error < 14 * log_size * unit * mpmath.norm(wanted)
