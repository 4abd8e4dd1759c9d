"""Pictures of estimates: every coordinate, or every item of a survey's questions, with its simultaneous interval."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sstq.plots.canvas import ACCENT, INK, new_panels, tidy

# Beyond so many bars a line with a band is easier to read. Names have at most so many letters, and so many fit side by
# side.
_MOST_BARS = 40
_LONGEST_NAME = 28
_LETTERS = 75
_MOST_PANELS = 12
# Beside so many places there is room to say why one has no bar.
_MOST_TOLD = 8


def draw_estimate(
    estimate: Any, labels: Sequence[str] | None, level: float, axes: Any
) -> Any:
    """Draw an estimate on these axes, or new ones if None; returns the figure."""
    dim = len(estimate.value)
    half_width = estimate.region(level).half_width
    labels = labels or estimate.names
    if labels and len(labels) != dim:
        raise ValueError(f"labels must be {dim}, one per coordinate, got {len(labels)}")
    if axes is None:
        (axes,) = new_panels(1, 3.2)
    draw_intervals(
        axes,
        np.arange(dim),
        estimate.value,
        estimate.value - half_width,
        estimate.value + half_width,
    )
    name_places(axes, labels)
    axes.set_title(
        f"{estimate.count:,} messages, all intervals hold at {100 * level:g} %",
        fontsize=10,
    )
    return axes.figure


def draw_means(means: Mapping[str, Any]) -> Any:
    """Draw the estimate of all people, or one panel for each of the first labels; returns the figure."""
    if "" in means:
        return means[""].plot()
    shown = sorted(means)[:_MOST_PANELS]
    panels = new_panels(len(shown), 3.0)
    for axes, label in zip(panels, shown, strict=True):
        means[label].plot(axes=axes)
        axes.set_title(f"{label}: {axes.get_title()}", fontsize=10)
    return panels[0].figure


def draw_questions(results: Sequence[Any], level: float) -> Any:
    """Draw one panel per question of a survey; returns the figure."""
    panels = new_panels(len(results), 2.6)
    for axes, result in zip(panels, results, strict=True):
        (low, high) = result.interval(level)
        if hasattr(result, "edges"):
            middles = (result.edges[1:] + result.edges[:-1]) / 2
            draw_intervals(
                axes,
                middles,
                result.estimate,
                low,
                high,
                result.edges[1] - result.edges[0],
            )
            middle = result.quantile(0.5, level)
            axes.axvspan(middle.low, middle.high, color=INK, alpha=0.08)
            axes.axvline(middle.value, color=INK, linewidth=0.8, linestyle="--")
            axes.set_xlabel(
                f"median {middle.value:,.5g}, between {middle.low:,.5g} and {middle.high:,.5g}",
                fontsize=9,
            )
        elif len(result.items) == 1 and np.isfinite(result.limits).all():
            draw_on_scale(axes, result.estimate[0], low[0], high[0], result.limits)
        else:
            draw_intervals(axes, np.arange(len(low)), result.estimate, low, high)
            name_places(axes, result.items)
            name_unknown(axes, result.estimate)
        over = {"people": "all people", "answers": "those who answered"}[result.over]
        axes.set_title(
            f"{result.name}: {result.count:,} messages, over {over}, {100 * level:g} %",
            fontsize=10,
        )
    return panels[0].figure


def draw_on_scale(
    axes: Any, value: float, low: float, high: float, limits: tuple[float, float]
) -> None:
    """One number with its interval, on the whole scale that it can be on."""
    axes.hlines(0, low, high, color=ACCENT, linewidth=6, alpha=0.4)
    axes.plot(value, 0, "o", color=ACCENT)
    axes.set(xlim=limits, yticks=[])
    axes.set_xlabel(
        f"mean {value:,.5g}, between {low:,.5g} and {high:,.5g}", fontsize=9
    )
    tidy(axes)
    axes.spines["left"].set_visible(False)


def draw_intervals(
    axes: Any, places: Any, values: Any, low: Any, high: Any, width: float = 1.0
) -> None:
    """Values with their intervals, as bars or, if there are many, as a band."""
    if len(values) <= _MOST_BARS:
        axes.bar(places, values, width=0.85 * width, color=ACCENT, alpha=0.75)
        axes.vlines(places, low, high, color=INK, linewidth=1)
    else:
        axes.plot(places, values, color=ACCENT, linewidth=0.8)
        axes.fill_between(places, low, high, color=ACCENT, alpha=0.2)
    axes.axhline(0, color=INK, linewidth=0.6)
    tidy(axes)


def name_places(axes: Any, names: Sequence[str]) -> None:
    """Write the names, if any, below as many bars, shortened and slanted if they are long."""
    if not 0 < len(names) <= _MOST_BARS:
        return
    slanted = {}
    if len(names) * max(map(len, names)) > _LETTERS:
        slanted = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(names)), [shortened(name) for name in names], **slanted)


def name_unknown(axes: Any, values: Any) -> None:
    """Keep the places of values that nobody knows, and say there why."""
    if len(values) > _MOST_BARS:
        return
    # Without it a place at an end without a bar is cut off.
    axes.set_xlim(-0.6, len(values) - 0.4)
    for place in np.flatnonzero(np.isnan(values)):
        text = "too few\nanswers" if len(values) <= _MOST_TOLD else "–"
        axes.annotate(
            text,
            (place, 0),
            (0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )


def shortened(name: str) -> str:
    """Return a name of at most so many letters."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
