"""Draws mechanisms side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sstq.plots.canvas import ACCENT, INK, new_figure, tidy

if TYPE_CHECKING:
    from sstq.planning.comparison import Comparison


def draw_comparison(
    rows: Sequence[Comparison], *, dim: int, epsilon: float, clients: int
) -> Any:
    """Draw the error of the mean, one row per mechanism in the given order; narrow, so that a phone shows it.

    Returns the Matplotlib figure.
    """
    figure = new_figure(5.4, 1.9 + 0.42 * len(rows))
    axes = figure.subplots()
    beside = {
        "xytext": (8, 0),
        "textcoords": "offset points",
        "va": "center",
        "fontsize": 10,
        "color": INK,
    }
    kinds = {}
    for place, row in enumerate(rows):
        style = {
            "color": ACCENT,
            "markerfacecolor": ACCENT if row.unbiased else "white",
            "markersize": 8,
        }
        (kinds["unbiased" if row.unbiased else "biased"],) = axes.plot(
            row.mse, place, "o", **style
        )
        axes.annotate(f"{row.mse:.3g}", (row.mse, place), **beside)
    axes.set_yticks(
        range(len(rows)),
        [f"{row.label}\n{row.bits:,} bits" for row in rows],
        fontsize=10,
    )
    axes.invert_yaxis()
    axes.set_xlabel("squared error of the mean", fontsize=10)
    axes.set(xscale="log", axisbelow=True)
    axes.margins(x=0.2, y=0.02)
    axes.grid(color="#e5e5e5", linewidth=0.8)
    axes.tick_params(axis="y", length=0)
    tidy(axes)
    figure.suptitle(
        f"{clients:,} unit vectors, d = {dim:,}, ε = {epsilon:g}",
        color=INK,
        fontsize=12,
    )
    figure.legend(
        kinds.values(),
        kinds.keys(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=10,
    )
    return figure
