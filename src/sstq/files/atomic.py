"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_file"]


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[BinaryIO]:
    """A binary file that takes its place at `path` only when the block ends without an error.

    The data are on the disk before the name is, so that a crash leaves the old file or the new one, never a part. A
    private file can be read by its owner only, from the start.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target.parent))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        mode = 0o600 if private else 0o666
        with open(temporary, "x+b", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
