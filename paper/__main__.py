"""The command line of the reproduction: `python -m paper COMMAND`."""

import typer

from paper.commands.data import data
from paper.commands.demo import demo
from paper.commands.reproduce import reproduce
from paper.commands.train import train

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for command in (reproduce, train, demo):
    app.command()(command)
app.add_typer(data, name="data")

if __name__ == "__main__":
    app(prog_name="python -m paper")
