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
