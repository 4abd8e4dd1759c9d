"""Frequencies: the law, the variances of the table, error bars and regions, and what is refused or replaced."""

import math
from fractions import Fraction

import numpy as np
import pytest

import sstq
from sstq.mechanisms.answers import answer
from sstq.mechanisms.frequencies import FrequencyEstimate
from sstq.mechanisms.subsets import HitRates
from tests.contract.cases import reread
from tests.scripted import law_of

# The variance of a share that nobody has, per message, and the bits of a message.
TABLE = {
    (2, 1.0): (0.921, 1),
    (2, 3.0): (0.0551, 1),
    (10, 1.0): (2.84, 7),  # 120 whole sets
    (10, 3.0): (0.0771, 4),  # randomized response; affine sets on P = 11 have 0.0799
    (100, 1.0): (3.59, 13),
    (100, 3.0): (0.196, 13),
    (1024, 1.0): (3.67, 20),
    (1024, 3.0): (0.218, 20),
    (10_000, 3.0): (0.220, 26),
}


def output_distribution(mechanism, label):
    """The exact distribution of all messages, multipliers being equally likely."""
    count = mechanism.sets.codes // mechanism.draw.size
    whole = [Fraction(0)] * mechanism.sets.codes
    for slot in range(count):
        for code, mass in law_of(
            mechanism, mechanism.draw, [float(label)], -(-(slot << 64) // count)
        ).items():
            whole[code] += mass / count
    return whole


@pytest.mark.parametrize(("categories", "epsilon"), TABLE)
def test_variances_and_bits_are_those_of_the_table(categories, epsilon):
    mechanism = sstq.Frequencies(categories, epsilon)
    variance, bits = TABLE[categories, epsilon]
    assert mechanism.sets.rates.variance_at(0.0) == pytest.approx(variance, rel=0.01)
    assert mechanism.message_bits == bits


def total(categories, own, other):
    """The sum of the variances of all shares, per message."""
    return (own * (1 - own) + (categories - 1) * other * (1 - other)) / (
        own - other
    ) ** 2


@pytest.mark.parametrize(
    "epsilon", [0.1, 0.5, 1.0, 1.75, 2.5, 3.0, 3.125, 4.0, 6.0, 8.0]
)
def test_the_sum_over_all_shares_is_never_above_that_of_the_peers(epsilon):
    """Optimized unary encoding, randomized response, and subset selection with whole sets of round(k/(e^ε + 1)).

    Whole sets of more than 25 bits are not used; others are then at most 1.12 % above (k = 116, ε = 3.125).
    """
    e = math.exp(epsilon)
    for categories in [*range(2, 131), 200, 257, 500, 1000, 4096]:
        wide = max(1, round(categories / (e + 1)))
        own = wide * e / (wide * e + categories - wide)
        peer = total(categories, own, (wide - own) / (categories - 1))
        # The exact law of 2^25 candidates is this near to the formula.
        allowed = 1 + 1e-8 if math.comb(categories, wide) <= 2**25 else 1.0112
        found = sstq.Frequencies(categories, epsilon)
        variance = total(categories, *found.sets.rates)
        assert variance <= peer * allowed, categories
        unary = total(categories, 0.5, 1 / (e + 1))
        response = e / (e + categories - 1)
        least = min(
            unary, total(categories, response, (1 - response) / (categories - 1))
        )
        assert variance <= least * (1 + 1e-8), categories
        assert found.message_bits <= max(25, 2 * categories.bit_length())


@pytest.mark.parametrize(
    "options", [(9, 1.0), (26, 0.5), (100, 3.5), (8000, 8.3), (6, 4.0)]
)
def test_whole_sets_are_numbered_as_in_the_combinatorial_number_system(options, seed):
    """The message is C(c₁, 1) + … + C(c_w, w) of the set at the place drawn, those with the own category first."""
    mechanism = sstq.Frequencies(*options)
    rng = np.random.default_rng(seed)
    k = mechanism.categories
    wide = mechanism.sets.width
    draw = mechanism.draw
    assert (draw.size, draw.inside) == (math.comb(k, wide), math.comb(k - 1, wide - 1))
    words = rng.integers(2**64, size=(40, 3), dtype=np.uint64)
    labels = rng.integers(k, size=40)
    codes = mechanism.sets.encode(labels, words)
    for label, place, code in zip(
        labels, draw.places(words[:, 1:]), codes, strict=True
    ):
        inside = place < draw.inside
        rank = int(place) - (0 if inside else draw.inside)
        members = [int(label)] if inside else []
        for left in range(wide - inside, 0, -1):
            other = max(c for c in range(k - 1) if math.comb(c, left) <= rank)
            rank -= math.comb(other, left)
            members.append(other + (other >= label))
        assert code == sum(
            math.comb(c, i) for i, c in enumerate(sorted(members), start=1)
        )
    held = mechanism.sets.hold(codes, np.arange(k))
    assert np.all(held.sum(axis=1) == wide)
    np.testing.assert_array_equal(
        mechanism.sets.hold(codes, np.array([3])), held[:, 3:4]
    )
    np.testing.assert_array_equal(
        mechanism.sets.hits(codes, np.arange(40)), np.arange(40) @ held
    )


@pytest.mark.parametrize("options", [(7, 1.0), (8, 1.0), (10, 4.0), (23, 1.0)])
def test_the_law_has_the_stated_rates_for_every_pair_of_categories(options):
    """From the enumerated messages: the set holds the own category with p and any other one with q."""
    mechanism = sstq.Frequencies(*options)
    codes = mechanism.messages_from_columns((np.arange(mechanism.sets.codes),), True)
    own, other = mechanism.sets.rates
    held = np.round(mechanism.decode(codes) * (own - other) + other).astype(int)
    for label in range(mechanism.categories):
        law = np.array([float(mass) for mass in output_distribution(mechanism, label)])
        expected = np.where(np.arange(mechanism.categories) == label, own, other)
        np.testing.assert_allclose(law @ held, expected, rtol=1e-12)


def found_from(mechanism, labels, rng):
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.encode(labels, rng))
    return aggregator.mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("categories", "epsilon"), [(1009, 1.0), (101, 3.0), (10, 3.0)]
)
def test_error_bars_hold_what_multipliers_add(categories, epsilon, seed):
    """The mean square of (share − truth)/stderr is 1 if all but some people hold one category.

    With one of few multipliers for many messages, errors of a binomial are twice too small at 1009 categories.
    """
    mechanism = sstq.Frequencies(categories, epsilon)
    people = 8000
    rounds = 40
    rng = np.random.default_rng(seed)
    labels = np.where(
        rng.random(people) < 0.7, 0, rng.integers(categories, size=people)
    )
    truth, own, other = (
        np.bincount(labels, minlength=categories) / people,
        *mechanism.sets.rates,
    )
    squares = []
    for _ in range(rounds):
        found = found_from(mechanism, labels, rng)
        squares.append(np.mean(((found.shares - truth) / found.stderr) ** 2))
    # People are fixed here: the error bar also holds f(1 − f), the variance of drawing them.
    fixed = truth * own * (1 - own) + (1 - truth) * other * (1 - other)
    rate = other + truth * (own - other)
    expected = np.mean(fixed / (rate * (1 - rate)))
    deviation = np.std(squares, ddof=1) / math.sqrt(rounds)
    # Rounds are independent: |t| < 6 of 39 degrees, false alarms below 1e-6. 2 % are for the estimated errors.
    assert abs(np.mean(squares) - expected) < 6 * deviation + 0.02
    assert 6 * deviation < 0.6


@pytest.mark.parametrize(
    ("categories", "epsilon", "people"),
    [(3, 6.0, 200), (50, 4.0, 500), (2, 1.0, 30), (200, 2.0, 500)],
)
def test_regions_cover_all_shares_at_once(categories, epsilon, people, seed):
    """Skewed shares, empty categories and few people: at least 95 % less 6 standard errors of the rounds."""
    mechanism = sstq.Frequencies(categories, epsilon)
    rng = np.random.default_rng(seed)
    rounds = 200
    shares = np.where(np.arange(categories) < 3, 0.5 ** np.arange(categories), 0.0)
    shares /= shares.sum()
    covered = 0
    for _ in range(rounds):
        found = found_from(
            mechanism, rng.choice(categories, size=people, p=shares), rng
        )
        covered += bool(
            np.all(np.abs(found.shares - shares) <= found.region(0.95).half_width)
        )
    assert covered / rounds >= 0.95 - 6 * (0.95 * 0.05 / rounds) ** 0.5


@pytest.mark.parametrize("rate", [0.002, 0.005, 0.02, 0.1, 0.3])
def test_intervals_of_rare_hits_cover_by_enumeration(rate):
    """All numbers of hits of 50 messages: how likely it is that the interval of one share holds the truth."""
    people = 50
    own = 0.9
    other = rate
    for share in (0.0, 0.01, 0.1, 0.5):
        truth = other + share * (own - other)
        covered = 0.0
        for hits in range(people + 1):
            values, errors = HitRates(own, other).shares(
                np.array([float(hits)]), people
            )
            found = FrequencyEstimate(values, errors, people, own=own, other=other)
            if abs(found.shares[0] - share) <= found.region(0.95).half_width[0]:
                covered += (
                    math.comb(people, hits)
                    * truth**hits
                    * (1 - truth) ** (people - hits)
                )
        assert covered >= 0.94


def test_one_message_has_no_error_and_projected_shares_are_shares(seed):
    mechanism = sstq.Frequencies(5, 1.0)
    alone = found_from(mechanism, [3], seed)
    assert np.isnan(alone.stderr).all()
    assert np.isnan(alone.region().half_width).all()
    many = found_from(mechanism, [3] * 100, seed)
    assert many.projected.min() >= 0
    assert many.projected.sum() == pytest.approx(1.0)
    assert many.note == ""


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 9], "integers from 0 to 8, got 9 at row 1"),
        ([-1], "integers from 0 to 8, got -1 at row 0"),
        ([0.5], "integers from 0 to 8, got 0.5"),
        ([math.nan], "finite"),
        (np.zeros((2, 2)), "shape"),
        (["AT"], "dtype"),
        ([None], "NoneType"),
        (np.ma.array([1, 2], mask=[0, 1]), "masked"),
    ],
)
def test_bad_categories_are_refused_before_anything_is_sampled(labels, words):
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    with pytest.raises(ValueError, match=words):
        sstq.Frequencies(9, 1.0).encode(labels, rng)
    assert rng.bit_generator.state == before


def test_a_device_sends_a_uniform_category_in_the_place_of_none():
    """The same number of words for every label; unknown ones become uniform, with |z| < 6 of 30,000 messages."""
    mechanism = sstq.Frequencies(3, 8.0)
    assert len(answer(mechanism, [0, 7, math.nan, None, "x", 2.5])) == 6
    assert len(answer(mechanism, np.array([1, 2]))) == 2
    aggregator = mechanism.aggregator()
    aggregator.update(answer(mechanism, np.full(30_000, 99), rng=1))
    found = aggregator.mean()
    assert np.all(np.abs(found.shares - 1 / 3) < 6 * found.stderr)


def test_a_device_sends_one_message_per_person():
    mechanism = sstq.Frequencies(5, 2.0)
    assert len(answer(mechanism, [[1], [7]])) == 2
    with pytest.raises(ValueError, match=r"one category per person, got \(1, 2\)"):
        answer(mechanism, [[1, 2]])


@pytest.mark.parametrize("categories", [4, 6, 8, 9, 10])
def test_the_largest_epsilon_has_as_many_candidates_as_categories(categories):
    assert sstq.Frequencies(categories, 20.0).draw.size == categories


def test_options_and_tampered_parameters_are_refused():
    with pytest.raises(ValueError, match="categories must be an integer in"):
        sstq.Frequencies(1, 1.0)
    with pytest.raises(ValueError, match="groups must be left out"):
        sstq.Frequencies(5, 1.0).encode([1], groups=[1])
    whole = sstq.Frequencies(9, 1.0)
    affine = sstq.Frequencies(23, 1.0)
    wrong = "size and inside must be"

    def other(size, inside):
        return {
            "size": size,
            "inside": inside,
            "threshold": str(inside * 2**62 // size + 2**40),
        }

    for mechanism, change, words in (
        (whole, other(37, 8), wrong),
        (whole, other(11, 1), wrong),
        (whole, other(36, 9), wrong),
        (whole, other(84, 56), wrong),  # w = 6 of 9
        (whole, {"categories": 10}, wrong),
        (affine, other(29, 6), wrong),
        (affine, {"categories": 24}, wrong),
        (affine, {"inside": 23}, "inside must be"),
        (
            whole,
            {"threshold": str(whole.draw.threshold + 2**40)},
            "above epsilon = 1.0",
        ),
        (
            affine,
            {"threshold": str(affine.draw.threshold + 2**40)},
            "above epsilon = 1.0",
        ),
        (whole, {"threshold": str(2 * 2**62 // 9)}, "favour"),
        (affine, {"threshold": str(affine.draw.inside * 2**62 // 23)}, "favour"),
    ):
        with pytest.raises(ValueError, match=words):
            reread(mechanism, **change)


@pytest.mark.parametrize("options", [(9, 1.0), (6, 4.0), (23, 1.0), (1024, 3.0)])
def test_no_message_is_longer_than_the_bound(options):
    mechanism = sstq.Frequencies(*options)
    codes = np.arange(min(mechanism.sets.codes, 3000))
    norms = np.linalg.norm(
        mechanism.decode(mechanism.messages_from_columns((codes,), True)), axis=1
    )
    assert norms.max() <= mechanism.largest_message() * (1 + 1e-9)
    assert norms.max() >= mechanism.largest_message() * 0.99


def test_shuffled_messages_take_the_own_law():
    found = sstq.accounting.shuffled_epsilon(
        sstq.Frequencies(100, 3.0), clients=100_000, delta=1e-6
    )
    assert found < sstq.accounting.shuffled_epsilon(3.0, clients=100_000, delta=1e-6)


@pytest.mark.parametrize("options", [(9, 1.0), (6, 4.0), (23, 1.0)])
def test_covariances_are_those_of_the_decoded_messages(options, seed):
    mechanism = sstq.Frequencies(*options)
    sent = mechanism.encode(np.arange(400) % 3, seed)
    aggregator = mechanism.aggregator().update(sent)
    slow = np.cov(mechanism.decode(sent).T) / len(sent)
    for category in (0, 5):
        np.testing.assert_allclose(
            mechanism.estimator.covariance_with(aggregator.counted(), category),
            slow[category],
            atol=1e-12,
        )
    # With one more message, which is uniform: as all messages together, each once.
    every = mechanism.decode(
        mechanism.messages_from_columns((np.arange(mechanism.sets.codes),), True)
    )
    uniform = np.cov(every.T, bias=True) / (len(sent) * (len(sent) - 1))
    np.testing.assert_allclose(
        mechanism.estimator.covariance(aggregator.counted()), slow + uniform, atol=1e-12
    )
    alone = mechanism.aggregator().update(sent[:1])
    assert np.isnan(mechanism.estimator.covariance(alone.counted())).all()
    assert np.isnan(mechanism.estimator.covariance_with(alone.counted(), 0)).all()


@pytest.mark.parametrize(
    ("categories", "epsilon"), [(53, 3.0), (1000, 6.0), (1000, 0.5)]
)
def test_both_ways_to_count_hits_agree(categories, epsilon, seed):
    """Few messages have their members listed; of many, each multiplier is gone through once."""
    sets = sstq.Frequencies(categories, epsilon).sets
    rng = np.random.default_rng(seed)
    codes = np.unique(rng.integers(sets.codes, size=300))
    counts = rng.integers(1, 9, size=len(codes))
    by_multiplier = sum(hits.sum(axis=0) for hits, _ in sets._hits(codes, counts))
    np.testing.assert_array_equal(sets._listed_hits(codes, counts), by_multiplier)
    held = sets.hold(codes, np.arange(categories))
    np.testing.assert_array_equal(by_multiplier, counts @ held)


@pytest.mark.parametrize("categories", [2, 3, 5])
def test_the_ball_of_shares_holds_by_the_exact_law(categories, seed):
    """Errors sum to 0, so that they have one direction less: balls of k held in 92 to 93 % of rounds.

    The law of counts is multinomial: 20,000 rounds have an error of 0.15 points, and 94.2 % is more than 5 of them
    above 93.4 %. The normal approximation costs less than half a point at 5,000 people.
    """
    mechanism = sstq.Frequencies(categories, 1.0)
    rng = np.random.default_rng(seed)
    people = 5000
    sets = mechanism.sets
    shares = np.full(categories, 1 / categories)
    held = sets.hold(np.arange(sets.codes), np.arange(categories))
    law = np.where(held, *mechanism.draw.probabilities) @ shares
    sent = rng.multinomial(people, law / law.sum(), 20_000)
    found = sets.rates.shares(sent @ held, people)[0]
    one = (
        mechanism.aggregator()
        .update_counts({"code": np.arange(sets.codes)}, sent[0])
        .mean()
    )
    assert one.directions == categories - 1
    # The errors of all rounds are alike: one radius is that of all, to 1 %.
    radius = one.region(0.95).radius
    assert 0.942 < np.mean(np.linalg.norm(found - shares, axis=1) < radius) < 0.962
