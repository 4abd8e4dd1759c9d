"""Sums of losses are never below exact sums, and hardly above them, down to a δ of 1e-60."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from sstq.accounting.losses import Losses
from tests.accounting.references import optimal_delta

STEP = 2.0**-6


def response(epsilon, step=STEP):
    """Randomized response: the loss is ±ε."""
    return Losses.symmetric(
        np.array([epsilon]), np.array([1 / (1 + math.exp(-epsilon))]), 0.0, step
    )


def exact_delta(pairs, total):
    """sup P − e^ε·Q of a product of pairs of distributions, in rational arithmetic."""
    scale = Fraction(math.exp(total))
    result = Fraction(0)
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
    losses = response(epsilon).times(count, 1e-5 * delta)
    total = losses.epsilon(delta, count * epsilon)
    exact = optimal_delta(epsilon, count, max(total, 1e-9))
    assert exact <= delta * (1 + 1e-9)
    if 1e-6 < total < count * epsilon * (1 - 1e-9):
        assert optimal_delta(epsilon, count, total / 1.0005) > delta
    # it holds far from the δ that it is sharp for, too
    for share in (0.0, 0.1, 0.5, 0.9):
        assert losses.delta(share * count * epsilon) >= optimal_delta(
            epsilon, count, max(1e-9, share * count * epsilon)
        )


def random_pair(generator, size):
    """A symmetric pair of distributions on 2·size outcomes, with losses that the finest grid here resolves."""
    while True:
        weights = [
            Fraction(int(weight), 1000)
            for weight in generator.integers(1, 1000, 2 * size)
        ]
        first = [weight / sum(weights) for weight in weights]
        second = first[size:] + first[:size]
        if all(abs(math.log(p / q)) > 0.05 for p, q in zip(first, second, strict=True)):
            return first, second


def on_grid(pair, step):
    outcomes = [(p, q) for p, q in zip(*pair, strict=True) if p > q]
    losses = np.array([math.log(p / q) for p, q in outcomes])
    return Losses.symmetric(
        losses, np.array([float(p) for p, _ in outcomes]), 0.0, step
    )


@pytest.mark.parametrize("step", [2.0**-8, 2.0**-3, 1.0])
def test_sums_of_losses_stay_above_the_exact_ones(seed, step):
    """However coarse the grid is. Each split moves a loss by at most a step, hence δ by less."""
    generator = np.random.default_rng(seed)
    for outcomes, count in ((2, 2), (3, 2), (2, 4), (1, 5)):
        pair = random_pair(generator, outcomes)
        losses = on_grid(pair, step).times(count, 1e-7)
        for total in (0.0, 0.3, 1.0, 3.0):
            exact = float(exact_delta([pair] * count, total))
            assert exact <= losses.delta(total) <= exact + count * losses.step


def test_infinite_losses_are_paid_for_by_every_message():
    losses = Losses.symmetric(np.array([0.5]), np.array([0.2]), 1e-3, STEP)
    assert losses.delta(5.0) == pytest.approx(1e-3, rel=1e-6)
    ten = losses.times(10, 1e-9)
    assert 1 - 0.999**10 <= ten.delta(50.0) <= 10e-3 * (1 + 1e-5)
    assert ten.epsilon(1e-3, 7.0) == 7.0


def test_masses_and_losses_only_grow_on_the_grid(seed):
    generator = np.random.default_rng(seed)
    losses = generator.uniform(0.001, 3, 500)
    masses = generator.uniform(0, 1e-3, 500)
    grid = Losses.symmetric(losses, masses, 0.0, STEP)
    assert np.sum(grid.masses) == pytest.approx(1, abs=1e-6)
    for total in (0.0, 0.5, 1.7):
        exact = float(np.sum(masses * np.maximum(-np.expm1(total - losses), 0.0)))
        assert exact <= grid.delta(total) <= exact * 1.001


def test_a_long_sum_is_done_on_a_coarser_grid(monkeypatch):
    fine = response(0.5).times(300, 1e-12)
    monkeypatch.setattr("sstq.accounting.losses._POINTS", 64)
    coarse = response(0.5).times(300, 1e-12)
    assert coarse.step > fine.step
    assert coarse.masses.sum() == pytest.approx(1, abs=1e-3)
    for total in (60.0, 70.0, 76.0):
        exact = optimal_delta(0.5, 300, total)
        assert exact <= fine.delta(total) <= exact * 1.001 + 1e-11
        assert fine.delta(total) <= coarse.delta(total) <= 3 * exact


@pytest.mark.parametrize("points", [4, 16])
def test_cut_and_coarse_sums_stay_above_the_exact_ones_at_any_epsilon(
    seed, monkeypatch, points
):
    """Both ends are cut after every sum, and the grid is coarsened to a few points."""
    monkeypatch.setattr("sstq.accounting.losses._POINTS", points)
    generator = np.random.default_rng(seed)
    pair = random_pair(generator, 2)
    losses = on_grid(pair, 2.0**-8)
    for count in (2, 3, 5):
        total = losses.times(count, generator.uniform(0, 0.1))
        for epsilon in (-3.0, -0.4, 0.0, 0.3, 1.0, 3.0):
            assert total.delta(epsilon) >= float(
                exact_delta([pair] * count, epsilon)
            ) * (1 - 1e-12)


def test_every_step_leaves_room_for_rounding():
    """Each number is enlarged by more than the rounding errors of the operations that made it."""
    # The logarithm may have been rounded down: a part of the mass is at the next point.
    finite = Losses.symmetric(np.array([0.5]), np.array([0.2]), 0.0, 0.5)
    assert 0 < finite.delta(0.75) < 1e-14
    grid = Losses.symmetric(np.array([0.5]), np.array([0.2]), 1e-3, 0.5)
    # Masses that are too small by 1e-7, those of a mirror image and of infinite losses included.
    assert grid.infinite >= 1e-3 * (1 + 1e-7)
    assert grid.masses.sum() + grid.infinite >= 1 + 1e-7
    # Sums of twice 2^12 positive products.
    spare = 2.0**-40
    one = Losses(0.5, 0.5, np.array([0.1]))
    assert one.delta(0.0) >= 0.1 * -math.expm1(-0.5) * (1 + spare)
    assert one.plus(one, 0.0).masses.sum() >= 0.01 * (1 + spare)


def test_infinite_losses_of_both_sums_are_added():
    """A sum is infinite if either is: 1 − (1 − p)·(1 − q), nothing left out."""
    first = Losses(0.5, 0.5, np.array([0.7]), 0.3)
    second = Losses(0.5, 0.5, np.array([0.6]), 0.4)
    found = first.plus(second, 0.0).infinite
    assert 1 - 0.7 * 0.6 <= found < 0.58 + 1e-9
