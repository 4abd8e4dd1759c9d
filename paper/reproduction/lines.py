"""Lines of the tables, our number beside the paper's, and the record of an experiment: CSV, Markdown and pictures."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from paper.reproduction.jobs import Job
from paper.reproduction.printed import PaperNumber
from sstq.files.atomic import atomic_file, write_csv

AGREES = "agrees"
DIFFERS = "differs"
NOT_COMPARED = "not compared"

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)
Results = Mapping[Job, Mapping[str, Any]]
"""The results of jobs."""


@dataclass(frozen=True)
class Line:
    """One of our numbers compared with the paper's.

    Attributes:
        setting: the setting within the experiment.
        method: a key of `METHODS`.
        label: the method's label.
        ours: the mean over seeds.
        half_width: half the 95 % interval of that mean; nan for one seed, 0 for exact numbers.
        seeds: the number of seeds.
        compared: the number compared with the paper's, in its units: `ours`, unless the start matters (see remark).
        paper: the paper's number, if it prints one.
        verdict: "agrees", "differs", "not compared", or empty without a number of the paper's.
        remark: why they differ, or what else is worth knowing.
    """

    setting: str
    method: str
    label: str
    ours: float
    half_width: float
    seeds: int
    compared: float
    paper: PaperNumber | None = None
    verdict: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Section:
    """What an experiment found.

    Attributes:
        name: the name of the experiment.
        title: the title, for people.
        text: plain text with an empty line between paragraphs: what was done, and what came out.
        lines: the lines of the table.
        pictures: file names in the experiment's folder.
        curves: the data of the pictures: rows of a table with the same keys.
    """

    name: str
    title: str
    text: str
    lines: Sequence[Line]
    pictures: Sequence[str]
    curves: Sequence[Mapping[str, Any]] = ()


def not_compared(section: Section, why: str) -> Section:
    """Return the section of settings that are not the paper's: with why in its title, and without verdicts."""
    lines = [
        replace(line, verdict=NOT_COMPARED if line.paper else "", remark="")
        for line in section.lines
    ]
    return replace(
        section,
        title=f"{section.title} ({why})",
        text=f"{section.text.strip()}\n\n{why}.",
        lines=lines,
    )


def grouped(
    items: Iterable[_Item], key: Callable[[_Item], _Key]
) -> dict[_Key, list[_Item]]:
    """Return the items by their key, in the order in which keys first occur."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of independent values, and half the width of its 95 % interval by Student's t.

    Examples:
        >>> mean, half = interval([1.0, 2.0, 3.0])
        >>> mean, round(half, 3)
        (2.0, 2.484)
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, math.nan
    from scipy.special import stdtrit

    deviation = math.sqrt(
        math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    )
    return mean, float(stdtrit(count - 1, 0.975)) * deviation / math.sqrt(count)


def judge(
    compared: float,
    paper: PaperNumber | None,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
) -> str:
    """Return whether a number is within a tolerance of the paper's.

    Examples:
        >>> judge(105.0, PaperNumber("mse", "d = 100", "vqsgd", 100.0, "Figure 2"), relative=0.1)
        'agrees'
    """
    if paper is None:
        return ""
    return (
        AGREES
        if abs(compared - paper.value)
        <= max(relative * abs(paper.value), absolute) * (1 + 1e-9)
        else DIFFERS
    )


_OURS = ("setting", "method", "label", "ours", "half_width", "seeds", "compared")
_COLUMNS = (*_OURS, "paper", "place", "verdict", "remark")
_HEADER = ("setting", "method", "ours", "±", "compared", "paper", "verdict")


def write_record(section: Section, folder: Path) -> None:
    """Write results.csv, curves.csv, table.md and the pictures of an experiment to a folder."""
    from paper.reproduction.figures import draw_section

    folder.mkdir(parents=True, exist_ok=True)
    rows = [_csv_row(line) for line in section.lines]
    write_csv(folder / "results.csv", _COLUMNS, rows)
    if section.curves:
        write_csv(
            folder / "curves.csv",
            tuple(section.curves[0]),
            map(_shortened, section.curves),
        )
    with atomic_file(folder / "table.md") as file:
        file.write(
            f"# {section.title}\n\n{section.text.strip()}\n\n{markdown_table(rows)}\n".encode()
        )
    draw_section(section, folder)


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of an experiment's page, from the rows of its results.csv."""
    lines = [f"| {' | '.join(_HEADER)} |", "|" + "---|" * len(_HEADER)]
    for row in rows:
        ours = float(row["ours"])
        half = float(row["half_width"] or 0)
        cells = [
            row["setting"],
            row["label"],
            _plain(ours),
            _plain(half) if half > 1e-6 * abs(ours) else "",
        ]
        is_printed = row["paper"] not in ("", None)
        cells += (
            [_plain(float(row["compared"])), _plain(float(row["paper"]))]
            if is_printed
            else ["", ""]
        )
        lines.append(f"| {' | '.join([*cells, row['verdict']])} |")
    return "\n".join(lines)


def read_record(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a CSV file: whatever looks like a number is one, and nan if it is missing."""
    with path.open(encoding="utf-8") as file:
        return [
            {name: _value(text) for name, text in row.items()}
            for row in csv.DictReader(file)
        ]


def _value(text: str) -> Any:
    try:
        return int(text) if text.isdecimal() else float(text or "nan")
    except ValueError:
        return text


def _csv_row(line: Line) -> dict[str, Any]:
    row = {name: getattr(line, name, None) for name in _COLUMNS}
    row["paper"] = None if line.paper is None else line.paper.value
    row["place"] = None if line.paper is None else line.paper.place
    return _shortened(row)


def _shortened(row: Mapping[str, Any]) -> dict[str, Any]:
    """Format with six digits; empty for nan."""
    return {
        name: ("" if math.isnan(value) else f"{value:.6g}")
        if isinstance(value, float)
        else value
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
    return (
        f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    )
