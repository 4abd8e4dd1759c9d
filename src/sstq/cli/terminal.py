"""Printing: results on stdout, progress, notes and errors on stderr.

On a terminal results are formatted tables. Otherwise they are lines of tab-separated values, for other programs.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import typer

Facts = dict[str, object]
# Of facts, a terminal shows so many unless all are asked for.
_FIRST = 5
# Of rows, so many are shown, or so many of each question; the mean and the quartiles of a number come before its bins.
_ROWS = 12
_STATISTICS = 4


def complain(error: Exception | str) -> None:
    """Print an error as one line on stderr."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = (
            error.strerror
            if error.filename is None
            else f"{error.filename}: {error.strerror}"
        )
    _say("error: ", "bold red", text, "red")


def warn(text: str) -> None:
    """Print a conspicuous warning on stderr."""
    _say("warning: ", "bold black on yellow", text, "bold yellow")


def note(text: str) -> None:
    """Print a remark on stderr."""
    _say("", "", text, "dim")


def agree(question: str) -> None:
    """Ask on the terminal, and stop unless the answer is yes."""
    try:
        agreed = typer.confirm(question)
    except typer.Abort:
        raise ValueError(
            "there is no answer: add --yes to go on without being asked"
        ) from None
    if not agreed:
        raise typer.Abort


def agree_on_terminal(question: str) -> None:
    """Ask if a person can answer; a script without a terminal goes on."""
    if sys.stdin.isatty():
        agree(question)


def _say(head: str, head_style: str, text: str, style: str) -> None:
    from rich.text import Text

    _stderr().print(
        Text.assemble((head, head_style), (" ".join(text.split()), style)),
        soft_wrap=True,
    )


def flattened(value: Any, name: str = "") -> Facts:
    """The names and values in nested JSON."""
    if isinstance(value, list) and not any(isinstance(part, dict) for part in value):
        return {name: ", ".join(map(str, value))}
    if not isinstance(value, dict | list):
        return {name: value}
    parts = value.items() if isinstance(value, dict) else enumerate(value, 1)
    facts: Facts = {}
    for key, part in parts:
        facts |= flattened(part, f"{name} {key}".strip())
    return facts


def show_facts(
    title: str, facts: Mapping[str, object], *, verbose: bool = True
) -> None:
    """Print names and values on stdout, except for empty values (None or an empty string).

    A terminal shows the first five unless `verbose`; a file or another program gets all.
    """
    shown = [
        [name.replace("_", " "), text]
        for name, value in facts.items()
        if (text := _in_words(value))
    ]
    more = 0 if verbose or not _stdout().is_terminal else max(0, len(shown) - _FIRST)
    _show(title, None, shown[: len(shown) - more], "")
    if more:
        note(f"--verbose shows {more} more line{'s' * (more > 1)}")


def show_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    caption: str = "",
) -> None:
    """Print a table on stdout; the caption is for terminals only."""
    _show(title, columns, [[_in_words(cell) for cell in row] for row in rows], caption)


def show_rows(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    where: str,
    caption: str = "",
) -> None:
    """Print the first rows, or those of each question, without empty columns; a note says where all of them are."""
    parts: dict[object, list[Mapping[str, Any]]] = {}
    for row in rows:
        parts.setdefault(row.get("question"), []).append(row)
    shown = []
    for part in parts.values():
        shown += part[: _STATISTICS if part[0].get("item") == "mean" else _ROWS]
    filled = [
        name for name in columns if any(row[name] not in ("", None) for row in shown)
    ]
    show_table(
        title, filled, [[row[name] for name in filled] for row in shown], caption
    )
    if len(shown) < len(rows):
        note(f"{len(rows) - len(shown):,} more rows: {where}")


def _show(
    title: str, columns: Sequence[str] | None, lines: list[list[str]], caption: str
) -> None:
    """Print cells as a table, without columns as names and values."""
    if not _stdout().is_terminal:
        for line in lines if columns is None else [columns, *lines]:
            typer.echo("\t".join(line))
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    box = None if columns is None else SIMPLE_HEAD
    table = Table(
        box=box,
        show_header=columns is not None,
        pad_edge=False,
        collapse_padding=columns is not None,
    )
    for column, *cells in zip(columns or ("", ""), *lines, strict=True):
        # On a narrow terminal words may be wrapped, also those of a header, but never numbers.
        numbers = columns is not None and not any(cell[:1].isalpha() for cell in cells)
        names = columns is None and not table.columns
        width = max(map(len, cells), default=0) if numbers or names else None
        justify: Any = "right" if numbers else "left"
        table.add_column(
            Text(column), justify=justify, min_width=width, overflow="fold"
        )
    for line in lines:
        table.add_row(*map(Text, line))
    # A title and a caption of the table's own would be as narrow as the table.
    for part in filter(
        None, (Text(title, "italic"), table, Text(caption, "dim italic"))
    ):
        _stdout().print(part)


def _in_words(value: object) -> str:
    """Return a value formatted for people; files have all digits.

    Examples:
        >>> [_in_words(value) for value in (True, None, 0.123456, 12345.6, 12, "text")]
        ['yes', '', '0.1235', '12346', '12', 'text']
    """
    if value is None or value != value:  # nan
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    # A line of a table must stay one: tabs and other unprintable characters are escaped.
    return "".join(
        letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(value)
    )


def safe_figure(value: float, *, up: bool = True) -> str:
    """Return a number rounded conservatively to six digits, allowing for the rounding error of a double."""
    from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

    if up:
        return f"{float(Context(prec=6, rounding=ROUND_CEILING).plus(Decimal(f'{value:.12g}'))):g}"
    return f"{float(Context(prec=6, rounding=ROUND_FLOOR).plus(Decimal(value))):g}"


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on stderr if it is a terminal; yields the function that advances it."""
    from rich.progress import Progress

    # Drawn by whoever advances it, and not by a thread: kernels draw theirs in the same line.
    with Progress(
        console=_stderr(),
        transient=True,
        disable=not _stderr().is_terminal,
        auto_refresh=False,
    ) as bars:
        task = bars.add_task(description, total=total)
        bars.refresh()
        yield lambda done: bars.update(task, advance=done, refresh=True)


@cache
def _stderr() -> Any:
    """The console for progress and notes, which prints notes above a progress bar."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _stdout() -> Any:
    from rich.console import Console

    return Console(highlight=False)
