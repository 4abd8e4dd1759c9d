"""Argument checks and constants that all kernels share. Numba is not imported here."""

from functools import cache
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

_KINDS = {"f": ["f4", "f8"]}


def kind_of(value: object) -> str:
    """Describe a rejected argument."""
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__


def take(shapes: str, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
    """Return input arrays of the types and shapes that the kernels are compiled for, or say what is wrong with one.

    `shapes` has the name, type and axes of each, such as "rows f4 n d, uniforms f8 n". Axes of one name have one
    length, a number is a length, and the type f is f4 or f8. A strided or read-only array is copied: to Numba it is
    another type, for which everything would be compiled again.

    Examples:
        >>> take("rows f4 n 3, uniforms f8 n", np.zeros((2, 3), np.float32), np.zeros(4))
        Traceback (most recent call last):
        ...
        ValueError: uniforms must have shape (2), got (4,)
    """
    lengths: dict[str, int] = {}
    taken = []
    for (name, kinds, axes), array in zip(_read(shapes), arrays, strict=True):
        if not isinstance(array, np.ndarray) or array.dtype not in kinds:
            raise TypeError(f"{name} must be a {' or '.join(map(str, kinds))} array, got {kind_of(array)}")
        if array.ndim != len(axes):
            raise ValueError(f"{name} must have {len(axes)} dimension(s), got shape {array.shape}")
        wanted = [
            int(axis) if axis.isdecimal() else lengths.setdefault(axis, length)
            for axis, length in zip(axes, array.shape, strict=True)
        ]
        if wanted != [*array.shape]:
            raise ValueError(f"{name} must have shape ({', '.join(map(str, wanted))}), got {array.shape}")
        taken.append(array if array.flags.c_contiguous and array.flags.writeable else array.copy())
    return taken


@cache
def _read(shapes: str) -> list[tuple[str, list[np.dtype[Any]], list[str]]]:
    """The name, types and axes of each array."""
    parts = [part.split() for part in shapes.split(", ")]
    return [(name, [np.dtype(one) for one in _KINDS.get(kind, [kind])], axes) for name, kind, *axes in parts]


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
