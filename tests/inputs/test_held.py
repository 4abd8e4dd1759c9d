"""What a person holds, read for its owner and substituted on a device: exact values at the edges of every rule."""

import numpy as np
import pandas as pd
import pytest

from sstq.inputs import Category, GroupedVectors, LocalReport, Vectors
from sstq.inputs.bounds import Bounds
from sstq.randomness.secret import bit_source

RANGES = (("age", 0.0, 100.0), ("bmi", 10.0, 60.0))
BAD = [np.nan, np.inf, -np.inf, None, "x"]


def substituted(held, X, groups=None):
    report = LocalReport()
    rows = held.substitute(X, groups, source=bit_source(1), report=report)
    return rows.tolist(), (report.answered, report.replaced)


@pytest.mark.parametrize("bad", BAD)
def test_a_vector_that_cannot_be_encoded_is_zero(bad):
    X = [[0.5, bad], [0.25, 1.0]]
    assert substituted(Vectors(2, 1.0), X) == ([[0, 0], [0.25, 1]], (2, 1))
    # With bounds zero is the middle of all ranges, and infinity is no end of one.
    rows, counts = substituted(Vectors(2, 1.0, RANGES), [[100.0, bad], [50.0, 35.0]])
    assert (rows, counts) == ([[0, 0], [0, 0]], (2, 1))


@pytest.mark.parametrize("group", [3, -1, True, 0.5, None, "1", np.nan, 2**80])
def test_who_has_no_group_has_a_random_one_and_no_vector(group):
    held = GroupedVectors(2, 1.0, groups=3)
    (first, second), counts = substituted(held, [[1, 2], [3, 4]], [group, 2])
    assert second == [2, 3, 4]
    assert first[0] in (0, 1, 2)
    assert first[1:] == [0, 0]
    assert counts == (2, 1)
    with pytest.raises(ValueError, match="groups must be 2 integers, got 1"):
        substituted(held, [[1, 2], [3, 4]], [group])


@pytest.mark.parametrize("bad", BAD)
def test_a_group_without_a_usable_vector_stays(bad):
    held = GroupedVectors(2, 1.0, groups=3)
    assert substituted(held, [[1.0, bad]], [2]) == ([[2, 0, 0]], (1, 1))


@pytest.mark.parametrize("label", [-1, 5, 0.5, None, "a", np.nan])
def test_what_is_no_category_is_a_random_one(label):
    held = Category(5)
    rows = held.substitute([0, label, 4], source=bit_source(1))
    assert rows[[0, 2], 0].tolist() == [0, 4]
    assert rows[1, 0] in range(5)
    with pytest.raises(ValueError, match="X must"):
        held.read([0, label, 4])
    seen = {
        held.substitute([label], source=bit_source(n))[0, 0].item() for n in range(60)
    }
    assert seen == set(range(5))  # fails falsely once in 100,000


def test_categories_are_one_per_person():
    assert Category(5).read([[0], [4]]).tolist() == [[0], [4]]
    for wrong in (np.zeros((2, 2)), np.zeros((1, 1, 1))):
        with pytest.raises(ValueError, match="one category per person"):
            Category(5).read(wrong)
    with pytest.raises(ValueError, match="groups must be left out"):
        Category(5).read([0], groups=[0])
    assert Category(3).truth(np.array([[2.0]])).tolist() == [[0, 0, 1]]


def test_vectors_are_refused_by_their_owner():
    held = Vectors(2, 1.0)
    with pytest.raises(ValueError, match="got nan at row 1, column 0"):
        held.read([[0.0, 1.0], [np.nan, 1.0]])
    for wrong in (np.zeros((1, 2, 2)), np.zeros(3)):
        with pytest.raises(ValueError, match="X must have shape"):
            held.read(wrong)
    with pytest.raises(ValueError, match="groups must be left out"):
        held.read([0.0, 1.0], groups=[0])
    grouped = GroupedVectors(2, 1.0, groups=3)
    for groups in ([3], [-1], [0, 1], None):
        with pytest.raises(ValueError, match="groups must be"):
            grouped.read([[0.0, 1.0]], groups)
    rows = grouped.read([[0.5, 1.0], [2.0, 3.0]], [1, 2])
    assert grouped.truth(rows).tolist() == [[0, 0, 0.5, 1, 0, 0], [0, 0, 0, 0, 2, 3]]


def test_columns_of_bounds_are_found_by_their_names():
    held = Vectors(2, 1.0, RANGES)
    table = pd.DataFrame({"bmi": [35.0], "other": [7.0], "age": [100.0]})
    inward = [[0.5**0.5, 0.0]]
    np.testing.assert_allclose(held.read(table), inward)
    np.testing.assert_allclose(held.substitute(table, source=bit_source(1)), inward)
    with pytest.raises(ValueError, match="got none called bmi"):
        held.read(table[["age"]])


def test_bounds_fill_the_ball():
    bounds = Bounds(RANGES, clip=2.0)
    ends = np.array([[100.0, 60.0], [0.0, 10.0], [1000.0, -1000.0]])
    inward = bounds.inward(ends)
    np.testing.assert_allclose(np.linalg.norm(inward, axis=1), 2.0)
    np.testing.assert_allclose(
        bounds.outward(inward), [[100, 60], [0, 10], [100, 10]], atol=1e-12
    )
    np.testing.assert_allclose(bounds.scale, [50 / 2**0.5, 25 / 2**0.5])


@pytest.mark.parametrize(
    ("longer", "people", "warned"), [(1, 20, 0), (2, 20, 1), (19, 19, 0), (50, 1000, 0)]
)
def test_a_batch_with_more_than_a_twentieth_beyond_clip_is_told(longer, people, warned):
    rows = np.zeros((people, 2))
    rows[:, 0] = 1.0 + 1e-9  # of norm clip, up to rounding
    rows[:longer, 0] = 1.1
    assert len(Vectors(2, 1.0).warnings(rows)) == warned


def test_a_mean_as_long_as_clip_is_told():
    held = Vectors(2, 1.0)
    stderr = np.full(2, 0.05)
    error = np.linalg.norm(stderr)
    for length, told in ((1.0, True), (1.0 - 0.9 * error, True), (0.9, False)):
        value = np.array([np.hypot(length, error), 0.0])
        assert bool(held.advice(value, stderr)) == told
    # Of an error of a quarter of clip nothing is said.
    assert not held.advice(np.array([2.0, 0.0]), np.full(2, 0.26 / 2**0.5))


@pytest.mark.parametrize(
    ("held", "good", "bad"),
    [
        (Vectors(2, 1.0), [np.zeros((3, 2))], [np.full((3, 2), np.nan)]),
        (
            GroupedVectors(2, 1.0, groups=3),
            [np.zeros((3, 2)), [0, 1, 2]],
            [np.full((3, 2), np.nan), [7, None, -1]],
        ),
        (Category(5), [[0, 1, 2]], [[7, None, -1]]),
    ],
)
def test_the_number_of_random_words_does_not_depend_on_the_data(held, good, bad):
    following = []
    for given in (good, bad):
        source = bit_source(1)
        held.substitute(*given, source=source)
        following.append(source.words(2).tolist())
    assert following[0] == following[1]
