"""Published questions: the JSON is all that a device needs, and bad ones are refused."""

import json

import numpy as np
import pytest

from sstq.accounting import Ledger, RoundAlreadySpent
from sstq.learning import FourierFeatures, GradientHistograms, Question, encode
from sstq.learning.features import Columns
from sstq.learning.moments import (
    error_vectors,
    explained,
    moment_dim,
    moment_rows,
    symmetric,
    symmetric_vectors,
)
from sstq.mechanisms import FrameUnit, Frequencies, GroupUnit


def class_question(**changes):
    rng = np.random.default_rng(0)
    options = {
        "kind": "classes",
        "mechanism": GroupUnit(3, 2.0, groups=4, frames=16),
        "directions": rng.standard_normal((3, 36)),
        "centre": rng.standard_normal(36),
        "features": GradientHistograms((8, 8)),
        "classes": ("a", "b", "c", "d"),
    }
    return Question(**options | changes)


def questions():
    yield class_question()
    yield class_question(classes=np.array([3, 5, 7, 11]), features=None)
    yield Question("centre", FrameUnit(5, 1.0))
    yield Question("centre", FrameUnit(3, 1.0), features=Columns((55, 35), (32, 14)))
    yield Question("moments", FrameUnit(moment_dim(2), 1.0), bounds=(2.0, 0.5, 3.0))
    yield Question(
        "errors",
        FrameUnit(2, 1.0),
        bounds=(2.0, 0.0, 3.0),
        scores=[(np.ones((1, 2)), np.ones(1))],
    )
    scores = (np.ones((2, 3)), np.zeros(2))
    of_directions = {
        "directions": np.ones((3, 4)),
        "centre": np.ones(4),
        "classes": (0, 1),
    }
    yield Question(
        "check", Frequencies(4, 1.0), **of_directions, scores=[scores, scores]
    )
    yield Question("recall", Frequencies(4, 1.0), **of_directions, scores=[scores])


@pytest.mark.parametrize(
    "question", list(questions()), ids=lambda question: question.kind
)
def test_json_round_trips(question):
    text = question.to_json()
    assert Question.from_json(text).to_json() == text


def test_the_device_needs_nothing_but_the_json(seed):
    question = class_question()
    images = np.random.default_rng(seed).random((5, 64))
    sent = encode(images, list("abcda"), question.to_json(), most_epsilon=2.0, rng=1)
    rows = GradientHistograms((8, 8))(images).astype(float)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    vectors = (rows - question.centre) @ question.directions.T
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rng = np.random.default_rng(1)
    # a class for every person, should the label be unknown
    rng.integers(0, 1 << 64, size=5, dtype=np.uint64)
    expected = question.mechanism.encode(vectors, rng=rng, groups=[0, 1, 2, 3, 0])
    assert sent.to_bytes() == expected.to_bytes()


def test_a_check_says_whether_the_scores_are_right():
    scores = (np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2))
    always_x = (np.zeros((2, 2)), np.array([1.0, 0.0]))
    known = {"directions": np.eye(2), "centre": np.zeros(2), "classes": ("x", "y")}
    examples = [[2.0, 1.0], [1.0, 2.0], [2.0, 1.0], [2.0, 1.0]]
    labels = ["x", "y", "y", "?"]
    both = Question(
        "check", Frequencies(4, 1.0), **known, scores=[scores, always_x]
    ).vectors(examples, labels)
    np.testing.assert_array_equal(both[:, 0], [3, 1, 0, 0])
    recall = Question("recall", Frequencies(4, 1.0), **known, scores=[scores])
    np.testing.assert_array_equal(
        recall.vectors(examples, labels)[:, 0], [1, 3, 2, np.nan]
    )
    # An unknown label is answered all the same.
    assert len(recall.encode(examples, labels)) == 4


PLAIN = Question(
    "classes", GroupUnit(4, 0.01, groups=2), classes=("negative", "unknown")
)
MOMENTS = Question("moments", FrameUnit(moment_dim(4), 0.01), bounds=(1.0, 0.0, 1.0))
IMAGES = Question("centre", FrameUnit(36, 0.01), features=GradientHistograms((8, 8)))
COSINES = Question(
    "centre",
    FrameUnit(9, 0.01),
    features=FourierFeatures([0.0] * 4, [1.0] * 4, count=9),
)
STRANGE = np.ma.MaskedArray([[1.0, 2.0, 0.0, 1.0]], [[False, True, False, False]])


@pytest.mark.parametrize(
    ("question", "X", "y"),
    [
        (PLAIN, [[1.0, 2, 0, 1]], ["positive"]),  # a class that the server left out
        (PLAIN, [[1.0, 2, 0, 1]], [None]),
        (PLAIN, np.zeros((1, 4)), ["negative"]),
        (PLAIN, [[1.0, np.nan, 0, 1]], ["negative"]),
        (PLAIN, [[1.0, None, 0, 1]], ["negative"]),
        (PLAIN, [[1, 2**70, 0, 1]], ["negative"]),
        (PLAIN, STRANGE, ["negative"]),
        (PLAIN, [[1e308, 1e308, 1e308, 1e308]], ["negative"]),
        (PLAIN, [], []),
        (MOMENTS, [[1e308, 1e308, 0, 1]], [np.inf]),
        (MOMENTS, [[1e308, 1e308, 0, 1]], [None]),
        (COSINES, [[np.inf, np.nan, 1e308, None]], None),
        (IMAGES, np.full((1, 64), -1.0), None),
        (IMAGES, np.full((1, 64), 1e300), None),
    ],
)
@pytest.mark.filterwarnings("error")
def test_no_private_value_makes_a_device_refuse(question, X, y):
    """A refusal would tell the server a fact about the person, at any stated ε."""
    rng = np.random.default_rng(3)
    usual = np.random.default_rng(3)
    assert len(encode(X, y, question.to_json(), most_epsilon=0.01, rng=rng)) == 1
    # As many random words as for any other person.
    ordinary = np.ones((1, 64 if question is IMAGES else 4))
    question.encode(
        ordinary, {PLAIN: ["negative"], MOMENTS: [0.5]}.get(question), usual
    )
    assert rng.integers(2**60) == usual.integers(2**60)


@pytest.mark.slow
def test_an_unknown_label_is_a_zero_vector_of_any_class(seed):
    question = class_question(
        features=None, mechanism=GroupUnit(3, 12.0, groups=4, share_people=0, frames=64)
    )
    X = np.random.default_rng(seed).standard_normal((4000, 36))
    aggregator = question.mechanism.aggregator()
    aggregator.update(question.encode(X, ["none of these"] * 4000, seed))
    found = aggregator.mean()
    # Zero and a quarter, within 6 standard errors: false alarms below 16 · 2e-9.
    assert np.abs(found.value).max() < 6 * found.stderr.max()
    if np.isfinite(found.shares).all():
        assert (
            np.abs(found.shares - 0.25).max()
            < 6 * (0.25 * 0.75 / 4000) ** 0.5 + 6 * found.shares_stderr.max()
        )


def test_no_document_makes_a_device_overflow():
    """With directions near 1e308, whoever refuses has an inner product beyond the server's threshold."""
    steep = np.full((3, 36), 1e308)
    far = np.full(36, -1.7e308)
    for change in ({"directions": steep}, {"centre": far}):
        with pytest.raises(ValueError, match=r"must be numbers up to 1e\+30"):
            class_question(**change)
        data = json.loads(class_question().to_json()) | {
            name: value.tolist() for name, value in change.items()
        }
        with pytest.raises(ValueError, match=r"must be numbers up to 1e\+30"):
            encode(np.ones((1, 64)), ["a"], json.dumps(data), most_epsilon=2.0)
    # Within the bounds nothing overflows, and everybody answers with a vector of length 1.
    question = class_question(
        features=None, directions=np.full((3, 36), 1e30), centre=np.full(36, -1e30)
    )
    np.testing.assert_allclose(
        np.linalg.norm(question.vectors(np.ones((1, 36)), ["a"]), axis=1), 1
    )


def test_a_document_that_asks_for_too_much_is_refused(tmp_path):
    dear = Question(
        "classes", GroupUnit(4, 20.0, groups=2, messages=4096), classes=("a", "b")
    ).to_json()
    for y in ("a", "nobody"):
        with pytest.raises(
            ValueError,
            match=r"most_epsilon must be at least 81920\.0, got 20\.0: .* epsilon = 81920\.0 per person",
        ):
            encode([[1.0, 2, 0, 1]], [y], dear, most_epsilon=20.0)
    ledger = Ledger(tmp_path / "me.ledger", epsilon=0.015)
    encode(
        [[1.0, 2, 0, 1]], ["positive"], PLAIN.to_json(), most_epsilon=1.0, ledger=ledger
    )
    assert ledger.spent == 0.01
    with pytest.raises(RoundAlreadySpent):
        encode(
            [[1.0, 2, 0, 1]],
            ["negative"],
            PLAIN.to_json(),
            most_epsilon=1.0,
            ledger=ledger,
        )
    with pytest.raises(ValueError, match="one example with a ledger"):
        encode(
            np.ones((2, 4)),
            ["negative"] * 2,
            PLAIN.to_json(),
            most_epsilon=1.0,
            ledger=ledger,
        )


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((2, 36)), ["a"], "y must be 2 labels"),
        (np.ones((2, 36)), None, "y must be 2 labels"),
        (np.ones((2, 35)), ["a", "b"], "36 features, got 35"),
    ],
)
def test_other_shapes_are_refused_before_anything_is_sampled(X, y, message):
    rng = np.random.default_rng(3)
    with pytest.raises(ValueError, match=message):
        class_question(features=None).encode(X, y, rng)
    assert rng.integers(2**60) == np.random.default_rng(3).integers(2**60)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "rumour"},
        {"classes": ("a", "b", "c")},
        {"mechanism": FrameUnit(3, 1.0)},
        {"directions": np.ones((2, 36))},
        {"centre": np.ones(35)},
        {"centre": np.ones(2), "directions": None},
        {"bounds": (1.0, 0.0, 1.0)},
        {"scores": [(np.ones((4, 3)), np.ones(4))]},
        {"classes": (None, 1, 2, 3)},
    ],
)
def test_parts_that_do_not_belong_together_are_refused(changes):
    with pytest.raises(ValueError, match=r"must|belong"):
        class_question(**changes)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1, "extra": 1},
        {"directions": "no"},
        {"centre": [1e400]},
        {"classes": 4},
        {"scores": [1]},
        {"features": {"name": "deep"}},
        {"mechanism": {}},
    ],
)
def test_other_json_is_refused(change):
    data = json.loads(class_question().to_json()) | change
    with pytest.raises(ValueError, match=r"."):
        Question.from_json(json.dumps(data))


def test_a_question_that_names_its_map_takes_no_other():
    with pytest.raises(ValueError, match="features must be left out"):
        Question.from_json(class_question().to_json(), features=np.tanh)


def test_moments_are_within_the_unit_ball_and_come_back(seed):
    rng = np.random.default_rng(seed)
    rows = 3 * rng.standard_normal((50, 4))
    targets = 5 * rng.standard_normal(50)
    vectors = symmetric_vectors(moment_rows(rows, targets, (2.0, 1.0, 3.0)))
    assert vectors.shape == (50, moment_dim(4))
    x = moment_rows(rows, targets, (2.0, 1.0, 3.0))
    # Rows may be nearly orthogonal; products of unit vectors are off by few roundings.
    np.testing.assert_allclose(vectors @ vectors.T, (x @ x.T) ** 2, atol=1e-14)
    assert np.linalg.norm(vectors, axis=1).max() <= 1 + 1e-12
    x = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 2.0)
    whole = np.column_stack([x, np.ones(50), np.clip((targets - 1) / 3, -1, 1)])
    np.testing.assert_allclose(
        3 * symmetric(vectors.mean(axis=0)), whole.T @ whole / 50
    )


def test_squared_errors_give_the_share_explained(seed):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-0.4, 0.4, (500, 2))
    targets = rng.uniform(-0.4, 0.4, 500)
    vectors = error_vectors(
        moment_rows(rows, targets, (1.0, 0.0, 1.0)),
        np.array([[0.5, 0.2]]),
        np.array([0.1]),
    )
    assert np.linalg.norm(vectors, axis=1).max() <= 1 + 1e-12
    r2, stderr, low, high = explained(vectors.mean(axis=0), np.zeros(2))
    left = targets - rows @ [0.5, 0.2] - 0.1
    assert r2 == pytest.approx(1 - np.mean(left**2) / np.mean(targets**2))
    assert stderr == 0
    assert low == pytest.approx(r2)
    assert high == pytest.approx(r2)
    assert np.isnan(explained(vectors.mean(axis=0), np.ones(2))[:2]).all()
    # The ends are where left − ratio·whole is 1.96 errors from zero, and the lower one is the farther.
    left, whole = (1 + np.sqrt(2) * vectors.mean(axis=0)) / 2
    error = whole / 4
    found = explained(vectors.mean(axis=0), np.full(2, error * np.sqrt(2)))
    for end in found[2:]:
        ratio = 1 - end
        assert (left - ratio * whole) ** 2 == pytest.approx(
            1.96**2 * (1 + ratio**2) * error**2
        )
    assert found.value - found.low > 1.2 * (found.high - found.value)


def test_files_are_no_answers(tmp_path):
    """An answer has a label and an example, which no file of values says."""
    with pytest.raises(ValueError, match="files do not answer this study"):
        class_question().encode_file(tmp_path / "values.npy")
