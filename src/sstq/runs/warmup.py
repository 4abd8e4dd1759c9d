"""Compile every kernel that the mechanisms need, and keep the machine code on disk, before anybody waits for it.

Numba compiles one kernel at a time, so the work is shared among several processes.

Compiled code is kept in the folder that NUMBA_CACHE_DIR names, else beside the sources, else in the user's cache: the
first of them that can be written to. It is found in all of them up to that one, so that another user may have made it.
It is filed under the processor and the versions of Python, Numba and this library: others compile anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sstq import kernels
from sstq.kernels.threads import MIN_ELEMENTS_A_THREAD, thread_count
from sstq.mechanisms import SSTQ, FrameUnit, PrivUnit, VqSGD

__all__ = ["Step", "cache_place", "chosen_place", "compile_in_processes", "count_steps", "warm_up"]

# Messages come as the smallest unsigned integers that hold them, assigned indices as int64: (index, code).
_MESSAGE_TYPES = (
    (np.uint8, np.uint8),
    (np.uint8, np.uint16),
    (np.uint16, np.uint8),
    (np.uint16, np.uint16),
    (np.uint32, np.uint8),
    (np.uint32, np.uint16),
    (np.uint32, np.uint32),
    (np.int64, np.uint8),
    (np.int64, np.uint16),
)

# The longest step takes a third of the time of all.
_MOST_PROCESSES = 4

# Ends at once, and without a word, when the program that waits for it is interrupted, or gone: then its input ends.
_PROCESS = """
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.SIG_DFL)
threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()
from sstq.runs.warmup import _report
_report(sys.argv[1:])
"""


@dataclass(frozen=True)
class Step:
    """One family of kernels made ready.

    Attributes:
        name: what it does.
        seconds: how long it took.
        compiled: whether anything had to be compiled; otherwise an earlier step had done it, or it was on disk.
    """

    name: str
    seconds: float
    compiled: bool


def count_steps() -> int:
    """The number of steps of `warm_up`.

    Examples:
        >>> count_steps() > 10
        True
    """
    return len(_steps())


def warm_up() -> Iterator[Step]:
    """Make all kernels ready, a family at a time; the order varies.

    Examples:
        >>> steps = list(warm_up())
        >>> any(step.compiled for step in warm_up())
        False
    """
    missing = list(_steps())
    for step in compile_in_processes():
        missing.remove(step.name)
        yield step
    # What a process failed to do is tried here, which tells why.
    yield from _run(missing)


def compile_in_processes() -> Iterator[Step]:
    """Make all kernels ready in processes of their own, which leave them on disk."""
    names, processes = list(_steps()), min(thread_count(), _MOST_PROCESSES)
    reader, writer = os.pipe()
    command = [sys.executable, "-P", "-c", _PROCESS]
    options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": writer, "env": os.environ | {"SSTQ_QUIET": "1"}}
    running: list[subprocess.Popen[bytes]] = []
    try:
        with open(reader, encoding="utf-8") as lines:
            try:
                for first in range(processes):
                    running.append(subprocess.Popen([*command, *names[first::processes]], **options))  # noqa: S603
            finally:
                os.close(writer)
            for line in lines:
                yield Step(**json.loads(line))
    finally:
        for process in running:
            process.terminate()
            process.communicate()


def _report(names: list[str]) -> None:
    for step in _run(names):
        sys.stdout.write(json.dumps(asdict(step)) + "\n")
        sys.stdout.flush()


def _run(names: list[str]) -> Iterator[Step]:
    from numba.core import event

    steps = _steps()
    for name in names:
        start = time.perf_counter()
        with event.install_recorder("numba:compile") as recorder:
            steps[name]()
        yield Step(name, time.perf_counter() - start, compiled=bool(recorder.buffer))


def cache_place() -> Path | None:
    """The folder in which compiled kernels are kept, or None if no folder can be written to.

    Examples:
        >>> place = cache_place()
        >>> place is None or place.is_absolute()
        True
    """
    from sstq.kernels.disk_cache import places

    return places().write


def chosen_place() -> Path | None:
    """The folder that NUMBA_CACHE_DIR names, or None if it is not set.

    Examples:
        >>> place = chosen_place()
        >>> place is None or place.is_absolute()
        True
    """
    from sstq.kernels.disk_cache import chosen_folder

    return chosen_folder()


def _steps() -> dict[str, Callable[[], object]]:
    """Every public kernel on as little as it takes; what a kernel is compiled for does not depend on sizes.

    The longest come first, for processes take them in turn.
    """
    one = np.ones((1, 2), np.float32)
    many = np.ones((1, MIN_ELEMENTS_A_THREAD), np.float32)  # fewer are left to NumPy
    code, word = np.zeros(1, np.int64), np.zeros(1, np.uint64)
    steps: dict[str, Callable[[], object]] = {
        "Kashin representation": lambda: SSTQ(dim=2, epsilon=1.0).encode(one),
        "choice of signed rows, single precision": lambda: FrameUnit(dim=2, epsilon=1.0).encode(one),
        "transform, single precision": partial(kernels.hadamard_transform, one.copy()),
        "choice of signed rows, double precision": lambda: FrameUnit(dim=2, epsilon=1.0).encode(one.astype(np.float64)),
        "normal numbers": partial(kernels.box_muller, np.zeros((1, 2), np.uint64)),
        "vectors around a direction": lambda: PrivUnit(dim=2, epsilon=1.0).encode(one),
        "vertices": lambda: VqSGD(dim=2, epsilon=1.0).encode(one),
        "transform, double precision": partial(kernels.hadamard_transform, one.astype(np.float64)),
        "clipping, double precision": partial(kernels.clip_to_ball, one.astype(np.float64), 1.0),
        "clipping, single precision": partial(kernels.clip_to_ball, one, 1.0),
        "finite numbers, single precision": partial(kernels.all_finite, many),
        "finite numbers, double precision": partial(kernels.all_finite, many.astype(np.float64)),
        "sampling from a table": partial(kernels.sample_table, code, word, np.full((1, 1), 1 << 62, np.uint64)),
        "packing": partial(kernels.pack_bits, word, 4),
        "unpacking": partial(kernels.unpack_bits, np.zeros(1, np.uint8), 1, 4),
    }
    state, table = np.zeros((1, 4), np.int64), np.zeros((1, 3), np.int64)
    for index, kind in _MESSAGE_TYPES:
        name = f"aggregation, {np.dtype(index)} and {np.dtype(kind)}"
        steps[name] = partial(kernels.accumulate, state, np.zeros(1, index), np.zeros(1, kind), table)
    steps["aggregation of vectors"] = partial(
        kernels.accumulate_vectors, state, np.zeros((1, 1)), unit=1.0, limit=1.0, value_bits=1, square_bits=1
    )
    return steps
