"""The lock beside a ledger. It also remembers that there was a ledger, and whether a writer died at work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sstq.files.atomic import locked_file

__all__ = ["Lock", "locked"]

_NEW, _CREATED, _WRITING = b"-", b"+", b"w"


class Lock:
    """A held lock. Its file has two bytes: whether the ledger was created, and whether it is being written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def created(self) -> bool:
        """Whether the ledger was created, so that its absence is a loss and not a beginning."""
        return os.pread(self._descriptor, 1, 0) not in (b"", _NEW)

    def mark_created(self) -> None:
        """Remember on the disk that the ledger was created."""
        os.pwrite(self._descriptor, _CREATED, 0)
        os.fsync(self._descriptor)

    @contextmanager
    def writing(self) -> Iterator[bool]:
        """Mark that the ledger is being written; the block learns whether an earlier writer died in here."""
        died = os.pread(self._descriptor, 1, 1) == _WRITING
        os.pwrite(self._descriptor, (_CREATED if self.created else _NEW) + _WRITING, 0)
        yield died
        os.ftruncate(self._descriptor, 1)


@contextmanager
def locked(ledger: Path) -> Iterator[Lock]:
    """Hold the lock of a ledger against other threads and processes; it is let go even when the process is killed."""
    with locked_file(ledger.with_name(f"{ledger.name}.lock")) as descriptor:
        yield Lock(descriptor)
