"""The data: handwritten digits that come with scikit-learn, or Fashion-MNIST from a folder."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

DEBIAN = "/usr/share/datasets/fashion-mnist"
DIGITS_FOR_TRAINING = 1437


class Examples(NamedTuple):
    """Images, one row each, and their labels."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]


def load(name: str) -> tuple[Examples, Examples]:
    """Return the training and the test examples, with pixels in [0, 1]."""
    if name == "digits":
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        images = (pixels / 16).astype(np.float32)
        cut = DIGITS_FOR_TRAINING
        return Examples(images[:cut], labels[:cut]), Examples(
            images[cut:], labels[cut:]
        )
    if name != "fashion-mnist":
        raise ValueError(f"dataset must be 'digits' or 'fashion-mnist', got {name!r}")
    folder = Path(os.environ.get("FASHION_MNIST", DEBIAN))
    return _read(folder, "train"), _read(folder, "t10k")


def _read(folder: Path, stem: str) -> Examples:
    pixels = _bytes(folder / f"{stem}-images-idx3-ubyte.gz")[16:].reshape(-1, 784)
    return Examples(
        pixels / np.float32(255),
        _bytes(folder / f"{stem}-labels-idx1-ubyte.gz")[8:].astype(np.int64),
    )


def _bytes(path: Path) -> NDArray[np.uint8]:
    if not path.exists():
        remedy = 'set FASHION_MNIST to the folder with its four .gz files, or use dataset="digits"'
        raise FileNotFoundError(f"{path} does not exist: {remedy}")
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8)
