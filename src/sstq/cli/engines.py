"""Where the work is done: in this process, or in tasks of Ray."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Annotated

import typer

from sstq.cli.usage import WrongUsage

__all__ = ["AddressOption", "EngineOption", "engine"]

EngineOption = Annotated[
    str,
    typer.Option("--engine", metavar="local|ray", help="Work in this process, or in Ray tasks (the ray extra)."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="The Ray to join: auto, HOST:PORT or ray://HOST:PORT. "
        "[dim]\\[default: one of our own on this machine's cores][/dim]"
    ),
]


@contextmanager
def engine(name: str, address: str | None) -> Iterator[bool]:
    """Give the block the engine: whether it is Ray, to which it is connected then."""
    if name not in ("local", "ray"):
        raise WrongUsage(f"--engine must be 'local' or 'ray', got {name!r}")
    if name == "local":
        if address is not None:
            raise WrongUsage(f"--address is for --engine ray, got {address!r}")
        yield False
        return
    from sstq.integrations.ray import connected

    # Ray reports what happens to its workers on stdout, which is for results.
    with connected(address), redirect_stdout(sys.stderr):
        yield True
