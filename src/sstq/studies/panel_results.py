"""The result of a panel: curves over time, with bands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sstq.array_types import Floats
from sstq.checks import check_option
from sstq.mechanisms.survey.question_estimates import NO_ANSWER
from sstq.studies.results import StudyResult
from sstq.studies.smoothing import Smoothed, smooth_together

_JUMP_WINDOW = 3
_LEAST_ANSWERED = 0.01


@dataclass(frozen=True, repr=False)
class Curve:
    """One item over time.

    Attributes:
        question, item: what it is; the question is empty for mechanisms that are not surveys.
        period: what a period is called.
        raw, raw_stderr: the estimate of each period by itself, and its standard error; nan where nobody told.
        smoothed: the smoothed curve.
    """

    question: str
    item: str
    period: str
    raw: Floats
    raw_stderr: Floats
    smoothed: Smoothed

    def __repr__(self) -> str:
        value, stderr = self.newest
        name = " ".join(filter(None, [self.question, self.item]))
        changed = f", {self.changed}" if self.changed else ""
        return f"<Curve of {name!r} over {len(self.raw)} {self.period}s: now {value:.4g} ± {stderr:.2g}{changed}>"

    @property
    def value(self) -> Floats:
        """The smoothed curve."""
        return self.smoothed.value

    @property
    def stderr(self) -> Floats:
        """The standard error of the smoothed curve."""
        return self.smoothed.stderr

    @property
    def newest(self) -> tuple[float, float]:
        """The value of the last period, and its standard error."""
        return float(self.value[-1]), float(self.stderr[-1])

    @property
    def changed(self) -> str:
        """When the curve jumped, such as “changed at week 23 (99 %)”; empty if that is not likely (95 %)."""
        near = np.convolve(self.smoothed.jumps, np.ones(_JUMP_WINDOW), "same")
        place = int(np.argmax(near))
        likely = float(near[place])
        first = max(0, place - 1)
        at = first + int(np.argmax(self.smoothed.jumps[first : place + 2]))
        before = max(0, at - 2)
        after = min(at + 1, len(self.raw) - 1)
        size = abs(self.value[after] - self.value[before])
        # The errors of these weeks; in between they say that the week of the jump is not sure.
        error = max(self.stderr[before], self.stderr[after])
        if likely < 0.95 or size < 2 * error:
            return ""
        return f"changed at {self.period} {at + 1} ({math.floor(100 * min(likely, 0.99)):.0f} %)"

    def band(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of the band that contains the truth of each period with this probability."""
        from scipy.special import ndtri

        reach = float(ndtri((1 + level) / 2)) * self.stderr
        return self.value - reach, self.value + reach

    def columns(self, level: float = 0.95) -> dict[str, Any]:
        """The columns of a table with a row per period."""
        low, high = self.band(level)
        periods = len(self.raw)
        return {
            "question": [self.question] * periods,
            "item": [self.item] * periods,
            self.period: np.arange(1, periods + 1),
            "raw": self.raw,
            "raw_stderr": self.raw_stderr,
            "value": self.value,
            "stderr": self.stderr,
            "low": low,
            "high": high,
        }

    def details(self, level: float = 0.95) -> dict[str, Any]:
        """Return the columns, with what is said once: the question, the item, and when the curve jumped."""
        columns = self.columns(level)
        del columns[self.period]
        once = {"question": self.question, "item": self.item, "changed": self.changed}
        return once | {
            name: column for name, column in columns.items() if name not in once
        }


@dataclass(frozen=True, repr=False)
class PanelResult(StudyResult):
    """Curves over time, for a total ε per person.

    Attributes:
        period: what a period is called.
        people: how many answered in each period.
        estimates: for each period by question and item: the estimate, its standard error, and 1 for a share of all
            people that is to be one of those who have an answer.
        epsilon: the total ε per person, who answers once.
    """

    period: str
    people: Sequence[int]
    estimates: Sequence[dict[tuple[str, str], Sequence[float | None]]]
    epsilon: float

    def __repr__(self) -> str:
        asked = f"{len(self.curves)} curves over {len(self.people)} {self.period}s"
        return f"<{asked} from {sum(self.people):,} people at a total ε of {self.epsilon:g}>"

    @cached_property
    def curves(self) -> dict[tuple[str, str], Curve]:
        """All curves, by question and item."""
        names = dict.fromkeys(name for period in self.estimates for name in period)
        series = {name: self._series(name) for name in names}
        smoothed: dict[tuple[str, str], Smoothed] = {}
        for group in _groups(series):
            raw, error, _ = np.swapaxes([series[name] for name in group], 0, 1)
            smoothed |= zip(group, smooth_together(raw, error), strict=True)
        return {name: self._curve(name, series[name], smoothed) for name in names}

    def _series(self, name: tuple[str, str]) -> Floats:
        """The estimate of each period, its error, and 1 for a share that is to be one of those who have an answer.

        One variance for all periods, per person: where it is estimated with the value, low values would count more.
        """
        rows = [period.get(name, (None, None, 0)) for period in self.estimates]
        raw, stderr, of_answers = np.array(rows, dtype=np.float64).T
        people = np.maximum(1, self.people)
        scatter = stderr**2 * people
        common = np.nanmedian(scatter) if np.isfinite(scatter).any() else np.nan
        error = np.where(np.isfinite(stderr), np.sqrt(common / people), np.nan)
        return np.array([raw, error, of_answers])

    def _curve(
        self,
        name: tuple[str, str],
        series: Floats,
        smoothed: dict[tuple[str, str], Smoothed],
    ) -> Curve:
        raw, error, of_answers = series
        of_people = smoothed[name]
        if not of_answers.any():
            return Curve(*name, self.period, raw, error, of_people)
        missing = smoothed[name[0], NO_ANSWER]
        answered = np.maximum(1 - missing.value, _LEAST_ANSWERED)
        share = of_people.value / answered
        reach = np.hypot(of_people.stderr, share * missing.stderr) / answered
        return Curve(
            *name,
            self.period,
            raw / answered,
            error / answered,
            Smoothed(share, reach, of_people.jumps),
        )

    def curve(self, question: str = "", item: Any = "0") -> Curve:
        """Return the curve of an item, such as a label, a bin, "mean" or "quantile 0.5", of a question."""
        name = question, str(item)
        if name not in self.curves:
            items = (
                ", ".join(repr(each[1]) for each in self.curves if each[0] == question)
                or "no items"
            )
            raise KeyError(f"item of {question!r} must be one of {items}, got {item!r}")
        return self.curves[name]

    @property
    def _shown(self) -> dict[tuple[str, str], Curve]:
        """All curves; ValueError if there are none."""
        if not self.curves:
            raise ValueError(f"nobody has answered in any {self.period} yet")
        return self.curves

    def columns(self, level: float = 0.95) -> dict[str, Any]:
        """All curves one below the other: the estimates of periods, the smoothed curves and their bands."""
        tables = [curve.columns(level) for curve in self._shown.values()]
        return {
            name: np.concatenate([table[name] for table in tables])
            for name in tables[0]
        }

    def details(self, level: float = 0.95) -> dict[str, Any]:
        """Return how many people answered in each period, and the curves one by one."""
        curves = [curve.details(level) for curve in self.curves.values()]
        return {"period": self.period, "people": list(self.people), "curves": curves}

    def plot(
        self,
        question: str = "",
        *,
        items: Sequence[Any] = (),
        level: float = 0.95,
        truth: Any = None,
    ) -> Any:
        """Draw curves of a question, raw and smoothed, with their bands; returns the Matplotlib figure.

        Args:
            question: its name; by default the first one.
            items: those to draw; by default all, at most 8.
            level: the probability of the bands.
            truth: the true curve of each item, to draw beside them, in simulations.
        """
        from sstq.plots.studies import draw_curves

        questions = list(dict.fromkeys(name for name, _ in self._shown))
        question = check_option("question", question or questions[0], questions)
        chosen = items or [item for name, item in self.curves if name == question][:8]
        return draw_curves(
            [self.curve(question, item) for item in chosen], self, level, truth
        )


def _groups(series: dict[tuple[str, str], Floats]) -> list[list[tuple[str, str]]]:
    """The curves that are smoothed together: the shares of a question if it has some, or else all of its items.

    Means and quantiles of answers whose shares are there as well would tell the same twice.
    """
    with_shares = {name[0] for name, (*_, shares) in series.items() if shares.any()}
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, (*_, shares) in series.items():
        question, item = name
        is_share = shares.any() or item == NO_ANSWER
        alone = question in with_shares and not is_share
        groups.setdefault((question, item if alone else ""), []).append(name)
    return list(groups.values())
