"""Pictures of the results of studies."""

from typing import Any

import numpy as np

from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, tidy


def draw_words(result: Any, level: float, most: int) -> Any:
    """Draw the most frequent strings, one bar each, with their intervals; returns the figure."""
    words = [repr(word)[1:-1] or "(empty)" for word in result.words[:most]]
    low, high = (100 * ends[:most] for ends in result.interval(level))
    figure = new_figure(6.4, 1.3 + 0.26 * max(3, len(words)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(words))
    axes.barh(places, 100 * result.shares[:most], height=0.8, color=ACCENT, alpha=0.75)
    axes.hlines(places, low, high, color=INK, linewidth=1)
    axes.set_yticks(places, words)
    axes.invert_yaxis()
    axes.set_xlabel("share of the people in %")
    left = len(result.words) - len(words)
    more = f", {left} more not shown" if left else ""
    title = (
        f"{result.people:,} people, total ε = {result.epsilon:g}; others {100 * max(0.0, result.others[0]):.0f} %{more}"
    )
    axes.set_title(title, fontsize=10)
    tidy(axes)
    return figure


def draw_range(result: Any, level: float) -> Any:
    """Draw the coordinates of a mean with their intervals; returns the figure."""
    half_width = result.region(level).half_width
    figure = new_figure(6.4, 3.2, layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(result.mean))
    axes.bar(places, result.mean, width=0.85, color=ACCENT, alpha=0.75)
    axes.vlines(places, result.mean - half_width, result.mean + half_width, color=INK, linewidth=1)
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_xlabel("coordinate")
    clipped = f"clip {result.clip:.3g}, {100 * result.beyond[0]:.2g} % beyond"
    axes.set_title(f"{result.people:,} people, total ε = {result.epsilon:g}, {clipped}", fontsize=10)
    tidy(axes)
    return figure


def draw_bounds(result: Any) -> Any:
    """Draw a line per column between its bounds; returns the figure."""
    figure = new_figure(6.4, 1.0 + 0.5 * max(2, len(result.bounds)), layout="constrained")
    axes = figure.subplots()
    for place, (low, high) in enumerate(result.bounds.values()):
        axes.hlines(place, 0, 1, color=ACCENT, linewidth=3)
        for at, end, side in ((0, low, "right"), (1, high, "left")):
            told = f"{end:,.0f}" if abs(end) >= 1000 else f"{end:.4g}"
            axes.text(at + 0.02 * (2 * at - 1), place, told, ha=side, va="center", fontsize=10, color=INK)
    axes.set_yticks(range(len(result.bounds)), list(result.bounds))
    axes.set(xlim=(-0.35, 1.35), ylim=(len(result.bounds) - 0.5, -0.5), xticks=[])
    axes.set_title(f"Bounds from {result.people:,} people, total ε = {result.epsilon:g}", fontsize=10)
    tidy(axes)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def draw_curves(curves: Any, result: Any, level: float, truth: Any) -> Any:
    """Draw one panel per curve: periods as dots, the smoothed curve with its band, the truth; returns the figure."""
    figure = new_figure(7.0, 0.8 + 2.0 * len(curves), layout="constrained")
    panels = figure.subplots(len(curves), squeeze=False, sharex=True)[:, 0]
    for place, (axes, curve) in enumerate(zip(panels, curves, strict=True)):
        weeks = np.arange(1, len(curve.raw) + 1)
        low, high = curve.band(level)
        axes.plot(weeks, curve.raw, ".", color=FAINT, markersize=4, label=f"each {result.period} by itself")
        axes.fill_between(weeks, low, high, color=ACCENT, alpha=0.2, linewidth=0, label=f"{100 * level:g} % band")
        axes.plot(weeks, curve.value, color=ACCENT, linewidth=1.6, label="smoothed")
        if truth is not None:
            axes.plot(weeks, truth[place], color=SECOND, linewidth=1.0, linestyle="--", label="truth")
        name = " ".join(filter(None, [curve.question, curve.item]))
        axes.set_title(", ".join(filter(None, [name, curve.changed])), fontsize=10)
        tidy(axes)
    panels[-1].set_xlabel(result.period)
    people = f"{sum(result.people):,} people, each answers once, total ε = {result.epsilon:g}"
    figure.suptitle(people, fontsize=11, color=INK)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9
    )
    return figure
