"""Checked entry to the kernels on whole vectors: transforms, clipping, choice of signed rows."""

import math
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.chunks import row_chunks
from sstq.kernels.checks import check_floats, check_range, checked, log2
from sstq.kernels.compiling import prepare
from sstq.kernels.threads import MIN_ELEMENTS_A_THREAD, run_in_chunks


def hadamard_transform(x: NDArray[Any]) -> None:
    """Multiply every row by the unnormalised Hadamard matrix, in place.

    H_1 = [1] and H_2N = [[H_N, H_N], [H_N, −H_N]] (natural or Sylvester order), so transforming twice multiplies by N.

    Args:
        x: float32 or float64, C-contiguous and writable, of shape (N,) or (n, N) with N a power of two.

    Examples:
        >>> x = np.array([1.0, 2.0, 3.0, 4.0])
        >>> hadamard_transform(x)
        >>> x
        array([10., -2., -4.,  0.])

    """
    check_floats("x", x)
    if x.ndim not in (1, 2):
        raise ValueError(f"x must have 1 or 2 dimensions, not shape {x.shape}")
    if not x.flags.c_contiguous or not x.flags.writeable:
        raise ValueError("x must be C-contiguous and writable: it is transformed in place")
    bits = log2("the length of a row of x", x.shape[-1])
    rows = x if x.ndim == 2 else x[None]
    transform_rows = _transform_of(x.dtype)
    if x.size < MIN_ELEMENTS_A_THREAD:
        transform_rows(rows, bits)
    else:
        run_in_chunks(lambda chunk: transform_rows(rows[chunk], bits), *rows.shape)


@cache
def _transform_of(dtype: np.dtype[Any]) -> Any:
    """The kernel for float32 or float64, prepared once: importing and preparing take longer than a small transform."""
    if dtype == np.float32:
        from sstq.kernels.hadamard import transform_rows
    else:
        from sstq.kernels.plain import transform_rows
    prepare(transform_rows, np.empty((1, 1), dtype), 0)
    return transform_rows


def all_finite(x: NDArray[Any]) -> bool:
    """Whether all numbers of x, (n, d), float32 or float64, are finite.

    Examples:
        >>> all_finite(np.array([[1.0, 2.0]])), all_finite(np.array([[1.0, np.nan]]))
        (True, False)

    """
    _check_rows(x)
    if x.size < MIN_ELEMENTS_A_THREAD or not x.flags.c_contiguous or not x.flags.writeable:
        # Less than a call of the kernel takes, or than a copy for it.
        return all(bool(np.isfinite(x[part]).all()) for part in row_chunks(len(x), max(1, x.shape[1])))
    from sstq.kernels.clipping import largest_bits

    _, keys, magnitude, fraction_bits = _as_integers(x)
    infinite = int(magnitude) >> fraction_bits << fraction_bits
    prepare(largest_bits, keys.reshape(-1), magnitude)
    largest: list[int] = []
    # In the time that a transform takes for a number, eight of them are found to be finite.
    run_in_chunks(
        lambda rows: largest.append(int(largest_bits(keys[rows].reshape(-1), magnitude))),
        x.shape[0],
        -(-x.shape[1] // 8),
    )
    return max(largest) < infinite


def clip_to_ball(x: NDArray[Any], clip: float) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Clip every row to norm `clip` and divide it by that.

    Args:
        x: (n, d), float32 or float64, finite; any magnitudes.
        clip: positive and finite.

    Returns:
        The rows in single precision, of norm at most 1 up to rounding, and which of them were longer than clip.

    Examples:
        >>> clip_to_ball(np.array([[3.0, 4.0], [0.0, 0.5]]), 1.0)
        (array([[0.6, 0.8],
               [0. , 0.5]], dtype=float32), array([ True, False]))

    """
    x, keys, *kind = _as_integers(x)
    measure = *kind, _check_clip(clip)
    unit = np.empty(x.shape, np.float32)
    longer = np.empty(x.shape[0], np.bool_)
    from sstq.kernels.clipping import clip_rows

    prepare(clip_rows, x, keys, *measure, unit, longer)

    def work(rows: slice) -> None:
        clip_rows(x[rows], keys[rows], *measure, unit[rows], longer[rows])

    run_in_chunks(work, x.shape[0], x.shape[1])
    return unit, longer


def _check_rows(x: NDArray[Any]) -> None:
    check_floats("x", x)
    if x.ndim != 2:
        raise ValueError(f"x must have 2 dimensions, not shape {x.shape}")


def _as_integers(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], Any, int]:
    """Return x, contiguous; x read as integers, the mask of all but their sign bit, and the bits of a fraction."""
    _check_rows(x)
    # Broadcast and strided arrays, too.
    x = checked("x", np.ascontiguousarray(x), x.dtype.type, 2)
    integer, fraction_bits = (np.int32, 23) if x.dtype == np.float32 else (np.int64, 52)
    return x, x.view(integer), integer(np.iinfo(integer).max), fraction_bits


def _check_clip(clip: float) -> float:
    clip = float(clip)
    if not 0 < clip < math.inf:
        raise ValueError(f"clip must be positive and finite, not {clip}")
    return clip


def pick_signed_rows(
    x: NDArray[Any],
    clip: float,
    uniforms: NDArray[np.float64],
    signs: tuple[NDArray[np.float32], NDArray[np.float32]],
    which: NDArray[np.int64],
    subsets: NDArray[np.int64],
    inside: int,
    places: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """One signed row of a mixed Hadamard frame for every client, by its place among the best aligned.

    The scores of client i are c = ±U x, U being H·D_r·…·H·D_1 with the signs of its frame; the sign is − if
    uniforms[i] < (1 − ‖x‖/clip)/2. Of the R rows that take part, the `inside` ones of the largest |c_j| (ties: the
    smaller j) come first, with the sign of c_j (c_j = 0 counts as positive), by index; then they come again with the
    opposite sign; and then all others, each with both signs.

    Args:
        x: (n, d), float32 or float64, finite; any magnitudes; e₁ stands for the direction of a zero row.
        clip: positive and finite.
        uniforms: float64 (n,), secret numbers in [0, 1).
        signs: those of F frames before the first transform, float32 (F, d), and before the later ones, float32
            (F, rounds − 1, N).
        which: int64 (n,), the frame of each client.
        subsets: int64 (n, R), the rows of the frame that take part; R = 0 for all of them, R = N.
        inside: k, from 1 to R.
        places: int64 (n,), in [0, 2R).

    Returns:
        int64 (n,): 2·slot for the row in a slot of the subset (or for that row of the frame), + 1 for its opposite;
        and which rows of x are longer than clip.

    Examples:
        >>> x, half = np.float32([[0.6, 0.8]]), np.array([0.5])
        >>> signs = np.ones((1, 2), np.float32), np.empty((1, 0, 2), np.float32)
        >>> rest = half, signs, np.array([0]), np.empty((1, 0), int), 1
        >>> [int(pick_signed_rows(x, 1.0, *rest, np.array([place]))[0][0]) for place in range(4)]
        [0, 1, 2, 3]

    """
    x, keys, *kind = _as_integers(x)
    measure = *kind, _check_clip(clip)
    first = checked("signs", signs[0], np.float32, 2)
    later = checked("signs", signs[1], np.float32, 3)
    uniforms = checked("uniforms", uniforms, np.float64, 1)
    which = checked("which", which, np.int64, 1)
    subsets = checked("subsets", subsets, np.int64, 2)
    places = checked("places", places, np.int64, 1)
    count, size = x.shape[0], later.shape[2]
    bits = log2("the number of rows", size)
    if not 0 < x.shape[1] <= size or first.shape != (later.shape[0], x.shape[1]):
        raise ValueError(f"x of shape {x.shape} does not fit signs of shapes {first.shape} and {later.shape}")
    if not len(uniforms) == len(which) == len(subsets) == len(places) == count:
        raise ValueError(f"uniforms, which, subsets and places must have one entry for each of the {count} rows of x")
    taking_part = subsets.shape[1] or size
    if not 1 <= inside <= taking_part:
        raise ValueError(f"inside must be from 1 to {taking_part}, not {inside}")
    check_range("which", which, len(first))
    check_range("subsets", subsets, size)
    check_range("places", places, 2 * taking_part)
    from sstq.kernels.selection import pick_rows

    # Scores of a unit vector have the root mean square N^((r − 1)/2) and are nearly normal.
    expected = size ** (later.shape[1] / 2) * NormalDist().inv_cdf(1 - (inside - 0.5) / (2 * taking_part))
    picked, longer = np.empty(count, np.int64), np.empty(count, np.bool_)

    def arguments(rows: slice) -> tuple[Any, ...]:
        own = x[rows], keys[rows], *measure, uniforms[rows], first, later, which[rows], bits, subsets[rows]
        return *own, inside, expected, places[rows], picked[rows], longer[rows]

    prepare(pick_rows, *arguments(slice(0, count)))
    run_in_chunks(lambda rows: pick_rows(*arguments(rows)), count, size * (later.shape[1] + 2))
    return picked, longer
