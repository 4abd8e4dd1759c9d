"""Compiling all kernels in several processes, and keeping the machine code on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba.core import event

from sstq import kernels
from sstq.baselines import PrivUnit, VqSGD
from sstq.kernels import disk_cache
from sstq.kernels.threads import MIN_ELEMENTS_A_THREAD, thread_count
from sstq.mechanisms import SSTQ, FrameUnit

# Messages come as the smallest unsigned integers that hold them, those of a public coin as int64: (index, code).
_MESSAGE_TYPES = ("u1 u1", "u1 u2", "u2 u1", "u2 u2", "u4 u1", "u4 u2", "u4 u4", "i8 u1", "i8 u2")

_MOST_PROCESSES = 4  # the longest step takes a third of the time of all

# Ends at once when the program that waits for it is interrupted or gone, which ends its input. A line is written at
# once, because the processes share a pipe.
_PROCESS = r"""
import json, os, signal, sys, threading
signal.signal(signal.SIGINT, signal.SIG_DFL)
threading.Thread(target=lambda: os.read(0, 1) or os._exit(1), daemon=True).start()
from sstq.runs.warmup import _run
for step in _run(sys.argv[1:]):
    print(json.dumps(step) + "\n", end="", flush=True)
"""


class Step(NamedTuple):
    """One family of kernels: how long preparing it took, and whether anything was compiled."""

    name: str
    seconds: float
    compiled: bool


def count_steps() -> int:
    """The number of steps of `warm_up`."""
    return len(_steps())


def warm_up() -> Iterator[Step]:
    """Compile or load all kernels, one family at a time; the order varies.

    Examples:
        >>> steps = list(warm_up())
        >>> any(step.compiled for step in warm_up())
        False
    """
    missing = list(_steps())
    for step in compile_in_processes():
        missing.remove(step.name)
        yield step
    # Steps that failed in a process are repeated here, which shows why.
    yield from _run(missing)


def compile_in_processes() -> Iterator[Step]:
    """Compile all kernels in separate processes, which leave them on disk."""
    names, processes = list(_steps()), min(thread_count(), _MOST_PROCESSES)
    reader, writer = os.pipe()
    environment = os.environ | {"SSTQ_QUIET": "1"}
    running: list[subprocess.Popen[bytes]] = []
    try:
        with open(reader, encoding="utf-8") as lines:
            with open(writer, "wb") as output:
                for first in range(processes):
                    command = [sys.executable, "-P", "-c", _PROCESS, *names[first::processes]]
                    running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, env=environment))  # noqa: S603
            for line in lines:
                yield Step(*json.loads(line))
    finally:
        for process in running:
            process.terminate()
            process.communicate()


def _run(names: list[str]) -> Iterator[Step]:
    steps = _steps()
    for name in names:
        start = time.perf_counter()
        with event.install_recorder("numba:compile") as recorder:
            steps[name]()
        yield Step(name, time.perf_counter() - start, compiled=bool(recorder.buffer))


def cache_place() -> Path | None:
    """The folder of compiled kernels, or None if no folder is writable."""
    return disk_cache.places().write


def chosen_place() -> Path | None:
    """The folder that NUMBA_CACHE_DIR names, or None if it is not set."""
    return disk_cache.chosen_folder()


def _steps() -> dict[str, Callable[[], object]]:
    """Every public kernel on as little as it takes, the longest first: processes take them in turn."""
    one, double = (np.ones((1, 2), dtype) for dtype in (np.float32, np.float64))
    many = np.ones((1, MIN_ELEMENTS_A_THREAD), np.float32)  # fewer are left to NumPy
    code, word = np.zeros(1, np.int64), np.zeros(1, np.uint64)
    steps: dict[str, Callable[[], object]] = {
        "Kashin representation": lambda: SSTQ(dim=2, epsilon=1.0).encode(one),
        "choice of signed rows, single precision": lambda: FrameUnit(dim=2, epsilon=1.0).encode(one),
        "transform, single precision": partial(kernels.hadamard_transform, one.copy()),
        "choice of signed rows, double precision": lambda: FrameUnit(dim=2, epsilon=1.0).encode(double),
        "normal numbers": partial(kernels.box_muller, np.zeros((1, 2), np.uint64)),
        "vectors around a direction": lambda: PrivUnit(dim=2, epsilon=1.0).encode(one),
        "vertices": lambda: VqSGD(dim=2, epsilon=1.0).encode(one),
        "transform, double precision": partial(kernels.hadamard_transform, double.copy()),
        "clipping, double precision": partial(kernels.clip_to_ball, double, 1.0),
        "clipping, single precision": partial(kernels.clip_to_ball, one, 1.0),
        "finite numbers, single precision": partial(kernels.all_finite, many),
        "finite numbers, double precision": partial(kernels.all_finite, many.astype(np.float64)),
        "sampling from a table": partial(kernels.sample_table, code, word, np.full((1, 1), 1 << 62, np.uint64)),
        "packing": partial(kernels.pack_bits, word, 4),
        "unpacking": partial(kernels.unpack_bits, np.zeros(1, np.uint8), 1, 4),
    }
    state, table = np.zeros((1, 4), np.int64), np.zeros((1, 3), np.int64)
    for types in _MESSAGE_TYPES:
        index, kind = (np.zeros(1, dtype) for dtype in types.split())
        steps[f"aggregation, {index.dtype} and {kind.dtype}"] = partial(kernels.accumulate, state, index, kind, table)
    steps["aggregation of vectors"] = partial(
        kernels.accumulate_vectors, state, np.zeros((1, 1)), unit=1.0, limit=1.0, value_bits=1, square_bits=1
    )
    return steps
