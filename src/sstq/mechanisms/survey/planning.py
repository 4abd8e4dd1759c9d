"""What a survey will tell, and what it cannot: the expected error of every question."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sstq.exactness import TOTAL
from sstq.mechanisms.frequencies import Frequencies
from sstq.mechanisms.survey.questions import By, Number, Vector

if TYPE_CHECKING:
    from sstq.mechanisms.survey.mechanism import Survey

_HEADER = ("question", "people", "error", "works", "people needed")
# A distribution function this far off says little about quantiles.
_USEFUL_CDF = 0.1


@dataclass(frozen=True)
class QuestionPlan:
    """What a question will tell.

    Attributes:
        clients: about how many people will answer it.
        error: the standard error of one item: of a share, of the distribution function of a `Number`, of a vector's
            mean in norm as a fraction of clip, or of a group's mean as a fraction of clip.
        useful: the largest error with which it works: half of an average share, 0.1 of the distribution function, clip
            itself, or half of it.
        needed: the number of people in the whole survey with whom it works.
    """

    name: str
    clients: int
    error: float
    useful: float
    needed: int

    @property
    def works(self) -> bool:
        """Whether the error is at most the useful one."""
        return self.error <= self.useful


@dataclass(frozen=True)
class SurveyPlan:
    """The plans of all questions, by name with `plan["age"]`; printed as a table."""

    questions: tuple[QuestionPlan, ...]

    def __getitem__(self, name: str) -> QuestionPlan:
        return {question.name: question for question in self.questions}[name]

    @property
    def works(self) -> bool:
        """Whether all questions do."""
        return all(question.works for question in self.questions)

    def __str__(self) -> str:
        rows = [_HEADER] + [
            (q.name, str(q.clients), f"{q.error:.3g}", "yes" if q.works else "no", str(q.needed))
            for q in self.questions
        ]
        widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADER))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join(line.rstrip() for line in lines)


def plan_survey(survey: "Survey", clients: int) -> SurveyPlan:
    """The plan of a survey with so many people."""
    plans = []
    for (name, question), part, draw in zip(survey.questions.items(), survey.parts, survey.draws, strict=True):
        mechanism, answers = part.mechanism, clients * survey.messages * draw / TOTAL
        if isinstance(mechanism, Frequencies):
            average = 1 / mechanism.categories
            variance, useful = part.items * mechanism.sets.variance_at(average), average / 2
            if isinstance(question, Number):
                variance, useful = _cumulative_variance(mechanism) + 0.25, _USEFUL_CDF
        else:
            some = max(1, round(answers))
            variance = mechanism.typical_error(some).total * some / mechanism.clip**2
            useful = 1.0 if isinstance(question, Vector) else 0.5
            if isinstance(question, By):
                # Of one coordinate of a group's mean, groups being alike: a sum over its share.
                variance *= (mechanism.groups or 1) ** 2 / part.dim
            elif not isinstance(question, Vector):
                # The share of half the people, who differ by 1/4, over those who answered: the errors of both add up.
                variance, useful = 1.5**2 * (variance / 4 + 0.25), 0.25
        error = math.sqrt(variance / answers)
        needed = math.ceil(clients * (error / useful) ** 2)
        plans.append(QuestionPlan(name, round(answers), error, useful, needed))
    return SurveyPlan(tuple(plans))


def _cumulative_variance(mechanism: Frequencies) -> float:
    """The largest variance of a sum of neighbouring shares, from one uniform message."""
    sums = np.tri(mechanism.categories - 1, mechanism.categories)
    return float(np.einsum("ij,jk,ik->i", sums, mechanism.uniform_covariance, sums, optimize=True).max())
