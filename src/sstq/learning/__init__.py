"""Classifiers and regressions from one private message per person, each of whom answers once.

server: question (JSON) ──▶ device: features, centre, directions, one message ──▶ server: sums, shrinkage, discriminant

A device needs only the published question and `encode`. The estimators follow scikit-learn's conventions and need
the extra `learning`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sstq.learning.features import FourierFeatures, GradientHistograms, Pixels
from sstq.learning.questions import Question, encode

if TYPE_CHECKING:
    from sstq.learning.classifier import PrivateClassifier
    from sstq.learning.regression import PrivateRegression
    from sstq.learning.report import LearningReport

__all__ = [
    "FourierFeatures",
    "GradientHistograms",
    "LearningReport",
    "Pixels",
    "PrivateClassifier",
    "PrivateRegression",
    "Question",
    "encode",
]

_OF_SERVERS = {
    "LearningReport": "report",
    "PrivateClassifier": "classifier",
    "PrivateRegression": "regression",
}


def __getattr__(name: str) -> Any:
    """Import what a server needs when it is asked for: a device needs no scikit-learn."""
    if name not in _OF_SERVERS:
        raise AttributeError(f"module 'sstq.learning' has no attribute {name!r}")
    try:
        return getattr(import_module(f"sstq.learning.{_OF_SERVERS[name]}"), name)
    except ImportError as error:
        raise ImportError(
            "private estimators need scikit-learn 1.6 or later: pip install 'sstq[learning]'"
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)
