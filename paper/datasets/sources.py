"""Files of a data set on the disk: in folders, plain or gzipped, and in archives.

All files that a source yields have passed their checksums. Archives are read in memory, by the names of the members
needed; nothing is unpacked to paths from an archive.
"""

from __future__ import annotations

import gzip
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from sstq.files.npy import DAMAGED_ARCHIVE
from paper.datasets.releases import DataFile

__all__ = [
    "ArchiveSource",
    "Content",
    "FolderSource",
    "GzipSource",
    "PickledSource",
    "Source",
    "UnusableSourceError",
    "read_members",
]

Content = tuple[DataFile, bytes]

_DAMAGED: tuple[type[Exception], ...] = (*DAMAGED_ARCHIVE, tarfile.TarError)


class UnusableSourceError(ValueError):
    """Files are missing or damaged, or a source cannot be reached; the message says which."""


class Source(ABC):
    """A source of the files of a data set.

    Attributes:
        label: its name in messages.
    """

    label: str

    def contents(self, files: Sequence[DataFile]) -> Iterator[Content]:
        """Yield these files in any order, checked; UnusableSourceError as soon as one is missing or wrong."""
        missing = [file.name for file in files]
        try:
            for file, content in self._read(files):
                file.check(content)
                missing.remove(file.name)
                yield file, content
        except _DAMAGED as error:
            raise UnusableSourceError(f"{self.label}: {error or type(error).__name__}") from error
        if missing:
            raise UnusableSourceError(f"{self.label}: {', '.join(missing)} missing")

    @abstractmethod
    def _read(self, files: Sequence[DataFile]) -> Iterator[Content]:
        """Yield the files that exist, unchecked, with at most one byte more than expected."""


class FolderSource(Source):
    """Files with their own names in one folder, or with .gz at the end."""

    def __init__(self, folder: Path) -> None:
        self.label = str(folder)
        self._folder = folder

    def has_any(self, files: Sequence[DataFile]) -> bool:
        """Whether at least one of the files exists."""
        return any(self._candidates(file) for file in files)

    def _candidates(self, file: DataFile) -> list[Path]:
        names = (file.name, f"{file.name}.gz")
        return [path for name in names if (path := self._folder / name).is_file()]

    def _read(self, files: Sequence[DataFile]) -> Iterator[Content]:
        for file in files:
            if found := self._candidates(file):
                yield file, _read_plain_or_gzip(found[0], file.size + 1)


class GzipSource(Source):
    """One gzipped file with any name."""

    def __init__(self, path: Path, label: str) -> None:
        self.label = label
        self._path = path

    def _read(self, files: Sequence[DataFile]) -> Iterator[Content]:
        for file in files:
            with gzip.open(self._path) as stream:
                yield file, stream.read(file.size + 1)


class ArchiveSource(Source):
    """A .tar.gz that has the files in one folder."""

    def __init__(self, path: Path, folder: str, label: str | None = None) -> None:
        self.label = label or str(path)
        self._path = path
        self._folder = folder

    def _read(self, files: Sequence[DataFile]) -> Iterator[Content]:
        wanted = {f"{self._folder}/{file.name}": file for file in files}
        limits = {name: file.size + 1 for name, file in wanted.items()}
        for name, content in read_members(self._path, limits):
            yield wanted[name], content


class PickledSource(Source):
    """Files in Python's pickle format, which are refused with an explanation."""

    def __init__(self, path: Path) -> None:
        self.label = str(path)

    def _read(self, files: Sequence[DataFile]) -> Iterator[Content]:  # noqa: ARG002
        raise UnusableSourceError(
            "this is the Python version, a pickle, which can run arbitrary code when it is read; use the binary version"
        )


def read_members(archive: Path, limits: dict[str, int]) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of these regular members of a .tar.gz, at most this many bytes of each."""
    pending = dict(limits)
    with tarfile.open(archive, "r:gz") as members:
        for member in members:
            if not member.isreg() or member.name not in pending:
                continue
            stream = members.extractfile(member)
            if stream is not None:
                yield member.name, stream.read(pending.pop(member.name))
            if not pending:
                return


def _read_plain_or_gzip(path: Path, limit: int) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        return stream.read(limit)
