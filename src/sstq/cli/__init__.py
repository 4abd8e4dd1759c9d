"""The `sstq` command: one module per subcommand, which parses options, calls the library and prints.

Only typer is imported before a command runs, so that `sstq --help` is fast.
"""

from __future__ import annotations

import errno
import traceback
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sstq.cli.account import account
from sstq.cli.aggregate import aggregate
from sstq.cli.audit import audit
from sstq.cli.campaign import campaign
from sstq.cli.channel import channel
from sstq.cli.clip import clip
from sstq.cli.compare import compare, mechanisms
from sstq.cli.encode import encode
from sstq.cli.frontier import frontier
from sstq.cli.inspect import inspect
from sstq.cli.plan import plan
from sstq.cli.send import send
from sstq.cli.serve import serve
from sstq.cli.shuffler import shuffler
from sstq.cli.spec import spec
from sstq.cli.terminal import complain, paragraphs, warn
from sstq.cli.usage import WrongUsage
from sstq.cli.warmup import compile_together, warmup
from sstq.compilation import at_first_compilation

__all__ = ["app", "main"]

_USAGE = (WrongUsage, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


class _Commands(TyperGroup):
    """Commands that print errors and warnings as one line; --debug shows the traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with at_first_compilation(compile_together), warnings.catch_warnings():
                warnings.showwarning = lambda message, *_, **__: warn(str(message))
                return super().invoke(ctx)
        except (ValueError, OSError, ImportError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of our output closed the pipe, which typer handles
            if ctx.params.get("debug"):
                traceback.print_exception(error)
            complain(error)
            raise typer.Exit(2 if isinstance(error, _USAGE) else 1) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    spec,
    encode,
    aggregate,
    inspect,
    channel,
    mechanisms,
    compare,
    frontier,
    plan,
    account,
    warmup,
    serve,
    shuffler,
    send,
):
    app.command(help=paragraphs(command.__doc__ or ""))(command)
for group, name in ((clip, "clip"), (campaign, "campaign")):
    app.add_typer(group, name=name)
app.add_typer(audit, name="audit")


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
file; 130 interrupted.
"""


@app.callback(help=paragraphs(_HELP))
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", envvar="SSTQ_DEBUG", help="Show the traceback of an error.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read the options that come before a command."""


def main() -> None:
    """Run the command line, as `sstq` does."""
    app(prog_name="sstq")
