"""Accuracies by class: their errors against the law of a message, and how often their intervals hold, exactly."""

import math

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("sklearn")

from sstq.learning.class_answers import ClassAnswers
from sstq.mechanisms import Frequencies


def spread_of(mechanism, wrong, right, of_wrong, of_right):
    """The standard deviation of a message's sum over the outcomes 0 and 1, of which there are these shares."""
    sets = mechanism.sets
    held = sets.hold(np.arange(sets.codes), np.arange(mechanism.categories))
    shares = np.zeros(mechanism.categories)
    shares[:3] = wrong, right, 1 - wrong - right
    chances = np.where(held, *mechanism.draw.probabilities) @ shares
    chances /= chances.sum()
    sums = of_wrong * held[:, 0] + of_right * held[:, 1]
    return math.sqrt(chances @ sums**2 - (chances @ sums) ** 2) / sets.rates.gap


# Randomized response, and sets of several outcomes.
@pytest.mark.parametrize(("classes", "epsilon"), [(2, 3.0), (2, 1.0), (5, 1.0)])
def test_errors_and_ends_follow_from_the_law_of_a_message(classes, epsilon):
    mechanism = Frequencies(2 * classes, epsilon)
    count = 5000
    outcomes = (0.3, 0.2, *[0.5 / (2 * classes - 2)] * (2 * classes - 2))
    told = ClassAnswers(outcomes, count, mechanism.sets.law)
    assert told.accuracies[0] == pytest.approx(0.4)

    def error(accuracy):
        wrong = 0.5 * (1 - accuracy)
        spread = spread_of(mechanism, wrong, 0.5 * accuracy, -accuracy, 1 - accuracy)
        return spread / math.sqrt(count - 1)

    assert told.stderr[0] == pytest.approx(error(0.4) / 0.5, rel=1e-9)
    z = stats.t.ppf(0.95, count - 1)
    for (end, *_), sign in zip(told.interval(0.9), (1, -1), strict=True):
        assert sign * (0.2 - end * 0.5) == pytest.approx(z * error(end), rel=1e-9)


@pytest.mark.parametrize("epsilon", [3.0, 6.0, 12.0])
@pytest.mark.parametrize("accuracy", [0.95, 0.6])
def test_intervals_hold_with_thirty_messages(epsilon, accuracy):
    """Over all outcomes of randomized response: 58 to 75 % at ε = 6 with errors to first order."""
    mechanism = Frequencies(4, epsilon)
    rates = mechanism.sets.rates
    count = 30
    shares = np.array([0.6 * (1 - accuracy), 0.6 * accuracy, 0.4])
    first, second = rates.other + rates.gap * shares[:2]
    law = stats.multinomial(count, [first, second, 1 - first - second])
    told = held = 0.0
    for wrong in range(count + 1):
        for right in range(count + 1 - wrong):
            chance = law.pmf([wrong, right, count - wrong - right])
            if chance < 1e-12:
                continue
            estimate, _ = rates.shares(np.array([wrong, right]), count)
            found = ClassAnswers((*estimate.tolist(),), count, mechanism.sets.law)
            if np.isnan(found.accuracies[0]):
                continue
            (low,), (high,) = found.interval(0.95)
            told += chance
            held += chance * (low <= accuracy <= high)
    assert told > 0.9
    assert 0.93 <= held / told < 0.995


def test_classes_of_hardly_anybody_are_not_told():
    law = Frequencies(6, 3.0).sets.law
    told = ClassAnswers((0.1, 0.3, 0.5, 0.1, 0.01, 0.005), 1000, law)
    assert np.isnan(told.accuracies).tolist() == [False, False, True]
    assert np.isnan(told.stderr).tolist() == [False, False, True]
    assert np.isnan(told.interval(0.95)).tolist() == [[False, False, True]] * 2
    # One message has no error by itself, and shares of less than nothing no ratio.
    assert np.isnan(ClassAnswers((0.0, 1.0), 1, law).accuracies).all()
    assert np.isnan(ClassAnswers((-0.3, 0.1), 1000, law).accuracies).all()


def test_classes_of_few_people_may_have_any_accuracy():
    """Shares of 2.5 and of 3.5 standard errors."""
    law = Frequencies(4, 3.0).sets.law
    rate = law.rates.other + law.rates.gap * 0.2
    spread = math.sqrt(rate * (1 - rate)) / law.rates.gap
    for errors, everything in ((2.5, True), (3.5, False)):
        count = round((errors * spread / 0.2) ** 2)
        # Of randomized response: a message holds one outcome.
        told = ClassAnswers((0.05, 0.15, 0.4, 0.4), count, law)
        assert told.accuracies[0] == pytest.approx(0.75)
        low, high = told.interval(0.95)
        assert ((low[0], high[0]) == (0.0, 1.0)) == everything


def test_an_accuracy_is_at_most_all_people_of_a_class():
    law = Frequencies(4, 1.0).sets.law
    told = ClassAnswers((-0.1, 0.7, 0.4, 0.0), 2000, law)
    assert told.accuracies.tolist() == [1.0, 0.0]
    low, high = told.interval(0.95)
    assert high[0] == 1.0
    assert low[1] == 0.0
    assert 0.5 < low[0] < 1.0
