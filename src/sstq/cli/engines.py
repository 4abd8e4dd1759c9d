"""The options --engine and --address: work in this process, or in tasks of Ray."""

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
    typer.Option("--engine", metavar="local|ray", help="Run in this process, or in Ray tasks (needs the ray extra)."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="Join this Ray cluster: auto, HOST:PORT or ray://HOST:PORT. "
        "[dim]\\[default: a new one on this machine's cores][/dim]"
    ),
]


@contextmanager
def engine(name: str, address: str | None) -> Iterator[bool]:
    """Yield whether the engine is Ray, connected for the duration of the block."""
    if name not in ("local", "ray"):
        raise WrongUsage(f"--engine must be 'local' or 'ray', got {name!r}")
    if name == "local":
        if address is not None:
            raise WrongUsage(f"--address needs --engine ray, got {address!r}")
        yield False
        return
    from sstq.integrations.ray import connected

    # Ray reports about its workers on stdout, which is reserved for results.
    with connected(address), redirect_stdout(sys.stderr):
        yield True
