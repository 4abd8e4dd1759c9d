"""One line that tells the user why the very first call takes a few seconds.

Nothing here imports Numba: the module is loaded by `import sstq`.
"""

import functools
import os
import sys
import threading
from typing import Any

import numpy as np

PATIENCE_SECONDS = 1.0

# What has been compiled or loaded, by the kernel and the kinds of its arguments.
_prepared: set[tuple[Any, ...]] = set()


@functools.cache
def _announce() -> None:
    """Print the line; the cache makes it one line a process."""
    print("sstq: compiling kernels for this machine (once) ...", file=sys.stderr, flush=True)  # noqa: T201


def _announce_if_compiling(kernel: Any) -> None:
    """Tell a true compilation, which has already missed the disk cache, from a slow load of cached code."""
    if kernel.stats.cache_misses:
        _announce()


def prepare(kernel: Any, *arguments: Any) -> None:
    """Compile `kernel` for the types of `arguments`, or load it from the disk cache; do not run it.

    Called before work is handed to threads, so that one thread compiles while the others do not queue behind it.
    Prints one line to stderr when compiling takes longer than PATIENCE_SECONDS, unless SSTQ_QUIET is set.
    """
    # Numba's own types take a third of a millisecond to make.
    kinds = (kernel, *map(_kind, arguments))
    if kinds in _prepared:
        return
    from numba import typeof

    signature = tuple(typeof(argument) for argument in arguments)
    timer = threading.Timer(PATIENCE_SECONDS, _announce_if_compiling, [kernel])
    timer.daemon = True
    if not os.environ.get("SSTQ_QUIET"):
        timer.start()
    try:
        kernel.compile(signature)
    finally:
        timer.cancel()
    _prepared.add(kinds)


def _kind(argument: Any) -> Any:
    """Whatever of an argument its Numba type depends on."""
    if isinstance(argument, np.ndarray):
        flags = argument.flags
        return argument.dtype, argument.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned
    return type(argument)
