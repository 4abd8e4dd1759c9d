"""Decoded vectors added up in fixed point, a bounded piece at a time: what the dense aggregators share."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sstq import kernels
from sstq.messages import Messages

__all__ = ["DenseDecoding", "add_decoded"]

# Decoded numbers at a time: enough for the calls not to matter, few enough for the second-level cache.
_NUMBERS_AT_A_TIME = 1 << 18


class DenseDecoding(Protocol):
    """What is needed of the mechanism."""

    @property
    def dim(self) -> int:
        """The length of the vectors."""
        ...

    def decode(self, messages: Messages) -> NDArray[np.float64]:
        """The estimate of each message alone, (n, d)."""
        ...


def add_decoded(
    state: NDArray[np.int64],
    mechanism: DenseDecoding,
    messages: Messages,
    *,
    unit: float,
    limit: float,
    value_bits: int,
    square_bits: int,
) -> bool:
    """Add the decoded vectors to a state of `kernels.accumulate_vectors`; False, and a spoiled state, if one is beyond.

    Args:
        state: (d, 3) or (d, 4), changed in place.
        mechanism: that decodes.
        messages: to add.
        unit: of the fixed point.
        limit: what no coordinate may exceed, in units.
        value_bits: of a value's fraction.
        square_bits: of a square's fraction.
    """
    size = max(1, _NUMBERS_AT_A_TIME // mechanism.dim)
    return all(
        kernels.accumulate_vectors(
            state,
            np.ascontiguousarray(mechanism.decode(messages[start : start + size])),
            unit=unit,
            limit=limit,
            value_bits=value_bits,
            square_bits=square_bits,
        )
        for start in range(0, len(messages), size)
    )
