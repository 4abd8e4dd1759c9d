"""`python -m paper chance`: when a classifier is better than guessing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paper.commands.common import OutputOption


def chance(
    table: Annotated[
        list[str] | None, typer.Option(help="Only this table; repeatable.")
    ] = None,
    people: Annotated[
        list[int] | None,
        typer.Option(
            min=100,
            help="Only so many people; repeatable.",
            show_default="1000 to 30000",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="The number of splits.", show_default="2 of KEEL's, 1 of R's"
        ),
    ] = None,
    output: OutputOption = Path("learn"),
) -> None:
    """Learn from 49 tables, and fit the chance that a classifier beats its most frequent class."""
    from paper.chance import (
        PEOPLE,
        TABLES,
        evidence_of_plan,
        fit_chance,
        is_useful,
        measure_all,
        right_in_hindsight,
        right_of_others,
        sure_of_others,
    )
    from sstq.checks import check_option
    from sstq.files.atomic import write_csv

    names = [check_option("table", name, tuple(TABLES)) for name in table or TABLES]
    rows = list(measure_all(names, people or PEOPLE, seeds))
    output.mkdir(parents=True, exist_ok=True)
    write_csv(output / "chance.csv", list(rows[0]), rows)
    shares = {
        "yes to all": sum(map(is_useful, rows)) / len(rows),
        "from noise and number of classes": right_of_others(rows, evidence_of_plan),
        "from noise and most frequent class": right_of_others(rows),
        "best threshold of every table, in hindsight": right_in_hindsight(rows),
    }
    for rule, share in shares.items():
        typer.echo(f"{rule}: right in {share:.1%}")
    said, right = sure_of_others(rows)
    typer.echo(f"where it is sure, in {said:.1%}: right in {right:.1%}")
    typer.echo(f"constants: {fit_chance(rows).round(3).tolist()}")
    typer.echo(output / "chance.csv")
