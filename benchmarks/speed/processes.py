"""Start-up costs: importing, the first call with and without compiled kernels, and the size on disk."""

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

from benchmarks.speed.harness import Result, fastest, seconds_of

__all__ = ["installed_bytes", "requirements", "run_python", "startup"]

MEBI = 2**20

_FIRST_CALL = """
import numpy as np
import sstq
mechanism = sstq.mechanism({name!r}, dim=25_450, epsilon=3.0)
mechanism.encode(np.full(25_450, 0.005))
"""


def startup(quick: bool) -> Iterator[Result]:
    """Fresh processes from their start to their end, files warm: the least of several; the size of the installation."""
    commands = {
        "python -c pass": ["-c", "pass"],
        "import sstq": ["-c", "import sstq"],
        "sstq --help": ["-m", "sstq", "--help"],
    }
    seconds = fastest(*(partial(run_python, *arguments) for arguments in commands.values()), repeats=2 if quick else 5)
    for what, least in zip(commands, seconds, strict=True):
        target = None if what == "python -c pass" else 500.0
        yield Result(what, 1e3 * least, "ms", target=target, at_most=True)
    names = ("sstq", "frameunit")
    for name, warm in zip(names, fastest(*(partial(_first_call, name) for name in names), repeats=2), strict=True):
        what = f"{name}: process, import and first message"
        yield Result(f"{what}, kernels cached", warm, "s")
        if not quick:
            with tempfile.TemporaryDirectory() as folder:
                cold = seconds_of(partial(_first_call, name, NUMBA_CACHE_DIR=folder))
            yield Result(f"{what}, kernels compiled", cold, "s", "`sstq warmup` compiles and caches them beforehand")
    sizes = {name: installed_bytes(name) for name in requirements("sstq")}
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:4]
    note = ", ".join(f"{name} {sizes[name] / MEBI:.0f}" for name in largest)
    yield Result("size of sstq", installed_bytes("sstq") / MEBI, "MiB", "without compiled kernels")
    yield Result("size of its dependencies", sum(sizes.values()) / MEBI, "MiB", f"{len(sizes)} packages: {note}, …")


def run_python(*arguments: str, **variables: str) -> str:
    r"""Run a new interpreter and return its output; ChildProcessError, with the last line of its errors, if it fails.

    Args:
        arguments: the arguments of the interpreter.
        variables: environment variables, in addition to those of this process.

    Examples:
        >>> run_python("-c", "print(1 + 1)")
        '2\n'
    """
    done = subprocess.run(  # noqa: S603 (this interpreter, with our own arguments)
        [sys.executable, *arguments], capture_output=True, check=False, text=True, env=os.environ | variables
    )
    if done.returncode:
        command = " ".join(["python", *arguments]).strip().replace("\n", "; ")
        complaint = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ChildProcessError(f"`{command}` ended with code {done.returncode}: {complaint}")
    return done.stdout


def _first_call(name: str, **variables: str) -> None:
    run_python("-c", _FIRST_CALL.format(name=name), SSTQ_QUIET="1", **variables)


def requirements(distribution: str) -> list[str]:
    """Return the installed distributions that a package requires, directly or indirectly, without extras.

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
    """Return the total size of an installed distribution in bytes.

    Examples:
        >>> installed_bytes("typer") > 10_000
        True
    """
    if distribution == "sstq":
        # By its folder: an editable installation lists none of its files.
        paths = [path for path in Path(__file__).parents[2].rglob("*") if "__pycache__" not in path.parts]
    else:
        paths = [Path(str(file.locate())) for file in metadata.files(distribution) or []]
    return sum(path.stat().st_size for path in paths if path.is_file())
