"""CSV files: rows of fields, strictly for their owner, and on a device one row per line whatever is in it."""

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TextIO

_DELIMITERS = ",;\t|"
# A quoted field may span so many lines; a quote that is still open then is a stray one.
_MOST_LINES_OF_A_ROW = 50


def csv_rows(
    name: str,
    width: int | None = None,
    *,
    answering: bool = False,
    spanning: bool = False,
) -> Iterator[list[str]]:
    """Yield the fields of each row, the first of which may be a header; they are separated as in the first line.

    Empty lines are rows where there is one column, and are skipped elsewhere.

    Args:
        name: the file.
        width: the number of fields; by default that of the first row.
        answering: count the people before their values are looked at: each line is a row, whatever quotes, bytes and
            lengths its values have. Otherwise a malformed file is a ValueError.
        spanning: then a quoted value may still span several lines, if they make a whole row.
    """
    if answering:
        with open(name, encoding="utf-8-sig", errors="replace", newline="\n") as file:
            yield from _every_line(file, _delimiter_of(file), width, spanning)
        return
    try:
        with open(name, encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter=_delimiter_of(file), strict=True)
            for fields in rows:
                width = width or len(fields)
                if len(fields) not in (0, width):
                    problem = f"has {len(fields)} values, the first line has {width}"
                    raise ValueError(
                        f"{name}: line {rows.line_num} {problem}; fill the line, or quote its values"
                    )
                if fields or width == 1:
                    yield fields or [""]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{name} is not a .npy, Parquet or CSV file: {error}"
        ) from error


def _delimiter_of(file: TextIO) -> str:
    """The delimiter that is in the first line most often."""
    first = file.readline()
    file.seek(0)
    return max(_DELIMITERS, key=first.count)


def _every_line(
    file: TextIO, delimiter: str, width: int | None, spanning: bool
) -> Iterator[list[str]]:
    """One row per line, or per lines that a quoted value spans."""
    ahead: deque[str] = deque()
    while line := ahead.popleft() if ahead else file.readline():
        fields = _parsed([line], delimiter)
        if fields is None and spanning:
            fields = _spanning(line, ahead, file, delimiter, width)
        if fields is None:
            fields = line.rstrip("\r\n").split(delimiter)
        width = width or len(fields)
        if fields or width == 1:
            yield fields or [""]


def _spanning(
    line: str, ahead: deque[str], file: TextIO, delimiter: str, width: int | None
) -> list[str] | None:
    """The row that a line with an open quote and those after it make; None, and no line taken, if they make none."""
    lines = [line]
    while len(lines) < _MOST_LINES_OF_A_ROW and line.count('"') % 2:
        if len(lines) > len(ahead):
            ahead.append(file.readline())
        lines.append(ahead[len(lines) - 1])
        fields = _parsed(lines, delimiter) if lines[-1].count('"') % 2 else None
        if fields is not None and len(fields) == width:
            for _ in lines[1:]:
                ahead.popleft()
            return fields
    return None


def _parsed(lines: Sequence[str], delimiter: str) -> list[str] | None:
    """The fields of a row; None if the lines are none, or several."""
    try:
        rows = list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def number_in(text: str) -> float | None:
    """Return the number in a field, if it is one; 2020_1 is a number only to Python."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None
