"""Noise proportional to each gradient's own norm, which fits the paper's regressions but is not private.

With noise for vectors of norm up to C = 1, as local privacy requires, PrivUnit ends at 172 for d = 200 where the paper
prints 130. The paper's numbers are those of messages about g/‖g‖ whose decoded vectors are multiplied by ‖g‖, which is
about 0.2 there: the server would have to know every client's exact norm, which nothing protects.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sstq.mechanisms import Mechanism

__all__ = ["nonprivate_norm_scaled_mean"]

_BELOW_ONE = 1 - 1e-6


def nonprivate_norm_scaled_mean(
    mechanism: Mechanism,
    gradients: NDArray[np.float32],
    round_number: int,  # noqa: ARG001 (private coins only)
    rng: np.random.Generator | None,
) -> NDArray[np.float64]:
    """The mean of decoded directions, each times its (clipped) norm. NOT PRIVATE: the norms are used in clear.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.mechanism("privunitg", dim=50, epsilon=3.0)
        >>> tiny = np.full((10, 50), 1e-6)
        >>> bool(np.abs(nonprivate_norm_scaled_mean(mechanism, tiny, 1, np.random.default_rng(0))).max() < 1e-4)
        True
    """
    norms = np.linalg.norm(gradients.astype(np.float64), axis=1, keepdims=True)
    directions = gradients * (_BELOW_ONE * mechanism.clip / np.maximum(norms, 1e-300))
    decoded = mechanism.decode(mechanism.encode(directions, rng=rng))
    mean: NDArray[np.float64] = np.mean(decoded * (np.minimum(norms, mechanism.clip) / mechanism.clip), axis=0)
    return mean
