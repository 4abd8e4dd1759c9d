"""What it costs to begin: importing, the first call with and without compiled kernels, and the size on disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from pathlib import Path

from sstq.bench.harness import Result, fastest

__all__ = ["installed_bytes", "requirements", "startup"]

MEBI = 2**20

_FIRST_CALL = """
import time
start = time.perf_counter()
import numpy as np
import sstq
mechanism = sstq.mechanism({name!r}, dim=25_450, epsilon=3.0)
mechanism.encode(np.full(25_450, 0.005))
print(time.perf_counter() - start)
"""


def startup(quick: bool) -> Iterator[Result]:
    """Fresh processes, files warm: the least of several runs; and the size of the installation."""
    commands = {
        "python -c pass": ["-c", "pass"],
        "import sstq": ["-c", "import sstq"],
        "sstq --help": ["-m", "sstq", "--help"],
    }
    seconds = fastest(*(partial(_run, arguments) for arguments in commands.values()), repeats=2 if quick else 5)
    for what, least in zip(commands, seconds, strict=True):
        target = None if what == "python -c pass" else 500.0
        yield Result(what, 1e3 * least, "ms", target=target, at_most=True)
    for name in ("sstq", "frameunit"):
        warm = min(_first_call(name) for _ in range(2))
        what = f"{name}: process, import and first message"
        yield Result(f"{what}, kernels cached", warm, "s")
        if not quick:
            with tempfile.TemporaryDirectory() as folder:
                cold = _first_call(name, NUMBA_CACHE_DIR=folder)
            yield Result(f"{what}, kernels compiled", cold, "s", "`sstq warmup` compiles and caches them beforehand")
    sizes = {name: installed_bytes(name) for name in requirements("sstq")}
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:4]
    note = ", ".join(f"{name} {sizes[name] / MEBI:.0f}" for name in largest)
    yield Result("size of sstq", installed_bytes("sstq") / MEBI, "MiB", "without compiled kernels")
    yield Result("size of its dependencies", sum(sizes.values()) / MEBI, "MiB", f"{len(sizes)} packages: {note}, …")


def _run(arguments: list[str], **variables: str) -> str:
    done = subprocess.run(  # noqa: S603 (this interpreter, with our own arguments)
        [sys.executable, *arguments], capture_output=True, check=True, text=True, env=os.environ | variables
    )
    return done.stdout


def _first_call(name: str, **variables: str) -> float:
    return float(_run(["-c", _FIRST_CALL.format(name=name)], SSTQ_QUIET="1", **variables))


def requirements(distribution: str) -> list[str]:
    """The installed distributions that it cannot do without, directly or through others; extras left out.

    Examples:
        >>> {"numba", "llvmlite", "numpy"} <= set(requirements("sstq"))
        True
    """
    found: dict[str, None] = {}
    waiting = [distribution]
    while waiting:
        for line in metadata.requires(waiting.pop()) or []:
            name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
            if "extra ==" not in line and name not in found and _is_installed(name):
                found[name] = None
                waiting.append(name)
    return list(found)


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False  # for another platform or Python
    return True


def installed_bytes(distribution: str) -> int:
    """The bytes of the files of an installed distribution.

    Examples:
        >>> installed_bytes("typer") > 10_000
        True
    """
    if distribution == "sstq":
        # By its folder: an editable installation lists none of its files.
        paths = [path for path in Path(__file__).parents[1].rglob("*") if "__pycache__" not in path.parts]
    else:
        paths = [Path(str(file.locate())) for file in metadata.files(distribution) or []]
    return sum(path.stat().st_size for path in paths if path.is_file())
