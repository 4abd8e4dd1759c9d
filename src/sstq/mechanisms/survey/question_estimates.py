"""The results of a survey, question by question, in the units of the columns."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from sstq.aggregation import Estimate
from sstq.aggregation.estimates import data_frame, student
from sstq.array_types import Floats
from sstq.mechanisms.groupunit.group_estimates import GroupEstimate
from sstq.mechanisms.subsets import HitLaw
from sstq.mechanisms.survey.bands import distribution_band

NO_ANSWER = "no answer"
QUARTILES = (0.25, 0.5, 0.75)
# Intervals become standard errors by this level where there is nothing else.
_FOLLOWED_LEVEL = 0.95
_NUMBERS = ("estimate", "stderr", "low", "high")
_OF_MEANS = ("value", "stderr", "low", "high")
# The share of people with an answer is clear from so many standard errors on.
_CLEAR_ERRORS = 4.0


def _quantile(share: float) -> str:
    return f"quantile {share:g}"


class Interval(NamedTuple):
    """A value, and an interval that contains the truth with the stated probability."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class QuestionEstimate:
    """The estimates of one question.

    Attributes:
        name: the question's name.
        items: the labels, bins, coordinates or groups.
        estimate: the estimate of each item: its share, or its mean.
        stderr: the standard errors.
        count: the number of messages that answered this question.
        over: "people" if estimates are over all people, "answers" if over those who have an answer.
        answered: the share of people who have an answer, and its standard error; nan if nobody knows.
        limits: the least and the largest value that there can be.
        raw: the mechanism's own estimate, if it has one item more than this or as many: shares over all people, or a
            vector's mean. Its region is wider than a normal one where hits are rare or frames leave a bias.
    """

    name: str
    items: tuple[str, ...]
    estimate: Floats
    stderr: Floats
    count: int
    over: str
    answered: tuple[float, float] = (math.nan, math.nan)
    limits: tuple[float, float] = (-math.inf, math.inf)
    raw: Estimate | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.name!r}: {len(self.items)} items, {self.count:,} messages>"

    @property
    def shares(self) -> Floats:
        """The estimates, if they are shares."""
        return self.estimate

    @property
    def is_unclear(self) -> bool:
        """Whether so few people have an answer that what is divided by their share may be anything.

        Below four standard errors it is told in rounds in which it came out high, and errors to first order are too
        small.
        """
        answered, error = self.answered
        return answered < _CLEAR_ERRORS * error

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of intervals that contain the truths of all items with this probability (Šidák).

        They are the limits where too few people have an answer (`is_unclear`).
        """
        reach = student(level, len(self.items), self.count) * self.stderr
        if self.is_unclear:
            reach = np.where(np.isnan(reach), np.nan, math.inf)
        if self.raw is not None and self.count > 1:
            normal = student(level, len(self.raw.value), self.count) * self.raw.stderr
            wider = np.divide(
                self.raw.region(level).half_width,
                normal,
                out=np.ones_like(normal),
                where=normal > 0,
            )
            reach = reach * wider[: len(reach)]
        return np.clip(self.estimate - reach, *self.limits), np.clip(
            self.estimate + reach, *self.limits
        )

    def details(self, level: float = 0.95) -> dict[str, Any]:
        """Return what a collector shows of the question, by name."""
        low, high = self.interval(level)
        return {
            "name": self.name,
            "count": self.count,
            "over": self.over,
            "answered": self.answered[0],
            "items": list(self.items),
            "limits": list(self.limits),
            "estimate": self.estimate,
            "stderr": self.stderr,
            "low": low,
            "high": high,
        }

    def rows(
        self, level: float = 0.95
    ) -> Iterator[tuple[str, float, float, float, float]]:
        """Yield item, estimate, standard error, and the ends of the interval."""
        yield from zip(
            self.items, self.estimate, self.stderr, *self.interval(level), strict=True
        )

    def followed(self) -> Iterator[tuple[str, float, float, int]]:
        """Yield item, estimate, standard error, and 1 if it is to be divided by the share of those who answered."""
        rows = list(self.rows(_FOLLOWED_LEVEL))
        if self.raw is not None and len(self.raw.value) == len(self.items) + 1:
            shares = zip(self.items, self.raw.value, self.raw.stderr, strict=False)
            yield from ((item, value, error, 1) for item, value, error in shares)
            yield NO_ANSWER, self.raw.value[-1], self.raw.stderr[-1], 0
            rows = [row for row in rows if row[0] not in self.items]
        for item, value, error, low, high in rows:
            # Quantiles have an interval only, and so have means of bins.
            middle = value if math.isfinite(value) else (low + high) / 2
            spread = error if math.isfinite(error) else (high - low) / (2 * 1.96)
            yield item, middle, spread, 0


@dataclass(frozen=True, repr=False, kw_only=True)
class GroupMeans(QuestionEstimate):
    """The means of groups, around the `middle` of their range."""

    raw: GroupEstimate
    middle: float = 0.0

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of `GroupEstimate.mean_ends`; nan for groups of too few people."""
        low, high = (
            self.middle + ends[:-1].ravel() for ends in self.raw.mean_ends(level)
        )
        return np.clip(low, *self.limits), np.clip(high, *self.limits)


@dataclass(frozen=True, repr=False, kw_only=True)
class NumberEstimate(QuestionEstimate):
    """A histogram with its mean, distribution function and quantiles, over those who have an answer.

    Attributes:
        edges: the ends of the bins.
        covariance: the covariances of the errors of `estimate`, (bins, bins).
        law: how often a message holds its person's category and others.
        exact: whether a bin is one number, its middle (`Count`).
    """

    edges: Floats
    covariance: Floats
    law: HitLaw
    exact: bool = False

    @property
    def ends(self) -> tuple[Floats, Floats]:
        """The least and the largest number of each bin."""
        if self.exact:
            return self._middles, self._middles
        return self.edges[:-1], self.edges[1:]

    @property
    def _middles(self) -> Floats:
        return (self.edges[1:] + self.edges[:-1]) / 2

    @property
    def centre(self) -> tuple[float, float]:
        """The mean of the bins' middles and its standard error."""
        error2 = float(self._middles @ self.covariance @ self._middles)
        return float(self._middles @ self.estimate), math.sqrt(max(error2, 0.0))

    @property
    def mean_stderr(self) -> float:
        """The standard error of the mean; nan where bins have a width."""
        return self.centre[1] if self.exact else math.nan

    def mean(self, level: float = 0.95) -> Interval:
        """Return the mean of the (clamped) numbers.

        Where bins have a width, only an interval is known, with half a bin on each side, and `value` is nan: ask for
        `Mean` beside the question.
        """
        value, error = self.centre
        lowest, highest = self.ends
        reach = (
            student(level, 1, self.count) * error + float(highest[0] - lowest[0]) / 2
        )
        if self.is_unclear and not math.isnan(reach):
            reach = math.inf
        low, high = (
            float(np.clip(end, lowest[0], highest[-1]))
            for end in (value - reach, value + reach)
        )
        return Interval(value if self.exact else math.nan, low, high)

    @cached_property
    def cdf(self) -> Floats:
        """The distribution function at the upper end of each bin: isotonic, from 0 to 1; nan from too few answers."""
        from scipy.optimize import isotonic_regression

        raw = np.cumsum(self.estimate)
        return (
            raw
            if np.isnan(raw).any()
            else np.append(np.clip(isotonic_regression(raw[:-1]).x, 0.0, 1.0), 1.0)
        )

    def cdf_band(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return a band that contains the whole distribution function at the bins' upper ends.

        It has Šidák's quantile (`sstq.mechanisms.survey.bands`), and is widened where it would not hold the isotonic
        estimate. The last end has no error: all numbers are within the bounds. From too few answers (`is_unclear`),
        the band is everything.
        """
        if np.isnan(self.cdf).any() or self.is_unclear:
            return np.append(np.zeros(len(self.cdf) - 1), 1.0), np.ones(len(self.cdf))
        z = student(level, len(self.items) - 1, self.count)
        cumulated = self.answered[0] * np.cumsum(self.estimate)[:-1]
        low, high = distribution_band(
            cumulated, self.answered[0], self.count, self.law, z
        )
        return np.minimum(np.append(low, 1.0), self.cdf), np.maximum(
            np.append(high, 1.0), self.cdf
        )

    def quantile(self, share: float, level: float = 0.95) -> Interval:
        """Return a quantile of the (clamped) numbers, interpolated within its bin.

        The intervals of all quantiles hold at once, because the band of the distribution function does. They end at
        ends of bins, or at whole numbers.

        Examples:
            >>> from sstq.mechanisms.subsets import HitRates
            >>> law = HitLaw(HitRates(1.0, 0.0), 0.0, 0.0)  # without noise
            >>> result = NumberEstimate("x", ("a", "b"), np.array([0.5, 0.5]), np.zeros(2), 1000, "answers",
            ...     (1.0, 0.0), edges=np.array([0.0, 1.0, 2.0]), covariance=np.zeros((2, 2)), law=law)
            >>> tuple(map(float, result.quantile(0.25)))
            (0.5, 0.0, 1.0)
        """
        if not 0 < share < 1:
            raise ValueError(
                f"share must be a number between 0 and 1, both excluded, got {share!r}"
            )
        if np.isnan(self.cdf).any():
            return Interval(math.nan, float(self.ends[0][0]), float(self.ends[1][-1]))
        ends = np.concatenate([[0.0], self.cdf])
        place = int(np.searchsorted(ends, share, side="left"))
        inner = (share - ends[place - 1]) / (ends[place] - ends[place - 1])
        lowest, highest = self.ends
        value = lowest[place - 1] + inner * (highest[place - 1] - lowest[place - 1])
        low, high = self.cdf_band(level)
        # From the first bin that may reach the share to the last that may be needed for it.
        first = np.flatnonzero(high >= share)[0]
        last = np.flatnonzero(np.append(0.0, low[:-1]) < share)[-1]
        return Interval(float(value), float(lowest[first]), float(highest[last]))

    def details(self, level: float = 0.95) -> dict[str, Any]:
        """Return also the edges of the bins, the mean and the quartiles."""
        mean = self.mean(level)._asdict() | {"stderr": self.mean_stderr}
        quantiles = [
            {"share": share, **self.quantile(share, level)._asdict()}
            for share in QUARTILES
        ]
        more = {"edges": self.edges, "mean": mean, "quantiles": quantiles}
        return super().details(level) | more

    def rows(
        self, level: float = 0.95
    ) -> Iterator[tuple[str, float, float, float, float]]:
        """Yield the mean, the quartiles and the bins."""
        mean = self.mean(level)
        yield "mean", mean.value, self.mean_stderr, mean.low, mean.high
        for share in QUARTILES:
            value, low, high = self.quantile(share, level)
            yield _quantile(share), value, math.nan, low, high
        yield from super().rows(level)


@dataclass(frozen=True, repr=False)
class SurveyEstimate(Estimate):
    """The results of a survey: `result["age"]` is that of a question, and `value` all of them as they are encoded."""

    columns = ("question", "item", *_NUMBERS)
    table_file = "survey.csv"

    results: Mapping[str, QuestionEstimate] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<SurveyEstimate of {', '.join(map(repr, self.results))} from {self.count:,} messages>"

    def __getitem__(self, name: str) -> QuestionEstimate:
        if name not in self.results:
            raise KeyError(
                f"name must be one of {', '.join(self.results)}, got {name!r}"
            )
        return self.results[name]

    def followed(self) -> Iterator[tuple[str, Any, float, float, int]]:
        """Yield what a panel follows of every question."""
        for name, result in self.results.items():
            yield from ((name, *item) for item in result.followed())

    def table(self, level: float = 0.95) -> list[dict[str, Any]]:
        """Return tidy rows: question, item, estimate, stderr, low, high and status; unknown numbers are None.

        The status is "ok", "interval only" (of the mean of bins), or "too few answers".
        """
        columns = (*self.columns, "status")
        rows = []
        for name, result in self.results.items():
            missing = (
                "interval only"
                if np.isfinite(result.estimate).all()
                else "too few answers"
            )
            for item, *numbers in result.rows(level):
                cells = [
                    None if math.isnan(number) else float(number) for number in numbers
                ]
                rows.append((name, item, *cells, missing if cells[0] is None else "ok"))
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def details(self, level: float = 0.95) -> dict[str, Any]:
        """Return what a collector shows of every question."""
        questions = [
            {"type": self.types[name]} | result.details(level)
            for name, result in self.results.items()
        ]
        return {"questions": questions}

    @classmethod
    def rows_of(
        cls,
        stored: Mapping[str, Any],
        labels: Sequence[str],  # noqa: ARG003 (a survey has names of its own)
        group_labels: Sequence[str],  # noqa: ARG003
    ) -> Iterator[Sequence[Any]]:
        """Yield the rows of all questions: of a number its mean and quartiles first."""
        for found in stored["questions"]:
            name = found["name"]
            if "mean" in found:
                known = {"mean": found["mean"]}
                known |= {_quantile(each["share"]): each for each in found["quantiles"]}
                for item, numbers in known.items():
                    yield name, item, *(numbers.get(column) for column in _OF_MEANS)
            columns = (found[column] for column in ("items", *_NUMBERS))
            yield from ((name, *row) for row in zip(*columns, strict=True))

    def summary(self, level: float = 0.95) -> dict[str, Any]:
        """Return the estimates and intervals of all items by question, as JSON values."""
        questions: dict[str, Any] = {name: {} for name in self.results}
        for row in self.table(level):
            questions[row["question"]][row["item"]] = {
                name: row[name] for name in ("estimate", "low", "high")
            }
        return {"questions": questions}

    def to_frame(self, level: float = 0.95) -> Any:
        """Return `table` as a pandas DataFrame. Needs ``pip install pandas``.

        Intervals of one question hold at once with this probability. Unknown numbers are nan.
        """
        # Columns in which nothing is known would have Python's None.
        return data_frame(self.table(level)).astype(dict.fromkeys(_NUMBERS, float))

    def plot(self, *, level: float = 0.95, **_: Any) -> Any:
        """Draw one panel per question, with intervals; returns the Matplotlib figure. Needs the extra [plots]."""
        from sstq.plots.estimates import draw_questions

        return draw_questions(list(self.results.values()), level)
