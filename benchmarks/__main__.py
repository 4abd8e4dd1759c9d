"""Run benchmarks by name, or all of them: `python -m benchmarks transform encoding --output run.json`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

# Importing a module registers its benchmarks.
import benchmarks.abuse
import benchmarks.alarms
import benchmarks.bands
import benchmarks.calibration
import benchmarks.clients
import benchmarks.comparison
import benchmarks.engines
import benchmarks.errors
import benchmarks.service
import benchmarks.shuffled
import benchmarks.speed
import benchmarks.studies
import benchmarks.surveys  # noqa: F401
from benchmarks.harness import BENCHMARKS, Result, write_run


def main(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"{', '.join(BENCHMARKS)}; all if none is given."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the figures as JSON.")
    ] = None,
) -> None:
    """Run benchmarks and print a table each."""
    for name in names or []:
        if name not in BENCHMARKS:
            raise typer.BadParameter(
                f"must be one of {', '.join(BENCHMARKS)}, got {name!r}"
            )
    results: dict[str, list[Result]] = {}
    try:
        for name in names or BENCHMARKS:
            results[name] = []
            for line in BENCHMARKS[name]():
                if isinstance(line, Result):
                    results[name].append(line)
                else:
                    typer.echo(f"{name}: {line.text}", err=True)
            show(name, results[name])
    finally:
        # What was measured before an interruption is kept.
        if output is not None:
            write_run(results, output)


def show(name: str, lines: list[Result]) -> None:
    """Print the table of a benchmark."""
    title = f"{name}: {(BENCHMARKS[name].__doc__ or '').splitlines()[0]}"
    table = Table(
        "what", "measured", "±", "target", "", "note", title=title, title_justify="left"
    )
    for line in lines:
        spread = "" if line.spread is None else f"{100 * line.spread:.0f} %"
        table.add_row(
            line.what,
            f"{line.figure:.3g} {line.unit}",
            spread,
            line.goal,
            line.verdict,
            line.note,
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":
    typer.run(main)
