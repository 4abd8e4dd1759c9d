"""Compile all kernels for this machine: `python -m sstq.kernels`.

Otherwise each is compiled when it is first called. For a container image, run it while the image is built, as the user
that runs the program or with NUMBA_CACHE_DIR set to a folder that this user can write to.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from sstq import kernels
from sstq.kernels.compiling import cache_folder
from sstq.kernels.threads import thread_count

# Messages come as the smallest unsigned integers that hold them, those of a public coin as int64: (index, code).
_MESSAGE_TYPES = ("u1 u1", "u1 u2", "u2 u1", "u2 u2", "u4 u1", "u4 u2", "u4 u4", "i8 u1", "i8 u2")


def _calls() -> dict[str, Callable[[], object]]:
    """Every kernel on as little as it takes, for every type of numbers; the longest compilations first."""
    one, two = np.zeros(1), np.ones((1, 2), np.float32)
    zero, word, none = np.zeros(1, np.int64), np.zeros(1, np.uint64), np.empty((1, 0), np.int64)
    columns = kernels.SignedColumns(np.arange(2), two[0], 2)
    signs = two, np.ones((1, 1, 2), np.float32)
    state, table = np.zeros((1, 4), np.int64), np.zeros((1, 3), np.int64)
    fixed_point: dict[str, Any] = {"unit": 1.0, "limit": 1.0, "value_bits": 1, "square_bits": 1}
    words = np.zeros((1, 2), np.uint64)
    calls: dict[str, Callable[[], object]] = {
        "Kashin representation": partial(kernels.kashin_pick, two, columns, np.ones((1, 4), np.float32))
    }
    for kind in (np.float32, np.float64):
        x = two.astype(kind)
        calls |= {
            f"signed rows, {kind.__name__}": partial(kernels.pick_signed_rows, x, 1.0, one, signs, zero, none, 1, zero),
            f"transform, {kind.__name__}": partial(kernels.hadamard_transform, x),
            f"clipping, {kind.__name__}": partial(kernels.clip_to_ball, x, 1.0),
        }
    for types in _MESSAGE_TYPES:
        index, code = (np.zeros(1, kind) for kind in types.split())
        calls[f"aggregation, {types}"] = partial(kernels.accumulate, state, index, code, table)
    calls |= {
        "vectors around a direction": partial(kernels.draw_around, np.eye(2)[:1], one, one, words, to_length=True),
        "normal numbers": partial(kernels.box_muller, words),
        "cumulative sums": partial(kernels.count_passed, two, one, 1.0),
        "sampling": partial(kernels.sample_table, zero, word, np.full((1, 1), 1 << 62, np.uint64)),
        "packing": partial(kernels.pack_bits, word, 4),
        "unpacking": partial(kernels.unpack_bits, np.zeros(1, np.uint8), 1, 4),
        "aggregation of vectors": partial(kernels.accumulate_vectors, state, np.zeros((1, 1)), **fixed_point),
    }
    return calls


def _compile(names: list[str]) -> None:
    """Call these kernels, and print the seconds that each took."""
    calls = _calls()
    for name in names:
        start = time.perf_counter()
        calls[name]()
        print(f"{time.perf_counter() - start:6.2f} s  {name}", flush=True)  # noqa: T201


def main(names: list[str]) -> int:
    """Compile the kernels with these names, or all of them in several processes; 1 if nothing can be kept."""
    folder = cache_folder()
    if folder is None:
        print("no folder is writable: set NUMBA_CACHE_DIR to a writable folder", file=sys.stderr)  # noqa: T201
        return 1
    if names:
        _compile(names)
        return 0
    program, environment = [sys.executable, "-m", "sstq.kernels"], os.environ | {"SSTQ_QUIET": "1"}
    parts = min(thread_count(), 4)
    shares = [list(_calls())[part::parts] for part in range(parts)]
    started = [subprocess.Popen([*program, *share], env=environment) for share in shares]  # noqa: S603
    codes = [process.wait() for process in started]
    print("some kernels could not be compiled" if any(codes) else f"kept in {folder}")  # noqa: T201
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
