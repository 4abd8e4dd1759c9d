"""Where data sets are searched on this machine, and in which order."""

from __future__ import annotations

from pathlib import Path

from sstq.files.atomic import cache_folder
from paper.datasets.npm import NpmArchive
from paper.datasets.releases import Release
from paper.datasets.sources import ArchiveSource, FolderSource, PickledSource, Source

__all__ = ["cached_folder", "other_places", "sources_in"]

_TORCHVISION_ROOT = "data"


def cached_folder(name: str, cache: Path | None = None) -> Path:
    """Return the folder of a data set in the user's cache, or in another one; it need not exist.

    Examples:
        >>> cached_folder("cifar-10", Path("/var/cache/sstq"))
        PosixPath('/var/cache/sstq/datasets/cifar-10')
    """
    try:
        return (cache or cache_folder()) / "datasets" / name
    except RuntimeError as error:
        raise OSError(f"{error}; set SSTQ_CACHE to a folder for the cache") from error


def other_places(release: Release) -> list[Path]:
    """Return the folders outside the cache: the one that torchvision's examples use, and the system's."""
    return [Path(_TORCHVISION_ROOT).absolute(), *map(Path, release.system_folders)]


def sources_in(place: Path, release: Release) -> list[Source]:
    """Return the possible sources of a data set in a folder or archive, in the order in which to try them."""
    folder = place if place.is_dir() else place.parent
    sources: list[Source] = []
    if folder == place:
        folders = [FolderSource(folder / name) for name in ("", *release.subfolders)]
        sources += [source for source in folders if source.has_any(release.files)]
    if release.archive is not None and _offers(place, release.archive[0]):
        sources.append(ArchiveSource(folder / release.archive[0], release.archive[1]))
    if release.npm_package is not None and _offers(place, NpmArchive.filename(release)):
        sources.append(NpmArchive(folder / NpmArchive.filename(release), release))
    sources += [PickledSource(folder / name) for name in release.pickled if _offers(place, name)]
    return sources


def _offers(place: Path, name: str) -> bool:
    return (place / name).exists() if place.is_dir() else place.name == name and place.exists()
