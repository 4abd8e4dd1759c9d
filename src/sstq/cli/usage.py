"""Usage errors: they end with exit code 2, and name options as they are typed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

__all__ = ["WrongUsage", "check_usage"]


class WrongUsage(ValueError):  # noqa: N818 (a mistake, as click calls it)
    """The command line is wrong, whatever the data are."""


@contextmanager
def check_usage(**options: str) -> Iterator[None]:
    """Turn a ValueError of the library within the block into a usage error.

    Arguments that the error names become options of the command, with the same names unless `options` has others:
    mechanism="--name" if the library's argument is called mechanism.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        if isinstance(error, OSError):  # a missing data set
            raise
        raise WrongUsage(_as_typed(str(error), options)) from error


def _as_typed(text: str, others: dict[str, str]) -> str:
    """Return an error with --target-error for target_error, except in ordinary words.

    A name counts as an argument at the beginning, in quotes, with a value, or if it has an underscore.
    """
    typed = (option for parameter in click.get_current_context().command.params for option in parameter.opts)
    options = {option[2:].replace("-", "_"): option for option in typed if option.startswith("--")} | others
    name = rf"(?<![\w-])({'|'.join(options)})(?![\w-])"
    text = re.sub(rf"{name} ?= ?(?=[\w'.-])", lambda found: f"{options[found[1]]} ", text)
    text = re.sub(rf"^{name}|'{name}'|{name}=", lambda found: options[found[found.lastindex or 0]], text)
    return re.sub(name, lambda found: options[found[1]] if "_" in found[1] else found[1], text)
