"""Surveys: several questions, of which each person answers one that is drawn without looking at the data."""

from sstq.mechanisms.survey.mechanism import Survey
from sstq.mechanisms.survey.questions import By, Choice, MultiChoice, Number, Vector

__all__ = ["By", "Choice", "MultiChoice", "Number", "Survey", "Vector"]
