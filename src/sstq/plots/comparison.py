"""Draws mechanisms side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sstq.plots.canvas import ACCENT, FAINT, INK, new_figure, save, tidy

if TYPE_CHECKING:
    from _typeshed import StrPath

    from sstq.planning.comparison import Comparison

_ROUNDING = 1e-12
# By who must be trusted.
_KINDS = {
    "local": ("locally private", "o", ACCENT),
    "aggregator": ("trusted aggregator", "^", "#3c7d3c"),
    "none": ("no privacy", "D", FAINT),
}


def draw_comparison(rows: Sequence[Comparison], path: StrPath, *, dim: int, epsilon: float, clients: int) -> None:
    """Draw the error of the mean, one row per mechanism in the given order; narrow, so that a phone shows it."""
    # An error of almost zero (Clean) does not fit on a logarithmic axis.
    drawn = [row for row in rows if row.mse > _ROUNDING]
    figure = new_figure(5.4, 1.9 + 0.42 * len(drawn), layout="constrained")
    axes = figure.subplots()
    beside = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "fontsize": 10, "color": INK}
    kinds = {}
    for place, row in enumerate(drawn):
        kind, marker, colour = _KINDS[row.trust]
        style = {"color": colour, "markerfacecolor": colour if row.unbiased else "white", "markersize": 8}
        (kinds[kind if row.unbiased else f"{kind}, biased"],) = axes.plot(row.mse, place, marker, **style)
        axes.annotate(f"{row.mse:.3g}", (row.mse, place), **beside)
    axes.set_yticks(range(len(drawn)), [f"{row.label}\n{row.bits:,} bits" for row in drawn], fontsize=10)
    axes.invert_yaxis()
    axes.set_xlabel("squared error of the mean", fontsize=10)
    axes.set(xscale="log", axisbelow=True)
    axes.margins(x=0.2, y=0.02)
    axes.grid(color="#e5e5e5", linewidth=0.8)
    axes.tick_params(axis="y", length=0)
    tidy(axes)
    figure.suptitle(f"{clients:,} unit vectors, d = {dim:,}, ε = {epsilon:g}", color=INK, fontsize=12)
    figure.legend(kinds.values(), kinds.keys(), loc="outside lower center", ncols=2, frameon=False, fontsize=10)
    save(figure, path)
