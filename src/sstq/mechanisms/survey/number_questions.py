"""Questions for numbers: counted in bins or one by one, and their means."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from sstq.array_types import Floats, Words
from sstq.checks import ArgumentError, check_number
from sstq.mechanisms.base import Mechanism, Rows
from sstq.mechanisms.survey.question import (
    Candidates,
    MeasuredQuestion,
    Precision,
    Question,
    mean_of,
    number_of,
    shares_of_answers,
)
from sstq.mechanisms.survey.question_estimates import (
    QUARTILES,
    NumberEstimate,
    QuestionEstimate,
)
from sstq.randomness.secret import unit_interval

_MOST_BINS = 512
_LARGEST = 1e100
# A distribution function this far off says little about quantiles.
_USEFUL_CDF = 0.1
_USEFUL_MEAN = 0.05


class Ranged(MeasuredQuestion):
    """A question for a number from `low` to `high`, in categories; values beyond are moved to the ends."""

    exact: ClassVar[bool] = False
    error_of = "share below a value"
    reach_name = "half range"
    axes = ("",)
    low: float
    high: float

    def _settle(self, low: float, high: float) -> None:
        vars(self).update(
            low=low,
            high=high,
            middle=(low + high) / 2,
            reach=(high - low) / 2,
            limits=(low, high),
        )

    @property
    @abstractmethod
    def edges(self) -> Floats:
        """The ends of the categories."""

    def for_devices(self) -> dict[str, Any]:
        """The bounds, and the number of categories."""
        bounds = {"low": float(self.low), "high": float(self.high)}
        return {"labels": len(self.items), **bounds}

    def _candidates(self) -> Candidates:
        return [("frequencies", {"categories": len(self.edges)}, 1)]

    def _precision(self, inner: Any, items: int, answers: int) -> Precision:
        covariance = inner.estimator.uniform_covariance
        few = np.arange(1, inner.categories)
        # The variance of a sum of few shares, from one uniform message.
        variances = few * (covariance[0, 0] + (few - 1) * covariance[0, 1])
        return Precision(
            inner.sets.rates.variance_at(0.5),
            float(variances.max()) + 0.25,
            _USEFUL_CDF,
        )

    def record(self, value: Any, strict: bool) -> float:
        """The number within the bounds; nan for no answer. Python compares integers of any size."""
        if value is None:
            return math.nan
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError("numbers")
        return float(min(max(value, self.low), self.high))

    def parsed(self, text: str) -> float:
        """The number of a field."""
        return number_of(text)

    def is_beyond(self, value: Any) -> bool:
        """Whether the number is moved to the bounds."""
        return not self.low <= value <= self.high

    def _result(
        self, name: str, estimates: list[Any], aggregator: Any
    ) -> NumberEstimate:
        shares = shares_of_answers(name, self.items, estimates[0].value, estimates[0])
        # To first order the errors of the ratios are these sums of the errors of all shares.
        sums = (
            np.column_stack([np.eye(len(self.items)), shares.estimate])
            / shares.answered[0]
        )
        counted = aggregator.estimator
        covariance = sums @ counted.covariance(aggregator.counted()) @ sums.T
        more = {
            "stderr": np.sqrt(np.maximum(np.diagonal(covariance), 0.0)),
            "edges": self.edges,
        }
        law = counted.sets.law
        return NumberEstimate(
            **(vars(shares) | more), covariance=covariance, law=law, exact=self.exact
        )

    def truth(
        self, columns: Mapping[str, Rows], name: str
    ) -> Iterable[tuple[Any, float]]:
        """The mean, the quartiles and the shares of the bins, of the numbers within the bounds."""
        bins = self._records(columns, name, 1)
        answered = bins[:, 0] < len(self.items)
        values = columns[name][answered, 0]
        yield "mean", float(mean_of(values))
        for share in QUARTILES:
            value = math.nan
            if len(values):
                value = float(np.quantile(values, share, method="inverted_cdf"))
            yield f"quantile {share:g}", value
        marks = bins[answered] == range(len(self.items))
        yield from zip(self.items, mean_of(marks), strict=True)


@dataclass(frozen=True)
class Number(Ranged):
    """A number from `low` to `high`, counted in bins of equal width; values beyond are moved to the ends.

    The bounds must be public knowledge, not those of the data. A mean of bins is known up to half a bin; ask `Mean`
    beside it for one without that, and `Count` for whole numbers.

    Examples:
        >>> Number(0, 110, bins=22).edges[:3]
        array([ 0.,  5., 10.])
    """

    type = "number"
    low: float
    high: float
    bins: int = 16

    def __post_init__(self) -> None:
        low, high = (
            check_number(end, getattr(self, end), -_LARGEST, _LARGEST)
            for end in ("low", "high")
        )
        if not low < high:
            raise ArgumentError("low", f"must be below high, got {low:g} and {high:g}")
        bins = check_number("bins", self.bins, 2, _MOST_BINS, integer=True)
        vars(self).update(bins=bins)
        self._settle(low, high)

    @property
    def edges(self) -> Floats:
        """The ends of the bins."""
        return np.linspace(self.low, self.high, self.bins + 1)

    @property
    def items(self) -> Sequence[str]:
        """The bins."""
        return [f"{low:.6g}–{high:.6g}" for low, high in pairwise(self.edges)]

    def examples(self) -> list[Any]:
        """The ends, the middle, and no answer."""
        return [self.low, self.high, self.middle, None]

    def _records(self, columns: Mapping[str, Rows], name: str, items: int) -> Rows:
        values = columns[name]
        with np.errstate(invalid="ignore"):
            place = np.floor((values - self.low) / (self.high - self.low) * self.bins)
        return np.where(np.isnan(values), self.bins, np.minimum(place, self.bins - 1))


@dataclass(frozen=True)
class Count(Ranged):
    """A whole number from 0 to `most`, which is public knowledge; larger ones are moved to it.

    Each has a category of its own, so that the mean and the quantiles have no error but the noise.

    Examples:
        >>> Count(10).edges[[0, 1, -1]]
        array([-0.5,  0.5, 10.5])
    """

    type = "count"
    exact = True
    most: int

    def __post_init__(self) -> None:
        most = check_number("most", self.most, 1, _MOST_BINS - 1, integer=True)
        vars(self).update(most=most)
        self._settle(0.0, float(most))

    @property
    def edges(self) -> Floats:
        """The ends of bars around the numbers."""
        return np.linspace(-0.5, self.most + 0.5, self.most + 2)

    @property
    def items(self) -> Sequence[int]:
        """The numbers."""
        return range(self.most + 1)

    def examples(self) -> list[Any]:
        """The ends, the middle, and no answer."""
        return [0, self.most, self.most // 2, None]

    def record(self, value: Any, strict: bool) -> float:
        """The number, of those that are whole within the bounds."""
        number = super().record(value, strict)
        if not math.isnan(number) and number != math.floor(number):
            raise TypeError("whole numbers")
        return number

    def _records(self, columns: Mapping[str, Rows], name: str, items: int) -> Rows:
        return np.where(np.isnan(columns[name]), self.most + 1, columns[name])


@dataclass(frozen=True)
class Mean(Question):
    """The mean of a Number or a Count, named as in the survey; it has no column of its own.

    Who draws this question rounds the number to one of the ends of its range, at random and so that its mean is that of
    the numbers (clamped to the range). Its standard error from n answers is at ε = 1 about 1.2/√n of the range.

    Examples:
        >>> Mean("age")
        Mean(value='age')
    """

    type = "mean"
    error_of = "mean / range"
    items = ("mean",)
    value: str
    measured: Ranged = field(init=False, repr=False, compare=False)

    def within(self, questions: Mapping[str, Question]) -> "Mean":
        """The question with the one that it names."""
        value = questions.get(self.value)
        made = Mean(self.value)
        if not isinstance(value, Ranged):
            raise ArgumentError(
                "value",
                f"must name a Number or a Count of the survey, got {self.value!r}",
            )
        vars(made).update(measured=value)
        return made

    def for_devices(self) -> dict[str, Any]:
        """The name of the question for the number."""
        return {"value": self.value}

    def _candidates(self) -> Candidates:
        """The high end, the low one, and no answer."""
        return [("frequencies", {"categories": 3}, 1)]

    def _precision(self, inner: Any, items: int, answers: int) -> Precision:
        """Of half the difference of the ends; a set holds one of them, or both, or none."""
        rates = inner.sets.rates
        hit = rates.own + rates.other
        variance = min(hit, 2 - hit) / (2 * rates.gap) ** 2
        return Precision(variance, variance, _USEFUL_MEAN)

    def _records(self, columns: Mapping[str, Rows], name: str, items: int) -> Rows:
        """The chances of the categories."""
        place = (columns[self.value] - self.measured.low) / (
            self.measured.high - self.measured.low
        )
        none = np.isnan(place)
        return np.hstack(
            [np.where(none, 0.0, place), np.where(none, 0.0, 1.0 - place), none]
        )

    def _drawn(self, records: Rows, words: Words) -> Rows:
        """A category, rounded by one word."""
        low = unit_interval(words) >= records[:, 0]
        return np.where(records[:, 2] > 0, 2.0, low)[:, None]

    def _estimated(self, inner: Mechanism, records: Rows) -> Rows:
        return records

    def row_error(self, inner: Mechanism, records: Rows) -> tuple[Floats, Floats]:
        """The mean and the variance of the estimate of each row."""
        # All categories have one variance; rounding adds that of a category that is drawn.
        _, variance = inner.row_error(records[:, :1])
        return records, variance + 1 - np.einsum("ij,ij->i", records, records)

    def _result(
        self, name: str, estimates: list[Any], aggregator: Any
    ) -> QuestionEstimate:
        between = aggregator.estimator.covariance_with(aggregator.counted(), 2)[:-1]
        shares = shares_of_answers(
            name, ("mean", "low end"), estimates[0].value, estimates[0], between
        )
        low, high = self.measured.limits
        mean = low + (high - low) * shares.estimate[:1]
        stderr = (high - low) * shares.stderr[:1]
        return replace(
            shares, items=self.items, estimate=mean, stderr=stderr, limits=(low, high)
        )

    def truth(
        self,
        columns: Mapping[str, Rows],
        name: str,
    ) -> Iterable[tuple[Any, float]]:
        """The mean of the numbers within the bounds."""
        values = columns[self.value]
        return [("mean", float(mean_of(values[~np.isnan(values)])))]
