"""A study of a third party, of public names alone: the contract passes it, and finds what is wrong."""

from dataclasses import dataclass

import numpy as np
import pytest

import sstq
from sstq.studies import (
    Question,
    Study,
    StudyPlan,
    StudyResult,
    register_question,
    register_study,
)
from sstq.testing import check_study


@register_question
@dataclass(frozen=True, eq=False, kw_only=True)
class OddQuestion(Question):
    """Whether a person holds an odd number."""

    kind = "test-odd"

    def check(self):
        if (
            not isinstance(self.mechanism, sstq.Frequencies)
            or self.mechanism.categories != 2
        ):
            raise ValueError("mechanism must be Frequencies of 2 categories")

    def held(self, values):
        return np.array([value % 2 if type(value) is int else 0 for value in values])


@dataclass(frozen=True)
class Share(StudyResult):
    share: float
    epsilon: float

    def columns(self, level=0.95):
        return {"item": ["odd"], "share": [self.share]}


@register_study
class OddShare(Study):
    """The share of people with an odd number, from two cohorts."""

    kind = "test-odd"

    def __init__(self, epsilon, spent=1.0):
        super().__init__(epsilon=epsilon, spent=spent)

    @property
    def weights(self):
        return {
            f"half {number}": 1.0 for number in (1, 2) if number > len(self.learned)
        }

    def ask(self, cohort, people):
        epsilon = self.options["epsilon"] * self.options["spent"]
        return OddQuestion(
            study=self.identifier, mechanism=sstq.Frequencies(2, epsilon)
        )

    def take(self, cohort, question, aggregator):
        return {
            "people": aggregator.count,
            "share": float(aggregator.mean().value[1]),
        }

    def conclude(self):
        share = float(np.mean([facts["share"] for facts in self.learned]))
        return Share(share, self.options["epsilon"])

    def plan(self, people):
        problem = "too few people" * (people < 100)
        return StudyPlan(people, self.cohort_sizes(people), problem=problem)


PEOPLE = [1, 2, 3, 5] * 20


def test_the_contract_passes_it(seed):
    check_study(lambda: OddShare(2.0), PEOPLE, seed)


def test_the_contract_finds_a_question_that_costs_too_much(seed):
    with pytest.raises(AssertionError, match="more than epsilon"):
        check_study(lambda: OddShare(2.0, spent=1.5), PEOPLE, seed)


def test_the_contract_finds_a_result_that_nobody_can_show(seed, monkeypatch):
    monkeypatch.setattr(OddShare, "conclude", lambda _: 0.5)
    with pytest.raises(AssertionError, match="must be a StudyResult, got float"):
        check_study(lambda: OddShare(2.0), PEOPLE, seed)


def test_it_is_found_by_its_kind(seed):
    study = OddShare(4.0)
    assert isinstance(Study.from_json(study.to_json()), OddShare)
    # 4,000 people at ε = 4: an error of 0.011; 6 errors fail falsely once in 1e8.
    assert abs(study.simulate(PEOPLE * 50, seed).share - 0.75) < 0.07
