"""Working memory for kernels."""

from typing import Any

import numpy as np

from sstq.kernels.target import compiled

# Float32 in a cache line of 64 bytes.
CACHE_LINE = 16


@compiled
def aligned(size: int) -> Any:
    """Return `size` uninitialised float32 that start on a cache line, so that no vector straddles two."""
    buffer = np.empty(size + CACHE_LINE, np.float32)
    skipped = (-(buffer.ctypes.data // 4)) % CACHE_LINE
    return buffer[skipped : skipped + size]
