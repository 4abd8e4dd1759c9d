"""Compiling kernels: one version per type of the first argument, which Numba's own cache keeps on disk.

A kernel is a plain function of a module that imports Numba, and the functions that it calls are compiled into it.

Numba files the versions of a function in one index, under the function's name and the text of its own module. That is
not enough: code also depends on the other modules of this folder, and of two processes that add to one index at the
same time one may get the other's code. So every version has a name of its own, with a digest of all that it depends on.
"""

import hashlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from sstq._version import __version__


def compiled(name: str, arguments: tuple[Any, ...]) -> Any:
    """Compile or load the kernel "module.function" for arguments of these types; it refuses any else."""
    import numba

    config: Any = numba.config
    if config.DISABLE_JIT:
        raise ValueError(
            "NUMBA_DISABLE_JIT must not be set: the kernels hold instructions that only a compiler can make"
        )
    module, function = name.split(".")
    source = getattr(import_module(f"sstq.kernels.{module}"), function)
    types = tuple(map(numba.typeof, arguments))
    label = hashlib.sha256(f"{_target()}{types!r}".encode()).hexdigest()[:16]
    version = FunctionType(source.__code__, source.__globals__, function)
    version.__qualname__ = f"{function}-{label}"
    folder = cache_folder()
    dispatcher: Any = numba.njit(nogil=True, cache=folder is not None)(version)
    if folder is None:
        where = "for this process alone (set NUMBA_CACHE_DIR to a writable folder)"
    elif any(folder.glob(f"*-{label}-*.nbc")):
        where = ""
    else:
        where = "for this machine (once)"
    with _announced(name, where, dispatcher):
        dispatcher.compile(types)
    dispatcher.disable_compile()
    return dispatcher


@cache
def cache_folder() -> Path | None:
    """The folder in which Numba keeps compiled kernels, or None if none can be written to.

    That is the first writable one of these: the one that NUMBA_CACHE_DIR names, `__pycache__` beside the sources, and
    the user's cache.
    """
    import numba

    try:
        dispatcher: Any = numba.njit(cache=True)(cache_folder.__wrapped__)
    except RuntimeError:
        return None
    return Path(dispatcher.stats.cache_path)


@cache
def _target() -> str:
    """A digest of the sources of all kernels, and what Numba compiles for."""
    from sstq.kernels.simd import TARGET

    digest = hashlib.sha256(__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return f"{digest.hexdigest()}{TARGET}"


@contextmanager
def _announced(name: str, where: str, dispatcher: Any) -> Iterator[None]:
    """Tell a person who waits what is compiled; a log gets one line per process, and SSTQ_QUIET gets none."""
    if not where or os.environ.get("SSTQ_QUIET"):
        yield
    elif sys.stderr.isatty():
        with _bar(f"sstq: compiling {name}", where, _functions_of(dispatcher)):
            yield
    else:
        _announce_once(f"sstq: compiling kernels {where}")
        yield


@cache
def _announce_once(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def _bar(line: str, where: str, functions: set[Any]) -> Iterator[None]:
    """Draw after the line how many of the functions are compiled, and at last how long it took."""
    from numba.core import event

    # Not sys.stderr: while a command shows a bar of its own, that one waits for whole lines.
    terminal = sys.__stderr__ or sys.stderr

    class Drawing(event.Listener):
        def on_start(self, _event: Any) -> None:
            left = sum(not function.signatures for function in functions)
            bar = f"{'█' * (len(functions) - left)}{'░' * left}"
            print(
                f"\r\x1b[K{line} {bar} {left} left", end="", file=terminal, flush=True
            )

        on_end = on_start

    start = time.monotonic()
    with event.install_listener("numba:compile", Drawing()):
        yield
    seconds = time.monotonic() - start
    print(f"\r\x1b[K{line} {where}: {seconds:.1f} s", file=terminal, flush=True)


def _functions_of(dispatcher: Any) -> set[Any]:
    """The compiled function itself, and all that it calls, except for those that are copied into their callers."""
    from sstq.kernels.simd import is_copied

    functions = {dispatcher}
    unread = [dispatcher.py_func]
    while unread:
        function = unread.pop()
        named = map(function.__globals__.get, function.__code__.co_names)
        called = {one for one in named if isinstance(one, type(dispatcher))} - functions
        functions |= called
        unread += [one.py_func for one in called]
    return {one for one in functions if not is_copied(one)}
