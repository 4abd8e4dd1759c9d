"""Mistakes in what was typed: they end with exit code 2, and speak of options as they are typed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

__all__ = ["WrongUsage", "check_usage"]


class WrongUsage(ValueError):  # noqa: N818 (a mistake, as click calls it)
    """What was typed cannot be right, whatever the data are."""


@contextmanager
def check_usage(**options: str) -> Iterator[None]:
    """Within the block, a ValueError of the library is about what was typed.

    Arguments that the error names become the options of the command, by their own names unless `options` has others:
    mechanism="--name" where the library's argument is called mechanism.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        if isinstance(error, OSError):  # a data set that is not there
            raise
        raise WrongUsage(_as_typed(str(error), options)) from error


def _as_typed(text: str, others: dict[str, str]) -> str:
    """Return an error with --target-error for target_error, where that is not an ordinary word.

    A name is an argument's at the beginning, in quotes, with a value, and if it has an underscore.
    """
    typed = (option for parameter in click.get_current_context().command.params for option in parameter.opts)
    options = {option[2:].replace("-", "_"): option for option in typed if option.startswith("--")} | others
    name = rf"(?<![\w-])({'|'.join(options)})(?![\w-])"
    text = re.sub(rf"{name} ?= ?(?=[\w'.-])", lambda found: f"{options[found[1]]} ", text)
    text = re.sub(rf"^{name}|'{name}'|{name}=", lambda found: options[found[found.lastindex or 0]], text)
    return re.sub(name, lambda found: options[found[1]] if "_" in found[1] else found[1], text)
