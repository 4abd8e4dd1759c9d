"""What the commands share: options, and tables in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

OutputOption = Annotated[
    Path, typer.Option("--output", "-o", help="Write everything to this folder.")
]
DataOption = Annotated[
    Path | None, typer.Option(help="Read the data sets from this folder.")
]
RoundsOption = Annotated[int | None, typer.Option(min=1, help="The number of rounds.")]
ClientsOption = Annotated[
    int | None,
    typer.Option(min=1, help="The number of clients, the paper's workers W."),
]


def show_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = ""
) -> None:
    """Print a table, as wide as it needs to be if nobody is looking."""
    table = Table(
        title=title, caption=caption, title_justify="left", caption_justify="left"
    )
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
