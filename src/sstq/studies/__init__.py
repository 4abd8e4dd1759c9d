"""Studies: cohorts in turn, everybody answers once, so the ε of a message is the person's total, for life.

server: question (JSON) ──▶ device: answer, one message ──▶ server: learn, next question … result
"""

from sstq.studies.base import Study, StudyPlan, register_study
from sstq.studies.columns import ColumnRange, ColumnsQuestion
from sstq.studies.panel import Panel, PeriodQuestion, draw_turn, is_turn
from sstq.studies.panel_results import Curve, PanelResult
from sstq.studies.questions import Document, Question, answer, register_question
from sstq.studies.range import NormQuestion, Range, VectorQuestion
from sstq.studies.results import BoundsResult, RangeResult, StudyResult
from sstq.studies.words import Words, WordsQuestion
from sstq.studies.words_results import WordsResult

__all__ = [
    "BoundsResult",
    "ColumnRange",
    "ColumnsQuestion",
    "Curve",
    "Document",
    "NormQuestion",
    "Panel",
    "PanelResult",
    "PeriodQuestion",
    "Question",
    "Range",
    "RangeResult",
    "Study",
    "StudyPlan",
    "StudyResult",
    "VectorQuestion",
    "Words",
    "WordsQuestion",
    "WordsResult",
    "answer",
    "draw_turn",
    "is_turn",
    "register_question",
    "register_study",
]
