"""Calling kernels: compiled once per kind of arguments, with rows distributed over threads."""

import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from sstq.kernels.threads import MIN_ELEMENTS_A_THREAD, run_in_chunks

PATIENCE_SECONDS = 1.0

# What has been compiled or loaded, by the kernel and the kinds of its arguments.
_prepared: set[tuple[Any, ...]] = set()


@cache
def kernel(name: str) -> Any:
    """The kernel "module.function", imported on first use: that imports Numba as well."""
    module, function = name.split(".")
    return getattr(import_module(f"sstq.kernels.{module}"), function)


@cache
def _announce() -> None:
    """Print the line; the cache makes it one line per process."""
    print("sstq: compiling kernels for this machine (once) ...", file=sys.stderr, flush=True)  # noqa: T201


def _announce_if_compiling(function: Any) -> None:
    """Tell a true compilation, which has already missed the disk cache, from a slow load of cached code."""
    if function.stats.cache_misses:
        _announce()


def prepare(function: Any, *arguments: Any) -> None:
    """Compile a kernel for the types of `arguments`, or load it from the disk cache, before threads would queue for it.

    Prints one line to stderr when compiling takes longer than PATIENCE_SECONDS, unless SSTQ_QUIET is set.
    """
    # Numba's own types take a third of a millisecond to make.
    kinds = (function, *map(_kind, arguments))
    if kinds in _prepared:
        return
    from numba import typeof

    timer = threading.Timer(PATIENCE_SECONDS, _announce_if_compiling, [function])
    timer.daemon = True
    if not os.environ.get("SSTQ_QUIET"):
        timer.start()
    try:
        function.compile(tuple(typeof(argument) for argument in arguments))
    finally:
        timer.cancel()
    _prepared.add(kinds)


def _kind(argument: Any) -> Any:
    """Whatever of an argument its Numba type depends on."""
    if isinstance(argument, np.ndarray):
        flags = argument.flags
        return argument.dtype, argument.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned
    return tuple(map(_kind, argument)) if isinstance(argument, tuple) else type(argument)


def run(name: str, *arguments: Any) -> Any:
    """Call the kernel with this name in this thread."""
    prepare(kernel(name), *arguments)
    return kernel(name)(*arguments)


def run_rows(name: str, rows: int, elements_per_row: int, arguments: Callable[[slice], tuple[Any, ...]]) -> None:
    """Call a kernel with arguments(part) for parts that cover the rows, in several threads if that is faster."""
    function, whole = kernel(name), arguments(slice(0, rows))
    prepare(function, *whole)
    if rows * elements_per_row < MIN_ELEMENTS_A_THREAD:
        function(*whole)
    else:
        run_in_chunks(lambda part: function(*arguments(part)), rows, elements_per_row)
