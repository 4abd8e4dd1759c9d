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
    assert best_clip(likely, 0.0, 1.0) == EDGES[131]
    assert best_clip(likely, 1e30, 1.0) == EDGES[0]


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
        chosen = read_histogram((each / people - rates.other) / rates.gap, error)[1]
        assert 0.7 / 3 < best_clip(chosen, 20 / 50_000, 0.5) < 3 * 1.3


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
    assert found.estimate.count == (3000 if offset else 6000)
    assert found.people == 3000 * len(study.learned)
    bins = [facts for facts in study.learned if "shares" in facts][-1]
    lost = excess(read_histogram(np.array(bins["shares"]), bins["error"])[0])
    clips = [facts["clip"] for facts in study.learned if "clip" in facts]
    first, last = (lost[np.argmin(np.abs(EDGES - clip))] for clip in clips)
    assert last > 0
    if offset:
        assert found.bias == last
    else:
        # The mean is that of two cohorts, and so is its bias.
        assert min(first, last) <= found.bias <= max(first, last)
        assert first == last or found.bias > min(first, last)


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
    likely, _ = histograms.read_histogram(shares, error)
    assert 0.015 < histograms.beyond(likely)[130] < 0.025
    assert 0.6 * 0.02 < histograms.visible(error) < 0.02


def test_a_result_says_what_its_region_leaves_out():
    found = Range(2, 2.0).simulate(np.ones((4000, 2)), rng=1)
    error = found.beyond[1]
    assert (
        f"less than {100 * histograms.visible(error):.2g} % of the people" in found.note
    )
