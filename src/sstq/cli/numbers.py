"""Helpers of commands that print numbers for people and write them for programs (CSV, JSON, pictures)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.common import check_output
from sstq.cli.terminal import note
from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    from sstq import Unbiased
    from sstq.federated.cohorts import Participation

__all__ = [
    "CsvOption",
    "JsonOption",
    "PngOption",
    "as_participation",
    "check_outputs",
    "error_figure",
    "figure",
    "safe_figure",
    "unbiased_cell",
    "write_json",
    "write_numbers",
]

_ROUNDING = 1e-12
_PICTURES = (".png", ".svg", ".pdf")

CsvOption = Annotated[Path | None, typer.Option(help="Write the numbers as CSV.")]
JsonOption = Annotated[Path | None, typer.Option(help="Write the numbers as JSON.")]
PngOption = Annotated[Path | None, typer.Option(help="Draw errors and bits (.png, .svg or .pdf).")]


def as_participation(text: str | None) -> Participation | None:
    """Parse --participation for the library: "once", or a number."""
    from sstq.federated.cohorts import answers_of

    return None if text is None else answers_of(int(text) if text.isdecimal() else text)


def check_outputs(csv: Path | None, json: Path | None, png: Path | None, force: bool) -> None:
    """Refuse outputs that cannot be written, before any work is done."""
    for option, path in (("--csv", csv), ("--json", json), ("--png", png)):
        check_output(path, force, option)
    if png is not None and png.suffix.lower() not in _PICTURES:
        raise WrongUsage(f"--png {png}: the name must end in {', '.join(_PICTURES)}")


def figure(value: float) -> str:
    """Return a number with three digits, as short as possible."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.1e}"


def error_figure(error: float, over: float = 1.0) -> str:
    """Return a squared error of unit vectors divided by a number; rounding errors count as zero."""
    return figure(error / over if error > _ROUNDING else 0.0)


def safe_figure(value: float, *, up: bool = True) -> str:
    """Return a number rounded conservatively to six digits, allowing for the rounding error of a double."""
    from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

    if up:
        return f"{float(Context(prec=6, rounding=ROUND_CEILING).plus(Decimal(f'{value:.12g}'))):g}"
    return f"{float(Context(prec=6, rounding=ROUND_FLOOR).plus(Decimal(value))):g}"


def unbiased_cell(unbiased: Unbiased, bias2: float) -> str:
    """Return whether an estimate is unbiased, for a table."""
    return "yes" if unbiased else f"no, bias² {figure(bias2)}"


def write_numbers(
    rows: list[dict[str, Any]], csv: Path | None, json: Path | None, head: dict[str, Any], name: str
) -> None:
    """Write rows of numbers as CSV and JSON, if asked for; in JSON under `name`, next to the fields of `head`."""
    from sstq.files.atomic import write_csv

    if csv is not None:
        write_csv(csv, list(rows[0]), rows)
        note(f"wrote {csv}")
    if json is not None:
        write_json(json, head | {name: rows})


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document as JSON, completely or not at all."""
    import json

    from sstq.files.atomic import atomic_file

    with atomic_file(path) as file:
        file.write(json.dumps(document, indent=2, allow_nan=False).encode() + b"\n")
    note(f"wrote {path}")
