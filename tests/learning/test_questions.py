"""Published questions: the JSON is all that a device needs, and bad ones are refused."""

import json

import numpy as np
import pytest

from sstq.learning import GradientHistograms, Question, encode
from sstq.learning.moments import moment_dim, moment_vectors, moments_of, symmetric, symmetric_vectors
from sstq.mechanisms import FrameUnit, GroupUnit


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
    yield Question("moments", FrameUnit(moment_dim(2), 1.0), bounds=(2.0, 3.0))
    scores = (np.ones((2, 3)), np.zeros(2))
    yield Question("check", FrameUnit(1, 1.0), np.ones((3, 4)), np.ones(4), classes=(0, 1), scores=scores)


@pytest.mark.parametrize("question", list(questions()), ids=lambda question: question.kind)
def test_json_round_trips(question):
    text = question.to_json()
    assert Question.from_json(text).to_json() == text


def test_the_device_needs_nothing_but_the_json(seed):
    question, images = class_question(), np.random.default_rng(seed).random((5, 64))
    sent = encode(images, list("abcda"), question.to_json(), rng=1)
    rows = GradientHistograms((8, 8))(images).astype(float)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    vectors = (rows - question.centre) @ question.directions.T
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = question.mechanism.encode(vectors, rng=1, groups=[0, 1, 2, 3, 0])
    assert sent.to_bytes() == expected.to_bytes()


def test_a_check_says_whether_the_scores_are_right():
    scores = (np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2))
    question = Question("check", FrameUnit(1, 1.0), np.eye(2), np.zeros(2), classes=("x", "y"), scores=scores)
    found = question.vectors([[2.0, 1.0], [1.0, 2.0], [2.0, 1.0]], ["x", "y", "y"])
    np.testing.assert_array_equal(found[:, 0], [1, 1, -1])


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((2, 36)), ["a", "z"], "among the classes .*'z' in row 1"),
        (np.ones((2, 36)), ["a"], "y must be 2 labels"),
        (np.ones((2, 36)), None, "y must be 2 labels"),
        (np.ones((2, 35)), ["a", "b"], "36 features, got 35"),
        (np.eye(36)[:2] * [[1.0], [0.0]], ["a", "b"], "all be zero, got zeros in row 1"),
        (np.full((2, 36), np.nan), ["a", "b"], "finite"),
    ],
)
def test_bad_examples_are_refused_before_anything_is_sampled(X, y, message):
    rng = np.random.default_rng(3)
    with pytest.raises(ValueError, match=message):
        class_question(features=None).encode(X, y, rng)
    assert rng.integers(2**60) == np.random.default_rng(3).integers(2**60)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "rumour"},
        {"classes": ("a", "b", "c")},
        {"classes": ("a", "a", "c", "d")},
        {"mechanism": FrameUnit(3, 1.0)},
        {"directions": np.ones((2, 36))},
        {"centre": np.ones(35)},
        {"bounds": (1.0, 1.0)},
        {"classes": (None, 1, 2, 3)},
    ],
)
def test_parts_that_do_not_belong_together_are_refused(changes):
    with pytest.raises(ValueError, match=r"must|belong"):
        class_question(**changes)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"extra": 1},
        {"directions": "no"},
        {"directions": [[1.0], [2.0, 3.0]]},
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


def test_symmetric_matrices_keep_their_length(seed):
    rows = np.random.default_rng(seed).standard_normal((4, 5))
    vectors = symmetric_vectors(rows)
    assert vectors.shape == (4, 15)
    np.testing.assert_allclose(symmetric(vectors[0], 5), np.outer(rows[0], rows[0]))
    np.testing.assert_allclose(vectors @ vectors.T, (rows @ rows.T) ** 2)


def test_moments_are_within_the_unit_ball_and_come_back(seed):
    rng = np.random.default_rng(seed)
    rows, targets = 3 * rng.standard_normal((50, 4)), 5 * rng.standard_normal(50)
    vectors = moment_vectors(rows, targets, (2.0, 3.0))
    assert vectors.shape == (50, moment_dim(4))
    assert np.linalg.norm(vectors, axis=1).max() <= 1 + 1e-12
    products, along = moments_of(vectors.mean(axis=0), 4)
    x = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 2.0)
    z = np.column_stack([x, np.ones(50)]) / np.sqrt(2)
    np.testing.assert_allclose(products, z.T @ z / 50)
    np.testing.assert_allclose(along, z.T @ np.clip(targets / 3, -1, 1) / 50)
