"""What Numba compiles the kernels for: the processor's vectors, and the sources by which compiled code is filed.

Numba tells compiled code by the processor, the argument types and the function's own byte code. Two things that our
code depends on are missing there: the vector width, which is a constant frozen into the machine code, and the text of
the *other* kernels that a function calls. `compiled` files code under both (`sstq.kernels.disk_cache`), so a change of
either compiles anew instead of loading stale code.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.registry import cpu_target

from sstq._version import __version__
from sstq.kernels.disk_cache import KernelCache
from sstq.kernels.support import uses_vectors

_config: Any = numba.config
if _config.DISABLE_JIT:
    raise ValueError("NUMBA_DISABLE_JIT must not be set: the kernels hold instructions that only a compiler can make")


def _choose_vector_width() -> int:
    """Return the float32 lanes of a vector: 16 where Numba targets AVX-512, elsewhere 8 (AVX2, two NEON registers).

    The features are those of Numba's own code generator, which follows NUMBA_CPU_NAME and NUMBA_CPU_FEATURES. The
    variable SSTQ_VECTOR_WIDTH overrides the choice, so that the wide code can be tested on any machine: LLVM splits
    vectors that are wider than the registers.
    """
    override = os.environ.get("SSTQ_VECTOR_WIDTH")
    if override is not None:
        if override not in {"8", "16"}:
            raise ValueError(f"SSTQ_VECTOR_WIDTH must be 8 or 16, not {override!r}")
        return int(override)
    _triple, _cpu_name, features = cpu_target.target_context.codegen().magic_tuple()
    return 16 if "+avx512f" in features.split(",") else 8


USES_VECTORS = uses_vectors()
VECTOR_WIDTH = _choose_vector_width() if USES_VECTORS else 8
VECTOR_BITS = VECTOR_WIDTH.bit_length() - 1

# A radix-R pass holds R vectors in registers. AVX-512 has enough of them for 16, but on an AMD processor that was up to
# twice as slow as 8 from N = 2^14 on, and a tenth faster at 2^12.
MAX_RADIX_BITS = 3


# Sums are kept in so many parts, whatever the vectors are, so that the order of additions is the same everywhere.
SQUARE_LANES = 8
SUM_LANES = 16

# Bytes are counted so many at a time.
COUNTED_AT_A_TIME = 32


def _digest_of_sources() -> str:
    """Hash of all kernels, and of the version where their sources are not at hand."""
    digest = hashlib.sha256(__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


SOURCES = _digest_of_sources()
TARGET = f"vector width {VECTOR_WIDTH}, explicit {USES_VECTORS}"


def compiled(function: Callable[..., Any]) -> Any:
    """Compile `function` on its first call, without the interpreter lock, and keep the code on disk if possible."""
    dispatcher: Any = numba.njit(nogil=True)(function)
    dispatcher._cache = KernelCache(function, SOURCES, TARGET)
    return dispatcher


def inlined(function: Callable[..., Any]) -> Any:
    """Copy `function` into its callers: a call, which passes every field of every array, costs as much as a column."""
    return numba.njit(inline="always")(function)
