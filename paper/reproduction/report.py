"""Writing the results of a run: tables, pictures, and one self-contained page."""

from __future__ import annotations

import base64
import html
import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sstq.files.atomic import atomic_file, write_csv
from paper.reproduction.lines import AGREES, DIFFERS, NOT_COMPARED, Line, Section
from paper.reproduction.paper import PaperNumber
from paper.reproduction.scales import Scale
from paper.reproduction.style import STYLE

__all__ = ["paper_fates", "write_report"]

_COLUMNS = (
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
)
_BY_VARIANT = "agrees by a variant or one seed"
_BADGES = {AGREES: "good", DIFFERS: "bad", NOT_COMPARED: "none"}


def write_report(
    sections: Sequence[Section], folder: Path, scale: Scale, *, missing: Sequence[str] = (), time_taken: str = ""
) -> Path:
    """Write each experiment's tables and pictures, and report.html above them.

    Args:
        sections: the sections of the experiments that were run.
        folder: the folder to write to.
        scale: how much was run.
        missing: what was left out and why, as sentences.
        time_taken: a sentence on how long it took, for the end of the page.

    Returns:
        The path of the page.
    """
    from paper.reproduction.figures import draw_section

    for section in sections:
        own = folder / section.name
        own.mkdir(parents=True, exist_ok=True)
        write_csv(own / "results.csv", _COLUMNS, map(_csv_row, section.lines))
        if section.curves:
            write_csv(own / "curves.csv", tuple(section.curves[0]), map(_shortened, section.curves))
        draw_section(section, own)
    page = folder / "report.html"
    with atomic_file(page) as file:
        file.write(_page(sections, folder, scale, missing, time_taken).encode())
    return page


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


def _page(sections: Sequence[Section], folder: Path, scale: Scale, missing: Sequence[str], time_taken: str) -> str:
    body = [
        "<h1>The paper’s experiments, again</h1>",
        _paragraph(
            "Every number that the paper on Subsampled Stochastic TurboQuant prints, beside ours: its seven methods by "
            "its own recipe, and the mechanisms that this library adds."
        ),
    ]
    if scale.quick:
        body.append(
            '<p class="quick">QUICK LOOK: fewer seeds, dimensions and rounds than the paper’s. '
            "Run <code>sstq reproduce all</code> for the real thing.</p>"
        )
    body += [f'<p class="quick">Left out: {html.escape(reason)}</p>' for reason in missing]
    body.append(_overview(sections))
    body += [_section(section, folder) for section in sections]
    body.append(_footer(scale, time_taken))
    title = "<title>sstq reproduce</title>"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">{title}{STYLE}'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n'
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def _overview(sections: Sequence[Section]) -> str:
    """Count the paper's numbers that are met, by experiment."""
    columns = ("experiment", "numbers of the paper", AGREES, _BY_VARIANT, DIFFERS, NOT_COMPARED)
    header = "".join(f"<th>{column}</th>" for column in columns)
    rows = []
    for section in sections:
        fates = paper_fates(section.lines)
        counts = [len(fates), *(list(fates.values()).count(fate) for fate in columns[2:])]
        link = f'<a href="#{section.name}">{html.escape(section.title)}</a>'
        rows.append(f"<tr><td>{link}</td>" + "".join(f'<td class="number">{count}</td>' for count in counts) + "</tr>")
    return f"<table><tr>{header}</tr>{''.join(rows)}</table>"


def paper_fates(lines: Sequence[Line]) -> dict[PaperNumber, str]:
    """List each number of the paper, and whether its method meets it, or only a variant or one seed."""
    fates: dict[PaperNumber, str] = {}
    for line in lines:
        if line.paper is None or not line.verdict:
            continue
        if line.paper not in fates:
            fates[line.paper] = line.verdict
        elif line.verdict == AGREES and fates[line.paper] == DIFFERS:
            fates[line.paper] = _BY_VARIANT
    return fates


def _section(section: Section, folder: Path) -> str:
    parts = [f'<h2 id="{section.name}">{html.escape(section.title)}</h2>', *map(_paragraph, section.text.split("\n\n"))]
    for name in section.pictures:
        picture = base64.b64encode((folder / section.name / name).read_bytes()).decode()
        parts.append(f'<img alt="{html.escape(section.title)}" src="data:image/png;base64,{picture}">')
    settings = list(dict.fromkeys(line.setting for line in section.lines))
    for setting in settings:
        parts.append(f"<h3>{html.escape(setting)}</h3>")
        parts.append(_table([line for line in section.lines if line.setting == setting]))
    return "\n".join(parts)


def _table(lines: Sequence[Line]) -> str:
    unit = f", {lines[0].unit}" if lines[0].unit else ""
    is_rescaled = any(line.paper is not None and line.compared != line.ours for line in lines)
    is_simulated = not all(math.isnan(line.simulated) for line in lines)
    columns = ["method", f"ours{unit}", *(["simulated"] if is_simulated else [])]
    columns += [*(["compared"] if is_rescaled else []), "paper", "", "remark"]
    header = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    return f"<table><tr>{header}</tr>{''.join(_table_row(line, is_simulated, is_rescaled) for line in lines)}</table>"


def _table_row(line: Line, is_simulated: bool, is_rescaled: bool) -> str:
    paper, place = ("", "") if line.paper is None else (_plain(line.paper.value), line.paper.place)
    cells = [f"<td>{html.escape(line.label)}</td>", _with_interval(line.ours, line.half_width)]
    if is_simulated:
        cells.append(_with_interval(line.simulated, line.simulated_half_width))
    if is_rescaled:
        cells.append(f'<td class="number">{_plain(line.compared) if line.paper is not None else ""}</td>')
    cells += [
        f'<td class="number" title="{html.escape(place)}">{paper}</td>',
        f'<td><span class="badge {_BADGES[line.verdict]}">{line.verdict}</span></td>' if line.verdict else "<td></td>",
        f'<td class="remark">{html.escape(line.remark)}</td>',
    ]
    return "<tr>" + "".join(cells) + "</tr>"


def _with_interval(value: float, half_width: float) -> str:
    faint = f' <span class="faint">± {_plain(half_width)}</span>' if half_width > 1e-6 * abs(value) else ""
    return f'<td class="number">{_plain(value)}{faint}</td>'


def _plain(value: float) -> str:
    """Format a number for people: four digits, with thousands separators.

    Examples:
        >>> _plain(35746.2), _plain(4.4e8), _plain(0.07131)
        ('35,746', '4.4e+08', '0.07131')
    """
    if abs(value) >= 1e7:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(' '.join(text.split()))}</p>"


def _footer(scale: Scale, time_taken: str) -> str:
    import numpy as np

    from sstq._version import __version__

    return _paragraph(
        f"sstq {__version__}, NumPy {np.__version__}, Python {platform.python_version()}, {platform.machine()}; "
        f"{scale.seeds} seed{'s' if scale.seeds > 1 else ''}. “±” is half a 95 % interval of the mean over seeds "
        "(Student’s t). All randomness is seeded, which is for reproducible figures only: it is not private. "
        f"{time_taken}"
    )
