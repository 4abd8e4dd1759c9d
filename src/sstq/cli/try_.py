"""`sstq try`: encodes a file, estimates its mean, and compares it with the truth."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.terminal import note, show_table
from sstq.cli.usage import WrongUsage, check_usage

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["read_bounds", "try_"]

_DELIMITERS = {";": "';'", "\t": "'\\t'"}


def try_(
    vectors: Annotated[Path, typer.Argument(help="Try with these vectors, one row per person: .npy or CSV.")],
    epsilon: Annotated[float, typer.Option(help="Spend this ε per person.")],
    name: Annotated[str, typer.Option(help="Use this mechanism (see `sstq compare`).")] = "frameunit",
    clip: Annotated[float | None, typer.Option(help="Scale longer vectors down to this norm.")] = None,
    bounds: Annotated[
        Path | None,
        typer.Option(help='Read the range of each column from this JSON file: {"age": [0, 110], "bmi": [10, 60]}.'),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Use these columns of the CSV, such as age,bmi.")] = None,
    delimiter: Annotated[str, typer.Option(help="Split the CSV here, such as ';' or '\\t'.")] = ",",
) -> None:
    """Simulate a collection on one machine: encode a file, estimate its mean, and compare it with the truth.

    Nothing is sent and nothing is written. Try with public or invented data: the true mean is printed.

    Example: sstq try people.csv --epsilon 3 --bounds bounds.json

    Example: sstq try people.csv --epsilon 3 --columns age,bmi --clip 120
    """
    from sstq.simulation import simulate

    ranges = None if bounds is None else read_bounds(bounds)
    wanted = columns.split(",") if columns else list(ranges or ())
    header, rows = _read(vectors, wanted, delimiter.replace("\\t", "\t"))
    if ranges is not None:
        if header and set(ranges) != set(header):
            raise WrongUsage(f"--bounds {bounds}: must name the columns {', '.join(header)}, got {', '.join(ranges)}")
        ranges = {column: ranges[column] for column in header} if header else ranges
    with check_usage(mechanism="--name"):
        found = simulate(rows, epsilon, mechanism=name, bounds=ranges, clip=clip)
    named = header or [row[0] for row in found.rows()]
    shown = [
        (label, f"{value:.5g}", f"{stderr:.2g}", f"{true:.5g}")
        for label, (_, value, stderr, true) in zip(named, found.rows(), strict=True)
    ]
    show_table(
        f"{name}, ε = {epsilon:g}: {len(rows):,} people, {found.bits} bits each",
        ("column", "estimate", "±", "true"),
        shown,
        caption="",
    )
    # On stderr, so that it is there if the table is piped.
    note(
        f"{name}, {found.bits} bits per person: error {found.error:.3g}, predicted {found.predicted_error:.3g} "
        f"(clip = {found.mechanism.clip:g})"
    )
    if found.estimate.note:
        note(found.estimate.note)


def read_bounds(path: Path) -> dict[str, Any]:
    """Read a JSON file of bounds."""
    try:
        ranges = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WrongUsage(f"--bounds {path} is not JSON: {error}") from error
    if not isinstance(ranges, dict):
        raise WrongUsage(f'--bounds {path} must be {{"column": [low, high], …}}, got {type(ranges).__name__}')
    return ranges


def _read(path: Path, wanted: list[str], delimiter: str) -> tuple[list[str], NDArray[Any]]:
    """The names of the columns, if the file has any, and the rows."""
    import numpy as np

    if path.suffix == ".npy":
        return [], np.atleast_2d(np.load(path, allow_pickle=False))
    with path.open(encoding="utf-8-sig", newline="") as file:
        records = list(filter(None, csv.reader(file, delimiter=delimiter)))
    if not records:
        raise ValueError(f"{path} has no rows")
    first = records[0]
    for other, typed in _DELIMITERS.items():
        if len(first) == 1 and other in first[0]:
            raise WrongUsage(f"{path} has one column only, and {typed} in it: pass --delimiter {typed}")
    header = [] if any(_is_number(field) for field in first) else [field.strip() for field in first]
    if missing := [column for column in wanted if column not in header]:
        raise WrongUsage(f"{path} has no column {missing[0]!r}; it has {', '.join(header) or 'no header'}")
    chosen = wanted or header
    places = [header.index(column) for column in chosen] if header else range(len(first))
    rows = []
    for line, record in enumerate(records[bool(header) :], start=1 + bool(header)):
        if len(record) != len(first):
            raise ValueError(f"{path}: line {line} must have {len(first)} values, got {len(record)}")
        rows.append([record[place] for place in places])
    others = [column for column in chosen if column.strip().lower() not in ("id", "uuid", "user", "name")]
    if not wanted and len(others) < len(chosen):
        raise WrongUsage(f"{path} has a column that identifies people: pass --columns {','.join(others)}")
    for row in rows:
        for column, field in enumerate(row):
            if not _is_number(field):
                kept = [label for label in chosen if label != chosen[column]] if chosen else []
                remedy = f"; without that column: --columns {','.join(kept)}" if kept else ""
                raise ValueError(f"{path}: columns must be numbers, got {field[:20]!r}{remedy}")
    return chosen, np.array(rows, dtype=np.float64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
