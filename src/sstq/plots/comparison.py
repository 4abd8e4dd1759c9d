"""Mechanisms side by side: the error of a mean against the bits of a message."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy
from sstq.plots.labels import label_marks

if TYPE_CHECKING:
    from sstq.comparison import Comparison

__all__ = ["draw_comparison"]

_ROUNDING, _FAR_BEYOND = 1e-12, 1e3


def draw_comparison(
    rows: Sequence[Comparison], path: str | os.PathLike[str], *, dim: int, epsilon: float, clients: int
) -> None:
    """Draw the error of the mean against the bits of a message, one mark a mechanism.

    A mechanism whose error is far beyond the others' is drawn at the upper edge with its error beside it.
    """
    figure = new_figure(10.8, 6.6, layout="constrained")
    axes = figure.subplots()
    # No error but the rounding of single precision (Clean) has no place on a logarithmic axis.
    drawn = [row for row in rows if row.mse > _ROUNDING]
    ceiling = _FAR_BEYOND * min((row.mse for row in drawn if row.trust == "local"), default=drawn[0].mse)
    kinds = {
        ("local", "private"): ("private coin", "o", ACCENT),
        ("local", "public"): ("public coin", "s", SECOND),
        ("aggregator", None): ("trusted aggregator", "^", "#3c7d3c"),
        ("none", None): ("no privacy", "D", FAINT),
    }
    for (trust, coin), (label, marker, colour) in kinds.items():
        group = [row for row in drawn if row.trust == trust and coin in (None, row.coin)]
        for filled in (True, False):
            part = [row for row in group if row.unbiased == filled]
            axes.plot(
                [row.bits for row in part],
                [min(row.mse, ceiling) for row in part],
                marker,
                color=colour,
                markerfacecolor=colour if filled else "white",
                markersize=7,
                label=label + ("" if filled else ", biased") if part else None,
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(0.8, 30 * max(row.bits for row in drawn))
    axes.set_xlabel("bits a client sends")
    axes.set_ylabel(f"mean squared error of the mean of {clients:,}")
    axes.set_title(f"d = {dim:,}, ε = {epsilon:g}, unit vectors", color=INK, fontsize=12)
    axes.grid(which="major", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    tidy(axes)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    names = [row.label + (f" ({row.mse:.1e}, beyond)" if row.mse > ceiling else "") for row in drawn]
    marks = [(row.bits, min(row.mse, ceiling), name) for row, name in zip(drawn, names, strict=True)]
    label_marks(axes, marks, width=9.6, height=6.0)
    save(figure, path)
