"""Where a vector's coordinates stand among the inputs of a longer transform: checked once, used for every client."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.kernels.checks import check_range, checked, log2


@dataclass(frozen=True, eq=False)
class SignedColumns:
    """The places of d coordinates among the N inputs of a Hadamard transform, and their signs.

    Args:
        places: int64 (d,), strictly ascending, in [0, N).
        signs: float32 (d,), each +1 or −1.
        size: N, a power of two, at least d.

    Examples:
        >>> columns = SignedColumns(np.array([0, 3]), np.float32([1, -1]), size=4)
        >>> columns.dim, columns.bits
        (2, 2)
    """

    places: NDArray[np.int64]
    signs: NDArray[np.float32]
    size: int

    def __post_init__(self) -> None:
        places = checked("places", self.places, np.int64, 1)
        signs = checked("signs", self.signs, np.float32, 1)
        log2("size", self.size)
        if places.shape != signs.shape:
            raise ValueError(f"places and signs must have the same shape, not {places.shape} and {signs.shape}")
        check_range("places", places, self.size)
        if np.any(np.diff(places) <= 0):
            raise ValueError("places must be strictly ascending")
        if np.any(np.abs(signs) != 1):
            raise ValueError("signs must all be +1 or -1")
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "signs", signs)

    @property
    def dim(self) -> int:
        """d, the number of coordinates."""
        return len(self.places)

    @property
    def bits(self) -> int:
        """log₂ N."""
        return self.size.bit_length() - 1

    @cached_property
    def mask(self) -> NDArray[Any]:
        """The bits that are 1 at the places, in one word for each vector of the transform."""
        from sstq.kernels.kashin import mask_words

        words: NDArray[Any] = mask_words(self.places, self.size)
        return words
