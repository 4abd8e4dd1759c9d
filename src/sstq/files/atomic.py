"""Atomic writes (a file appears completely or not at all) and locks between processes."""

import csv
import errno
import fcntl
import io
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

_locked: set[int] = set()


@contextmanager
def atomic_file(
    path: str | os.PathLike[str], *, private: bool = False, locked: bool = False
) -> Iterator[BinaryIO]:
    """Open a binary file that appears at `path` only if the block ends without an error.

    The data reach the disk before the name does, so a crash leaves the old file or the new one, never a part. A
    private file is readable only by its owner, from the start. Where a lock allows only one writer, `locked`, what a
    killed one left is replaced.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, os.strerror(errno.ENOENT), str(target.parent)
        )
    temporary = target.with_name(
        f".{target.name}.{'new' if locked else secrets.token_hex(8)}"
    )
    try:
        if locked:
            temporary.unlink(missing_ok=True)
        descriptor = os.open(
            temporary,
            os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
            0o600 if private else 0o666,
        )
        with open(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_csv(
    path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> None:
    """Write rows of named values as CSV, the columns in this order; None is an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with atomic_file(path) as file:
        file.write(text.getvalue().encode())


def write_files(folder: Path, contents: Mapping[str, Any]) -> None:
    """Write rows (.csv), an array (.npy), several (.npz) or JSON values to each file, as its name says."""
    import numpy as np

    for name, content in contents.items():
        path = folder / name
        if path.suffix == ".csv":
            write_csv(path, list(content[0]), content)
            continue
        with atomic_file(path) as file:
            if path.suffix == ".npy":
                np.save(file, content)
            elif path.suffix == ".npz":
                np.savez(file, **content)
            else:
                text = json.dumps(content, indent=2, allow_nan=False)
                file.write(text.encode() + b"\n")


@contextmanager
def locked_file(path: Path) -> Iterator[int]:
    """Hold the lock of a file, created if need be, against other threads and processes; yields its descriptor."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _locked.add(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The file may have been removed while this process waited; then the valid lock is a newer one.
            if _is_at(path, descriptor):
                yield descriptor
                return
        finally:
            if descriptor in _locked:  # not in a child that was forked in here
                _locked.remove(descriptor)
                # Closing alone would leave the lock to copies of the descriptor.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _forget_in_child() -> None:
    """Close a forked child's copies, which would hold the lock as long as it lives; the parent's are untouched."""
    while _locked:
        os.close(_locked.pop())


os.register_at_fork(after_in_child=_forget_in_child)
