"""The command line of the paper's experiments: `python -m paper mse`, `python -m paper train --help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paper.commands.chance import chance
from paper.commands.common import OutputOption, show_table
from paper.commands.experiments import experiment_commands
from paper.commands.learn import learn
from paper.commands.numbers import bits, costs, errors, tables
from paper.commands.train import train

app = typer.Typer(
    help="Reproduce the SSTQ paper, and train on its data sets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _name, _command in experiment_commands().items():
    _help = f"Run the experiment “{_name}” and show the paper's numbers beside ours. Run it again to resume it."
    app.command(_name, help=_help, rich_help_panel="Experiments")(_command)


@app.command()
def data(
    name: Annotated[str, typer.Argument(metavar="fashion-mnist|cifar-10")],
) -> None:
    """Download a data set into the cache and check it."""
    from paper.datasets import RELEASES, fetch

    if name not in RELEASES:
        raise typer.BadParameter(f"must be {' or '.join(RELEASES)}, got {name!r}")
    typer.echo(fetch(name))


@app.command()
def demo(output: OutputOption = Path("demo")) -> None:
    """Draw the paper's Figure 1 on digits, and learn digits from one private message per person.

    Writes report.html with both pictures and tables, the pictures, and the numbers as JSON.
    """
    from paper.demo import run_demo
    from paper.demo_page import demo_tables, write_demo

    result = run_demo(progress=lambda line: typer.echo(line, err=True))
    for table in demo_tables(result):
        show_table(table.title, table.columns, table.rows, table.caption)
    typer.echo(write_demo(result, output))


@app.command()
def figures(output: OutputOption = Path("docs/figures")) -> None:
    """Draw the pictures of the documentation from the record in experiments/."""
    from paper.page import draw_gallery

    for path in draw_gallery(output):
        typer.echo(path)


for _command in (train, errors, learn, chance, bits, tables, costs):
    app.command()(_command)


def main() -> None:
    """Run the command line; an error in the data is one line."""
    try:
        app(prog_name="python -m paper")
    except (ValueError, OSError, ImportError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
