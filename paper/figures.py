"""Draws training curves: accuracy or error by round and at the end, with the bits sent."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy

_COLOURS = (ACCENT, SECOND, "#3c7d3c", "#8b5aa8", "#c08a1e", "#2a8f8f", "#a03060", "#5b6b2f", FAINT)


def draw_training(
    histories: Mapping[str, Sequence[Mapping[str, Any]]], path: str | os.PathLike[str], *, title: str
) -> None:
    """Draw every mechanism's rounds to a .png, .svg or .pdf."""
    figure = new_figure(11.2, 4.6, layout="constrained")
    curves, ends = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
    measure = "accuracy" if all(rows[-1]["accuracy"] is not None for rows in histories.values()) else "loss"
    colours: list[str] = []
    names: list[str] = []
    for place, (label, rows) in enumerate(histories.items()):
        colour = INK if label.startswith("clean") else _COLOURS[place % len(_COLOURS)]
        style = "--" if label.startswith("clean") else "-"
        shown = [100 * row[measure] if measure == "accuracy" else row[measure] for row in rows]
        curves.plot([row["number"] for row in rows], shown, style, color=colour, linewidth=1.6)
        ends.plot(shown[-1:], [place], "o", color=colour, markersize=8)
        colours.append(colour)
        ends.annotate(f"{shown[-1]:.3g}", (shown[-1], place), (9, 0), textcoords="offset points", va="center")
        bits = rows[-1]["bits"] // max(rows[-1].get("answers", rows[-1]["number"]), 1)
        names.append(f"{label}\n{bits:,} bits per answer, {privacy_in_words(rows[-1])}")
    what = "test accuracy, per cent" if measure == "accuracy" else "squared distance from the truth"
    curves.set_xlabel("round")
    curves.set_ylabel(what)
    ends.set_xlabel(f"{what}, at the end")
    ends.set_yticks(range(len(names)), names, fontsize=9)
    for name, colour in zip(ends.get_yticklabels(), colours, strict=True):
        name.set_color(colour)
    ends.margins(x=0.15, y=0.1)
    ends.invert_yaxis()
    ends.tick_params(axis="y", length=0)
    if measure == "loss":
        curves.set_yscale("log")
        ends.set_xscale("log")
        ends.xaxis.set_minor_formatter("")
    for axes in (curves, ends):
        axes.grid(which="major", color="#e5e5e5", linewidth=0.8)
        axes.set_axisbelow(True)
        tidy(axes)
    figure.suptitle(title, fontsize=12, color=INK)
    save(figure, path)


def privacy_in_words(row: Mapping[str, Any]) -> str:
    """Return what a client has spent after a round, to show next to the accuracy.

    Examples:
        >>> privacy_in_words({"epsilon": 36.0, "delta": 1.2e-4}), privacy_in_words({"epsilon": math.inf})
        ('total ε = 36, δ = 0.00012', 'not private')
    """
    if math.isinf(row["epsilon"]):
        return "not private"
    delta = f", δ = {row['delta']:g}" if row.get("delta") else ""
    return f"total ε = {row['epsilon']:.6g}{delta}"
