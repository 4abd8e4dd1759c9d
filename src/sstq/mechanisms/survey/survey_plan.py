"""What a survey will tell, and what it cannot: the expected error of every question."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from sstq.aggregation.estimates import student
from sstq.mechanisms.frequencies import Frequencies
from sstq.mechanisms.groupunit.groupunit import GroupUnit
from sstq.mechanisms.survey.question_parts import Part
from sstq.mechanisms.survey.questions import By, Mean, Ranged, Vector

PLAN_HEADER = ("question", "people", "error", "works", "people needed")
# A distribution function this far off says little about quantiles.
_USEFUL_CDF = 0.1
_USEFUL_MEAN = 0.05
# How likely a group's mean must be told, and the confidence that tells it.
_MOSTLY = 0.9
_LEVEL = 0.95


@dataclass(frozen=True)
class QuestionPlan:
    """What a question will tell.

    Attributes:
        clients: about how many people will answer it.
        error: the standard error of one item: of a share, of the distribution function of a `Number` or a `Count`, of
            a `Mean` as a fraction of the range, of a vector's mean in norm as a fraction of clip, or of a group's mean
            as a fraction of clip.
        useful: the largest error with which it works: half of an average share, 0.1 of the distribution function, 0.05
            of the range, clip itself, or half of it.
        needed: the number of people in the whole survey with whom it works.
        told: how likely a group's mean is told at all (`GroupEstimate.too_few`), if all groups are alike.
    """

    clients: int
    error: float
    useful: float
    needed: int
    told: float = 1.0

    @property
    def works(self) -> bool:
        """Whether the error is at most the useful one, and nine of ten groups have a mean."""
        return self.error <= self.useful and self.told >= _MOSTLY


class SurveyPlan(dict[str, QuestionPlan]):
    """The plans of all questions, by name; printed as a table."""

    @property
    def works(self) -> bool:
        """Whether all questions do."""
        return all(plan.works for plan in self.values())

    def rows(self) -> list[tuple[str, ...]]:
        """The cells of the table."""
        return [
            (name, f"{plan.clients:,}", f"{plan.error:.3g}", "yes" if plan.works else "no", f"{plan.needed:,}")
            for name, plan in self.items()
        ]

    def __str__(self) -> str:
        rows = [PLAN_HEADER, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join(line.rstrip() for line in lines)


def plan_survey(parts: Iterable[Part], clients: int, messages: int) -> SurveyPlan:
    """The plan of a survey with so many people."""
    plans = SurveyPlan()
    for part in parts:
        answers = clients * messages * part.share
        variance, useful = _variance(part, max(1, round(answers)))
        error = math.sqrt(variance / answers)
        needed = clients * (error / useful) ** 2
        told = 1.0
        if isinstance(part.mechanism, GroupUnit):
            needed_to_tell, told = _telling(part.mechanism, answers)
            needed = max(needed, clients * needed_to_tell)
        plans[part.name] = QuestionPlan(round(answers), error, useful, math.ceil(needed), told)
    return plans


def _telling(mechanism: GroupUnit, answers: float) -> tuple[float, float]:
    """How many times these answers tell nine of ten groups of one size, and how likely a group is told."""
    rates, part = mechanism.share_rates
    share = 1 / mechanism.groups
    beyond = share / math.sqrt(rates.variance_at(share) / (part * answers))
    limit = student(_LEVEL, mechanism.estimate_dim, max(2, round(answers)))
    normal = NormalDist()
    return ((limit + normal.inv_cdf(_MOSTLY)) / beyond) ** 2, normal.cdf(beyond - limit)


def _variance(part: Part, answers: int) -> tuple[float, float]:
    """The variance of one message's estimate, and the useful error."""
    mechanism = part.mechanism
    question = part.question
    if isinstance(mechanism, Frequencies):
        if isinstance(question, Mean):
            return part.item_variance, _USEFUL_MEAN
        if isinstance(question, Ranged):
            # The largest variance of a sum of neighbouring shares, from one uniform message.
            sums = mechanism.estimator.uniform_covariance.cumsum(axis=0).cumsum(axis=1)
            return float(np.diagonal(sums)[:-1].max()) + 0.25, _USEFUL_CDF
        average = 1 / mechanism.categories
        return part.items * mechanism.sets.rates.variance_at(average), average / 2
    variance = mechanism.typical_error(answers).total * answers / mechanism.clip**2
    if isinstance(question, Vector):
        return variance, 1.0
    if isinstance(question, By):
        # Of one coordinate of a group's mean, groups being alike: a sum over its share.
        return variance * (mechanism.groups or 1) ** 2 / part.dim, 0.5
    # The share of half the people, who differ by 1/4, over those who answered: the errors of both add up.
    return 1.5**2 * (variance / 4 + 0.25), 0.25
