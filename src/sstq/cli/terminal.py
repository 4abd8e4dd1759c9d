"""Printing: results on stdout, progress, notes and errors on stderr.

On a terminal results are formatted tables. Otherwise they are lines of tab-separated values, for other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import typer


def paragraphs(text: str) -> str:
    r"""Return a help text with one line per paragraph, so that the terminal can wrap it.

    Square brackets are escaped, so that rich does not take them for markup.

    Examples:
        >>> print(paragraphs("One\n    thing.\n\n    The [demo] extra."))
        One thing.
        <BLANKLINE>
        The \[demo] extra.
    """
    lines = (" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
    return "\n\n".join(lines).replace("[", r"\[")


def complain(error: Exception | str) -> None:
    """Print an error as one line on stderr."""
    _stderr().print(_line("error: ", "bold red", _message(error), "red"), soft_wrap=True)


def warn(text: str) -> None:
    """Print a conspicuous warning on stderr."""
    _stderr().print(_line("warning: ", "bold black on yellow", text, "bold yellow"), soft_wrap=True)


def note(text: str) -> None:
    """Print a remark on stderr."""
    _stderr().print(_line("", "", text, "dim"), soft_wrap=True)


# Of facts, a terminal shows so many unless all are asked for.
_FIRST = 5


def show_facts(title: str, facts: Sequence[tuple[str, object]], *, verbose: bool = True) -> None:
    """Print names and values on stdout, except for empty values (None or an empty string).

    A terminal shows the first five unless `verbose`; a file or another program gets all.
    """
    shown = [(name, text) for name, value in facts if (text := _in_words(value))]
    if not _stdout_is_terminal():
        for name, text in shown:
            typer.echo(f"{name}\t{text}")
        return
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table(title=escape(title), title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    first = shown if verbose else shown[:_FIRST]
    for name, text in first:
        table.add_row(Text(name), Text(text))
    _stdout().print(table)
    if len(first) < len(shown):
        more = len(shown) - len(first)
        note(f"--verbose shows {more} more line{'s' * (more > 1)}")


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], caption: str) -> None:
    """Print a table on stdout; the caption is for terminals only."""
    lines = [[_in_words(cell) for cell in row] for row in rows]
    if not _stdout_is_terminal():
        for line in [columns, *lines]:
            typer.echo("\t".join(line))
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column, *cells in zip(columns, *lines, strict=True):
        # On a narrow terminal words may be wrapped, also those of a header, but never numbers.
        numbers = not any(cell[:1].isalpha() for cell in cells)
        width = max(map(len, cells), default=0) if numbers else None
        table.add_column(Text(column), justify="right" if numbers else "left", min_width=width, overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    # A title and a caption of the table's own would be as narrow as the table.
    for part in filter(None, (Text(title, "italic"), table, Text(caption, "dim italic"))):
        _stdout().print(part)


def _in_words(value: object) -> str:
    """Return a value formatted for people; files have all digits.

    Examples:
        >>> [_in_words(value) for value in (True, None, 0.123456, 12, "text")]
        ['yes', '', '0.1235', '12', 'text']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr if it is a terminal; yields the function that advances it."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = _stderr()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(description, total=total)
        yield partial(bars.advance, task)


def _message(error: Exception | str) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error) or type(error).__name__


def _line(head: str, head_style: str, text: str, style: str) -> Any:
    from rich.text import Text

    return Text.assemble((head, head_style), (" ".join(text.split()), style))


@cache
def _stderr() -> Any:
    """The console for progress and notes, which prints notes above a progress bar."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _stdout() -> Any:
    from rich.console import Console

    return Console(highlight=False)


def _stdout_is_terminal() -> bool:
    return bool(_stdout().is_terminal)
