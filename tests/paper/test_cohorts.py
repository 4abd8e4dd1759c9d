"""Who answers in which round."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.training.cohorts import Cohorts
from sstq.accounting.bounds import answers_of


@given(people=st.integers(1, 60), rounds=st.integers(1, 40), answers=st.integers(1, 12), seed=st.integers(0, 2**64 - 1))
def test_everybody_answers_as_often_as_promised_and_never_twice_in_a_round(people, rounds, answers, seed):
    if answers > rounds or people * answers < rounds:
        with pytest.raises(ValueError, match=r"participation must be|rounds must be at most"):
            Cohorts(people, rounds, answers)
        return
    cohorts = Cohorts(people, rounds, answers)
    counts, sizes = Counter(), set()
    for number in range(1, rounds + 1):
        members = cohorts.members(seed, number).tolist()
        assert members == sorted(set(members))
        counts.update(members)
        sizes.add(len(members))
        assert cohorts.answers_after(number) == max(counts.values())
    assert set(counts.values()) == {answers}
    assert len(counts) == people
    assert max(sizes) == cohorts.size
    assert max(sizes) - min(sizes) <= 1


def test_a_cohort_is_a_function_of_seed_and_number():
    first, again = Cohorts(100, 10), Cohorts(100, 10)
    np.testing.assert_array_equal(first.members(5, 7), again.members(5, 7))
    assert first.members(5, 7).tolist() != first.members(6, 7).tolist()
    # These numbers must never change: a run that was cut short would ask other people.
    assert Cohorts(1000, 100).members(0, 1).tolist() == [12, 80, 89, 249, 401, 405, 431, 582, 835, 962]


def test_every_person_is_as_likely_as_any_other_to_come_first(seed):
    """4,000 public seeds; a person's share of first cohorts of a tenth is within 6.5 standard errors of 0.1.

    Over ten people this fails less than once in 1e9 runs.
    """
    hits = np.zeros(10)
    for other in range(4000):
        hits[Cohorts(10, 10).members((seed + other) % 2**64, 1)] += 1
    assert np.all(np.abs(hits / 4000 - 0.1) < 6.5 * np.sqrt(0.09 / 4000))


@pytest.mark.parametrize("number", [0, 11])
def test_rounds_are_numbered_from_one(number):
    with pytest.raises(ValueError, match=r"round_number must be an integer in \[1, 10\]"):
        Cohorts(100, 10).members(0, number)


@pytest.mark.parametrize("participation", ["twice", 0, -1, 1.5, True, None])
def test_other_participations_are_refused(participation):
    with pytest.raises(ValueError, match="participation must be 'once' or an integer"):
        answers_of(participation)
