"""Places in the cumulative sums of rows, each found with the same work for every row."""

from typing import Any

import numpy as np

from sstq.kernels.target import compiled


@compiled
def count_passed(rows: Any, uniforms: Any, scale: float, counts: Any) -> None:
    """Set counts[i] to the number of j with scale·(|rows[i, 0]| + … + |rows[i, j]|) ≤ uniforms[i], in doubles."""
    for row in range(rows.shape[0]):
        total, passed = 0.0, np.int64(0)
        for j in range(rows.shape[1]):
            total += abs(np.float64(rows[row, j]))
            passed += np.int64(total * scale <= uniforms[row])
        counts[row] = passed
