"""Loading data sets as arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paper.datasets.fetching import DatasetUnavailableError, fetch, local_sources, release_of
from paper.datasets.places import cached_folder, other_places
from paper.datasets.releases import RELEASES, DataFile, Release, Split
from paper.datasets.sources import Source, UnusableSourceError

__all__ = ["NAMES", "Dataset", "load"]

NAMES = ("digits", *RELEASES)
"""The names that `load` accepts."""

_IDX_HEADER = {"images": 16, "labels": 8}
_DIGITS_FOR_TRAINING = 1437  # four fifths


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


def load(name: str, folder: str | os.PathLike[str] | None = None, download: bool = False) -> Dataset:
    """Load a data set; all checksums are verified.

    Without a folder the files are searched in the cache (see `fetch`), in ./data in torchvision's layout and in
    the folder of the system's package. The digits come with scikit-learn; their last 360 images are the test set.

    Args:
        name: "digits", "fashion-mnist" or "cifar-10".
        folder: search only in this folder.
        download: whether to `fetch` missing files into the cache.

    Raises:
        DatasetUnavailableError: it was not found; the message says where it was searched and how to get it.

    Examples:
        >>> digits = load("digits")
        >>> digits.train_images.shape, digits.test_images.shape, digits.image_shape
        ((1437, 64), (360, 64), (8, 8))
        >>> digits.classes[digits.train_labels[0]]
        '0'
    """
    if name not in NAMES:
        raise ValueError(f"name must be {' or '.join(map(repr, NAMES))}, got {name!r}")
    if name == "digits":
        return _load_digits()
    release = release_of(name)
    places = [cached_folder(name), *other_places(release)] if folder is None else [Path(folder)]
    sources, reasons = local_sources(release, places)
    for source in sources:
        try:
            return _assemble(release, source)
        except UnusableSourceError as error:
            reasons.append(str(error))
    if not download:
        advice = f"To download it: sstq data fetch {name}, or load({name!r}, download=True)."
        raise DatasetUnavailableError(name, reasons, f"{advice}\n\n{release.by_hand.strip()}")
    return load(name, fetch(name).folder)


def _load_digits() -> Dataset:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits need scikit-learn: pip install 'sstq[demo]'") from error
    pixels, digits = load_digits(return_X_y=True)
    images, labels = (pixels / 16).astype(np.float32), digits.astype(np.int64)
    train, test = slice(None, _DIGITS_FOR_TRAINING), slice(_DIGITS_FOR_TRAINING, None)
    classes = tuple(map(str, range(10)))
    return Dataset("digits", images[train], labels[train], images[test], labels[test], classes, (8, 8))


def _assemble(release: Release, source: Source) -> Dataset:
    splits: tuple[Split, ...] = ("train", "test")
    images = {split: np.empty((release.count(split), release.dim), np.float32) for split in splits}
    labels = {split: np.empty(release.count(split), np.int64) for split in splits}
    for file, content in source.contents(release.files):
        rows = slice(file.start, file.start + file.count)
        for part, values in _parts(file, content):
            if part == "images":
                np.divide(values, np.float32(255), out=images[file.split][rows])
            else:
                labels[file.split][rows] = values
    return Dataset(
        release.name,
        images["train"],
        labels["train"],
        images["test"],
        labels["test"],
        release.classes,
        release.image_shape,
    )


def _parts(file: DataFile, content: bytes) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Yield the images (count, d) and the labels (count,) of a file, unchecked because its checksum was verified."""
    raw = np.frombuffer(content, np.uint8)
    if file.kind == "records":
        records = raw.reshape(file.count, -1)
        yield "labels", records[:, 0]
        yield "images", records[:, 1:]
    elif file.kind == "images":
        yield "images", raw[_IDX_HEADER["images"] :].reshape(file.count, -1)
    else:
        yield "labels", raw[_IDX_HEADER["labels"] :]
