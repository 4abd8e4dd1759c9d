"""The `sstq` command: one module per subcommand, which parses options, calls the library and prints.

Only typer is imported before a command runs, so that `sstq --help` is fast. Every error is one line on stderr, with
exit code 2 for wrong usage and 1 for everything else.
"""

import errno
import os
import traceback
import warnings
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sstq.cli import audit, campaign, study, survey
from sstq.cli.account import account
from sstq.cli.aggregate import aggregate
from sstq.cli.clip import clip
from sstq.cli.common import WrongUsage, flag
from sstq.cli.compare import compare
from sstq.cli.encode import encode
from sstq.cli.inspect import inspect
from sstq.cli.plan import plan
from sstq.cli.send import send
from sstq.cli.serve import serve, shuffler
from sstq.cli.spec import spec
from sstq.cli.sql import sql
from sstq.cli.terminal import complain, warn
from sstq.cli.try_ import try_

__all__ = ["app", "main"]

# Of modules that are missing, the extra that installs them.
_EXTRAS = {"cryptography": "client"} | dict.fromkeys(
    ("fastapi", "pydantic", "sqlalchemy", "uvicorn"), "service"
)
_USAGE = (
    WrongUsage,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
)
# Click's UsageError, wherever typer keeps it: newer versions bring a click of their own.
_PARSER_ERROR: Any = typer.BadParameter.__bases__[0]


class PlainFlags:
    """A command or group whose flags have no <bool> beside them in the help, as newer versions of typer print it."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options and arguments, with --help."""
        parameters = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class Command(PlainFlags, TyperCommand):
    """One command."""


class CommandGroup(PlainFlags, TyperGroup):
    """Commands whose errors and warnings are one line each on stderr."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse what comes before the command."""
        try:
            return super().make_context(*args, **extra)
        except _PARSER_ERROR as error:
            raise _wrong_options(error) from error

    def invoke(self, ctx: Any) -> Any:
        """Find the command, parse its options and run it."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_, **__: warn(str(message))
                return super().invoke(ctx)
        except _PARSER_ERROR as error:
            raise _wrong_options(error) from error
        except (ValueError, OSError, ImportError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of our output closed the pipe, which typer handles
            if os.environ.get("SSTQ_DEBUG"):
                traceback.print_exception(error)
            typed = _as_typed(error, self.commands[ctx.invoked_subcommand])
            missing = str(getattr(error, "name", None))
            extra = _EXTRAS.get(missing)
            complain(
                f"this needs {missing}: pip install 'sstq[{extra}]'"
                if extra
                else typed or error
            )
            raise typer.Exit(2 if typed or isinstance(error, _USAGE) else 1) from error


def _wrong_options(error: Any) -> typer.Exit:
    # Without arguments there is no message: the help has been printed.
    if type(error).__name__ != "NoArgsIsHelpError":
        place = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        complain(error.format_message().rstrip(".") + place)
    return typer.Exit(2)


def _as_typed(error: Exception, command: Any) -> str | None:
    """Return the error with the option instead of the library's argument that it is about, if there is such an option.

    Parameters of commands are named like the arguments that they become, whatever the option is called.
    """
    about: Any = error.__cause__ if isinstance(error, WrongUsage) else error
    for parameter in command.params:
        if parameter.name == getattr(about, "argument", ""):
            typed = next(
                (name for name in parameter.opts if name.startswith("--")),
                str(parameter.name).upper(),
            )
            return f"{typed} {about.problem}"
    return None


def _paragraphs(text: str | None) -> str:
    """Return a help text with one line per paragraph, which the terminal wraps, and without rich's markup."""
    lines = (
        " ".join(paragraph.split()) for paragraph in (text or "").strip().split("\n\n")
    )
    return "\n\n".join(lines).replace("[", r"\[")


def _group(text: str, panels: dict[str | None, Any], **settings: Any) -> typer.Typer:
    """Return a group of functions as commands by panel: their docstrings are the help."""
    settings |= {
        "no_args_is_help": True,
        "rich_markup_mode": "rich",
        "help": _paragraphs(text),
    }
    group = typer.Typer(cls=CommandGroup, **settings)
    for panel, commands in panels.items():
        for command in commands:
            # which would be a word of Python, as in try_
            name = command.__name__.rstrip("_")
            group.command(
                name,
                cls=Command,
                help=_paragraphs(command.__doc__),
                rich_help_panel=panel,
            )(command)
    return group


_HELP = """
Estimate the mean of many people's vectors with ε-local differential privacy, in about 20 bits per person.

Clients and server share a mechanism (sstq spec). Clients encode vectors as private messages (sstq encode), and the
server estimates the mean and its error from the messages (sstq aggregate).

Exit codes: 0 success; 1 an error in the data, or an infeasible plan; 2 wrong usage, such as a bad option or a missing
file; 130 interrupted. SSTQ_DEBUG=1 shows the traceback of an error.
"""
app = _group(
    _HELP,
    {
        "Collect": (spec, encode, sql, aggregate, inspect),
        "Plan": (plan, try_, compare, clip),
        "Serve": (serve, send, shuffler),
        "Check": (account,),
    },
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _module, _panel in (
    (survey, "Plan"),
    (study, "Collect"),
    (campaign, "Serve"),
    (audit, "Check"),
):
    _name = _module.__name__.rpartition(".")[2]
    app.add_typer(
        _group(_module.HELP, {None: _module.COMMANDS}),
        name=_name,
        rich_help_panel=_panel,
    )


def _print_version(wanted: bool) -> None:
    if wanted:
        from sstq._version import __version__

        typer.echo(f"sstq {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = flag(
        "Show the version and exit.",
        "--version",
        callback=_print_version,
        is_eager=True,
    ),
) -> None:
    """Read the options that come before a command."""


def main() -> None:
    """Run the command line, as `sstq` does."""
    app(prog_name="sstq")
