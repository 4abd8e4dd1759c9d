"""Pictures of estimates: every coordinate, or every item of a survey's questions, with its simultaneous interval."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sstq.plots.canvas import ACCENT, INK, require_matplotlib, tidy

# Beyond so many bars a line with a band is easier to read. Names have at most so many letters, and so many fit side by
# side.
MOST_BARS = 40
_LONGEST_NAME = 28
_LETTERS = 75


def draw_estimate(estimate: Any, labels: Sequence[str] | None, level: float, axes: Any) -> Any:
    """Draw an estimate on these axes, or new ones if None; returns the figure."""
    dim = len(estimate.value)
    half_width = estimate.region(level).half_width
    labels = estimate.names or None if labels is None else labels
    if labels is not None and len(labels) != dim:
        raise ValueError(f"labels must be {dim}, one per coordinate, got {len(labels)}")
    (axes,) = new_axes(1, 3.2) if axes is None else (axes,)
    draw_intervals(axes, np.arange(dim), estimate.value, estimate.value - half_width, estimate.value + half_width)
    if labels is not None:
        name_places(axes, labels)
    axes.set_title(f"Mean of {estimate.count:,} messages, all intervals hold at {100 * level:g} %", fontsize=10)
    return axes.figure


def draw_questions(results: Sequence[Any], level: float) -> Any:
    """Draw one panel per question of a survey; returns the figure."""
    panels = new_axes(len(results), 2.6)
    for axes, result in zip(panels, results, strict=True):
        edges = getattr(result, "edges", np.arange(len(result.items) + 1) - 0.5)
        (low, high) = result.interval(level)
        draw_intervals(axes, (edges[1:] + edges[:-1]) / 2, result.estimate, low, high, edges[1] - edges[0])
        if hasattr(result, "edges"):
            middle = result.quantile(0.5, level)
            axes.axvspan(middle.low, middle.high, color=INK, alpha=0.08)
            axes.axvline(middle.value, color=INK, linewidth=0.8, linestyle="--")
            axes.set_xlabel(f"median {middle.value:,.5g}, between {middle.low:,.5g} and {middle.high:,.5g}", fontsize=9)
        elif len(result.items) <= MOST_BARS:
            name_places(axes, result.items)
        over = "all people" if result.over == "people" else "those who answered"
        axes.set_title(f"{result.name}: {result.count:,} messages, over {over}, {100 * level:g} %", fontsize=10)
    return panels[0].figure


def new_axes(rows: int, height: float) -> Any:
    """Return so many axes below each other."""
    require_matplotlib()
    from matplotlib import pyplot

    # Created by pyplot, so that notebooks show it; closed, so that no global state is left.
    figure, axes = pyplot.subplots(rows, figsize=(7.0, height * rows), layout="constrained", squeeze=False)
    pyplot.close(figure)
    return axes[:, 0]


def draw_intervals(axes: Any, places: Any, values: Any, low: Any, high: Any, width: float = 1.0) -> None:
    """Values with their intervals, as bars or, if there are many, as a band."""
    if len(values) <= MOST_BARS:
        axes.bar(places, values, width=0.85 * width, color=ACCENT, alpha=0.75)
        axes.vlines(places, low, high, color=INK, linewidth=1)
    else:
        axes.plot(places, values, color=ACCENT, linewidth=0.8)
        axes.fill_between(places, low, high, color=ACCENT, alpha=0.2)
    axes.axhline(0, color=INK, linewidth=0.6)
    tidy(axes)


def name_places(axes: Any, names: Sequence[str]) -> None:
    """Write the names below the bars, shortened and slanted if they are long."""
    names = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name in names]
    narrow = len(names) * max(map(len, names)) > _LETTERS
    slanted = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if narrow else {}
    axes.set_xticks(range(len(names)), names, **slanted)
