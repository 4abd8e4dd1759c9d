"""The `sstq` command: one module per subcommand, which parses options, calls the library and prints.

Only typer is imported before a command runs, so that `sstq --help` is fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from sstq.cli.account import account
from sstq.cli.aggregate import aggregate
from sstq.cli.audit import audit
from sstq.cli.campaign import campaign
from sstq.cli.clip import clip
from sstq.cli.compare import compare
from sstq.cli.encode import encode
from sstq.cli.inspect import inspect
from sstq.cli.plan import plan
from sstq.cli.send import send
from sstq.cli.serve import serve, shuffler
from sstq.cli.spec import spec
from sstq.cli.sql import sql
from sstq.cli.survey import survey
from sstq.cli.terminal import paragraphs
from sstq.cli.try_ import try_
from sstq.cli.usage import CommandGroup, add_command

__all__ = ["app", "main"]

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PANELS: dict[str, tuple[Callable[..., None] | typer.Typer, ...]] = {
    "Collect": (spec, encode, sql, aggregate, inspect),
    "Plan": (plan, try_, compare, clip, survey),
    "Serve": (serve, campaign, send, shuffler),
    "Check": (audit, account),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        add_command(app, _command, panel=_panel)


def _print_version(wanted: bool) -> None:
    if wanted:
        from sstq._version import __version__

        typer.echo(f"sstq {__version__}")
        raise typer.Exit


_HELP = """
Estimate the mean of many people's vectors with ε-local differential privacy, in about 20 bits per person.

Clients and server share a mechanism (sstq spec). Clients encode vectors as private messages (sstq encode), and the
server estimates the mean and its error from the messages (sstq aggregate).

Exit codes: 0 success; 1 an error in the data, or an infeasible plan; 2 wrong usage, such as a bad option or a missing
file; 130 interrupted. SSTQ_DEBUG=1 shows the traceback of an error.
"""


@app.callback(help=paragraphs(_HELP))
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read the options that come before a command."""


def main() -> None:
    """Run the command line, as `sstq` does."""
    app(prog_name="sstq")
