"""Classifiers and regressions from one private message per person, each of whom answers once.

server: question (JSON) ──▶ device: features, centre, directions, one message ──▶ server: sums, shrinkage, discriminant

A device needs only the published question and `encode`. The estimators follow scikit-learn's conventions and need
the extra `learning`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sstq.learning.classifier import PrivateClassifier as PrivateClassifier
    from sstq.learning.course import LearningReport as LearningReport
    from sstq.learning.features import GradientHistograms as GradientHistograms
    from sstq.learning.features import Pixels as Pixels
    from sstq.learning.questions import Question as Question
    from sstq.learning.questions import encode as encode
    from sstq.learning.regression import PrivateRegression as PrivateRegression

_HOMES = {
    "GradientHistograms": "sstq.learning.features",
    "LearningReport": "sstq.learning.course",
    "Pixels": "sstq.learning.features",
    "PrivateClassifier": "sstq.learning.classifier",
    "PrivateRegression": "sstq.learning.regression",
    "Question": "sstq.learning.questions",
    "encode": "sstq.learning.questions",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'sstq.learning' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
