"""Studies: cohorts in turn, everybody answers once, so the ε of a message is the person's total, for life.

server: question (JSON) ──▶ device: answer, one message ──▶ server: learn, next question … result
"""

from sstq.studies.base import Study, StudyPlan, register_study
from sstq.studies.questions import Question, answer, register_question
from sstq.studies.results import WordsResult
from sstq.studies.words import Words, WordsQuestion

__all__ = [
    "Question",
    "Study",
    "StudyPlan",
    "Words",
    "WordsQuestion",
    "WordsResult",
    "answer",
    "register_question",
    "register_study",
]
