"""How accurate a classifier is for each class, from people who tell their class and whether it is right about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sstq.aggregation.estimates import student
from sstq.array_types import Bools, Floats
from sstq.mechanisms.subsets import HitLaw
from sstq.mechanisms.survey.bands import last_accepted

# A class whose share is below this many standard errors has no accuracy of its own.
_LEAST_SHARE_ERRORS = 2.0
# Below so many standard errors it is told in rounds in which it came out high: the accuracy may be anything.
_CLEAR_SHARE_ERRORS = 3.0


@dataclass(frozen=True)
class ClassAnswers:
    """The estimated shares of people of each class about whom a classifier is wrong and right.

    The accuracy of a class is right/(wrong + right). If it is r, right − r·(wrong + right) has the mean 0 and a
    variance that follows from r and the law of a message. So r is in the interval if that is within z standard errors
    of zero (a score test, as in Wilson's interval).

    Attributes:
        outcomes: the shares: class 0 wrong, class 0 right, class 1 wrong, …
        count: the number of messages.
        law: how often a message holds its person's outcome and others.
    """

    outcomes: tuple[float, ...]
    count: int
    law: HitLaw

    @property
    def accuracies(self) -> Floats:
        """The accuracy of each class; nan where the share of the class is not clearly above zero."""
        surely = self._shares_in_errors > _LEAST_SHARE_ERRORS
        return np.where(surely, self._ratios, np.nan)

    @property
    def stderr(self) -> Floats:
        """The standard errors of the accuracies, to first order."""
        return self._ratio_errors(self.accuracies) / self.shares

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Return the ends of an interval for the accuracy of each class; 0 and 1 where its share is unclear."""
        z = student(level, 1, self.count)
        unclear = self._shares_in_errors <= _CLEAR_SHARE_ERRORS

        def accepted(ratios: Floats) -> Bools:
            beyond = np.abs(self._ratios - ratios) * self.shares
            return (beyond <= z * self._ratio_errors(ratios)) | unclear

        low, high = (
            np.where(
                np.isnan(self.accuracies),
                np.nan,
                last_accepted(self._ratios, np.full(len(self.shares), end), accepted),
            )
            for end in (0.0, 1.0)
        )
        return low, high

    @property
    def shares(self) -> Floats:
        """The share of each class."""
        return np.add(self.outcomes[::2], self.outcomes[1::2])

    @property
    def _shares_in_errors(self) -> Floats:
        """The share of each class in units of its standard error."""
        return self.shares / self._errors(self._ratios, 1.0, 1.0)

    @property
    def _ratios(self) -> Floats:
        """The accuracy of each class, of however few people; 0 of nobody."""
        share = np.where(self.shares > 0, self.shares, np.inf)
        return np.clip(np.array(self.outcomes[1::2]) / share, 0.0, 1.0)

    def _ratio_errors(self, ratios: Floats) -> Floats:
        """The standard errors of right − r·(wrong + right), if these are the accuracies."""
        return self._errors(ratios, -ratios, 1 - ratios)

    def _errors(
        self, ratios: Floats, of_wrong: Floats | float, of_right: Floats | float
    ) -> Floats:
        """The standard errors of sums of wrong and right with these factors, if these are the accuracies."""
        rates = self.law.rates
        share = np.clip(self.shares, 0.0, 1.0)
        wrong = rates.other + rates.gap * share * (1 - ratios)
        right = rates.other + rates.gap * share * ratios
        both = self.law.pair + share * (self.law.own_pair - self.law.pair)
        square = (
            of_wrong**2 * wrong + of_right**2 * right + 2 * of_wrong * of_right * both
        )
        variance = np.maximum(square - (of_wrong * wrong + of_right * right) ** 2, 0.0)
        degrees = self.count - 1 if self.count > 1 else np.nan
        return np.sqrt(variance / degrees) / rates.gap
