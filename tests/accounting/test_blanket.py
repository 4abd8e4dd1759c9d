"""Shuffled messages by a mechanism's own law: against enumeration, the exact claim, and data that attain it."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sstq
from paper.baselines import TurboQuant
from sstq.accounting import shuffled_epsilon
from sstq.accounting.blanket import Blanket, _rest
from sstq.exactness import TOTAL
from sstq.scalar.laws import EitherLaw, Law
from tests.accounting.references import (
    attained_delta,
    claimed,
    claimed_delta,
    histograms,
    hockey_stick,
    product,
    two_level,
    two_level_shuffled_epsilon,
)

TAIL = 1e-14


def bound(blanket, clients, total, slots=1):
    return blanket.losses(clients, TAIL).times(slots, TAIL).delta(total)


def random_draw(generator):
    """Size, number inside and ratio."""
    size = int(generator.integers(2, 5))
    return (
        size,
        int(generator.integers(1, size)),
        Fraction(int(generator.integers(11, 120)), 10),
    )


@pytest.mark.parametrize("clients", [2, 3, pytest.param(4, marks=pytest.mark.soak)])
def test_no_data_set_of_a_small_crowd_exceeds_the_bound(seed, clients):
    """All inside sets of the client's two vectors and of the others, in rational arithmetic."""
    generator = np.random.default_rng(seed)
    for _ in range(3):
        size, inside, ratio = random_draw(generator)
        densities = [
            two_level(size, members, ratio)
            for members in itertools.combinations(range(size), inside)
        ]
        blanket = Blanket.exact(ratio, 1 - size * min(densities[0]))
        totals = [generator.uniform(0, 1) * math.log(ratio) for _ in range(3)]
        bounds = [bound(blanket, clients, total) for total in totals]
        worst = [Fraction(0)] * len(totals)
        for others in itertools.combinations_with_replacement(densities, clients - 1):
            worlds = [histograms([density, *others]) for density in densities]
            for first, second in itertools.permutations(worlds, 2):
                for place, total in enumerate(totals):
                    worst[place] = max(
                        worst[place],
                        hockey_stick(first, second, Fraction(math.exp(total))),
                    )
        for value, most in zip(worst, bounds, strict=True):
            assert value <= most


def test_two_slots_of_a_small_crowd_stay_within_the_composed_bound(seed):
    generator = np.random.default_rng(seed)
    for clients in (2, 3):
        size = 3
        inside = 1
        ratio = Fraction(int(generator.integers(15, 90)), 10)
        densities = [
            two_level(size, members, ratio)
            for members in itertools.combinations(range(size), inside)
        ]
        blanket = Blanket.exact(ratio, 1 - size * min(densities[0]))
        for total in (0.0, generator.uniform(0, 2) * math.log(ratio)):
            most = bound(blanket, clients, total, slots=2)
            for others in itertools.combinations_with_replacement(
                densities, clients - 1
            ):
                first, second = (
                    histograms([density, *others]) for density in densities[:2]
                )
                value = hockey_stick(
                    product(first, first),
                    product(second, second),
                    Fraction(math.exp(total)),
                )
                assert value <= most


@pytest.mark.parametrize("ratio", [Fraction(11, 10), Fraction(3), Fraction(400)])
@pytest.mark.parametrize("part", [Fraction(1), Fraction(1, 20)])
@pytest.mark.parametrize("clients", [1, 2, 5, 9])
def test_the_bound_is_the_claim_in_small_crowds(ratio, part, clients):
    """Where no group or cell has more than one number, only the grid makes a difference."""
    inside = part / (ratio + 1)
    blanket = Blanket(float(ratio), float(inside))
    for share in (0.1, 0.5, 0.8):
        total = share * math.log(ratio)
        exact = float(
            claimed(Fraction(blanket.ratio), inside, clients, Fraction(math.exp(total)))
        )
        assert (
            exact * (1 - 1e-9) <= bound(blanket, clients, total) <= exact * 1.01 + 1e-10
        )


@pytest.mark.parametrize(
    ("ratio", "part"),
    [
        (Fraction(11, 10), Fraction(1)),
        (Fraction(11, 10), Fraction(1, 4)),
        (Fraction(4), Fraction(1, 2)),
    ],
)
def test_wide_groups_and_cells_err_on_the_safe_side(monkeypatch, ratio, part):
    """Groups and cells so wide that small crowds, which are enumerated, have several numbers in each."""
    monkeypatch.setattr("sstq.accounting.blanket._CLONES_WIDTH", 0.3)
    monkeypatch.setattr("sstq.accounting.blanket._REST_WIDTH", 0.3)
    blanket = Blanket(float(ratio), float(part / (ratio + 1)))
    for share in (0.0, 0.2, 0.5, 0.8):
        total = share * math.log(ratio)
        exact = claimed(
            Fraction(blanket.ratio),
            Fraction(blanket.inside),
            20,
            Fraction(math.exp(total)),
        )
        assert exact <= bound(blanket, 20, total)


@pytest.mark.parametrize(("ratio", "inside"), [(3.0, 0.2), (20.0, 0.04)])
def test_what_is_left_out_counts_as_infinite(ratio, inside):
    """Clones outside of Bernstein's interval, the rest below its own, and the tail of the split of the clones."""
    clients = 30
    tail = 0.3
    blanket = Blanket(ratio, inside)
    clones = range(1, clients + 1)
    likely = [binomial_mass(clients - 1, 2 * inside, count - 1) for count in clones]
    low, high = bernstein(clients - 1, 2 * inside, tail)
    lost = sum(
        mass
        for count, mass in zip(clones, likely, strict=True)
        if not low <= count - 1 <= high
    )
    expected = inside * (ratio + 1) * lost
    chance = blanket.elsewhere / (1 - 2 * inside)
    for count, mass in zip(clones, likely, strict=True):
        if low <= count - 1 <= high:
            rest = clients - count
            missed = sum(
                binomial_mass(rest, chance, r)
                for r in range(int(bernstein(rest, chance, tail)[0]))
            )
            expected += (
                2
                * inside
                * mass
                * (missed * (ratio + 1) / 2 + tail * (rest * chance / count + ratio))
            )
    assert lost > 0.005
    assert blanket.losses(clients, tail).infinite == pytest.approx(expected, rel=1e-3)


def binomial_mass(trials, chance, successes):
    return (
        math.comb(trials, successes)
        * chance**successes
        * (1 - chance) ** (trials - successes)
    )


def bernstein(trials, chance, tail):
    """Where a binomial number is but for `tail` on each side."""
    mean = trials * chance
    log = -math.log(tail)
    reach = math.sqrt(2 * log * mean * (1 - chance)) + log
    return max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach))


@pytest.mark.parametrize(("epsilon", "share"), [(3.0, 0.05), (9.0, 0.0005)])
@pytest.mark.parametrize("delta", [1e-4, 1e-12])
def test_groups_and_cells_cost_little(epsilon, share, delta):
    clients = 500
    total = two_level_shuffled_epsilon(epsilon, share, clients, delta)
    assert claimed_delta(epsilon, share, clients, total) <= delta * (1 + 1e-9)
    assert claimed_delta(epsilon, share, clients, total / 1.003) > delta


@pytest.mark.parametrize(
    "clients", [10**3, pytest.param(10**7, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("epsilon", [0.1, 10.0])
@pytest.mark.parametrize("inside", [512, 1])
@pytest.mark.parametrize("delta", [1e-4, 1e-12])
def test_between_what_is_attained_and_the_bound_for_every_mechanism(
    clients, epsilon, inside, delta
):
    """`inside` is of 1024; 480 more points are in `python -m benchmarks shuffling`."""
    mechanism = sstq.FrameUnit(4, epsilon, frame_size=512, inside=inside)
    by_law, generic = (
        shuffled_epsilon(message, clients, delta) for message in (mechanism, epsilon)
    )
    assert attained_delta(
        mechanism.privacy_loss(), inside / 1024, clients, by_law
    ) <= delta * (1 + 1e-9)
    # By the law alone it is so but for the width of groups and cells.
    assert by_law <= generic * 1.003
    assert generic <= epsilon


@pytest.mark.parametrize(
    ("epsilon", "share", "clients"),
    [
        (7.527, 0.002, 59_000),
        (8.006, 0.0015, 100_000),
        (3.693, 0.05, 1000),
        (5.9, 0.01, 10_000),
        (3.2, 0.5, 1000),
    ],
)
def test_at_one_and_a_millionth_the_bound_is_within_half_a_percent_of_the_attained_value(
    epsilon, share, clients
):
    total = two_level_shuffled_epsilon(epsilon, share, clients, 1e-6)
    assert attained_delta(epsilon, share, clients, total) <= 1e-6
    assert attained_delta(epsilon, share, clients, total / 1.005) > 1e-6
    assert 0.9 < total < 1.1


@pytest.mark.parametrize(
    ("trials", "inside", "ratio"),
    [(40, 0.01, 3.0), (900, 0.05, 8.0), (50_000, 1e-4, 2000.0)],
)
def test_weights_of_the_cells_ends_have_their_digits(trials, inside, ratio):
    """Against mpmath: below the mean relatively, above it absolutely."""
    blanket = Blanket(ratio, inside)
    clones = np.array([7])
    ends, weights, _ = _rest(np.array([trials]), blanket, clones, 1e-20)
    nodes = np.rint(ends[0] * 7).astype(int)
    width = int(nodes[1] - nodes[0])
    chance = min(1.0, blanket.elsewhere / (1 - 2 * inside))
    with mpmath.workdps(40):
        for place, node in enumerate(nodes[1:-1], 1):
            hat = mpmath.mpf(0)
            for r in range(max(0, node - width + 1), min(trials, node + width - 1) + 1):
                mass = (
                    mpmath.binomial(trials, r)
                    * mpmath.mpf(chance) ** r
                    * (1 - mpmath.mpf(chance)) ** (trials - r)
                )
                hat += mass * (width - abs(r - int(node))) / width
            error = float(weights[0, place] - hat)
            assert (
                abs(error) <= 1e-8 * float(hat)
                if node < trials * chance
                else 0 <= error <= 1.1e-9
            )


# Laws


def test_the_numbers_of_every_kind_of_law():
    flat = Law("flat", 4, [(TOTAL - 3 * 2**59, 2**59)])  # 5/8 and 1/8
    assert Blanket.of_law(flat) == Blanket(5.0, 0.125)  # γ = 4/8, α = (1 − γ)/(E − 1)
    # 7/8 and 1/8: as bad as can be
    half = Law("half-space", 5, [(TOTAL - 2**59, 2**59)])
    assert Blanket.of_law(half) == Blanket(7.0, 0.125)
    rows = [[TOTAL // 2, TOTAL // 4, TOTAL // 4], [TOTAL // 4, TOTAL // 2, TOTAL // 4]]
    # all share 3/4
    assert Blanket.of_law(Law("table", len(rows), rows)) == Blanket(2.0, 0.25)
    # Two of eight inside: 1/4 each, and 1/12 each of the others; γ = 2/3, α = (1 − γ)/(3 − 1)
    draw = Law("two-level", 8, [(2, TOTAL // 2)])
    assert Blanket.of_law(draw).ratio == pytest.approx(3, rel=1e-15)
    assert Blanket.of_law(draw).inside == pytest.approx(1 / 6, rel=1e-15)
    # One of two: α = 1/(E + 1). Half of the people each, they share (2/3 + 1/2)/2.
    coin = Law("two-level", 2, [(1, 3 * (TOTAL // 4))])
    mixed = Blanket.of_law(EitherLaw([draw, coin], [Fraction(1, 2), Fraction(1, 2)]))
    assert mixed.inside == pytest.approx((1 - 7 / 12) / 2, rel=1e-8)
    assert Blanket.of_law(EitherLaw([draw, coin])).inside == pytest.approx(
        0.25, rel=1e-15
    )


@pytest.mark.parametrize(
    "ratio",
    [Fraction(7, 3), Fraction(10**20 + 1, 10**19), Fraction(math.nextafter(5.0, 6.0))],
)
@pytest.mark.parametrize(
    "apart", [Fraction(1, 5), Fraction(1, 7), Fraction(10**17 - 1, 10**18)]
)
def test_both_numbers_of_a_blanket_are_rounded_up(ratio, apart):
    blanket = Blanket.exact(ratio, apart)
    assert Fraction(math.nextafter(blanket.ratio, 0)) < ratio <= Fraction(blanket.ratio)
    assert (
        Fraction(math.nextafter(blanket.inside, 0))
        < apart / (ratio - 1)
        <= Fraction(blanket.inside)
    )


@given(st.fractions(min_value=1, max_value=1000))
def test_both_inside_sets_fit_into_what_all_share(ratio):
    blanket = Blanket.exact(ratio, Fraction(1))
    assert (
        0
        <= 1 - Fraction(blanket.inside) * (Fraction(blanket.ratio) + 1)
        < Fraction(1, 2**50)
    )


def test_frames_cost_a_margin_for_how_they_are_drawn():
    draw = Law("two-level", 8, [(2, TOTAL // 2)])
    mixed = Blanket.of_law(EitherLaw([draw, draw], [Fraction(1, 2), Fraction(1, 2)]))
    # (1 − γ)/(E − 1) at E = 3
    margin = Fraction(mixed.inside) - Fraction(Blanket.of_law(draw).inside)
    assert Fraction(1, 2**32) <= margin <= Fraction(1, 2**32) + Fraction(1, 2**50)


@pytest.mark.parametrize(
    "mechanism",
    [
        sstq.FrameUnit(dim=20, epsilon=5.0),
        sstq.GroupUnit(dim=8, epsilon=5.0, groups=10),
        sstq.SSTQ(dim=20, epsilon=3.0, bits=3),
        sstq.SSTQ(dim=20, epsilon=3.0, bits=2, channel="optimal"),
        sstq.SQKR(dim=20, epsilon=3.0, k=2),
        sstq.SQKR(dim=20, epsilon=3.0, variant="dense"),
        sstq.VqSGD(dim=20, epsilon=3.0),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_every_exact_mechanism_has_a_number_of_its_own(mechanism):
    by_law = shuffled_epsilon(mechanism, 20_000, 1e-6)
    generic = shuffled_epsilon(mechanism.epsilon, 20_000, 1e-6)
    assert 0 < by_law <= generic
    if mechanism.law().kind not in ("half-space", "table"):
        assert by_law < 0.99 * generic


def test_people_who_send_their_group_only_are_counted_by_their_share():
    with_shares = sstq.GroupUnit(
        dim=8, epsilon=6.0, groups=10, blocks=5, frames=64, share_people=0.1
    )
    law = with_shares.law()
    assert isinstance(law, EitherLaw)
    assert float(law.shares[1]) == pytest.approx(0.1, abs=0.05)
    parts = [Blanket.of_law(part).inside for part in law.parts]
    assert (
        parts[0]
        < Blanket.of_law(law).inside
        < Blanket.of_law(EitherLaw(law.parts)).inside
        <= parts[1] * (1 + 1e-12)
    )


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (
            sstq.PrivUnit(4, 1.0),
            "discrete law, but privunit sends continuous values; pass its epsilon, 1.0",
        ),
        (
            TurboQuant(4),
            "must be locally private, got turboquant; choose another, such as frameunit",
        ),
    ],
)
def test_no_number_without_a_shuffled_law(mechanism, message):
    with pytest.raises(ValueError, match=message):
        shuffled_epsilon(mechanism, 100, 1e-6)
