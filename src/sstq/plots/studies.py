"""Pictures of the results of studies."""

from typing import Any

import numpy as np

from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, new_panels, tidy
from sstq.plots.estimates import draw_intervals

# Bounds from here on are written without decimals.
_WHOLE = 1e4


def draw_words(result: Any, level: float, most: int) -> Any:
    """Draw the most frequent strings, one bar each, with their intervals; returns the figure."""
    words = [repr(word)[1:-1] or "(empty)" for word in result.words[:most]]
    low, high = (100 * ends[:most] for ends in result.interval(level))
    figure = new_figure(6.4, 1.3 + 0.26 * max(3, len(words)))
    axes = figure.subplots()
    places = np.arange(len(words))
    axes.barh(places, 100 * result.shares[:most], height=0.8, color=ACCENT, alpha=0.75)
    axes.hlines(places, low, high, color=INK, linewidth=1)
    axes.set_yticks(places, words)
    axes.invert_yaxis()
    axes.set_xlabel("share of the people in %")
    if not words:
        axes.set(xlim=(0, 100), ylim=(1, 0))
        axes.text(50, 0.5, "no string was found", ha="center", color=FAINT)
    left = len(result.words) - len(words)
    more = f", {left} more not shown" * (left > 0)
    _title(axes, result, f"others {100 * max(0.0, result.others[0]):.0f} %{more}")
    return figure


def draw_range(result: Any, level: float) -> Any:
    """Draw the coordinates of a mean with their intervals; returns the figure."""
    reach = result.region(level).half_width
    (axes,) = new_panels(1, 3.2)
    draw_intervals(
        axes,
        np.arange(len(result.mean)),
        result.mean,
        result.mean - reach,
        result.mean + reach,
    )
    axes.set_xlabel("coordinate")
    _title(
        axes, result, f"clip {result.clip:.3g}, {100 * result.beyond[0]:.3g} % beyond"
    )
    return axes.figure


def draw_bounds(result: Any) -> Any:
    """Draw a line per column between its bounds; returns the figure."""
    figure = new_figure(6.4, 1.0 + 0.5 * max(2, len(result.bounds)))
    axes = figure.subplots()
    for place, (low, high) in enumerate(result.bounds.values()):
        axes.hlines(place, 0, 1, color=ACCENT, linewidth=3)
        for at, end, side in ((0, low, "right"), (1, high, "left")):
            axes.text(
                at + 0.02 * (2 * at - 1),
                place,
                f"{end:,.0f}" if abs(end) >= _WHOLE else f"{end:,.5g}",
                ha=side,
                va="center",
                fontsize=10,
                color=INK,
            )
    axes.set_yticks(range(len(result.bounds)), list(result.bounds))
    axes.set(xlim=(-0.35, 1.35), ylim=(len(result.bounds) - 0.5, -0.5), xticks=[])
    _title(axes, result, "bounds of the columns")
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def draw_curves(curves: Any, result: Any, level: float, truth: Any) -> Any:
    """Draw one panel per curve: periods as dots, the smoothed curve with its band, the truth; returns the figure."""
    figure = new_figure(7.0, 0.8 + 2.0 * len(curves))
    panels = figure.subplots(len(curves), squeeze=False, sharex=True)[:, 0]
    for place, (axes, curve) in enumerate(zip(panels, curves, strict=True)):
        weeks = np.arange(1, len(curve.raw) + 1)
        low, high = curve.band(level)
        axes.plot(
            weeks,
            curve.raw,
            ".",
            color=FAINT,
            markersize=4,
            label=f"each {result.period} by itself",
        )
        axes.fill_between(
            weeks,
            low,
            high,
            color=ACCENT,
            alpha=0.2,
            linewidth=0,
            label=f"{100 * level:g} % band",
        )
        axes.plot(weeks, curve.value, color=ACCENT, linewidth=1.6, label="smoothed")
        if truth is not None:
            axes.plot(
                weeks,
                truth[place],
                color=SECOND,
                linewidth=1.0,
                linestyle="--",
                label="truth",
            )
        name = f"{curve.question or 'item'} {curve.item}"
        axes.set_title(", ".join(filter(None, [name, curve.changed])), fontsize=10)
        tidy(axes)
    panels[-1].set_xlabel(result.period)
    people = f"{sum(result.people):,} people, each answers once, total ε = {result.epsilon:g}"
    figure.suptitle(people, fontsize=11, color=INK)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
    )
    return figure


def _title(axes: Any, result: Any, more: str) -> None:
    axes.set_title(
        f"{result.people:,} people, total ε = {result.epsilon:g}, {more}", fontsize=10
    )
    tidy(axes)
