"""The band of a distribution function: every value that a test would not refuse."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sstq.array_types import Bools, Floats, Ints
from sstq.mechanisms.subsets import HitLaw

_STEPS = 50  # of bisection, which leave nothing of the last bit that is shown


class _Moments(NamedTuple):
    """The mean and the second moment of what a message tells."""

    first: Floats
    second: Floats


def distribution_band(
    cumulated: Floats, answered: float, count: int, law: HitLaw, z: float
) -> tuple[Floats, Floats]:
    """The least and the largest share of answers in the first j = 1, 2, … categories.

    Let C be the estimate of the share of people in the first j categories, A that of those who have an answer. If the
    share of answers is F, C − F·A has the mean 0, and a variance that follows from F and the law of a message: F is in
    the band if C − F·A is within z standard errors (a score test, as in Wilson's interval). Hits that are rare are
    skewed; by the first term of Cornish and Fisher as much as (z² − 1)/6 of them are no evidence.

    Args:
        cumulated: C, of all j but the last, for which C = A.
        answered: A.
        count: the number of messages.
        law: how often a message holds its person's category and others.
        z: the normal or Student's quantile.
    """
    categories = np.arange(1, len(cumulated) + 1)

    def evidence(share: Floats) -> Floats:
        """C − F·A in standard errors."""
        hits = _message(law, categories, min(max(answered, 0.0), 1.0), share)
        error = (
            np.sqrt(
                np.maximum(hits.second - hits.first**2, np.finfo(float).tiny) / count
            )
            / law.rates.gap
        )
        beyond = cumulated - share * answered
        skewed = (
            (z**2 - 1)
            / 6
            * (1 - 2 * np.clip(hits.first, 0.0, 1.0))
            / (count * law.rates.gap)
        )
        above = np.maximum(beyond - np.maximum(skewed, 0.0), 0.0)
        below = np.minimum(beyond + np.maximum(-skewed, 0.0), 0.0)
        return np.where(beyond > 0, above, below) / error

    nothing = np.zeros(len(cumulated))
    everything = np.ones(len(cumulated))
    likely = np.clip(cumulated / answered, 0.0, 1.0)
    low = last_accepted(likely, nothing, lambda share: evidence(share) <= z)
    return low, last_accepted(likely, everything, lambda share: evidence(share) >= -z)


def _message(law: HitLaw, categories: Ints, answered: float, share: Floats) -> _Moments:
    """What a message holds of the first j categories, plus F if it holds that of no answer; over all people."""
    first = np.zeros(len(share))
    second = np.zeros(len(share))
    for among, is_none, weight in (
        (True, False, answered * share),
        (False, False, answered * (1 - share)),
        (False, True, 1 - answered),
    ):
        others = categories - among
        hits = others * law.rates.other + among * law.rates.own
        none = law.rates.own if is_none else law.rates.other
        # Pairs of two of the j categories, and of one of them and no answer.
        pairs = others * (others - 1) * law.pair + 2 * among * others * law.own_pair
        crossed = (
            others * (law.own_pair if is_none else law.pair) + among * law.own_pair
        )
        first = first + weight * (hits + share * none)
        second = second + weight * (
            hits + pairs + 2 * share * crossed + share**2 * none
        )
    return _Moments(first, second)


def last_accepted(
    inside: Floats, end: Floats, accepted: Callable[[Floats], Bools]
) -> Floats:
    """Return the last values that are accepted on the way from some that are to an end."""
    outside = end
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        fine = accepted(middle)
        inside = np.where(fine, middle, inside)
        outside = np.where(fine, outside, middle)
    return np.where(accepted(end), end, inside)
