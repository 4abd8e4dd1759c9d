"""What a codebook is: values in [-1, 1] in order, the unit being the bound B; and the plain one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BITS_MIN, BITS_MAX = 1, 12


def check_bits(bits: int) -> int:
    """Return ``bits`` as an int, or say why it cannot be the size of a codebook.

    Examples:
        >>> check_bits(13)
        Traceback (most recent call last):
        ...
        ValueError: bits = 13 is not an integer in [1, 12]
    """
    if isinstance(bits, bool) or not isinstance(bits, int | np.integer) or not BITS_MIN <= bits <= BITS_MAX:
        raise ValueError(f"bits = {bits!r} is not an integer in [{BITS_MIN}, {BITS_MAX}]")
    return int(bits)


@dataclass(frozen=True, eq=False)
class Codebook:
    """The codewords of a quantizer, in units of B.

    Args:
        name: where they come from.
        values: 2 to 2^12 numbers in increasing order, the first -1 and the last 1; they may repeat. There are 2^b of
            them unless the channel has other numbers of tokens and codes.

    Examples:
        >>> Codebook("mine", [-1.0, 0.0, 0.0, 1.0]).bits
        2
        >>> Codebook("mine", [-1.0, 0.5])
        Traceback (most recent call last):
        ...
        ValueError: values[-1] = 0.5 is not 1: a codebook is anchored at -1 and 1

    """

    name: str
    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64) + 0.0  # + 0.0 turns −0 into 0
        if values.ndim != 1 or not 2 <= values.size <= 1 << BITS_MAX:
            raise ValueError(f"values has shape {values.shape}, not that of a vector of 2 to {1 << BITS_MAX} codewords")
        if not np.isfinite(values).all():
            raise ValueError("values holds NaN or infinity; codewords lie in [-1, 1]")
        for place, anchor in ((0, -1.0), (-1, 1.0)):
            if values[place] != anchor:
                raise ValueError(
                    f"values[{place}] = {values[place]} is not {anchor:g}: a codebook is anchored at -1 and 1"
                )
        falls = np.flatnonzero(np.diff(values) < 0)
        if falls.size:
            raise ValueError(f"values[{falls[0] + 1}] = {values[falls[0] + 1]} is below its predecessor: not ordered")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codebook) and self.name == other.name and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.name, self.values.tobytes()))

    @property
    def size(self) -> int:
        """The number of codewords, M."""
        return self.values.size

    @property
    def bits(self) -> int:
        """The bits of a token, ⌈log₂ M⌉."""
        return (self.size - 1).bit_length()


def uniform_codebook(bits: int) -> Codebook:
    """Return the grid of M = 2^bits equidistant codewords.

    Examples:
        >>> uniform_codebook(2).values
        array([-1.        , -0.33333333,  0.33333333,  1.        ])
    """
    size = 1 << check_bits(bits)
    return Codebook("uniform", np.arange(1 - size, size, 2) / (size - 1))
