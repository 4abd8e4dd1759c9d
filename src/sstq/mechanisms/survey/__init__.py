"""Surveys: several questions, of which each person answers one that is drawn without looking at the data."""

from sstq.mechanisms.survey.questions import By, Choice, Count, Mean, MultiChoice, Number, Vector
from sstq.mechanisms.survey.survey import Survey

__all__ = ["By", "Choice", "Count", "Mean", "MultiChoice", "Number", "Survey", "Vector"]
