"""Exact errors of one message: against the bit width (the abstract's claim as a figure), and the orders of Table 1."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import sstq
from sstq.plots.canvas import FAINT, INK, SECOND, new_figure, save, tidy

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


# Two dimensions with the same redundancy N/d = 4, so that the frame does not enter the exponent.
_DIMS = (1024, 4096)
_EPSILONS = (0.05, 0.1)
_WIDTHS = (9, 10)
# Row: bits per client and error in the paper's words, the registered name, its options, and whether it has a bit width.
ORDERS: Mapping[str, tuple[str, str, str, Mapping[str, Any], bool]] = {
    "vqSGD": ("⌈log₂ d⌉ + 1", "d³/ε²", "vqsgd", {}, False),
    "SQKR (dense)": ("O(d)", "d/ε²", "sqkr", {"variant": "dense"}, False),
    "SQKR (subsampled)": ("k(log₂ d + 1)", "d/min(ε², ε, b₀)", "sqkr", {"k": 1}, False),
    "PrivUnit": ("Θ(d)", "d/ε²", "privunit", {}, False),
    "SSTQ (flat)": ("⌈log₂ N⌉ + b", "d(1 + 4ᵇ/(ε∧ε²))", "sstq", {"codebook": "uniform"}, True),
    "SSTQ (flat, optimized)": ("⌈log₂ N⌉ + b", "d(1 + 2ᵇ/(ε∧ε²))", "sstq", {}, True),
    "SSTQ (metric-aware)": (
        "⌈log₂ N⌉ + b",
        "d(1 + 1/((2ᵇ−1)²∧ε∧ε²))",
        "sstq",
        {"channel": "metric-aware", "rate": "paper"},
        True,
    ),
}


def measured_orders(rows: Sequence[str] = tuple(ORDERS)) -> list[dict[str, Any]]:
    """Measure the orders of exact errors: d from 1,024 to 4,096 at ε = 1, ε from 0.05 to 0.1, b from 9 to 10.

    Returns:
        Per row of the paper's table: label, bits and error as the paper has them, the exponents `dim` and `epsilon`,
        and `bit`, the factor of one more bit (nan where there is no bit width).

    Examples:
        >>> (row,) = measured_orders(["vqSGD"])
        >>> round(row["dim"], 2), round(row["epsilon"], 2)
        (3.0, -2.07)
    """
    low, high = _DIMS
    table = []
    for label in rows:
        bits, order, _, _, has_bits = ORDERS[label]
        table.append(
            {
                "label": label,
                "bits": bits,
                "order": order,
                "dim": math.log(_error(label, high) / _error(label, low)) / math.log(high / low),
                "epsilon": math.log2(_error(label, low, _EPSILONS[1]) / _error(label, low, _EPSILONS[0])),
                "bit": _error(label, low, bits=_WIDTHS[1]) / _error(label, low, bits=_WIDTHS[0])
                if has_bits
                else math.nan,
            }
        )
    return table


def _error(label: str, dim: int, epsilon: float = 1.0, bits: int = 2) -> float:
    """The exact error of one message about a random unit vector."""
    _, _, name, options, has_bits = ORDERS[label]
    x = np.random.default_rng(dim).standard_normal(dim)
    mechanism = sstq.mechanism(name, dim=dim, epsilon=epsilon, **options, **({"bits": bits} if has_bits else {}))
    return mechanism.expected_mse(x / np.linalg.norm(x)).total
