"""Errors of commands: one line each on stderr, exit code 2 for wrong usage and 1 for everything else."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import traceback
import warnings
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager

import typer

from sstq.cli.terminal import complain, paragraphs, warn

__all__ = ["WrongUsage", "add_command", "check_usage"]


class WrongUsage(ValueError):  # noqa: N818 (a mistake of the user, not a failure)
    """The command line is wrong, whatever the data are."""


_USAGE = (WrongUsage, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


def add_command(
    app: typer.Typer, command: Callable[..., None] | typer.Typer, name: str | None = None, panel: str | None = None
) -> None:
    """Add a function to the commands of an application: its docstring is the help, its errors are one line each.

    A group of commands has its own name and help.
    """
    if isinstance(command, typer.Typer):
        app.add_typer(command, rich_help_panel=panel)
    else:
        app.command(name, help=paragraphs(command.__doc__ or ""), rich_help_panel=panel)(_reporting(command))


@contextmanager
def check_usage(**options: str) -> Iterator[None]:
    """Turn a ValueError of the library within the block into a usage error.

    An argument that the error is about is shown as the command's option of the same name, unless `options` has another
    one: mechanism="--name" if the library's argument is called mechanism.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        from sstq.checks import ArgumentError

        if isinstance(error, OSError):  # a missing data set
            raise
        if isinstance(error, ArgumentError) and error.argument in options:
            raise WrongUsage(f"{options[error.argument]} {error.problem}") from error
        raise WrongUsage(str(error)) from error


def _reporting(command: Callable[..., None]) -> Callable[..., None]:
    options = inspect.signature(command).parameters

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
            complain(_as_typed(error, options))
            raise typer.Exit(2 if isinstance(error, _USAGE) else 1) from error

    return reporting


def _as_typed(error: Exception, options: Container[str]) -> Exception | str:
    """Return the error, or its text with the option instead of the argument that it is about."""
    from sstq.checks import ArgumentError

    about = error.__cause__
    if isinstance(error, WrongUsage) and isinstance(about, ArgumentError) and about.argument in options:
        return f"--{about.argument.replace('_', '-')} {about.problem}"
    return error
