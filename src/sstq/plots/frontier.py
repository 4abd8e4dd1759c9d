"""Error against bits: every local mechanism, and the lines that none crosses."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy

if TYPE_CHECKING:
    from sstq.frontier import Point

__all__ = ["draw_frontier"]

# Families that are ours are drawn in colour, all others in grey: the picture asks where ours stand among them.
_COLOURS = {"frameunit": ACCENT, "sstq": SECOND}
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
    """Draw MSE/d of one client's estimate against the bits it sends, a line a family, to a .png, .svg or .pdf.

    Public coins are dashed with open marks. A family beyond twelve times the one-bit error sits at the upper edge.
    """
    figure = new_figure(10.8, 6.4, layout="constrained")
    # After the figure, which says what to install if matplotlib is missing.
    from matplotlib.ticker import FuncFormatter

    axes = figure.subplots()
    ceiling = _CEILING * one_bit
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.axhline(optimum, color=INK, linewidth=1.0, linestyle=":")
    axes.axhline(one_bit, color=INK, linewidth=1.0, linestyle=":")
    for number, (family, members) in enumerate(groupby(points, key=lambda point: point.family)):
        _draw_family(axes, family, list(members), _MARKERS[number % len(_MARKERS)], ceiling)
    right = 2 * max(point.bits for point in points)
    axes.set_xlim(0.8, right)
    axes.set_ylim(0.8 * optimum, 1.3 * ceiling if any(p.error > one_bit * 4 for p in points) else 4 * one_bit)
    for level, text in ((optimum, "optimum of all unbiased ε-LDP"), (one_bit, "least with one bit")):
        axes.text(right * 0.9, level * 0.97, f"{text}: {level:.4g}", ha="right", va="top", fontsize=8.5, color=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else ""))
    axes.tick_params(axis="y", which="minor", labelsize="small")
    axes.set_xlabel("bits a client sends")
    axes.set_ylabel("mean squared error of one client's estimate, over d")
    axes.set_title(f"Error against bits: d = {dim:,}, ε = {epsilon:g}, unit vectors", color=INK, fontsize=12)
    axes.grid(which="major", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)
    axes.legend(frameon=False, fontsize=8.5, loc="upper right", ncols=2)
    save(figure, path)


def _draw_family(axes: Any, family: str, members: list[Point], marker: str, ceiling: float) -> None:
    public = members[0].coin == "public"
    colour = _COLOURS.get(members[0].name, FAINT)
    beyond = f" ({members[0].error:.2g}, beyond)" if min(point.error for point in members) > ceiling else ""
    biased = "" if all(point.unbiased for point in members) else ", biased"
    axes.plot(
        [point.bits for point in members],
        [min(point.error, ceiling) for point in members],
        marker=marker,
        color=colour,
        linestyle="--" if public else "-",
        linewidth=1.2,
        markersize=7 if members[0].name in _COLOURS else 5.5,
        markerfacecolor="white" if public else colour,
        label=family + biased + beyond,
        zorder=3 if members[0].name in _COLOURS else 2,
    )
