import json
import math

import numpy as np
import pytest

import sstq
from sstq.aggregation import Estimate
from sstq.studies import (
    BoundsResult,
    NormQuestion,
    Question,
    Range,
    StudyPlan,
    VectorQuestion,
)
from sstq.studies import bins as histograms
from sstq.studies.bins import (
    BINS,
    EDGES,
    best_clip,
    beyond,
    bin_of,
    excess,
    read_histogram,
)
from sstq.studies.columns import _likely_ends
from sstq.studies.range import _share_of_first
from sstq.studies.results import RangeResult
from sstq.testing import check_study

NAN = float("nan")


def gauss(rng, n, dim, offset=0.0, scale=1.0):
    direction = np.ones(dim) / math.sqrt(dim)
    return scale * (rng.standard_normal((n, dim)) / math.sqrt(dim) + offset * direction)


@pytest.mark.slow
def test_the_contract(seed):
    vectors = gauss(np.random.default_rng(seed), 60, 3, offset=5.0)
    people = [*vectors, [NAN, 1, 2], [1, 2], None, "x", [1e300] * 3]
    check_study(lambda: Range(3, 4.0), people, seed)


@pytest.mark.slow
def test_the_contract_of_columns(seed):
    rng = np.random.default_rng(seed)
    people = [{"a": a, "b": b} for a, b in rng.normal([5, 0], [1, 100], (50, 2))] + [
        {"a": "x"},
        {},
        None,
        {"b": NAN},
    ]
    check_study(lambda: Range(columns=["a", "b"], epsilon=4.0), people, seed)


def test_bins_are_of_one_ratio_and_hold_everything():
    assert bin_of(
        np.array([0.0, 1e-300, EDGES[0], EDGES[7] * 1.01, 1e9, 1e300, math.inf, NAN])
    ).tolist() == [
        *(0, 0, 0, 7),
        *(BINS - 1, BINS - 1, BINS - 1, 0),
    ]
    np.testing.assert_allclose(
        EDGES[1:] / EDGES[:-1], (EDGES[-1] / EDGES[0]) ** (1 / BINS)
    )


def test_what_clipping_may_cost():
    likely = np.zeros(BINS)
    likely[100] = 0.75
    likely[130] = 0.25
    assert beyond(likely)[[0, 100, 101, 130, 131]].tolist() == [
        1.0,
        1.0,
        0.25,
        0.25,
        0.0,
    ]
    # Clipping at the end of the first bin loses at most a quarter of the rest's distance.
    assert math.isclose(
        excess(likely)[101], 0.25 * ((EDGES[130] + EDGES[131]) / 2 - EDGES[101])
    )
    assert best_clip(excess(likely), 0.0, 1.0) == EDGES[131]
    assert best_clip(excess(likely), 1e30, 1.0) == EDGES[0]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_no_study_of_a_thousand_is_ruined_by_a_false_bin(epsilon, seed):
    """3,000 people, 95 % of norms within 0.7 to 1.3: the clip is within that by a factor of 3, in all of 1,000.

    Each false bin would be anywhere in 18 orders of magnitude. The hits of a bin are drawn from their exact law.
    """
    rng = np.random.default_rng(seed)
    people = 3000
    rates = sstq.Frequencies(BINS, epsilon).sets.rates
    held = np.bincount(
        bin_of(np.linalg.norm(gauss(rng, people, 20), axis=1)), minlength=BINS
    )
    hits = rng.binomial(held, rates.own, (1000, BINS)) + rng.binomial(
        people - held, rates.other, (1000, BINS)
    )
    error = math.sqrt(rates.variance_at(0.0) / people)
    for each in hits:
        chosen = read_histogram((each / people - rates.other) / rates.gap, error).chosen
        assert 0.7 / 3 < best_clip(excess(chosen), 20 / 50_000, 0.5) < 3 * 1.3


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_mean_needs_no_known_range(scale, seed):
    """An offset of five times the spread: the centre is subtracted, so the error is below half of a known clip's."""
    vectors = gauss(np.random.default_rng(seed), 30_000, 20, offset=5.0, scale=scale)
    found = Range(20, 3.0).simulate(vectors, seed)
    known = (
        sstq.FrameUnit(20, 3.0, clip=5.5 * scale, clients=30_000)
        .typical_error(30_000)
        .total
    )
    error = np.linalg.norm(found.mean - vectors.mean(axis=0))
    assert error < 0.5 * math.sqrt(known)
    assert error < found.region(0.999).radius < 10 * math.sqrt(known)
    assert found.centre.any()
    assert "far longer vectors is not seen" in repr(found)
    assert found.clip < 3 * scale
    assert found.beyond[0] < 0.3


def test_without_an_offset_both_cohorts_count(seed):
    vectors = gauss(np.random.default_rng(seed), 30_000, 20)
    study = Range(20, 3.0)
    found = study.simulate(vectors, seed)
    known = (
        sstq.FrameUnit(20, 3.0, clip=1.0, clients=30_000).typical_error(30_000).total
    )
    assert np.linalg.norm(found.mean - vectors.mean(axis=0)) < 2 * math.sqrt(known)
    assert not found.centre.any()
    assert np.all(
        np.abs(found.mean - vectors.mean(axis=0)) < found.region(0.999).half_width
    )
    assert list(found.to_frame().columns) == ["mean", "stderr", "half_width"]


def test_too_few_people_have_an_honest_region():
    """Nobody can tell the scale from a few people: the region says so."""
    vectors = gauss(np.random.default_rng(1), 200, 5)
    found = Range(5, 1.0).simulate(vectors, 1)
    assert np.linalg.norm(found.mean - vectors.mean(axis=0)) < found.region(0.95).radius
    plan = Range(5, 1.0).plan(200)
    assert not plan.works
    assert "too few people to find the norms" in str(plan)
    assert Range(5, 1.0).plan(10**6).works


def test_devices_subtract_the_centre_and_clip():
    study = Range(2, 3.0)
    document = {"study": study.identifier, "dim": 2, "centre": [3.0, 4.0]}
    norm = NormQuestion(**document, mechanism=sstq.Frequencies(BINS, 3.0))
    values = [[3.0, 4.0], [4.0, 4.0], [NAN, 1.0], "x", [1.0], None]
    assert norm.held(values).tolist() == [0, 120, *[bin_of(np.array([5.0]))[0]] * 4]
    vector = VectorQuestion(**document, mechanism=sstq.FrameUnit(2, 3.0, clip=1.0))
    np.testing.assert_allclose(
        vector.held(values)[:4], [[0, 0], [1, 0], [-0.6, -0.8], [-0.6, -0.8]]
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"centre": [1.0]},
        {"centre": [NAN, 1.0]},
        {"centre": [1e101, 1.0]},
        {"dim": 3},
        {"centre": "ab"},
        {"centre": [True, 1.0]},
        {"mechanism": json.loads(sstq.FrameUnit(3, 3.0).to_json())},
        {"mechanism": json.loads(sstq.Frequencies(BINS, 3.0).to_json())},
    ],
)
def test_documents_out_of_bounds_are_refused(wrong):
    study = Range(2, 3.0)
    study.question(10)
    data = study.asked.to_dict() | {
        "mechanism": json.loads(sstq.FrameUnit(2, 3.0).to_json()),
        "kind": "vector",
    }
    VectorQuestion.from_dict(data)
    with pytest.raises(ValueError, match="must be"):
        VectorQuestion.from_dict(data | wrong)


@pytest.mark.parametrize(
    ("dim", "categories", "problem"),
    [(0, BINS, "dim must be"), (2, BINS + 1, "mechanism must be")],
)
def test_questions_of_norms_are_checked(dim, categories, problem):
    mechanism = sstq.Frequencies(categories, 3.0)
    with pytest.raises(ValueError, match=problem):
        NormQuestion(study="0" * 32, dim=dim, centre=[], mechanism=mechanism)


def test_bounds_of_columns(seed):
    rng = np.random.default_rng(seed)
    table = {
        "age": rng.normal(45, 10, 40_000),
        "income": rng.lognormal(10, 1, 40_000),
        "t": rng.normal(0, 1e-4, 40_000),
    }
    people = [
        dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)
    ]
    found = Range(columns=list(table), epsilon=4.0).simulate(people, seed)
    assert isinstance(found, BoundsResult)
    for name, values in table.items():
        low, high = found.bounds[name]
        left = np.mean((values < low) | (values > high))
        assert left < 0.05
        # Within 6 errors, of both cohorts: fails falsely once in 1e8.
        assert abs(found.beyond[name] - left) < 6 * found.stderr[name]
        spread = np.quantile(values, 0.995) - np.quantile(values, 0.005)
        assert high - low < 12 * spread
    assert list(found.to_frame().columns) == [
        "column",
        "low",
        "high",
        "beyond",
        "stderr",
    ]
    assert isinstance(Range(columns=["a"], epsilon=1.0).plan(10), StudyPlan)


@pytest.mark.parametrize(
    "options",
    [{"columns": []}, {"columns": ["a", "a"]}, {"columns": [1]}, {"columns": None}],
)
def test_bad_columns(options):
    with pytest.raises((ValueError, TypeError)):
        Range(epsilon=1.0, **options)


def test_a_seed_gives_the_same_simulation(seed):
    vectors = gauss(np.random.default_rng(seed), 500, 3, offset=5.0)
    first, again = (Range(3, 4.0).simulate(vectors, seed) for _ in range(2))
    np.testing.assert_array_equal(first.mean, again.mean)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"columns": ["a", "b", "b"], "ends": [[], [], []]}, "columns must be diff"),
        ({"columns": ["a", "b"], "ends": [[]]}, "columns must be different, and ends"),
        ({"columns": "ab", "ends": [[], []]}, "columns must be different, and ends"),
        ({"columns": [["a"], "b"]}, "unhashable"),
        ({"columns": ["b", "c"]}, "must be a survey of the bins of these columns"),
        ({"ends": [[], [0]]}, "ends must be pairs of numbers"),
        ({"ends": [[], [1, 0]]}, "ends must be pairs of numbers"),
        ({"ends": [[], [0, 1e101]]}, "ends must be pairs of numbers"),
        ({"ends": [[], ["0", 1]]}, "ends must be pairs of numbers"),
        ({"ends": [[], [0, 1]]}, "must be a survey of the bins of these columns"),
    ],
)
def test_questions_of_columns_are_checked(changes, problem):
    document = json.loads(Range(columns=["a", "b"], epsilon=2.0).question(100))
    Question.from_dict(document)
    with pytest.raises(ValueError, match=problem):
        Question.from_dict(document | changes)


def test_the_ends_of_very_few_people_do_not_cross():
    shares = np.array(
        [-1.24, 3.64, -2.64, -1.32, 1.87, 0.1, 4.0, 0.38, -1.27, -0.76, -2.18]
    )
    first, end = _likely_ends(shares, 0.5)
    assert first < end


def test_what_clipping_may_have_moved_is_in_the_whole_region():
    estimate = Estimate(np.array([3.0, 4.0]), np.array([0.1, 0.2]), 1000)
    found = RangeResult(
        estimate, 0.5, 7.0, np.zeros(2), (0.01, 0.001), people=1000, epsilon=3.0
    )
    region = found.region(0.9)
    noise = estimate.region(0.9)
    assert region.radius == noise.radius + 0.5
    np.testing.assert_array_equal(region.half_width, noise.half_width + 0.5)
    assert region.level == 0.9


@pytest.mark.parametrize("offset", [0.0, 5.0])
def test_what_may_be_beyond_the_clip_is_the_bias(offset, seed):
    rng = np.random.default_rng(seed)
    study = Range(3, 6.0)
    seeds = set()
    while study.cohorts_left:
        vectors = gauss(rng, 3000, 3, offset=offset)
        study.question(3000)
        seeds.add(getattr(study.asked.mechanism, "frame_seed", None))
        study.learn(study.asked.encode_each(vectors, rng))
    found = study.result
    assert found.centre.any() == (offset > 0)
    # Cohorts have frames of their own.
    assert len(seeds - {None}) == 2
    assert found.estimate.count == 6000
    assert found.people == 3000 * len(study.learned)
    told = [facts for facts in study.learned if "shares" in facts]
    lost = []
    for facts, first in ((told[0], True), (told[-1], False)):
        skewness = histograms.skewness(facts["error"], 6.0)
        known = read_histogram(np.array(facts["shares"]), facts["error"], skewness)
        clips = [one["clip"] for one in study.learned if "clip" in one]
        edge = np.argmin(np.abs(EDGES - (clips[0] if first else clips[-1])))
        lost.append(excess(known.likely)[edge])
    # What was clipped first moves the mean by no more, and by its share.
    assert lost[1] > 0
    assert lost[1] < found.bias <= lost[0] + 2 * lost[1]


def test_one_person_per_cohort_has_an_error_of_the_whole_clip():
    study = Range(3, 6.0)
    while study.cohorts_left:
        study.question(1)
        study.learn(study.asked.encode_each([[1.0, 0.0, 0.0]]))
        if "clip" in study.learned[-1]:
            assert study.learned[-1]["stderr"] == [study.learned[-1]["clip"]] * 3
    # infinite if the mean is that of one person
    assert study.result.region().radius > 0


def test_studies_have_frames_of_their_own():
    def frame_seed():
        study = Range(3, 6.0)
        study.question(100)
        study.learn(study.asked.encode_each(np.ones((100, 3))))
        study.question(100)
        return study.asked.mechanism.frame_seed

    assert frame_seed() != frame_seed()


def test_a_small_group_far_beyond_several_others_is_seen():
    """2 % of the people, 11 errors: three other groups must not use up the search."""
    error = 0.0018
    shares = np.zeros(histograms.BINS)
    shares[[100, 107, 114, 121]] = 0.245
    shares[139] = 0.02
    likely = histograms.read_histogram(shares, error).likely
    assert 0.015 < histograms.beyond(likely)[130] < 0.025
    assert 0.6 * 0.02 < histograms.visible(error) < 0.02


def test_a_result_says_what_its_region_leaves_out():
    found = Range(2, 2.0).simulate(np.ones((4000, 2)), rng=1)
    error = found.beyond[1]
    share = histograms.visible(error, histograms.skewness(error, 2.0))
    assert f"less than {100 * share:.2g} % of the people" in found.note


def told_shares(held, epsilon, rng):
    """Shares of bins and their error, by the law of hits."""
    people = int(held.sum())
    rates = sstq.Frequencies(BINS, epsilon).sets.rates
    hits = rng.binomial(held, rates.own) + rng.binomial(people - held, rates.other)
    error = math.sqrt(rates.variance_at(0.0) / people)
    return (hits / people - rates.other) / rates.gap, error


def test_the_skewness_of_a_bin():
    """By the moments of one message: it hits with the rate q, and not with 1 − q."""
    rates = sstq.Frequencies(BINS, 6.0).sets.rates
    people = 1200
    error = math.sqrt(rates.variance_at(0.0) / people)
    other = rates.other
    third = other * (1 - other) ** 3 - (1 - other) * other**3
    spread = math.sqrt(other * (1 - other))
    expected = third / spread**3 / math.sqrt(people)
    assert math.isclose(histograms.skewness(error, 6.0), expected, rel_tol=1e-9)
    assert expected > 0.7


def test_few_hits_by_chance_are_no_bump():
    """At ε = 6 two of 1,200 people hit an empty bin, and ten of them one of 240 bins in one of 200 histograms.

    That is six errors above, which normal errors never are.
    """
    held = np.where(np.arange(BINS) == 100, 1200, 0)
    shares, error = told_shares(held, 6.0, np.random.default_rng(1))
    skewness = histograms.skewness(error, 6.0)
    rates = sstq.Frequencies(BINS, 6.0).sets.rates
    for hits, few in ((11, True), (60, False)):
        shares[200] = (hits / 1200 - rates.other) / rates.gap
        assert shares[200] > 6.1 * error
        likely = read_histogram(shares, error, skewness).likely
        assert (beyond(likely)[150] < 1e-6) == few


def spread_histogram(people, rng):
    """Norms that spread over an order of magnitude, at ε = 1."""
    norms = np.exp(rng.standard_normal(people))
    held = np.bincount(bin_of(norms), minlength=BINS)
    return told_shares(held, 1.0, rng)


@pytest.mark.slow
def test_a_place_is_sure_only_if_others_are_unlikely(seed):
    """Of 300 histograms of 1,200 people half are unsure. Those that are sure are right, but for one in 10⁵.

    Two that are wrong fail falsely once in 10⁶.
    """
    rng = np.random.default_rng(seed)
    unsure = 0
    wrong = 0
    for _ in range(300):
        known = read_histogram(*spread_histogram(1200, rng))
        unsure += not known.sure
        middle = EDGES[int(np.argmax(beyond(known.chosen) < 0.5))]
        wrong += known.sure and not 1 / 31 < middle < 31
    assert 100 < unsure < 280
    assert wrong < 2
    assert all(read_histogram(*spread_histogram(20_000, rng)).sure for _ in range(20))


def test_norms_are_asked_again_until_they_are_sure():
    rng = np.random.default_rng(1)
    study = Range(3, 1.0)
    rates = sstq.Frequencies(BINS, 1.0).sets.rates
    assert [*study.weights] == ["norms", "centre", "mean"]
    error = math.sqrt(rates.variance_at(0.0) / 600)
    unsure = {"people": 600, "shares": [0.0] * BINS, "error": error}
    study._keep(unsure)
    assert [*study.weights] == ["norms 2", "centre", "mean"]
    assert math.isclose(study.weights["norms 2"], 0.12)
    shares, error = spread_histogram(20_000, rng)
    sure = {"people": 20_000, "shares": shares.tolist(), "error": error}
    study._keep(sure)
    assert [*study.weights] == ["centre", "mean"]
    # All cohorts count, by their people.
    people = 20_600
    expected = math.sqrt(rates.variance_at(0.0) / people)
    assert math.isclose(study._norm_error, expected)
    never = Range(3, 1.0)
    for _ in range(3):
        never._keep(unsure)
    assert [*never.weights] == ["centre", "mean"]
    study.question(1000)
    assert study.asked.mechanism.dim == 3
    study.learn(study.asked.encode_each(np.ones((1000, 3)), rng))
    # No more norms, whatever the vectors told.
    assert not {"norms", "norms 2", "norms 3"} & {*study.weights}
    assert Range.from_json(study.to_json()).weights == study.weights


def test_a_distance_is_at_most_a_norm_and_the_centre():
    """A false bin far beyond the norms does not count among distances."""
    shares = np.zeros(BINS)
    shares[[115, 220]] = 0.4, 0.6
    known = read_histogram(shares, 0.1, highest=130)
    assert beyond(known.likely)[140] < 1e-3
    assert beyond(read_histogram(shares, 0.1).likely)[140] > 0.5
    bump = np.zeros(BINS)
    bump[[115, 220]] = 0.8, 0.2
    assert beyond(read_histogram(bump, 0.01, highest=130).likely)[140] < 1e-3
    assert beyond(read_histogram(bump, 0.01).likely)[140] > 0.1
    study = Range(2, 3.0)
    near = np.zeros(BINS)
    near[120] = 1.0
    study._keep({"people": 1000, "shares": near.tolist(), "error": 0.01})
    study.question(1000)
    rows = np.tile([1.0, 0.0], (1000, 1))
    study.learn(study.asked.encode_each(rows, np.random.default_rng(1)))
    assert study.cohorts_left == ("distances", "mean")
    study._keep({"people": 100, "shares": shares.tolist(), "error": 0.1})
    assert beyond(study._distances.likely)[140] < 1e-3


def test_the_first_clip_leaves_out_few_long_vectors():
    likely = np.zeros(BINS)
    likely[[0, 100, 150]] = 0.5, 0.42, 0.08
    # 0.08 of 0.5 are 16 %
    assert histograms.exceeded_by(likely, 0.2) == EDGES[101]
    assert histograms.exceeded_by(likely, 0.1) == EDGES[151]
    study = Range(40, 6.0)
    study._keep({"people": 1200, "shares": likely.tolist(), "error": 0.002})
    study.question(2800)
    assert study.asked.mechanism.clip < EDGES[110]


@pytest.mark.parametrize(
    ("gap", "most", "share"),
    [
        # No gap beyond what noise gives: by their squared errors.
        (1.5, math.inf, 0.8),
        # far apart: the last one
        (1e6, math.inf, 0.0),
        # James and Stein: last2·(dim − 2)/gap² of the first
        (6.0, math.inf, 4 * (38 / 40) / 36),
        # as far apart as clipping can have moved it
        (6.0, 2.0, 4 / (5 + 2**2)),
        (6.0, 0.0, 0.8),
    ],
)
def test_how_much_the_first_mean_counts(gap, most, share):
    told = _share_of_first(np.full(40, gap / math.sqrt(40)), 1.0, 4.0, most)
    assert math.isclose(told[0], share, abs_tol=1e-9)
    assert told[1] <= most
    # The gap with its noise: 2.2 in 40 directions.
    assert told[1] < gap + 2.2


def test_two_numbers_do_not_tell_what_clipping_moved():
    assert _share_of_first(np.zeros(2), 1.0, 4.0, 3.0)[0] == 4 / (5 + 3**2)


def test_a_shrunk_mean_is_within_its_region(seed):
    """Two means of 40 numbers, a gap of 0 to 20 between them: of 400 each, 95 % regions hold in 90 % at least.

    They hold in 99 %, so this never fails falsely; means of squared errors do once in 10⁷.
    """
    rng = np.random.default_rng(seed)
    for moved in (0.0, 1.0, 2.0, 4.0, 20.0):
        bias = rng.standard_normal(40)
        bias *= moved / np.linalg.norm(bias)
        held = 0
        errors = []
        for _ in range(400):
            first = bias + rng.normal(0, math.sqrt(1 / 40), 40)
            last = rng.normal(0, math.sqrt(16 / 40), 40)
            share, most = _share_of_first(first - last, 1.0, 16.0, 100.0)
            pooled = share * first + (1 - share) * last
            noise2 = share**2 + (1 - share) ** 2 * 16
            radius = math.sqrt(noise2) * 1.18 + share * most
            held += np.linalg.norm(pooled) < radius
            errors.append(pooled @ pooled)
        assert held > 360
        # never worse than the last one alone, but for chance
        assert np.mean(errors) < 17
        if moved == 0.0:
            assert np.mean(errors) < 4


@pytest.mark.slow
def test_long_vectors_that_cancel_cost_little():
    """5 % are 30 times as long and cancel: the error is at most three times that of a clip chosen in hindsight.

    A clip that is chosen for long vectors alike costs five times as much.
    """
    rows = gauss(np.random.default_rng(1), 20_000, 40)
    rows[:1000] *= 30
    rows += 1 / math.sqrt(40)
    found = Range(40, 6.0).simulate(rows, 1)
    known = sstq.FrameUnit(40, 6.0, clip=2.0, clients=20_000).typical_error(20_000)
    factors = np.minimum(1, 2 / np.linalg.norm(rows, axis=1))
    truth = rows.mean(axis=0)
    bias = np.linalg.norm(factors @ rows / len(rows) - truth)
    error = np.linalg.norm(found.mean - truth)
    assert error < 3 * math.hypot(bias, math.sqrt(known.total))
    assert error < found.region(0.999).radius


def test_long_vectors_that_only_the_norms_show_are_counted():
    """Fewer people tell distances, which show nothing of a tail here: alone they clip at 13,000, and lose 27 %."""
    incomes = 20_000 * (np.random.default_rng(1).pareto(1.8, 20_000) + 1)
    found = Range(1, 3.0).simulate(incomes[:, None], 1)
    assert found.clip > 50_000
    off = abs(found.mean[0] - incomes.mean())
    assert off < 0.15 * incomes.mean()
    # Not all of it: the note says how many people are not seen.
    assert found.bias > 0.4 * off
