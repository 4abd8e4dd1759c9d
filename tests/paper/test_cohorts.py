"""Who answers in which round."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paper.training.cohorts import Cohorts


@given(
    people=st.integers(1, 60),
    rounds=st.integers(1, 40),
    answers=st.integers(1, 12),
    seed=st.integers(0, 2**64 - 1),
)
def test_everybody_answers_as_often_as_promised_and_never_twice_in_a_round(
    people, rounds, answers, seed
):
    if answers > rounds or people * answers < rounds:
        with pytest.raises(
            ValueError, match=r"participation must be|rounds must be at most"
        ):
            Cohorts(people, rounds, answers)
        return
    cohorts = Cohorts(people, rounds, answers)
    counts = Counter()
    sizes = set()
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
    first = Cohorts(100, 10)
    again = Cohorts(100, 10)
    np.testing.assert_array_equal(first.members(5, 7), again.members(5, 7))
    assert first.members(5, 7).tolist() != first.members(6, 7).tolist()
    # These numbers must never change: a run that was cut short would ask other people.
    assert Cohorts(1000, 100).members(0, 1).tolist() == [
        12,
        80,
        89,
        249,
        401,
        405,
        431,
        582,
        835,
        962,
    ]
