"""Draws mechanisms side by side, and error against bits with lower bounds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, label_marks, new_figure, save, tidy

if TYPE_CHECKING:
    from _typeshed import StrPath

    from sstq.planning.comparison import Comparison

_ROUNDING = 1e-12
# By the coin of a local mechanism, and by trust for the others.
_KINDS = {
    "private": ("private coin", "o", ACCENT),
    "public": ("public coin", "s", SECOND),
    "aggregator": ("trusted aggregator", "^", "#3c7d3c"),
    "none": ("no privacy", "D", FAINT),
}
_COLOURS = {
    "frameunit": ACCENT,
    "sstq": SECOND,
    "sqkr": "#8b5aa8",
    "rrsc": "#3c7d3c",
    "mmrc": "#c08a1e",
    "compressed-privunitg": "#2a8f8f",
}
_MARKERS = "os^vDPX*<>"
_CEILING = 12.0  # an error this many times the one-bit line is drawn at the upper edge


def draw_comparison(rows: Sequence[Comparison], path: StrPath, *, dim: int, epsilon: float, clients: int) -> None:
    """Draw the error of the mean, one row per mechanism in the given order; narrow, so that a phone shows it."""
    # An error of almost zero (Clean) does not fit on a logarithmic axis.
    drawn = [row for row in rows if row.mse > _ROUNDING]
    figure = new_figure(5.4, 1.9 + 0.42 * len(drawn), layout="constrained")
    axes = figure.subplots()
    beside = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "fontsize": 10, "color": INK}
    kinds = {}
    for place, row in enumerate(drawn):
        kind, marker, colour = _KINDS[row.coin if row.trust == "local" else row.trust]
        style = {"color": colour, "markerfacecolor": colour if row.unbiased else "white", "markersize": 8}
        (kinds[kind if row.unbiased else f"{kind}, biased"],) = axes.plot(row.mse, place, marker, **style)
        axes.annotate(f"{row.mse:.3g}", (row.mse, place), **beside)
    axes.set_yticks(range(len(drawn)), [f"{row.label}\n{row.bits:,} bits" for row in drawn], fontsize=10)
    axes.invert_yaxis()
    axes.set_xlabel(f"squared error of the mean of {clients:,} people", fontsize=10)
    axes.set(xscale="log", axisbelow=True)
    axes.margins(x=0.2, y=0.02)
    axes.grid(color="#e5e5e5", linewidth=0.8)
    axes.tick_params(axis="y", length=0)
    tidy(axes)
    figure.suptitle(f"d = {dim:,}, ε = {epsilon:g}, unit vectors", color=INK, fontsize=12)
    figure.legend(kinds.values(), kinds.keys(), loc="outside lower center", ncols=2, frameon=False, fontsize=10)
    save(figure, path)


def draw_frontier(
    points: Sequence[Comparison], path: StrPath, *, dim: int, epsilon: float, optimum: float, one_bit: float
) -> None:
    """Draw MSE/d of one client's estimate against the bits it sends, one line per family, to a .png, .svg or .pdf."""
    figure = new_figure(10.8, 6.4, layout="constrained")
    from matplotlib.ticker import FuncFormatter  # after the figure, which says what to install

    axes = figure.subplots()
    ceiling = _CEILING * one_bit
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for level, text in ((optimum, "optimum of all unbiased ε-LDP"), (one_bit, "least with one bit")):
        axes.axhline(level, color=INK, linewidth=1.0, linestyle=":")
        # In the middle of the picture, where there are no mechanisms.
        place = {"xy": (0.5, level), "xycoords": ("axes fraction", "data"), "xytext": (0, 4)}
        axes.annotate(f"{text}: {level:.4g}", textcoords="offset points", ha="center", fontsize=8.5, **place)
    marks: list[tuple[float, float, str]] = []
    for number, (family, group) in enumerate(groupby(points, key=lambda point: point.label)):
        members = list(group)
        errors = [point.mse / dim for point in members]
        drawn = [(point.bits, min(error, ceiling)) for point, error in zip(members, errors, strict=True)]
        name = family + ("" if all(point.unbiased for point in members) else ", biased")
        if min(errors) > ceiling:
            name += f" ({errors[0]:.2g}, beyond)"
        public, colour = members[0].coin == "public", _COLOURS.get(members[0].name, FAINT)
        line, face = ("--", "white") if public else ("-", colour)
        style = {"color": colour, "linestyle": line, "linewidth": 1.2, "markersize": 6, "markerfacecolor": face}
        # A family of one point has its name beside it; others are in the legend.
        legend, beside = (None, name) if len(members) == 1 else (name, "")
        axes.plot(*zip(*drawn, strict=True), marker=_MARKERS[number % len(_MARKERS)], label=legend, **style)
        marks += [(*place, beside) for place in drawn]
    axes.set_xlim(0.8, 8 * max(point.bits for point in points))
    axes.set_ylim(0.8 * optimum, 1.5 * ceiling if any(p.mse / dim > one_bit * 4 for p in points) else 4 * one_bit)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else ""))
    axes.tick_params(axis="y", which="minor", labelsize="small")
    axes.set(
        xlabel="bits per client", ylabel="mean squared error of one client's estimate, divided by d", axisbelow=True
    )
    axes.set_title(f"Error against bits: d = {dim:,}, ε = {epsilon:g}, unit vectors", color=INK, fontsize=12)
    axes.grid(which="major", color="#e5e5e5", linewidth=0.8)
    tidy(axes)
    label_marks(axes, marks, width=9.6, height=5.6)
    axes.legend(frameon=False, fontsize=8.5, loc="upper right", ncols=2)
    save(figure, path)
