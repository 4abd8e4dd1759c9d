"""Locks on files that hold against other threads and processes, and that a forked child has no part in."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["locked_file"]

_held: set[int] = set()


def _forget_in_child() -> None:
    """Close a forked child's copies, which would hold the lock as long as it lives; the parent's are untouched."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_forget_in_child)


@contextmanager
def locked_file(path: Path) -> Iterator[int]:
    """Hold the lock of a file, which is created if need be, and yield its descriptor.

    The lock is let go even when the process is killed.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _held.add(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Somebody may have removed the file while this process waited; then the lock that counts is a newer one.
            if _is_at(path, descriptor):
                yield descriptor
                return
        finally:
            if descriptor in _held:  # not in a child that was forked in here
                _held.remove(descriptor)
                # Closing alone would leave the lock to copies of the descriptor.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
