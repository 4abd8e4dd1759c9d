"""Argument checks and constants that all kernels share. Numba is not imported here."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

LONGEST_STEP = 16.0
"""The longest adaptive step of `kashin_pick`. Only inputs that no number of steps would represent ask for more."""

LEAST_REDUCTION = 1e-30
"""Stands in for a reduction of the residual that is zero, as that of a zero vector, or lost to rounding."""

LIMB_BITS = 30
"""The bits of a low limb of fixed-point sums; limbs and squares of 30 bits leave room for 2^32 messages in 63 bits."""

# As types they would be made into these at every comparison, which takes as long as a small transform.
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def kind_of(value: object) -> str:
    """Describe a rejected argument."""
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


def checked(name: str, array: NDArray[Any], dtype: type[np.generic], dimensions: int) -> NDArray[Any]:
    """Return an input array that has the type the kernels are compiled for, or say what is wrong with it.

    A read-only array is copied: to Numba it is another type, for which everything would be compiled again.
    """
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        raise TypeError(f"{name} must be a {np.dtype(dtype)} array, got {kind_of(array)}")
    if array.ndim != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimension(s), got shape {array.shape}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be C-contiguous")
    return array if array.flags.writeable else array.copy()


def check_floats(name: str, array: NDArray[Any], *dimensions: int) -> None:
    """Refuse what is no array of floats in single or double precision, of one of those numbers of dimensions."""
    if not isinstance(array, np.ndarray) or array.dtype not in _FLOATS:
        raise TypeError(f"{name} must be a float32 or float64 array, got {kind_of(array)}")
    if array.ndim not in dimensions:
        raise ValueError(f"{name} must have {' or '.join(map(str, dimensions))} dimensions, got shape {array.shape}")


def check_range(name: str, array: NDArray[Any], bound: int) -> None:
    """Refuse entries outside [0, bound), naming one."""
    # Read as unsigned numbers negative ones are the largest, so that one look finds both kinds.
    if array.size == 0 or int(array.view(f"u{array.itemsize}").max()) < bound:
        return
    extreme = next(number for number in (int(array.min()), int(array.max())) if not 0 <= number < bound)
    raise ValueError(f"{name} must lie in [0, {bound}), got {extreme}")


def log2(name: str, size: int) -> int:
    """Return log₂ of a power of two, or say that it is none."""
    if size < 1 or size & (size - 1):
        raise ValueError(f"{name} must be a power of two, got {size}")
    return size.bit_length() - 1
