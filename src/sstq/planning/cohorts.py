"""Planning training in cohorts: the value of one answer at a total ε, and the error of the whole run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sstq.checks import check_argument
from sstq.federated.cohorts import Cohorts
from sstq.mechanisms import FrameUnit

if TYPE_CHECKING:
    from sstq.planning.planner import Plan

__all__ = ["answer_variance", "cohort_facts", "cohorts_for", "gain_of_one_answer"]

_SPLIT = 8  # the number of answers that one answer is compared with


def answer_variance(dim: int, epsilon: float) -> float:
    """Return the variance of one answer of norm clip, divided by d·clip², by FrameUnit's closed form.

    Examples:
        >>> round(answer_variance(7850, 8.0), 3), round(answer_variance(7850, 1.0), 2)
        (0.131, 6.33)
    """
    return FrameUnit(dim, epsilon).typical_error().variance / dim


def gain_of_one_answer(dim: int, total_epsilon: float, answers: int) -> float:
    """Return how many times less variance one answer with the whole ε has than the mean of k answers that share it.

    Examples:
        >>> round(gain_of_one_answer(7850, 8.0, 8), 2)
        6.04
    """
    answers = check_argument("answers", answers, of="rounds")
    return answer_variance(dim, total_epsilon / answers) / answers / answer_variance(dim, total_epsilon)


def cohorts_for(cohort: int, rounds: int, answers: int) -> Cohorts:
    """Return the cohorts with the fewest people such that every cohort has at least this many.

    Examples:
        >>> cohorts_for(100, rounds=60, answers=1).people
        6000
    """
    return Cohorts(-(-cohort * rounds // answers), rounds, answers)


def cohort_facts(plan: Plan) -> list[tuple[str, str]]:
    """Facts about the people and the whole run of a plan in cohorts, as names and values; empty for other plans."""
    cohorts = plan.cohorts
    if cohorts is None:
        return []
    often = "once" if cohorts.answers == 1 else f"{cohorts.answers} times"
    whole = plan.relative_error / math.sqrt(cohorts.rounds)
    return [
        ("people", f"{cohorts.people:,} in {cohorts.rounds:,} rounds of {plan.clients:,}; each answers {often}"),
        ("error of all rounds' mean", f"{whole:.3g} of clip, with fresh frames"),
        ("one answer or many", _worth(plan, cohorts)),
    ]


def _worth(plan: Plan, cohorts: Cohorts) -> str:
    """What the number of answers costs or saves, as a sentence."""
    total, answers = plan.total_epsilon_basic, cohorts.answers
    if answers == 1:
        each = total / _SPLIT
        if each < 0.01:
            return f"one answer at ε = {total:g} has the least variance"
        gain = gain_of_one_answer(plan.dim, total, _SPLIT)
        return f"one answer at ε = {total:g} has {gain:.1f} times less variance than {_SPLIT} at ε = {each:g} together"
    if total > 20:
        return f"{answers} answers at ε = {plan.epsilon:g} each; one answer can have at most ε = 20"
    gain = gain_of_one_answer(plan.dim, total, answers)
    less = f"one answer at ε = {total:g} has {gain:.1f} times less variance than these {answers} together"
    return f"{less}: pass --participation once"
