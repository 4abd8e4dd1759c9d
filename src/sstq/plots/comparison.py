"""Mechanisms side by side: the error of a mean and the bits of a message, one row per mechanism."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sstq.plots.canvas import ACCENT, FAINT, INK, SECOND, new_figure, save, tidy

if TYPE_CHECKING:
    from sstq.planning.comparison import Comparison

__all__ = ["draw_comparison"]

_ROUNDING = 1e-12
_KINDS = {
    ("local", "private"): ("private coin", "o", ACCENT),
    ("local", "public"): ("public coin", "s", SECOND),
    ("aggregator", None): ("trusted aggregator", "^", "#3c7d3c"),
    ("none", None): ("no privacy", "D", FAINT),
}


def draw_comparison(
    rows: Sequence[Comparison], path: str | os.PathLike[str], *, dim: int, epsilon: float, clients: int
) -> None:
    """Draw the error of the mean and the bits of a message, one row per mechanism in the order that is given."""
    # No error but the rounding of single precision (Clean) has no place on a logarithmic axis.
    drawn = [row for row in rows if row.mse > _ROUNDING]
    figure = new_figure(10.8, 1.5 + 0.25 * len(drawn), layout="constrained")
    errors, bits = figure.subplots(1, 2, sharey=True, width_ratios=(1.6, 1.0))
    for (trust, coin), (kind, marker, colour) in _KINDS.items():
        for unbiased in (True, False):
            part = [
                (place, row)
                for place, row in enumerate(drawn)
                if row.trust == trust and coin in (None, row.coin) and bool(row.unbiased) == unbiased
            ]
            if part:
                style = {"color": colour, "markerfacecolor": colour if unbiased else "white", "markersize": 7}
                places = [place for place, _ in part]
                label = kind + ("" if unbiased else ", biased")
                errors.plot([row.mse for _, row in part], places, marker, label=label, **style)
                bits.plot([row.bits for _, row in part], places, marker, **style)
    beside = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "fontsize": 8, "color": INK}
    for place, row in enumerate(drawn):
        errors.annotate(f"{row.mse:.3g}", (row.mse, place), **beside)
        bits.annotate(f"{row.bits:,}", (row.bits, place), **beside)
    errors.set_yticks(range(len(drawn)), [row.label for row in drawn], fontsize=9)
    errors.invert_yaxis()
    errors.set_xlabel(f"mean squared error of the mean of {clients:,} clients")
    bits.set_xlabel("bits per client")
    for axes in (errors, bits):
        axes.set_xscale("log")
        axes.margins(x=0.16, y=0.02)
        axes.grid(color="#e5e5e5", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
        tidy(axes)
    figure.suptitle(f"d = {dim:,}, ε = {epsilon:g}, unit vectors", color=INK, fontsize=12)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    save(figure, path)
