"""What a classifier's server reports of what people told, number by number."""

import math

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sstq.aggregation import Estimate
from sstq.learning import LearningReport
from sstq.learning.report import (
    RightShare,
    accuracy_by_class,
    judged_forms,
    predicted_accuracy,
    right_share,
    used_ranges,
)
from sstq.mechanisms import Frequencies
from sstq.mechanisms.frequencies import FrequencyEstimate


def told(shares, count=101, own=0.7, other=0.3, stderr=0.1):
    return FrequencyEstimate(
        np.array(shares), np.full(len(shares), stderr), count, own=own, other=other
    )


@pytest.mark.parametrize(
    ("shares", "accuracies", "form"),
    [
        # none is right, the first, the second, both
        ([0.1, 0.2, 0.4, 0.3], (0.5, 0.7), "fisher"),
        ([0.1, 0.4, 0.2, 0.3], (0.7, 0.5), "regression"),
        ([-0.3, 0.2, 0.6, 0.5], (0.7, 1.0), "fisher"),
        ([1.2, -0.1, -0.2, 0.0], (0.0, 0.0), "regression"),
    ],
)
def test_each_form_is_right_in_half_of_the_outcomes(shares, accuracies, form):
    found = judged_forms(told(shares), ["regression", "fisher"])
    assert tuple(found["accuracies"].values()) == pytest.approx(accuracies)
    assert found["form"] == form


def test_who_is_right_is_told_by_every_second_outcome():
    found = right_share(told([0.2, 0.5, 0.1, 0.2], own=0.5, other=0.3))
    assert found.share == pytest.approx(0.7)
    # Sets of several categories: errors of two shares that hardly depend on each other.
    assert found.stderr == pytest.approx(0.1 * math.sqrt(2))
    twice = right_share(told([0.2, 0.5, 0.1, 0.2], count=202, own=0.5, other=0.3))
    assert twice.weight == pytest.approx(2 * found.weight)


def test_by_randomized_response_hits_exclude_each_other():
    found = right_share(told([0.4, 0.6]))
    rate = 0.3 + 0.6 * 0.4
    assert found.stderr == pytest.approx(math.sqrt(rate * (1 - rate) / 100) / 0.4)
    assert math.isnan(right_share(told([0.4, 0.6], count=1, stderr=math.nan)).stderr)
    # Nobody's message says so, or everybody's: a rate has no error by itself there.
    assert right_share(told([1.8, -0.8])).stderr == pytest.approx(0.1)


def test_an_accuracy_is_a_share_of_people():
    for share, accuracy in ((1.3, 1.0), (-0.2, 0.0), (0.4, 0.4)):
        found = predicted_accuracy([RightShare(share, 0.1, 5.0)])
        assert found == {"predicted_accuracy": accuracy, "accuracy_stderr": 0.1}
    found = predicted_accuracy([RightShare(0.6, 0.1, 3.0), RightShare(0.8, 0.2, 1.0)])
    assert found["predicted_accuracy"] == pytest.approx(0.65)
    assert found["accuracy_stderr"] == pytest.approx(math.hypot(0.075, 0.05))


def test_only_what_is_surely_better_than_guessing_is_useful():
    for stderr, useful in ((0.06, False), (0.04, True)):
        report = LearningReport(
            3.0, 0.0, majority=0.5, predicted_accuracy=0.6, accuracy_stderr=stderr
        )
        assert report.useful is useful
        assert ("not shown to be better than guessing" in str(report)) != useful


def test_classes_are_balanced_by_their_mean():
    report = LearningReport(3.0, 0.0, by_class={"a": (0.8, 0.03), "b": (0.6, 0.04)})
    assert report.balanced_accuracy == pytest.approx((0.7, 0.025))
    assert "70.0 ± 2.5 % balanced over classes" in str(report)
    assert np.isnan(LearningReport(3.0, 0.0).balanced_accuracy).all()


def test_a_table_has_the_intervals_of_all_classes():
    law = Frequencies(4, 3.0).sets.law
    found = accuracy_by_class(told([0.2, 0.4, 0.3, 0.1], count=1000), law, ["a", "b"])
    table = LearningReport(3.0, 0.0, **found).columns(0.9)
    low, high = found["class_answers"].interval(0.9)
    assert table["class"] == ["a", "b"]
    assert table["accuracy"] == pytest.approx([2 / 3, 1 / 4])
    np.testing.assert_array_equal((table["low"], table["high"]), (low, high))
    assert len(LearningReport(3.0, 0.0).columns()["low"]) == 0


def test_columns_that_use_little_of_their_range_are_listed():
    text = str(LearningReport(3.0, 0.0, range_used=(0.2, 0.3, 0.1)))
    assert "2 of 3 columns use less than 25 % of their bounds (columns 0, 2)" in text
    assert "bounds" not in str(LearningReport(3.0, 0.0, range_used=(0.3, 1.0)))


def test_a_range_is_used_wholly_unless_the_features_say_otherwise():
    """Two columns and the constant, whose square is the share of a row's length that it has."""
    stderr = np.full(3, 0.001)
    # Both columns at an end, where all of them are: nothing varies.
    ends = np.array([math.sqrt(3), -math.sqrt(3), math.sqrt(2)]) / math.sqrt(8)
    assert used_ranges(Estimate(ends, stderr, 10_000)) == pytest.approx(
        (0.0, 0.0), abs=0.01
    )
    middle = used_ranges(Estimate(np.array([0.0, 0.0, 0.7]), stderr, 10_000))
    assert middle == (1.0, 1.0)
    # A constant within two errors of nothing tells nothing.
    unsure = Estimate(np.array([0.9, 0.0, 0.1]), np.full(3, 0.06), 10)
    assert used_ranges(unsure) == (1.0, 1.0)


def test_columns_that_hardly_vary_are_told_by_the_length_of_the_features():
    """Noise makes the mean longer than it is: what is left of 1 is what varies."""
    value = np.array([0.0, 0.0, 0.99])
    for error in (0.001, 0.01):
        varying = 1 - 0.99**2 + 3 * error**2 + 4 * 0.99 * error
        expected = math.sqrt(varying) * math.sqrt(2) / 0.99
        found = used_ranges(Estimate(value, np.full(3, error), 1000))
        assert found == pytest.approx((expected, expected), rel=1e-12)
