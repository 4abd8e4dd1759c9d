"""What a survey will tell, and what it cannot: the expected error of every question."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sstq.mechanisms.survey.question_parts import Part
from sstq.mechanisms.survey.vector_questions import MOSTLY

PLAN_HEADER = ("question", "people", "error of", "error", "works", "people needed")


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
        error_of: of what the error is, in words.
        told: how likely a group's mean is told at all (`GroupEstimate.too_few`), if all groups are alike.
    """

    clients: int
    error: float
    useful: float
    needed: int
    error_of: str
    told: float = 1.0

    @property
    def works(self) -> bool:
        """Whether the error is at most the useful one, and nine of ten groups have a mean."""
        return self.error <= self.useful and self.told >= MOSTLY


class SurveyPlan(dict[str, QuestionPlan]):
    """The plans of all questions, by name; printed as a table."""

    @property
    def works(self) -> bool:
        """Whether all questions work."""
        return all(plan.works for plan in self.values())

    def rows(self) -> list[tuple[str, ...]]:
        """The cells of the table."""
        return [
            (
                name,
                f"{plan.clients:,}",
                plan.error_of,
                f"{plan.error:.3g}",
                "yes" if plan.works else "no",
                f"{plan.needed:,}",
            )
            for name, plan in self.items()
        ]

    def __str__(self) -> str:
        rows = [PLAN_HEADER, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            )
            for row in rows
        ]
        return "\n".join(line.rstrip() for line in lines)


def plan_survey(parts: Iterable[Part], clients: int, messages: int) -> SurveyPlan:
    """The plan of a survey with so many people."""
    plans = SurveyPlan()
    for part in parts:
        answers = clients * messages * part.share
        _, variance, useful = part.precision(max(1, round(answers)))
        error = math.sqrt(variance / answers)
        needed_to_tell, told = part.question._telling(part.mechanism, answers)
        needed = clients * max((error / useful) ** 2, needed_to_tell)
        plans[part.name] = QuestionPlan(
            round(answers),
            error,
            useful,
            math.ceil(needed),
            part.question.error_of,
            told,
        )
    return plans
