"""Error against bits: every local mechanism, and the lines that none crosses."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy
from sstq.plots.labels import label_marks

if TYPE_CHECKING:
    from sstq.planning.frontier import Point

__all__ = ["draw_frontier"]

# Those of one mechanism are of one colour; ours are warm and blue.
_COLOURS = {
    "frameunit": ACCENT,
    "sstq": SECOND,
    "sqkr": "#8b5aa8",
    "rrsc": "#3c7d3c",
    "mmrc": "#c08a1e",
    "compressed-privunitg": "#2a8f8f",
}
_MARKERS = ("o", "s", "^", "v", "D", "P", "X", "*", "<", ">")
# An error so far above the one-bit line is drawn at the upper edge.
_CEILING = 12.0


def draw_frontier(
    points: Sequence[Point],
    path: str | os.PathLike[str],
    *,
    dim: int,
    epsilon: float,
    optimum: float,
    one_bit: float,
) -> None:
    """Draw MSE/d of one client's estimate against the bits it sends, one line per family, to a .png, .svg or .pdf.

    Public coins are dashed with open marks. A family of one point has its name beside it, others are in the legend. A
    family beyond twelve times the one-bit error sits at the upper edge.
    """
    figure = new_figure(10.8, 6.4, layout="constrained")
    # After the figure, which says what to install if matplotlib is missing.
    from matplotlib.ticker import FuncFormatter

    axes = figure.subplots()
    ceiling = _CEILING * one_bit
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for level, text in ((optimum, "optimum of all unbiased ε-LDP"), (one_bit, "least with one bit")):
        axes.axhline(level, color=INK, linewidth=1.0, linestyle=":")
        # In the middle of the picture, where there are no mechanisms.
        place = {"xy": (0.5, level), "xycoords": ("axes fraction", "data"), "xytext": (0, 4)}
        axes.annotate(f"{text}: {level:.4g}", textcoords="offset points", ha="center", fontsize=8.5, **place)
    marks = []
    for number, (family, group) in enumerate(groupby(points, key=lambda point: point.family)):
        members = list(group)
        beyond = f" ({members[0].error:.2g}, beyond)" if min(point.error for point in members) > ceiling else ""
        name = family + ("" if all(point.unbiased for point in members) else ", biased") + beyond
        _draw_family(axes, name, members, _MARKERS[number % len(_MARKERS)], ceiling)
        beside = name if len(members) == 1 else ""
        marks += [(point.bits, min(point.error, ceiling), beside) for point in members]
    axes.set_xlim(0.8, 8 * max(point.bits for point in points))
    axes.set_ylim(0.8 * optimum, 1.5 * ceiling if any(p.error > one_bit * 4 for p in points) else 4 * one_bit)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else ""))
    axes.tick_params(axis="y", which="minor", labelsize="small")
    axes.set_xlabel("bits per client")
    axes.set_ylabel("mean squared error of one client's estimate, over d")
    axes.set_title(f"Error against bits: d = {dim:,}, ε = {epsilon:g}, unit vectors", color=INK, fontsize=12)
    axes.grid(which="major", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)
    label_marks(axes, marks, width=9.6, height=5.6)
    axes.legend(frameon=False, fontsize=8.5, loc="upper right", ncols=2)
    save(figure, path)


def _draw_family(axes: Any, name: str, members: list[Point], marker: str, ceiling: float) -> None:
    public = members[0].coin == "public"
    colour = _COLOURS.get(members[0].name, FAINT)
    axes.plot(
        [point.bits for point in members],
        [min(point.error, ceiling) for point in members],
        marker=marker,
        color=colour,
        linestyle="--" if public else "-",
        linewidth=1.2,
        markersize=6,
        markerfacecolor="white" if public else colour,
        label=name if len(members) > 1 else None,
    )
