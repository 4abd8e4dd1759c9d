"""Errors of commands: one line each on stderr, exit code 2 for wrong usage and 1 for everything else."""

from __future__ import annotations

import errno
import functools
import os
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_type_hints

import typer
from typer.core import TyperGroup
from typer.models import ArgumentInfo

from sstq.cli.terminal import complain, paragraphs, warn


class WrongUsage(ValueError):  # noqa: N818 (a mistake of the user, not a failure)
    """The command line is wrong, whatever the data are."""


# Of modules that are missing, the extra that installs them.
_EXTRAS = {"cryptography": "client"} | dict.fromkeys(("fastapi", "pydantic", "sqlalchemy", "uvicorn"), "service")
_USAGE = (WrongUsage, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)

# Click's UsageError, wherever typer keeps it: newer versions bring a click of their own.
_PARSER_ERROR: Any = typer.BadParameter.__bases__[0]


class CommandGroup(TyperGroup):
    """Commands whose mistakes in options are one line on stderr, like all other errors."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse what comes before the command."""
        with _one_line():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Find the command, parse its options and run it."""
        with _one_line():
            return super().invoke(ctx)


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except _PARSER_ERROR as error:
        # Without arguments there is no message: the help has been printed.
        if type(error).__name__ != "NoArgsIsHelpError":
            place = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
            complain(error.format_message().rstrip(".") + place)
        raise typer.Exit(2) from error


def add_command(app: typer.Typer, command: Callable[..., None] | typer.Typer, panel: str | None = None) -> None:
    """Add a function to the commands of an application: its docstring is the help, its errors are one line each.

    A group of commands has its own name and help.
    """
    if isinstance(command, typer.Typer):
        app.add_typer(command, rich_help_panel=panel)
    else:
        name = command.__name__.rstrip("_")  # which would be a word of Python, as in try_
        app.command(name, help=paragraphs(command.__doc__ or ""), rich_help_panel=panel)(_reporting(command))


def command_group(name: str, text: str, *commands: Callable[..., None]) -> typer.Typer:
    """Return a group of commands with this help."""
    group = typer.Typer(
        name=name, cls=CommandGroup, no_args_is_help=True, help=paragraphs(text), rich_markup_mode="rich"
    )
    for command in commands:
        add_command(group, command)
    return group


@contextmanager
def check_usage() -> Iterator[None]:
    """Turn a ValueError or TypeError of the library within the block into a usage error."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise WrongUsage(str(error)) from error


def _reporting(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def reporting(*args: object, **kwargs: object) -> None:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_, **__: warn(str(message))
                command(*args, **kwargs)
        except (ValueError, OSError, ImportError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of our output closed the pipe, which typer handles
            if os.environ.get("SSTQ_DEBUG"):
                traceback.print_exception(error)
            typed = _as_typed(error, command)
            missing = str(getattr(error, "name", None))
            extra = _EXTRAS.get(missing)
            complain(f"this needs {missing}: pip install 'sstq[{extra}]'" if extra else typed or error)
            raise typer.Exit(2 if typed or isinstance(error, _USAGE) else 1) from error

    return reporting


def _as_typed(error: Exception, command: Callable[..., None]) -> str | None:
    """Return the error with the option instead of the library's argument that it is about, if there is such an option.

    Parameters of commands are named like the arguments that they become, whatever the option is called.
    """
    from sstq.checks import ArgumentError

    about = error.__cause__ if isinstance(error, WrongUsage) else error
    hint = get_type_hints(command, include_extras=True).get(getattr(about, "argument", ""))
    if not isinstance(about, ArgumentError) or hint is None:
        return None
    (option,) = hint.__metadata__
    if isinstance(option, ArgumentInfo):
        return None
    # Within Annotated, what is given first takes the place of a default.
    flags = [name for name in (option.default, *(option.param_decls or ())) if str(name).startswith("--")]
    flag = flags[0] if flags else "--" + about.argument.replace("_", "-")
    return f"{flag} {about.problem}"
