"""What a program does before it compiles a kernel that no folder holds: nothing, unless it has said otherwise.

A library call compiles the kernels that it needs. The command line compiles all of them together (`sstq.cli`), so that
no later command waits again. Nothing heavy is imported here: the command line must start at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["at_first_compilation", "first_compilation"]

_actions: list[Callable[[], None]] = []


@contextmanager
def at_first_compilation(action: Callable[[], None]) -> Iterator[None]:
    """Call `action` once within the block, before the first kernel is compiled, if one has to be.

    Examples:
        >>> with at_first_compilation(lambda: print("compiling")):
        ...     first_compilation(), first_compilation()
        compiling
        (True, False)
    """
    _actions.append(action)
    try:
        yield
    finally:
        _actions.clear()


def first_compilation() -> bool:
    """Do what is to be done before the first kernel is compiled; returns whether there was anything to do."""
    if not _actions:
        return False
    _actions.pop()()
    return True
