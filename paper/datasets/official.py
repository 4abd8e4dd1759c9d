"""Downloading a data set from its authors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from paper.datasets.download import Report, download
from paper.datasets.releases import DataFile, Download, Release
from paper.datasets.sources import ArchiveSource, Content, GzipSource, Source, UnusableSourceError

__all__ = ["OfficialSource"]

_SLACK = 1 << 20
"""What compression may add to files that it cannot make smaller."""


class OfficialSource(Source):
    """The authors' files on the web. Partial downloads are kept in a folder until a file is complete and verified."""

    def __init__(self, release: Release, folder: Path, report: Report) -> None:
        self.label = "the official download"
        self._release = release
        self._folder = folder
        self._report = report

    def _read(self, files: Sequence[DataFile]) -> Iterator[Content]:
        for item in self._release.downloads:
            if held := [file for file in files if file.name in item.files]:
                yield from self._from_any_url(item, held)

    def _from_any_url(self, item: Download, files: list[DataFile]) -> Iterator[Content]:
        failures = []
        for url in item.urls:
            try:
                yield from self._from_url(item, url, files)
            except (OSError, ValueError) as error:
                failures.append(str(error) if url in str(error) else f"{url}: {error}")
                continue
            for part in self._folder.glob(f"{item.filename}.*.part"):
                part.unlink()
            return
        raise UnusableSourceError("; ".join(failures))

    def _from_url(self, item: Download, url: str, files: list[DataFile]) -> Iterator[Content]:
        # Another server may compress the same file differently, so a partial download belongs to its URL.
        part = self._folder / f"{item.filename}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.part"
        resumed = part.exists()
        download(url, part, limit=sum(file.size for file in files) + _SLACK, report=self._report)
        try:
            yield from self._opened(item, part, url).contents(files)
        except UnusableSourceError:
            part.unlink()
            if not resumed:
                raise
        else:
            return
        # The partial download may have been of another version of the file: download all of it again.
        yield from self._from_url(item, url, files)

    def _opened(self, item: Download, path: Path, label: str) -> Source:
        if self._release.archive is not None and item.filename == self._release.archive[0]:
            return ArchiveSource(path, self._release.archive[1], label)
        return GzipSource(path, label)
