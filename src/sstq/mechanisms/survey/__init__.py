"""Surveys: several questions, of which each person answers one that is drawn without looking at the data."""

from sstq.mechanisms.survey.label_questions import Choice, MultiChoice
from sstq.mechanisms.survey.number_questions import Count, Mean, Number
from sstq.mechanisms.survey.survey import Survey
from sstq.mechanisms.survey.vector_questions import By, Vector

__all__ = ["By", "Choice", "Count", "Mean", "MultiChoice", "Number", "Survey", "Vector"]
