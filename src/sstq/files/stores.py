"""Files on this machine and in object stores, opened the same way: s3://, gs://, https:// and what fsspec knows."""

import os
from typing import Any, BinaryIO, cast

Where = str | os.PathLike[str]


def is_remote(path: Where) -> bool:
    """Whether this is an address such as s3://bucket/name, not a path of this machine."""
    return "://" in os.fspath(path)


def open_file(path: Where) -> BinaryIO:
    """Open a file or an object for reading; OSError if that is not possible."""
    if not is_remote(path):
        return open(path, "rb")
    system, name = _system(os.fspath(path))
    return cast("BinaryIO", _Object(system.open_input_file(name), os.fspath(path)))


def version_of(path: Where) -> tuple[Any, ...]:
    """What changes if a file is written again: its place, size and time."""
    if not is_remote(path):
        found = os.stat(path)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    system, name = _system(os.fspath(path))
    info = system.get_file_info(name)
    return info.path, info.size, info.mtime_ns


def _system(address: str) -> tuple[Any, str]:
    """The file system of an address and the name in it: pyarrow's own, or fsspec's for other schemes."""
    try:
        import pyarrow
        from pyarrow import fs

        try:
            return cast("tuple[Any, str]", fs.FileSystem.from_uri(address))
        except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
            from fsspec.core import url_to_fs

            system, name = url_to_fs(address)
            return fs.PyFileSystem(fs.FSSpecHandler(system)), name
    except ImportError as error:
        raise ImportError(f"{address} needs pyarrow and fsspec: pip install 'sstq[data]' fsspec; {error}") from error


class _Object:
    """An open object with the name that errors give."""

    def __init__(self, opened: Any, name: str) -> None:
        self._opened, self.name = opened, name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._opened, attribute)

    def __enter__(self) -> "_Object":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
