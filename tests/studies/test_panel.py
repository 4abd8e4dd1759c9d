import json

import numpy as np
import pytest

import sstq
from sstq.studies import Panel, PeriodQuestion, Study, answer, draw_turn, is_turn
from sstq.studies.panel_results import _groups
from sstq.studies.smoothing import smooth, smooth_together
from sstq.testing import check_study

SURVEY = {
    "os": sstq.Choice(["a", "b"]),
    "age": sstq.Number(0, 100, bins=4),
    "v": sstq.Vector(3),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        sstq.Survey(3.0, SURVEY, people=100),
        sstq.Frequencies(5, 3.0),
        sstq.FrameUnit(2, 3.0, clip=2.0),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_the_contract(mechanism, seed):
    records = [
        {"os": "a", "age": 30, "v": [1, 2, 3]},
        {"os": 7, "age": "x", "v": "y"},
        {"v": [1], "age": [[]]},
    ]
    people = [*records * 6, *range(-1, 6), *[[0.1, 5.0], [1e300, 0]] * 15]
    check_study(lambda: Panel(mechanism, periods=3), people, seed)


def test_devices_draw_their_period_among_those_left():
    panel = Panel(sstq.Frequencies(2, 1.0), periods=4, period="day")
    first = panel.question(100)
    drawn = np.array([draw_turn(first, seed) for seed in range(400)])
    assert set(drawn) == {1, 2, 3, 4}
    assert np.all(np.abs(np.bincount(drawn)[1:] - 100) < 60)  # 7 errors
    panel.learn([])
    later = panel.question(100)
    assert {draw_turn(later, seed) for seed in range(100)} == {2, 3, 4}
    assert [is_turn(later, turn) for turn in (1, 2, 3)] == [False, True, False]
    back = Panel(sstq.Frequencies(2, 1.0), periods=4, late="answer")
    back.question(10)
    back.learn([])
    assert [is_turn(back.question(10), turn) for turn in (1, 2, 3)] == [
        True,
        True,
        False,
    ]


def scene(name, rng, periods=52):
    time = np.arange(periods)
    drift = np.cumsum(rng.normal(0, 0.0025, periods))
    step = np.where(time >= rng.integers(13, 39), 1.0, 0.0)
    return {
        "constant": np.zeros(periods),
        "drift": drift,
        "slope": 0.003 * time,
        "season": 0.05 * np.sin(time / 8.3),
        "small step": 0.03 * step,
        "step": 0.05 * step + drift,
        "large step": 0.15 * step + drift,
    }[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("constant", 1),
        ("drift", 1.15),
        ("slope", 1.7),
        ("season", 1.9),
        ("small step", 1.5),
        ("step", 1.7),
    ],
)
def test_bands_hold_and_errors_are_small(name, most, seed):
    """40 curves with an error of 4.4 points per week. Coverages are above 0.95 (60 curves), their errors below 0.02."""
    rng = np.random.default_rng(seed)
    squares = []
    held = []
    for _ in range(40):
        truth = 0.2 + scene(name, rng)
        curve = smooth(truth + rng.normal(0, 0.044, 52), np.full(52, 0.044))
        squares.append(np.mean((curve.value - truth) ** 2))
        held.append(np.mean(np.abs(curve.value - truth) < 1.96 * curve.stderr))
    assert 100 * np.sqrt(np.mean(squares)) < most
    assert np.mean(held) > 0.9


STEEP = {
    "slope": lambda weeks, rng: 2 * weeks,
    "season": lambda weeks, rng: 10 * np.sin(weeks / 8.3),
    "walk": lambda weeks, rng: np.cumsum(rng.normal(0, 1, len(weeks))),
}


@pytest.mark.parametrize("shape", STEEP)
@pytest.mark.parametrize("periods", [12, 52])
def test_bands_hold_on_steep_curves(shape, periods, seed):
    """They hold in 0.94 or more, with an error of 0.015 or less for 40 curves: 0.8 is 9 errors below."""
    rng, held = np.random.default_rng(seed), []
    for _ in range(40):
        truth = STEEP[shape](np.arange(periods), rng)
        curve = smooth(truth + rng.normal(0, 1, periods), np.ones(periods))
        held.append(np.mean(np.abs(curve.value - truth) < 1.96 * curve.stderr))
    assert np.mean(held) > 0.8


def test_bands_hold_next_to_jumps(seed):
    """The hardest jump is as large as the error of a week: 0.93 within 2 weeks of it; of 60 curves 0.83 is 3 errors."""
    rng = np.random.default_rng(seed)
    held = []
    for _ in range(60):
        at = int(rng.integers(13, 39))
        truth = np.where(np.arange(52) >= at, 0.044, 0.0)
        curve = smooth(truth + rng.normal(0, 0.044, 52), np.full(52, 0.044))
        near = slice(at - 2, at + 3)
        held.append(
            np.mean(np.abs(curve.value - truth)[near] < 1.96 * curve.stderr[near])
        )
    assert np.mean(held) > 0.83


def squares(curves, truth):
    return np.mean([(curve.value - truth) ** 2 for curve in curves])


def test_a_jump_is_found_where_others_have_theirs(seed):
    """Four curves jump together: the squared error is 0.59 of what each has alone, of 25 draws within 0.04."""
    rng = np.random.default_rng(seed)
    alone = 0.0
    together = 0.0
    error = np.full((4, 52), 0.05)
    for _ in range(25):
        truth = np.where(np.arange(52) >= rng.integers(13, 39), 0.1, 0.0)
        raw = truth + rng.normal(0, 0.05, (4, 52))
        together += squares(smooth_together(raw, error), truth)
        alone += squares(map(smooth, raw, error), truth)
    assert together < 0.8 * alone


def test_whether_a_curve_jumped_is_told_by_itself(seed):
    """Beside others that jump, a season was told to have changed in up to 13 of 100 draws."""
    weeks = np.arange(52)
    shapes = [8.0 * (weeks > 25), -8.0 * (weeks > 25), 2 * np.sin((weeks - 25) / 12)]
    raw = np.array(shapes) + np.random.default_rng(seed).normal(0, 1, (3, 52))
    for curve, alone in zip(smooth_together(raw, np.ones((3, 52))), raw, strict=True):
        np.testing.assert_allclose(curve.jumps, smooth(alone, np.ones(52)).jumps)


def test_shares_that_sum_to_one_are_not_counted_twice(seed):
    """Of two such shares the second tells nothing new; two that do not sum to 1 tell more than each alone."""
    share = 0.3 + 0.1 * (np.arange(30) > 15)
    share = share + np.random.default_rng(seed).normal(0, 0.05, 30)
    error = np.full((2, 30), 0.05)
    both = smooth_together(np.array([share, 1 - share]), error)
    np.testing.assert_allclose(both[0].value, smooth(share, error[0]).value)
    np.testing.assert_allclose(both[0].value, 1 - both[1].value)
    more = smooth_together(np.array([share, 2 - share]), error)
    assert np.max(np.abs(more[0].value - both[0].value)) > 1e-6


def test_shares_of_a_question_are_smoothed_together():
    share = np.ones((3, 2))
    other = np.zeros((3, 2))
    names = [("q", "a"), ("q", "no answer"), ("q", "mean"), ("v", "0"), ("v", "1")]
    told = dict(zip(names, [share, other, other, other, other], strict=True))
    assert _groups(told) == [names[:2], names[2:3], names[3:]]


def test_periods_without_answers_are_bridged():
    raw = np.array([0.1, np.nan, np.nan, 0.1, 0.1])
    curve = smooth(raw, np.where(np.isnan(raw), np.nan, 0.01))
    assert np.all(np.abs(curve.value - 0.1) < 1e-6)
    assert curve.stderr[1] > curve.stderr[3]
    assert np.isnan(smooth(np.full(3, np.nan), np.ones(3)).value).all()


def test_the_smoother_is_that_of_a_dense_gaussian():
    """With one model left, the answer is that of the normal equations of the walk."""
    rng = np.random.default_rng(0)
    y = rng.normal(0, 1, 12)
    import sstq.studies.smoothing as module

    model = module._Models(
        np.array([0.3]), np.array([5]), np.array([4.0]), np.array([0.0])
    )
    mean, spread, fit = module._filtered(y, np.ones(12), model)
    mean, spread = module._smoothed(mean, spread, model)
    steps = np.where(np.arange(1, 12) == 5, 4.3, 0.3)
    differences = np.diff(np.eye(12), axis=0)
    precision = np.eye(12) + differences.T @ np.diag(1 / steps) @ differences
    np.testing.assert_allclose(mean[:, 0], np.linalg.solve(precision, y))
    np.testing.assert_allclose(spread[:, 0], np.diagonal(np.linalg.inv(precision)))
    # The likelihood of all values but the first, given that one.
    walk = np.concatenate([[0], np.cumsum(steps)])
    covariance = (
        walk[np.minimum.outer(np.arange(12), np.arange(12))][1:, 1:] + np.eye(11) + 1
    )
    off = y[1:] - y[0]
    expected = -0.5 * (
        np.linalg.slogdet(covariance)[1] + off @ np.linalg.solve(covariance, off)
    )
    np.testing.assert_allclose(fit[0], expected)


def test_a_jump_is_told_with_its_week(seed):
    """The jump is ten errors of a week; with a fourth of the people, five errors, one of 40 runs failed."""
    rng = np.random.default_rng(seed)
    weeks = [rng.random(24_000) < (0.2 if week < 23 else 0.5) for week in range(1, 53)]
    result = Panel(sstq.Frequencies(2, 2.0)).simulate(
        [week.astype(int) for week in weeks], seed
    )
    changed = result.curve(item=1).changed
    assert changed.startswith("changed at week 2")
    assert changed.endswith("%)")
    flat = [(rng.random(24_000) < 0.2).astype(int) for _ in range(52)]
    assert (
        Panel(sstq.Frequencies(2, 2.0)).simulate(flat, seed).curve(item=1).changed == ""
    )


@pytest.mark.slow
def test_surveys_have_shares_quantiles_and_means(seed):
    rng = np.random.default_rng(seed)
    months = []
    for month in range(6):
        ages = rng.normal(30 + 3 * month, 10, 12_000).clip(0, 100)
        os = np.where(rng.random(12_000) < 0.3, "a", "b").astype(object)
        os[:3000] = None
        months.append(
            [
                {"os": a, "age": b, "v": [0.5, 0, 0]}
                for a, b in zip(os, ages, strict=True)
            ]
        )
    survey = sstq.Survey(4.0, SURVEY, people=12_000)
    result = Panel(survey, periods=6, period="month").simulate(months, seed)
    share = result.curve("os", "a")
    # A quarter has no answer; the share is of those who have one. 6 errors fail falsely once in 1e8.
    assert np.all(np.abs(share.value - 0.3) < 6 * share.smoothed.stderr)
    assert np.all(
        np.abs(result.curve("os", "no answer").value - 0.25)
        < 6 * result.curve("os", "no answer").smoothed.stderr
    )
    mean = result.curve("age", "mean")
    assert np.all(
        np.abs(mean.value - (30 + 3 * np.arange(6))) < 6 * mean.smoothed.stderr + 12.5
    )
    assert ("age", "quantile 0.5") in result.curves
    assert result.curve("v", "0").value.shape == (6,)
    frame = result.to_frame()
    assert list(frame.columns) == [
        "question",
        "item",
        "month",
        *("raw", "raw_stderr", "value", "stderr", "low", "high"),
    ]
    with pytest.raises(
        KeyError, match="item of 'os' must be one of 'a', 'b', 'no answer', got 'c'"
    ):
        result.curve("os", "c")


def test_as_long_as_nobody_has_answered_there_is_nothing_to_show():
    panel = Panel(sstq.Frequencies(2, 2.0), periods=3)
    panel.question(10)
    result = panel.learn([]).result
    assert result.curves == {}
    for show in (result.columns, result.plot):
        with pytest.raises(ValueError, match="nobody has answered in any week yet"):
            show()


def test_the_result_is_there_from_the_first_period_on():
    panel = Panel(sstq.Frequencies(2, 1.0), periods=3)
    with pytest.raises(ValueError, match="there is no result before the first week"):
        _ = panel.result
    panel.learn([answer(panel.question(5), 1, most_epsilon=1.0) for _ in range(5)])
    assert panel.result.people == [5]
    again = Study.from_json(panel.to_json())
    assert again.cohorts_left == ("week 2", "week 3")
    assert repr(again.result) == repr(panel.result)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"periods": 1}, "periods must be"),
        ({"period": ""}, "period must be a name"),
        ({"late": "never"}, "late must be 'skip' or 'answer'"),
        ({"mechanism": sstq.Frequencies(2, 1.0, messages=2)}, "mechanism must be"),
        ({"mechanism": sstq.SSTQ(2, 1.0)}, "mechanism must be"),
    ],
)
def test_bad_options(options, problem):
    with pytest.raises(ValueError, match=problem):
        Panel(**({"mechanism": sstq.Frequencies(2, 1.0)} | options))


def test_documents_out_of_bounds_are_refused():
    panel = Panel(sstq.Frequencies(2, 1.0), periods=3)
    data = json.loads(panel.question(10))
    for wrong in (
        {"number": 4},
        {"number": 0},
        {"periods": 10**6},
        {"late": "x"},
        {"period": "w" * 41},
    ):
        with pytest.raises(ValueError, match="must be"):
            PeriodQuestion.from_dict(data | wrong)
