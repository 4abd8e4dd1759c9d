"""What the commands print, and where: results on stdout, progress and complaints on stderr.

On a terminal results are tables to look at. Otherwise they are lines of tab-separated values, for other programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import typer

__all__ = ["complain", "live_line", "note", "paragraphs", "progress", "show_facts", "show_table", "warn"]


def paragraphs(text: str) -> str:
    r"""Return a help text with one line a paragraph, for the terminal to break where it is wide.

    Examples:
        >>> paragraphs("One\n    thing.\n\n    Another.")
        'One thing.\n\nAnother.'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def complain(error: Exception | str) -> None:
    """Print an error as one line on stderr."""
    _stderr().print(_line("error: ", "bold red", _message(error), "red"), soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning that is hard to overlook on stderr."""
    _stderr().print(_line("warning: ", "bold black on yellow", text, "bold yellow"), soft_wrap=True)


def note(text: str) -> None:
    """Print a remark on stderr."""
    _stderr().print(_line("", "", text, "dim"), soft_wrap=True)


def show_facts(title: str, facts: Sequence[tuple[str, object]]) -> None:
    """Print names and values on stdout."""
    if not _stdout_is_terminal():
        for name, value in facts:
            typer.echo(f"{name}\t{value}")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(str(value)))
    _stdout().print(table)


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], caption: str) -> None:
    """Print a table on stdout; the caption is for terminals only."""
    if not _stdout_is_terminal():
        for row in [columns, *rows]:
            typer.echo("\t".join(str(cell) for cell in row))
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, caption=caption, caption_justify="left")
    for column in columns:
        table.add_column(Text(column), justify="right")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    _stdout().print(table)


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how far the work is on stderr, when that is a terminal; the block gets the function that advances it."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = _stderr()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(description, total=total)
        yield lambda amount: bars.advance(task, amount)


# A log has about so many lines of progress, and one at least so often.
_LOG_LINES, _LOG_SECONDS = 20, 30.0


@contextmanager
def live_line(description: str, total: float, *, estimate: bool = True) -> Iterator[Callable[[float, str], None]]:
    """Show how far the work is and how it goes; the block gets what takes count and text.

    On a terminal that is one line with a bar, in a log a line every few counts, or after half a minute. The bar has an
    estimate of the time that is left, unless the text has one of its own.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = _stderr()
    if not console.is_terminal:
        yield _log_lines(description, total)
        return
    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}")]
    columns += [TimeRemainingColumn()] if estimate else []
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(description, total=total, text="")
        yield lambda count, text: bars.update(task, completed=count, text=text)


def _log_lines(description: str, total: float) -> Callable[[float, str], None]:
    shown, due = -1, 0.0

    def show(count: float, text: str) -> None:
        nonlocal shown, due
        share = count / total if total else 1.0
        mark = int(_LOG_LINES * share + 1e-6)
        if mark != shown or time.monotonic() >= due:
            note(f"{description}, {share:.0%}: {text}")
            shown, due = mark, time.monotonic() + _LOG_SECONDS

    return show


def _message(error: Exception | str) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error) or type(error).__name__


def _line(head: str, head_style: str, text: str, style: str) -> Any:
    from rich.text import Text

    return Text.assemble((head, head_style), (" ".join(text.split()), style))


@cache
def _stderr() -> Any:
    """The console of all progress and remarks: one that has a bar on the screen prints remarks above it."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _stdout() -> Any:
    from rich.console import Console

    return Console(highlight=False)


def _stdout_is_terminal() -> bool:
    return bool(_stdout().is_terminal)
