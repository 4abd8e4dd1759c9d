"""The abstract's claim as one figure: the exact error of SSTQ against the bit width b at three ε."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import sstq
from sstq.canvas import FAINT, INK, SECOND, new_figure, save, tidy

__all__ = ["bit_widths", "draw_bits"]

DIM = 600
EPSILONS = (1.0, 3.0, 6.0)
WIDTHS = tuple(range(1, 11))
_VARIANTS: Mapping[str, tuple[str, Mapping[str, str], str, str]] = {
    "uniform": ("flat, uniform", {"codebook": "uniform"}, "#a06cd5", "o"),
    "optimized": ("flat, optimized", {"codebook": "optimized"}, "#5b2a86", "s"),
    "metric": ("metric-aware (shrinks)", {"channel": "metric-aware"}, "#d16d9e", "^"),
    "optimal": ("optimal channel", {"channel": "optimal"}, SECOND, "v"),
}


def bit_widths(epsilons: Sequence[float] = EPSILONS, widths: Sequence[int] = WIDTHS) -> list[dict[str, Any]]:
    """Compute the exact errors of one message about a typical unit vector, divided by d.

    Returns:
        A row per variant, ε and b: label, epsilon, bits, error, bias2, and growth, the factor of the last bit.

    Examples:
        >>> [round(row["growth"], 2) for row in bit_widths([1.0], [9, 10]) if row["bits"] == 10]
        [3.98, 2.0, 1.0, 1.0]
    """
    rows = []
    for label, options, _, _ in _VARIANTS.values():
        for epsilon in epsilons:
            last = float("nan")
            for bits in widths:
                error = sstq.SSTQ(DIM, epsilon, bits=bits, **options).typical_error()  # type: ignore[arg-type]
                rows.append(
                    {
                        "label": label,
                        "epsilon": epsilon,
                        "bits": bits,
                        "error": error.total / DIM,
                        "bias2": error.bias2,
                        "growth": error.total / last,
                    }
                )
                last = error.total
    return rows


def draw_bits(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw a panel per ε."""
    epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))
    figure = new_figure(3.6 * len(epsilons), 4.4, layout="constrained")
    panels = figure.subplots(1, len(epsilons), sharey=True, squeeze=False)[0]
    for axes, epsilon in zip(panels, epsilons, strict=True):
        for label, _, colour, mark in _VARIANTS.values():
            own = [row for row in rows if row["epsilon"] == epsilon and row["label"] == label]
            bits, errors = [row["bits"] for row in own], [row["error"] for row in own]
            axes.plot(bits, errors, f"{mark}-", color=colour, markersize=5, linewidth=1.6, label=label)
            axes.annotate(
                f"×{own[-1]['growth']:.2g}",
                (bits[-1], errors[-1]),
                (6, 0),
                textcoords="offset points",
                fontsize=9,
                color=colour,
                va="bottom" if label.startswith("optimal") else "top" if label.startswith("metric") else "center",
            )
        axes.set_yscale("log")
        axes.set_xticks(bits)
        axes.set_xlim(bits[0] - 0.4, bits[-1] + 1.6)
        axes.set_xlabel("bit width b")
        axes.set_title(f"ε = {epsilon:g}", fontsize=11, color=INK)
        axes.grid(color="#e5e5e5", linewidth=0.8)
        axes.set_axisbelow(True)
        tidy(axes)
    panels[0].set_ylabel("E‖x̂ − x‖²/d, one message")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle("Exact error against the bit width; “×” is what the last bit costs", fontsize=10, color=FAINT)
    save(figure, path)
