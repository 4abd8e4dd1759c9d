"""Choosing clip: a private survey of the clients' norms, and the clip of least predicted error.

Examples:
    >>> import numpy as np
    >>> import sstq
    >>> vectors = np.random.default_rng(0).normal(size=(20_000, 100))  # norms close to 10
    >>> survey = NormSurvey(epsilon=1.0, lowest=1.0, highest=100.0)
    >>> profile = survey.aggregator().update(survey.encode(vectors, rng=1)).profile()
    >>> 9 < profile.quantile(0.9).value < 14
    True
    >>> choice = suggest_clip(profile, sstq.SSTQ(dim=100, epsilon=3.0, bits=2), clients=20_000)
    >>> 9 < choice.clip < 14
    True
"""

from sstq.planning.clipping.choice import ClipChoice, Interval, NormProfile, relative_error, suggest_clip
from sstq.planning.clipping.survey import NormAggregator, NormSurvey

__all__ = [
    "ClipChoice",
    "Interval",
    "NormAggregator",
    "NormProfile",
    "NormSurvey",
    "relative_error",
    "suggest_clip",
]
