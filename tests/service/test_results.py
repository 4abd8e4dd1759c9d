"""What is stored of estimates: how the error shrank, in few points, and the counts that estimates cover."""

import json
import secrets

import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client.campaigns import Campaign
from sstq.service import rendering, results, study_results
from sstq.service.store import Upload
from tests.service import both
from tests.service.serving import packed
from tests.studies.test_own_study import PEOPLE, OddShare

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)


@pytest.fixture
def store(store):
    store.create("steps", MECHANISM, "{}")
    return store


def receive(store, count, seed):
    store.receive(
        [
            Upload(
                "steps", secrets.token_bytes(16), count, packed(MECHANISM, count, seed)
            )
        ]
    )
    while store.fold("steps"):
        pass


def test_the_history_has_a_point_per_eighth_more_messages(store):
    campaign = Campaign("steps", MECHANISM)
    assert results.covered(store) == {}
    for seed in range(16):
        receive(store, 50, seed)
        results.refresh(store, campaign)
        assert not store.outdated()
    assert results.covered(store) == {"steps": 800}
    points = results.progress(store, campaign)["measured"]
    counts = np.array([messages for messages, _ in points])
    assert counts[0] == 50
    assert (counts[1:] >= 1.125 * counts[:-1]).all()
    assert counts[-1] * 1.125 > 750
    described = json.loads(results.latest(store, "steps"))
    assert described["count"] == 800
    if counts[-1] == 800:
        assert points[-1][1] == pytest.approx(np.linalg.norm(described["stderr"]))


@both
def test_the_prediction_is_the_typical_error_up_to_ten_times_the_messages(store):
    campaign = Campaign("steps", MECHANISM)
    before = results.progress(store, campaign)
    assert (before["measured"], before["arrivals"]) == ([], [])
    receive(store, 50, 1)
    results.refresh(store, campaign)
    found = results.progress(store, campaign)
    assert [found["predicted"][0][0], found["predicted"][-1][0]] == [50, 500]
    for messages, error in found["predicted"]:
        assert error == pytest.approx(MECHANISM.typical_error(messages).total ** 0.5)
    assert found["bias"] == pytest.approx(MECHANISM.typical_error(1).bias2 ** 0.5)
    assert [messages for _, messages in found["arrivals"]] == [50]
    assert found["privacy_loss"] <= found["epsilon"] == 2.0


def test_errors_of_columns_with_bounds_are_in_the_units_of_the_prediction(store):
    bounds = {"age": (0, 110), "income": (0, 200_000)}
    mechanism = sstq.FrameUnit(dim=2, epsilon=3.0, frames=1024, bounds=bounds)
    campaign = Campaign("columns", mechanism)
    store.create("columns", mechanism, "{}")
    messages = mechanism.encode(np.full((2000, 2), [110.0, 0.0]), 1)
    store.receive(
        [Upload("columns", secrets.token_bytes(16), 2000, messages.to_bytes())]
    )
    while store.fold("columns"):
        pass
    results.refresh(store, campaign)
    found = results.progress(store, campaign)
    assert found["measured"] == [
        [2000, pytest.approx(found["predicted"][0][1], rel=0.1)]
    ]
    described = json.loads(results.latest(store, "columns"))
    rows = rendering.as_csv(campaign, described).splitlines()
    assert [row.split(",")[1] for row in rows] == ["label", "age", "income"]


def test_a_survey_is_described_question_by_question():
    """The numbers are those of the library; what nobody answered yet is null."""
    age = sstq.Number(0, 100, bins=5)
    used = sstq.MultiChoice(["=search", "share"])
    questions = {
        "os": sstq.Choice(["a", "b"]),
        "used": used,
        "age": age,
        "age by os": sstq.By("os", "age"),
    }
    questions |= {"visits": sstq.Count(3), "mean age": sstq.Mean("age")}
    survey = sstq.Survey(2.0, questions)
    campaign = Campaign("poll", survey)
    empty = rendering.describe(campaign, None, None)
    assert empty["questions"] is None
    assert rendering.as_csv(campaign, empty).splitlines() == [
        "question,item,estimate,stderr,low,high"
    ]
    rng = np.random.default_rng(3)
    for count in (1, 5000):
        found = (
            survey.aggregator()
            .update(survey.encode(**survey.input.trial(rng, count), rng=3))
            .mean()
        )
        described = json.loads(
            json.dumps(rendering.describe(campaign, found, None), allow_nan=False)
        )
        rows = [
            row.split(",")
            for row in rendering.as_csv(campaign, described).splitlines()[1:]
        ]
        frame = found.to_frame()
        assert [row[1].lstrip("'") for row in rows] == frame["item"].tolist()
        for place, column in enumerate(("estimate", "stderr", "low", "high"), 2):
            given = [float(row[place] or "nan") for row in rows]
            assert np.array_equal(given, frame[column], equal_nan=True)
    assert [each["type"] for each in described["questions"]] == [
        "choice",
        "multichoice",
        "number",
        "by",
        "count",
        "mean",
    ]
    # The width of a bin belongs to the mean of a number, which is no one number then.
    assert (
        described["questions"][2]["mean"]["value"]
        is described["questions"][2]["mean"]["stderr"]
        is None
    )
    assert described["questions"][4]["mean"]["stderr"] > 0
    assert described["questions"][2]["edges"] == [0, 20, 40, 60, 80, 100]


def test_frequencies_have_a_row_per_category():
    mechanism = sstq.Frequencies(3, 2.0)
    campaign = Campaign("os", mechanism, labels=("a", "b", "c"))
    found = mechanism.aggregator().update(mechanism.encode([0, 1, 2, 2], rng=1)).mean()
    text = rendering.as_csv(campaign, rendering.describe(campaign, found, None))
    assert [row.split(",")[1] for row in text.splitlines()] == ["label", "a", "b", "c"]


def test_a_collector_shows_the_study_of_a_third_party(seed):
    study = OddShare(4.0)
    assert study_results.described(study) is None
    for people in (PEOPLE[:40], PEOPLE[40:]):
        study.question(len(people))
        study.learn(study.asked.encode(people, np.random.default_rng(seed)))
    shown = study_results.described(study)
    assert shown == {"item": ["odd"], "share": [study.result.share]}
    table = study_results.as_csv(json.loads(json.dumps(shown)))
    assert table == f"item,share\nodd,{study.result.share}\n"
