"""A classifier and a regression are studies: documents, answers, restarts and results are those of every study."""

import json

import numpy as np
import pytest

from sstq.accounting import Ledger
from sstq.accounting.ledger import RoundAlreadySpent
from sstq.learning import (
    FourierFeatures,
    LearningReport,
    PrivateClassifier,
    PrivateRegression,
)
from sstq.studies import Study, answer
from sstq.testing import check_study

pytestmark = pytest.mark.slow

BOUNDS = {"a": (-4, 6), "b": (-4, 6)}


def people(count, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=count)
    return list(
        zip(
            (rng.standard_normal((count, 2)) + 2 * np.eye(2)[labels]).tolist(),
            labels.tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize("kind", [PrivateClassifier, PrivateRegression])
def test_names_are_listed_before_a_study_begins(kind):
    assert {"fit", "question", "result"} <= set(dir(kind(3.0)))


PUBLIC = [features for features, _ in people(60, 9)]
COSINES = FourierFeatures([0.0, 0.0], [1.0, 1.0], count=6)
STUDIES = {
    "bounds": lambda: PrivateClassifier(3.0, bounds=BOUNDS, classes=[0, 1]),
    "public": lambda: PrivateClassifier(
        3.0, public=np.array(PUBLIC), classes=["no", "yes"], random_state=1
    ),
    "features": lambda: PrivateClassifier(
        3.0, features=COSINES, classes=[0, 1], check_people=0.2
    ),
    "shuffler": lambda: PrivateClassifier(
        1.0, public=PUBLIC, classes=[0, 1], trust="shuffler"
    ),
    "regression": lambda: PrivateRegression(
        3.0, bounds=list(BOUNDS.values()), y_bound=(-1, 2)
    ),
    "unchecked": lambda: PrivateRegression(
        3.0, public=PUBLIC, y_bound=2, check_people=0
    ),
}


@pytest.mark.parametrize("make", STUDIES.values(), ids=STUDIES)
@pytest.mark.filterwarnings("ignore:this regression is not shown")
def test_the_contract(make, seed):
    check_study(
        make,
        [
            *people(60),
            (None, None),
            ([1.0], 0),
            "x",
            ([1.0, "y"], "no"),
            ([np.nan, 1e308], -1),
        ],
        seed,
    )


def test_who_chose_the_form_does_not_predict_its_accuracy(seed):
    """Those who choose say that every form is right, those who check say that the chosen one is wrong."""
    rng = np.random.default_rng(seed)
    model = PrivateClassifier(6.0, public=PUBLIC, classes=[0, 1])

    def told(outcome):
        model.question(1000)
        mechanism = model.asked.mechanism
        model.learn(mechanism.encode(np.full(1000, outcome % mechanism.categories)))

    while model.cohorts_left[0] != "check":
        model.question(1000)
        model.learn(model.asked.encode_each(people(1000), rng))
    told(-1)
    assert model.cohorts_left[0] == "accuracy"
    told(0)
    # Standard errors are below 0.01 with 1,000 people at ε = 6: fails falsely once in 1e20.
    assert min(model.report_.accuracies.values()) > 0.9
    assert model.report_.predicted_accuracy < 0.1


def test_behind_a_shuffler_people_count_and_not_their_messages():
    model = PrivateClassifier(
        1.0, public=PUBLIC, classes=[0, 1], trust="shuffler", messages=2
    )
    model.question(100)
    answers = model.asked.encode_each(people(60))
    assert len(answers) == 120
    with pytest.raises(ValueError, match=r"must be those of 100 people.*got 60"):
        model.learn(answers)
    # The bytes of an answer are all of a person's messages.
    model.learn([model.asked.encode_each([one]).to_bytes() for one in people(100)])
    assert model.cohorts_left[0] == "main"


def test_devices_answer_it_as_any_other_study(tmp_path):
    model = PrivateClassifier(4.0, public=PUBLIC, classes=[0, 1])
    report = model.simulate(people(3000), rng=1)
    assert isinstance(report, LearningReport)
    assert report.predicted_accuracy > 0.6
    document = model.question(10)
    ledger = Ledger(tmp_path / "ledger", epsilon=10.0)
    answer(document, ([1.0, 2.0], 1), most_epsilon=4.0, ledger=ledger)
    with pytest.raises(RoundAlreadySpent):
        answer(document, ([1.0, 2.0], 1), most_epsilon=4.0, ledger=ledger)


@pytest.mark.parametrize(
    "scale", [{"bounds": BOUNDS}, {"bounds": (-4, 6)}, {"public": np.array(PUBLIC)}]
)
def test_what_fit_learned_survives_json(scale):
    frames = pytest.importorskip("pandas")
    X, y = zip(*people(2000), strict=True)
    table = frames.DataFrame(X, columns=["b", "a"])
    model = PrivateClassifier(4.0, **scale, random_state=0).fit(table, y)
    again = Study.from_json(model.to_json())
    assert isinstance(again, PrivateClassifier)
    assert repr(again.result) == repr(model.report_)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    np.testing.assert_allclose(
        again.predict_proba(np.array(X)), model.predict_proba(table)
    )
    assert list(model.result.to_frame().columns) == ["class", "accuracy", "low", "high"]
    line = PrivateRegression(4.0, **scale, y_bound=(-1, 2), random_state=0).fit(
        table, y
    )
    read = Study.from_json(line.to_json())
    np.testing.assert_allclose(read.predict(np.array(X)), line.predict(table))
    assert read.result.columns()["column"] == [0, 1, "constant"]


def test_what_cannot_be_saved_says_so():
    X, y = zip(*people(300), strict=True)
    model = PrivateClassifier(4.0, features=np.tanh, public=PUBLIC, random_state=0).fit(
        X, y
    )
    with pytest.raises(ValueError, match="features must be a built-in map"):
        model.to_json()
    with pytest.raises(ValueError, match="random_state must be None or an integer"):
        PrivateClassifier(
            public=PUBLIC, classes=[0, 1], random_state=np.random.default_rng(0)
        ).to_json()


def test_plans_say_what_to_expect():
    model = PrivateClassifier(3.0, bounds=BOUNDS, classes=[0, 1])
    few = model.plan(100)
    many = model.plan(100_000)
    assert few.problem == "1 people are too few to tell its accuracy"
    assert many.works
    # One in 80 judges; at ε = 3 an answer is right for 95 %, which is a standard deviation of 0.55.
    assert many.error == pytest.approx(
        0.5 / (0.9526 - 0.0474) / np.sqrt(1250), rel=0.01
    )
    line = PrivateRegression(3.0, bounds=[(0, 1)] * 3, y_bound=1)
    assert not line.plan(100).works
    assert line.plan(10**6).works


def test_other_json_is_refused():
    data = json.loads(STUDIES["bounds"]().to_json())
    for wrong in (
        {"learned": [{}]},
        {"options": {}},
        {"kind": "regression"},
        {"people": 3, "asked": {}},
    ):
        with pytest.raises(ValueError, match=r"."):
            Study.from_json(json.dumps(data | wrong))
