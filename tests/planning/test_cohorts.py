"""Plans for people who take turns."""

import math

import pytest

import sstq
from sstq.federated.cohorts import Cohorts


def test_a_plan_in_cohorts_is_the_plan_of_a_cohort():
    whole = sstq.plan(7850, clients=6000, epsilon=8.0, rounds=60, participation="once")
    round_alone = sstq.plan(7850, clients=100, epsilon=8.0)
    assert (whole.clients, whole.request.answers, whole.epsilon, whole.total_epsilon) == (100, 1, 8.0, 8.0)
    assert whole.error == round_alone.error
    assert whole.total_bytes == math.ceil(6000 * whole.bits / 8)
    assert whole.cohorts == Cohorts(6000, 60, 1)
    assert round_alone.cohorts is None


def test_several_answers_share_the_total():
    found = sstq.plan(7850, clients=6000, epsilon=8.0, rounds=60, participation=4)
    assert (found.clients, found.epsilon, found.total_epsilon) == (400, 2.0, 8.0)


def test_the_people_that_an_error_takes_are_solved_for():
    found = sstq.plan(7850, rounds=60, epsilon=8.0, target_error=3.0, participation=2)
    assert found.relative_error <= 3.0
    people = found.cohorts.people
    assert people * 2 // 60 == found.clients
    again = sstq.plan(7850, clients=people, rounds=60, epsilon=8.0, participation=2)
    assert again.error == found.error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"participation": 2}, r"participation must be an integer in \[1, 1\], got 2"),
        ({"participation": 3, "rounds": 2}, r"participation must be an integer in \[1, 2\], got 3"),
        ({"participation": "often", "rounds": 2}, "participation must be 'once' or"),
        ({"participation": 1, "rounds": 101}, "rounds must be at most 100, one per answer of 100 people"),
    ],
)
def test_impossible_cohorts_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        sstq.plan(50, clients=100, epsilon=4.0, **options)
