"""`python -m paper learn`: classifiers on twelve tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from paper.commands.common import OutputOption, show_table


def learn(
    library: Annotated[
        Path,
        typer.Option(
            help="The folder of R's packages, which Debian's r-cran-mlbench and r-cran-ggplot2 fill."
        ),
    ] = Path("/usr/lib/R/site-library"),
    table: Annotated[
        list[str] | None, typer.Option(help="Only this table; repeatable.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="The number of splits.")] = 3,
    output: OutputOption = Path("learn"),
) -> None:
    """Learn classifiers from one message per person on twelve tables, beside logistic regression without privacy."""
    from paper.tables import TABLES, draw_tables, learn_tables
    from sstq.checks import check_option
    from sstq.files.atomic import write_csv

    names = [check_option("table", name, tuple(TABLES)) for name in table or TABLES]
    rows = []
    for row in learn_tables((1.0, 3.0, 6.0), seeds, library, names):
        rows.append(row)
        typer.echo(
            f"{row['table']}, total ε = {row['epsilon']:g}: {row['accuracy']:.3f}",
            err=True,
        )
    output.mkdir(parents=True, exist_ok=True)
    write_csv(output / "learn.csv", list(rows[0]), rows)
    draw_tables(rows, output / "learn.png")
    _show(rows, seeds)
    right = sum(row["useful"] == row["planned"] for row in rows)
    typer.echo(f"the plan's verdict is right in {right} of {len(rows)} cases")
    typer.echo(output)


def _show(rows: list[dict[str, Any]], seeds: int) -> None:
    """Print the means over the splits."""
    shown = (
        "majority",
        "logistic",
        "ceiling",
        "accuracy",
        "shuffled",
        "cohorts",
        "predicted",
        "balanced",
    )
    means = []
    for first in (row for row in rows if row["seed"] == 0):
        same = [
            row
            for row in rows
            if (row["table"], row["epsilon"]) == (first["table"], first["epsilon"])
        ]
        numbers = (
            f"{100 * sum(row[name] for row in same) / seeds:.1f}" for name in shown
        )
        right = sum(row["useful"] == row["planned"] for row in same)
        means.append(
            [
                first["table"],
                f"{first['people']:,}",
                f"{first['epsilon']:g}",
                *numbers,
                f"{right} of {seeds}",
            ]
        )
    show_table(
        f"Accuracy in % on people who did not answer, mean of {seeds} splits",
        ["table", "people", "total ε", *shown, "plan right"],
        means,
        "logistic, ceiling: without privacy. shuffled: δ = 1e-6. predicted: what people reported. plan right: whether "
        "“feasible” agrees with a test accuracy above that of the most frequent class by twice its error.",
    )
