"""What a source distribution and a wheel hold."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from sstq.clients import FILES as FILES_OF_CLIENTS
from tests.installing import build_wheel

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks", "clients", "docs", "examples", "experiments")
POLL = (
    "index.html",
    "word.html",
    "poll.css",
    "poll.js",
    "word.js",
    "page.js",
    "charts.js",
    "icon.svg",
)
CLIENTS = [
    f"{language}/{name}"
    for language, names in FILES_OF_CLIENTS.items()
    for name in names
]
FILES = (
    "README.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "Makefile",
    "mkdocs.yml",
    "constraints.txt",
)


def packed(checkout, builder=SdistBuilder):
    """The paths in the archive of all files that the build system finds in a checkout."""
    return {
        file.distribution_path
        for file in builder(str(checkout)).recurse_included_files()
    }


def test_the_sources_hold_the_project_and_no_virtual_environment(tmp_path):
    """With these sources `make test` and `make docs` work, whatever else lies in the checkout."""
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    ours = [*FILES, *(f"{folder}/file.py" for folder in FOLDERS)]
    for folder in (".", "env", "env/lib/python3/site-packages/package"):
        for name in ours:
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    # The build system adds the metadata and the licence by itself.
    assert set(ours) <= packed(tmp_path) <= {*ours, "pyproject.toml", "LICENSE"}


def test_nothing_that_the_sources_name_is_missing_here():
    assert {*FOLDERS, *FILES} <= {name.split("/")[0] for name in packed(ROOT)}


def test_the_image_is_built_from_all_that_the_wheel_holds():
    sources = {
        Path(file.path).relative_to(ROOT).parts
        for file in WheelBuilder(str(ROOT)).recurse_included_files()
    }
    copied = re.findall(
        r"^COPY (\S+) \1$", (ROOT / "deploy" / "Dockerfile").read_text(), flags=re.M
    )
    folders = [tuple(folder.split("/")) for folder in copied]
    assert [
        parts
        for parts in sources
        if not any(parts[: len(folder)] == folder for folder in folders)
    ] == []


def test_the_wheel_holds_the_package_and_nothing_else():
    """Every module, the lab included, the tables that they read, the mark of a typed package and the poll's page."""
    package = ROOT / "src" / "sstq"
    ours = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    others = {f"sstq/service/demo_page/{name}" for name in POLL} | {
        f"sstq/clients/files/{name}" for name in CLIENTS
    }
    assert packed(ROOT, WheelBuilder) == ours | others
    page = {name for name in ours if name.startswith("sstq/service/dashboard/static/")}
    assert {Path(name).suffix for name in ours - page} == {
        ".py",
        ".pyi",
        ".json",
        ".typed",
    }
    assert {Path(name).suffix for name in page} == {
        ".css",
        ".html",
        ".js",
        ".json",
        ".md",
        ".svg",
    }
    for name in ("py.typed", "scalar/kashin_densities.json", "__main__.py"):
        assert f"sstq/{name}" in ours


def test_the_sources_hold_the_clients():
    assert {f"clients/{name}" for name in CLIENTS} <= packed(ROOT)


@pytest.mark.slow
def test_a_wheel_writes_the_clients(tmp_path):
    """From the wheel and not from this checkout; files that are there stay as they are."""
    with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
        wheel.extractall(tmp_path / "site")
    program = (
        "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
        "runpy.run_module('sstq.clients', run_name='__main__')"
    )

    def write(*options):
        arguments = [
            sys.executable,
            "-c",
            program,
            tmp_path / "site",
            "--output",
            tmp_path / "here",
            *options,
        ]
        return subprocess.run(
            arguments, capture_output=True, text=True, check=False, cwd=tmp_path
        )

    done = write()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / "here" / name) for name in CLIENTS]
    for name in CLIENTS:
        written = (tmp_path / "here" / name).read_bytes()
        assert written == (ROOT / "clients" / name).read_bytes()
        assert (
            written
            == (tmp_path / "site" / "sstq" / "clients" / "files" / name).read_bytes()
        )
    (tmp_path / "here" / CLIENTS[0]).write_text("mine")
    done = write()
    assert (
        done.returncode,
        "already exists; pass --force to overwrite it" in done.stderr,
    ) == (1, True)
    assert (tmp_path / "here" / CLIENTS[0]).read_text() == "mine"
    assert write("--force").returncode == 0
    assert (tmp_path / "here" / CLIENTS[0]).read_text() != "mine"
