"""The results of a survey, question by question, in the units of the columns."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sstq.aggregation import Estimate, SparseAggregator
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.base import Floats, Ints
from sstq.mechanisms.frequencies import FrequencyEstimate
from sstq.mechanisms.groupunit.estimates import GroupEstimate
from sstq.mechanisms.subsets import hit_rates
from sstq.mechanisms.survey.questions import By, MultiChoice, Number, Question, Vector
from sstq.messages.batch import Messages
from sstq.plots.canvas import ACCENT, INK, require_matplotlib, tidy

if TYPE_CHECKING:
    from sstq.mechanisms.survey.mechanism import Part, Survey

_QUARTILES = (0.25, 0.5, 0.75)
# A picture has bars for so few items, with names of at most so many letters; so many fit side by side.
_MOST_BARS, _LONGEST_NAME, _LETTERS = 40, 28, 75


class Interval(NamedTuple):
    """A value, and an interval that contains the truth with the stated probability."""

    value: float
    low: float
    high: float

    def __float__(self) -> float:
        return float(self.value)


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
        raw: the mechanism's own estimate, of which intervals are made: shares over all people, or a vector's mean.
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

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of intervals that contain the truths of all items with this probability (Šidák)."""
        reach = _quantile(level, len(self.items), self.count) * self.stderr
        if self.raw is not None and len(self.raw.value) == len(self.items):
            reach = self.raw.region(level).half_width
        elif self.raw is not None and self.count > 1:
            # Rare hits make the region of the shares wider than a normal one, and these as much.
            normal = _quantile(level, len(self.raw.value), self.count) * self.raw.stderr
            reach = reach * (self.raw.region(level).half_width / normal)[:-1]
        return np.clip(self.estimate - reach, *self.limits), np.clip(self.estimate + reach, *self.limits)

    def rows(self, level: float = 0.95) -> Iterator[tuple[str, float, float, float, float]]:
        """Yield item, estimate, standard error, and the ends of the interval."""
        low, high = self.interval(level)
        yield from zip(self.items, self.estimate, self.stderr, low, high, strict=True)


@dataclass(frozen=True, repr=False)
class NumberEstimate(QuestionEstimate):
    """A histogram with its mean, distribution function and quantiles, over those who have an answer.

    Attributes:
        edges: the ends of the bins.
        raw_cdf: the share of people up to each bin's upper end, as estimated; it may fall.
        cdf_stderr: the standard errors of it.
        centre: the mean of the bins' middles and its standard error.
    """

    edges: Floats = field(default_factory=lambda: np.empty(0))
    raw_cdf: Floats = field(default_factory=lambda: np.empty(0))
    cdf_stderr: Floats = field(default_factory=lambda: np.empty(0))
    centre: tuple[float, float] = (math.nan, math.nan)

    def mean(self, level: float = 0.95) -> Interval:
        """Return the mean of the (clamped) numbers; the interval contains half a bin's width on each side."""
        value, error = self.centre
        reach = _quantile(level, 1, self.count) * error + (self.edges[1] - self.edges[0]) / 2
        return Interval(value, *(float(np.clip(end, *self.edges[[0, -1]])) for end in (value - reach, value + reach)))

    @cached_property
    def cdf(self) -> Floats:
        """The distribution function at the upper end of each bin: isotonic, from 0 to 1."""
        return np.append(np.clip(_isotonic(self.raw_cdf[:-1]), 0.0, 1.0), 1.0)

    def cdf_band(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return a band that contains the whole distribution function at the bins' upper ends.

        It is around the raw estimate, widened where it must be to be monotone and to hold the isotonic one.
        """
        reach = _quantile(level, max(len(self.items) - 1, 1), self.count) * self.cdf_stderr
        low = np.minimum(self.raw_cdf - reach, self.cdf)
        high = np.maximum(self.raw_cdf + reach, self.cdf)
        low, high = np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high)
        low[-1] = high[-1] = 1.0  # all numbers are within the bounds
        return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)

    def quantile(self, share: float, level: float = 0.95) -> Interval:
        """Return a quantile of the (clamped) numbers, interpolated within its bin.

        The intervals of all quantiles hold at once, because the band of the distribution function does. They end at
        ends of bins.

        Examples:
            >>> found = NumberEstimate("x", ("a", "b"), np.array([0.5, 0.5]), np.zeros(2), 10, "answers",
            ...     edges=np.array([0.0, 1.0, 2.0]), raw_cdf=np.array([0.5, 1.0]), cdf_stderr=np.zeros(2))
            >>> tuple(map(float, found.quantile(0.25)))
            (0.5, 0.0, 1.0)
        """
        if not 0 < share < 1:
            raise ValueError(f"share must be a number between 0 and 1, both excluded, got {share!r}")
        known = np.concatenate([[0.0], self.cdf])
        if np.isnan(known).any():
            return Interval(math.nan, float(self.edges[0]), float(self.edges[-1]))
        place = int(np.searchsorted(known, share, side="left"))
        inner = (share - known[place - 1]) / (known[place] - known[place - 1])
        value = self.edges[place - 1] + inner * (self.edges[place] - self.edges[place - 1])
        low, high = (np.concatenate([[0.0], ends]) for ends in self.cdf_band(level))
        least = self.edges[np.flatnonzero(high < share)[-1]]
        return Interval(float(value), float(least), float(self.edges[np.flatnonzero(low >= share)[0]]))

    def rows(self, level: float = 0.95) -> Iterator[tuple[str, float, float, float, float]]:
        """Yield the mean, the quartiles and the bins."""
        mean = self.mean(level)
        yield "mean", mean.value, self.centre[1], mean.low, mean.high
        for share in _QUARTILES:
            value, low, high = self.quantile(share, level)
            yield f"quantile {share:g}", value, math.nan, low, high
        yield from super().rows(level)


@dataclass(frozen=True, repr=False)
class SurveyEstimate(Estimate):
    """The results of a survey: `result["age"]` is that of a question, and `value` all of them as they are encoded."""

    results: Mapping[str, QuestionEstimate] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<SurveyEstimate of {', '.join(map(repr, self.results))} from {self.count:,} messages>"

    def __getitem__(self, name: str) -> QuestionEstimate:
        if name not in self.results:
            raise KeyError(f"name must be one of {', '.join(self.results)}, got {name!r}")
        return self.results[name]

    def to_frame(self, level: float = 0.95) -> Any:
        """Return a tidy pandas DataFrame: question, item, estimate, stderr, low, high. Needs ``pip install pandas``.

        Intervals of one question hold at once with this probability.
        """
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas") from error
        rows = [(name, *row) for name, found in self.results.items() for row in found.rows(level)]
        return pandas.DataFrame(rows, columns=["question", "item", "estimate", "stderr", "low", "high"])

    def plot(self, *, level: float = 0.95, **_: Any) -> Any:
        """Draw one panel per question, with intervals; returns the Matplotlib figure. Needs the extra [plots]."""
        require_matplotlib()
        from matplotlib import pyplot

        figure, panels = pyplot.subplots(
            len(self.results), figsize=(7.0, 2.6 * len(self.results)), layout="constrained", squeeze=False
        )
        pyplot.close(figure)
        for axes, found in zip(panels[:, 0], self.results.values(), strict=True):
            _draw(axes, found, level)
        return figure


def _draw(axes: Any, found: QuestionEstimate, level: float) -> None:
    low, high = found.interval(level)
    places, width = np.arange(len(found.items), dtype=np.float64), 1.0
    if isinstance(found, NumberEstimate):
        places, width = (found.edges[1:] + found.edges[:-1]) / 2, found.edges[1] - found.edges[0]
        middle = found.quantile(0.5, level)
        axes.axvspan(middle.low, middle.high, color=INK, alpha=0.08)
        axes.axvline(middle.value, color=INK, linewidth=0.8, linestyle="--")
        axes.set_xlabel(f"median {middle.value:,.5g}, between {middle.low:,.5g} and {middle.high:,.5g}", fontsize=9)
    if len(places) > _MOST_BARS:
        axes.plot(places, found.estimate, color=ACCENT, linewidth=0.8)
        axes.fill_between(places, low, high, color=ACCENT, alpha=0.2)
    else:
        axes.bar(places, found.estimate, width=0.85 * width, color=ACCENT, alpha=0.75)
        axes.vlines(places, low, high, color=INK, linewidth=1)
    if len(places) <= _MOST_BARS and not isinstance(found, NumberEstimate):
        names = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name in found.items]
        narrow = len(names) * max(map(len, names)) > _LETTERS
        slanted = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if narrow else {}
        axes.set_xticks(places, names, **slanted)
    over = "all people" if found.over == "people" else "those who answered"
    axes.set_title(f"{found.name}: {found.count:,} messages, over {over}, {100 * level:g} %", fontsize=10)
    axes.axhline(0, color=INK, linewidth=0.6)
    tidy(axes)


class SurveyAggregator(SparseAggregator):
    """How often each message occurred; `mean` is a `SurveyEstimate`."""

    _mechanism: "Survey"

    @property
    def limit(self) -> int:
        """The number of messages that there can be."""
        return self._mechanism.starts[-1]

    def _codes(self, messages: Messages) -> Ints:
        question, answer = self._mechanism.numbers_of(messages)
        return np.array(self._mechanism.starts, dtype=np.int64)[question] + answer

    def mean(self) -> SurveyEstimate:
        """Return the results so far. Those of a question that nobody answered are nan."""
        if not self._count:
            raise ValueError("a mean needs at least one message, got none")
        self._settle()
        survey, values, errors, results, notes = self._mechanism, [], [], {}, []
        codes, times = (2 * self._state[:, :1] + np.arange(2)).ravel(), self._state[:, 1:].ravel()
        codes, times = codes[times > 0], times[times > 0]
        starts = np.searchsorted(codes, survey.starts)
        for place, ((name, question), part) in enumerate(zip(survey.questions.items(), survey.parts, strict=True)):
            own = slice(starts[place], starts[place + 1])
            answers, counts = codes[own] - np.int64(survey.starts[place]), times[own]
            found = _estimates(part, answers, counts, self._simulated)
            values += [each.value for each in found]
            errors += [each.stderr for each in found]
            notes += sorted({f"{name}: {each.note}" for each in found if each.note})
            results[name] = _result(name, question, survey.questions, part, found, answers, counts)
        known = (np.concatenate(values), np.concatenate(errors), self._count, self._simulated, "survey")
        return SurveyEstimate(*known, note="; ".join(notes), messages=survey.messages, results=results)

    def _mean_and_second_moment(self) -> tuple[Floats, Floats]:
        raise NotImplementedError("a survey has a mean per question")


def _estimates(part: "Part", answers: Ints, counts: Ints, simulated: bool) -> list[Estimate]:
    """The estimate of each item, from the part's own aggregator; nan from no message."""
    items, found = answers // part.one, []
    for item in range(part.items):
        aggregator, here = part.mechanism.aggregator(), items == item
        if not here.any():
            unknown = np.full(part.mechanism.estimate_dim, np.nan)
            found.append(Estimate(unknown, unknown, 0))
            continue
        _, messages = part.messages(answers[here], simulated)
        names = [field.name for field in messages.layout.fields]
        aggregator.update_counts(dict(zip(names, messages.columns, strict=True)), counts[here], simulated=simulated)
        found.append(aggregator.mean())
    return found


def _result(
    name: str,
    question: Question,
    questions: Mapping[str, Question],
    part: "Part",
    found: list[Estimate],
    answers: Ints,
    counts: Ints,
) -> QuestionEstimate:
    """The result of a question in its units, from the estimates of its part."""
    total, first = int(counts.sum()), found[0]
    if isinstance(question, By):
        return _of_groups(name, question, questions, first, total)
    if isinstance(question, MultiChoice):
        marks = np.array([each.value[-1] for each in found]) if part.items > 1 else first.value + 0.5
        errors = np.array([each.stderr[-1] for each in found]) if part.items > 1 else first.stderr
        # Labels that are drawn come from different people. All at once are correlated, by at most 1.
        between = 0.0 * errors[:-1] if part.items > 1 else np.sign(marks[:-1]) * errors[:-1] * errors[-1]
        shares, stderr = _over_answers(marks, errors, between)
        known = (tuple(map(str, question.labels)), shares, stderr, total // part.items, "answers")
        return QuestionEstimate(name, *known, (float(1 - marks[-1]), float(errors[-1])), (0.0, 1.0))
    if isinstance(question, Vector):
        axes = tuple(map(str, range(len(first.value))))
        return QuestionEstimate(name, axes, first.value, first.stderr, total, "people", raw=first)
    raw = first if isinstance(first, FrequencyEstimate) else None
    between = np.full(len(first.value) - 1, np.nan) if raw is None else _covariances(part, raw, answers, counts)
    shares, stderr = _over_answers(first.value, first.stderr, between)
    labels = _bins(question) if isinstance(question, Number) else tuple(map(str, getattr(question, "labels", ())))
    answered = (float(1 - first.value[-1]), float(first.stderr[-1]))
    options: Any = {"answered": answered, "limits": (0.0, 1.0), "raw": raw}
    if not isinstance(question, Number):
        return QuestionEstimate(name, labels, shares, stderr, total, "answers", **options)
    middles = (question.edges[1:] + question.edges[:-1]) / 2
    weights = np.concatenate([np.tri(question.bins).T, middles[:, None]], axis=1)
    values, errors = _ratios(part, weights, answers, counts)
    of_cdf: Any = {"raw_cdf": values[:-1], "cdf_stderr": errors[:-1], "centre": (float(values[-1]), float(errors[-1]))}
    return NumberEstimate(name, labels, shares, stderr, total, "answers", **options, edges=question.edges, **of_cdf)


def _bins(question: Number) -> tuple[str, ...]:
    ends = [f"{end:.6g}" for end in question.edges]
    return tuple(f"{low}–{high}" for low, high in pairwise(ends))


def _of_groups(
    name: str, question: By, questions: Mapping[str, Question], found: Estimate, total: int
) -> QuestionEstimate:
    """Means per group, in the units of the value."""
    labels: Any = questions[question.group].labels  # type: ignore[attr-defined]
    value, dim = questions[question.value], questions[question.value].width
    items = [str(label) if dim == 1 else f"{label} [{place}]" for label in labels for place in range(dim)]
    if not isinstance(found, GroupEstimate):
        unknown = np.full(len(items), np.nan)
        return QuestionEstimate(name, tuple(items), unknown, unknown, total, "answers")
    means, errors = found.means[:-1].ravel(), found.means_stderr[:-1].ravel()
    limits = (-math.inf, math.inf)
    if isinstance(value, Number):
        means, limits = means + (value.low + value.high) / 2, (value.low, value.high)
    answered = (1 - float(found.shares[-1]), float(found.shares_stderr[-1]))
    return QuestionEstimate(name, tuple(items), means, errors, total, "answers", answered, limits=limits)


def _over_answers(values: Floats, errors: Floats, between: Floats) -> tuple[Floats, Floats]:
    """Shares over those who have an answer, of all but the last, which is no answer; with their standard errors.

    A ratio s/(1 − s₀) has to first order the variance of s + r·s₀, over (1 − s₀)²; `between` are the covariances of s
    and s₀. Where too few people have an answer for a ratio, it is nan.
    """
    answered = 1 - values[-1]
    if not answered > 2 * errors[-1]:
        return np.full(len(values) - 1, np.nan), np.full(len(values) - 1, np.nan)
    shares = values[:-1] / answered
    variance = errors[:-1] ** 2 + (shares * errors[-1]) ** 2 + 2 * shares * between
    return shares, np.sqrt(np.maximum(variance, 0.0)) / answered


def _covariances(part: "Part", raw: FrequencyEstimate, answers: Ints, counts: Ints) -> Floats:
    """The covariances of all shares with that of no answer, from the messages whose set holds both."""
    frequencies: Any = part.mechanism
    total, gap = raw.count, raw.own - raw.other
    rates, both = raw.other + raw.value * gap, np.zeros(len(raw.value))
    holds = frequencies.holds(answers, len(rates) - 1)
    if total < 2:
        return np.full(len(rates) - 1, np.nan)
    if holds.any():
        aggregator = frequencies.aggregator()
        aggregator.update_counts({"code": answers[holds]}, counts[holds])
        both = aggregator._rates() * (counts[holds].sum() / total)
    return np.asarray((both - rates * rates[-1])[:-1] / (gap**2 * (total - 1)))


def _ratios(part: "Part", weights: Floats, answers: Ints, counts: Ints) -> tuple[Floats, Floats]:
    """Weighted sums of shares over those who have an answer, and their standard errors, from all messages."""
    total, columns = counts.sum(), weights.shape[1]
    if total < 2:
        return np.full(columns, np.nan), np.full(columns, np.nan)
    sums, base, squares = np.zeros(columns), 0.0, np.zeros((3, columns))
    for chunk in row_chunks(len(answers), 4 * (len(weights) + columns)):
        decoded, times = (
            part.mechanism.decode(part.messages(answers[chunk], False)[1]),
            counts[chunk].astype(np.float64),
        )
        each, all_ = decoded[:, :-1] @ weights, 1 - decoded[:, -1]
        sums += times @ each
        base += float(times @ all_)
        squares += np.stack([times @ each**2, (times * all_) @ each, np.full(columns, times @ all_**2)])
    ratio = sums / base
    spread = squares[0] - 2 * ratio * squares[1] + ratio**2 * squares[2]
    # That of one uniform message is added: few messages may be all alike.
    spread += _uniform_variance(part, np.vstack([weights, ratio]))
    stderr = np.sqrt(np.maximum(spread, 0.0) * total / (total - 1)) / abs(base)
    # As in `_over_answers`.
    few = not base / total > 2 * math.sqrt(max(squares[2, 0] / total - (base / total) ** 2, 0.0) / (total - 1))
    return (ratio, stderr) if not few else (np.full(columns, np.nan), np.full(columns, np.nan))


def _uniform_variance(part: "Part", weights: Floats) -> Floats:
    """The variance of weighted sums of the shares that one uniform message gives; weights are (categories, sums)."""
    frequencies: Any = part.mechanism
    draw, (own, other) = frequencies.draw, hit_rates(frequencies.draw)
    one = draw.inside / draw.size
    two = one * (draw.inside - 1) / (draw.size - 1)  # how often a uniform set holds two given categories
    variance = (one - two) * np.sum(weights**2, axis=0) + (two - one**2) * np.sum(weights, axis=0) ** 2
    return np.asarray(variance / (own - other) ** 2)


def _quantile(level: float, items: int, count: int) -> float:
    """Student's quantile for so many items at once (Šidák); nan for fewer than two messages."""
    from scipy.special import stdtrit

    if not 0 < level < 1:
        raise ValueError(f"level must be a number between 0 and 1, both excluded, got {level!r}")
    return -float(stdtrit(count - 1, -math.expm1(math.log(level) / items) / 2)) if count > 1 else math.nan


def _isotonic(values: Floats) -> Floats:
    """The nearest values that do not fall: the largest of the least means of ranges around each place."""
    sums, count = np.concatenate([[0.0], np.cumsum(values)]), len(values)
    first, last = np.arange(count)[:, None], np.arange(1, count + 1)
    means = np.where(last > first, (sums[None, 1:] - sums[:-1, None]) / np.maximum(last - first, 1), np.inf)
    least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(np.max(np.where(last > first, least, -np.inf), axis=0))
