"""The record of an experiment: its numbers beside the paper's as CSV and Markdown, the curves, and the pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paper.reproduction.lines import Line, Section
from sstq.files.atomic import atomic_file, write_csv

__all__ = ["markdown_table", "write_record"]

_COLUMNS = [
    "setting",
    "method",
    "label",
    "ours",
    "half_width",
    "seeds",
    "compared",
    "paper",
    "place",
    "verdict",
    "remark",
]
_HEADER = ("setting", "method", "ours", "±", "compared", "paper", "verdict")


def write_record(section: Section, folder: Path) -> None:
    """Write results.csv, curves.csv, table.md and the pictures of an experiment to a folder."""
    from paper.reproduction.figures import draw_section

    folder.mkdir(parents=True, exist_ok=True)
    rows = [_csv_row(line) for line in section.lines]
    write_csv(folder / "results.csv", tuple(_COLUMNS), rows)
    if section.curves:
        write_csv(folder / "curves.csv", tuple(section.curves[0]), map(_shortened, section.curves))
    with atomic_file(folder / "table.md") as file:
        file.write(f"# {section.title}\n\n{section.text.strip()}\n\n{markdown_table(rows)}\n".encode())
    draw_section(section, folder)


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of an experiment's page, from the rows of its results.csv."""
    lines = [f"| {' | '.join(_HEADER)} |", "|" + "---|" * len(_HEADER)]
    for row in rows:
        ours, half = float(row["ours"]), float(row["half_width"] or 0)
        cells = [row["setting"], row["label"], _plain(ours), _plain(half) if half > 1e-6 * abs(ours) else ""]
        is_printed = row["paper"] not in ("", None)
        cells += [_plain(float(row["compared"])), _plain(float(row["paper"]))] if is_printed else ["", ""]
        lines.append(f"| {' | '.join([*cells, row['verdict']])} |")
    return "\n".join(lines)


def _csv_row(line: Line) -> dict[str, Any]:
    row = {name: getattr(line, name, None) for name in _COLUMNS}
    row["paper"] = None if line.paper is None else line.paper.value
    row["place"] = None if line.paper is None else line.paper.place
    return _shortened(row)


def _shortened(row: Mapping[str, Any]) -> dict[str, Any]:
    """Format with six digits; empty for nan."""
    return {
        name: ("" if math.isnan(value) else f"{value:.6g}") if isinstance(value, float) else value
        for name, value in row.items()
    }


def _plain(value: float) -> str:
    """Format a number for people: four digits, with thousands separators.

    Examples:
        >>> _plain(35746.2), _plain(4.4e8), _plain(0.07131)
        ('35,746', '4.4e+08', '0.07131')
    """
    if abs(value) >= 1e7:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
