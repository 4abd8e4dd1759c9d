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
    with _announced(f"sstq: compiling {name} {where} ... ", silent=not where):
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
def _announced(line: str, *, silent: bool) -> Iterator[None]:
    """Tell a person who waits what is done and then how long it took, unless SSTQ_QUIET is set."""
    if silent or os.environ.get("SSTQ_QUIET"):
        yield
        return
    print(line, end="", file=sys.stderr, flush=True)  # noqa: T201
    start = time.monotonic()
    yield
    print(f"{time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)  # noqa: T201
