"""A hook that runs before the first kernel is compiled.

A library call compiles only the kernels it needs. The command line uses the hook to compile all of them, so that
no later command has to wait. Nothing heavy is imported here: the command line must start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_actions: list[Callable[[], None]] = []


@contextmanager
def at_first_compilation(action: Callable[[], None]) -> Iterator[None]:
    """Call `action` once within the block, before the first kernel is compiled, if any is.

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
    """Run the hook before the first kernel is compiled; returns whether there was one."""
    if not _actions:
        return False
    _actions.pop()()
    return True
