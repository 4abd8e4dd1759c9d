"""Pictures of a folder of results, as `sstq aggregate` writes it."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

from sstq.plots.estimates import MOST_BARS, draw_intervals, name_places, new_axes

# Rows of a number besides its bins.
_STATISTICS = ("mean", "quantile 0.25", "quantile 0.5", "quantile 0.75")
_TABLES = ("survey.csv", "groups.csv", "mean.csv")


def draw_result(folder: Path) -> Any:
    """Draw a survey's questions, the groups or the mean in a folder of results; returns the Matplotlib figure.

    ValueError if there is no table of results.
    """
    table = next((folder / name for name in _TABLES if (folder / name).is_file()), None)
    if table is None:
        raise ValueError(f"{folder} must have {', '.join(_TABLES[:-1])} or {_TABLES[-1]}; write it with sstq aggregate")
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    panels = {"survey.csv": _questions, "groups.csv": _groups, "mean.csv": _mean}[table.name](rows)
    axes = new_axes(len(panels), 3.0)
    for one, (title, (names, values, low, high)) in zip(axes, panels.items(), strict=True):
        draw_intervals(one, np.arange(len(values)), values, low, high)
        if len(names) <= MOST_BARS:
            name_places(one, names)
        one.set_title(title, fontsize=10)
    return axes[0].figure


Panel = tuple[list[str], Any, Any, Any]
"""Names, values, and the lower and upper ends of their intervals."""


def _questions(rows: list[dict[str, str]]) -> dict[str, Panel]:
    panels = {}
    for question in dict.fromkeys(row["question"] for row in rows):
        asked = [row for row in rows if row["question"] == question]
        bins = [row for row in asked if row["item"] not in _STATISTICS] or asked
        columns = [_numbers(bins, name) for name in ("estimate", "low", "high")]
        panels[f"{question}: all intervals hold at 95 %"] = ([row["item"] for row in bins], *columns)
    return panels


def _groups(rows: list[dict[str, str]]) -> dict[str, Panel]:
    """The shares of private groups, or the norms of the means of public ones, with two standard errors."""
    private = "share" in rows[0]
    value, error, title = ("share", "share_stderr", "shares") if private else ("norm", "error", "norms of means")
    values = _numbers(rows, value)
    reach = 2 * _numbers(rows, error)
    names = [row["group" if private else "label"] for row in rows]
    return {f"{title} of groups, with two standard errors": (names, values, values - reach, values + reach)}


def _mean(rows: list[dict[str, str]]) -> dict[str, Panel]:
    values = _numbers(rows, "value")
    reach = _numbers(rows, "half_width")
    names = [row["label"] or row["coordinate"] for row in rows]
    return {"Mean, all intervals hold at 95 %": (names, values, values - reach, values + reach)}


def _numbers(rows: list[dict[str, str]], column: str) -> Any:
    return np.array([float(row[column] or "nan") for row in rows])
