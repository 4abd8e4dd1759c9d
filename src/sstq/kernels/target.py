"""The compilation target of the kernels: the processor's vectors, and the key of compiled code in the cache.

Numba tells compiled code by the processor, the argument types and the function's own byte code. Our code also depends
on the vector width and on the text of the *other* kernels that a function calls. `compiled` files code under both
(`sstq.kernels.disk_cache`), so that no stale code is loaded.

A processor or a version of llvmlite may refuse the LLVM instructions of `sstq.kernels.vectors`. Then
`sstq.kernels.fallback` does the same in plain loops: slower, but bit for bit alike.
"""

import contextlib
import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

from sstq._version import __version__
from sstq.kernels import fallback
from sstq.kernels.disk_cache import KernelCache

_config: Any = numba.config
if _config.DISABLE_JIT:
    raise ValueError("NUMBA_DISABLE_JIT must not be set: the kernels hold instructions that only a compiler can make")

_CHOICES = ("auto", "vector", "plain")


def choose_passes() -> Any:
    """Return the module of what the fast kernels are made of: explicit vectors where a small sample of them compiles.

    The variable SSTQ_KERNELS decides otherwise: "plain" for loops, "vector" for vectors without trying.
    """
    choice = os.environ.get("SSTQ_KERNELS", "auto")
    if choice not in _CHOICES:
        raise ValueError(f"SSTQ_KERNELS must be one of {', '.join(_CHOICES)}, got {choice!r}")
    if choice == "plain":
        return fallback
    with contextlib.suppress(ImportError, AttributeError, TypeError):  # another llvmlite may lack what they are made of
        from sstq.kernels import vectors

        if choice == "vector" or vectors.sample_compiles():
            return vectors
    used = "plain kernels are used, with the same results, but several times slower"
    remedy = "(SSTQ_KERNELS=plain chooses them without this warning)"
    warnings.warn(f"this compiler refuses explicit vectors: {used} {remedy}", RuntimeWarning, stacklevel=2)
    return fallback


passes = choose_passes()
USES_VECTORS = passes is not fallback
VECTOR_WIDTH: int = passes.VECTOR_WIDTH
VECTOR_BITS = VECTOR_WIDTH.bit_length() - 1

# One base block is transformed entirely in registers: the bits inside a vector and MAX_RADIX_BITS across vectors.
BASE_BITS = VECTOR_BITS + fallback.MAX_RADIX_BITS
BASE_SIZE = 1 << BASE_BITS
CACHE_LINE = 16  # float32 in 64 bytes


def _digest_of_sources() -> str:
    """Hash of all kernels, and of the version where their sources are not at hand."""
    digest = hashlib.sha256(__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


SOURCES, TARGET = _digest_of_sources(), f"vector width {VECTOR_WIDTH}, explicit {USES_VECTORS}"


def compiled(function: Callable[..., Any]) -> Any:
    """Compile `function` on its first call, without the interpreter lock, and keep the code on disk if possible."""
    dispatcher: Any = numba.njit(nogil=True)(function)
    dispatcher._cache = KernelCache(function, SOURCES, TARGET)
    return dispatcher


def inlined(function: Callable[..., Any]) -> Any:
    """Copy `function` into its callers: a call, which passes every field of every array, costs as much as a column."""
    return numba.njit(inline="always")(function)


@compiled
def aligned(size: int) -> Any:
    """Return `size` uninitialised float32 that start on a cache line, so that no vector straddles two."""
    buffer = np.empty(size + CACHE_LINE, np.float32)
    skipped = (-(buffer.ctypes.data // 4)) % CACHE_LINE
    return buffer[skipped : skipped + size]
