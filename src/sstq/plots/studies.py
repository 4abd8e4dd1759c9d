"""Pictures of the results of studies."""

from typing import Any

import numpy as np

from sstq.plots.canvas import ACCENT, INK, new_figure, tidy


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
    title = f"{result.people:,} people, total ε = {result.epsilon:g}; others {100 * result.others[0]:.0f} %{more}"
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
            axes.text(at + 0.02 * (2 * at - 1), place, f"{end:,.4g}", ha=side, va="center", fontsize=10, color=INK)
    axes.set_yticks(range(len(result.bounds)), list(result.bounds))
    axes.set(xlim=(-0.35, 1.35), ylim=(len(result.bounds) - 0.5, -0.5), xticks=[])
    axes.set_title(f"Bounds from {result.people:,} people, total ε = {result.epsilon:g}", fontsize=10)
    tidy(axes)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure
