"""Checked entry to the kernels on vectors: transforms, clipping, choice of signed rows, Kashin representations."""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.chunks import row_chunks
from sstq.kernels.checks import Doubles, Integers, Singles, check_floats, check_range, checked, log2
from sstq.kernels.compiling import compiled, run_rows
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
    check_floats("x", x, 1, 2)
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
    """The kernel for float32 or float64: looking for it takes longer than a small transform."""
    return compiled("hadamard.transform_rows", np.empty((1, 1), dtype), 0)


def _checked_rows(x: NDArray[Any], clip: float) -> NDArray[Any]:
    """Return x, (n, d), contiguous, if it and clip are what the kernels take."""
    check_floats("x", x, 2)
    if not 0 < clip < math.inf:
        raise ValueError(f"clip must be positive and finite, got {clip}")
    return checked("x", np.ascontiguousarray(x), x.dtype.type, 2)


def all_finite(x: NDArray[Any]) -> bool:
    """Whether all numbers of x, (n, d), float32 or float64, are finite."""
    check_floats("x", x, 2)
    return all(bool(np.isfinite(x[part]).all()) for part in row_chunks(len(x), max(1, x.shape[1])))


def clip_to_ball(x: NDArray[Any], clip: float) -> tuple[Singles, NDArray[np.bool_]]:
    """Clip every row of x, (n, d), float32 or float64, finite, to norm `clip` and divide it by that.

    Returns the rows in single precision, of norm at most 1 up to rounding, and which of them were longer than clip.
    """
    x, bound = _checked_rows(x, clip), float(clip)
    unit, longer = np.empty(x.shape, np.float32), np.empty(len(x), np.bool_)
    run_rows("clipping.clip_rows", len(x), x.shape[1], lambda rows: (x[rows], bound, unit[rows], longer[rows]))
    return unit, longer


def pick_signed_rows(
    x: NDArray[Any],
    clip: float,
    uniforms: Doubles,
    signs: tuple[Singles, Singles],
    which: Integers,
    subsets: Integers,
    inside: int,
    places: Integers,
) -> tuple[Integers, NDArray[np.bool_]]:
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
    """
    x, bound = _checked_rows(x, clip), float(clip)
    first, later = checked("signs", signs[0], np.float32, 2), checked("signs", signs[1], np.float32, 3)
    uniforms = checked("uniforms", uniforms, np.float64, 1)
    which, places = checked("which", which, np.int64, 1), checked("places", places, np.int64, 1)
    subsets = checked("subsets", subsets, np.int64, 2)
    count, size = x.shape[0], later.shape[2]
    bits = log2("the number of rows", size)
    if not 0 < x.shape[1] <= size or first.shape != (later.shape[0], x.shape[1]):
        raise ValueError(f"x of shape {x.shape} does not fit signs of shapes {first.shape} and {later.shape}")
    if not len(uniforms) == len(which) == len(subsets) == len(places) == count:
        raise ValueError(f"uniforms, which, subsets and places must have one entry for each of the {count} rows of x")
    taking_part = subsets.shape[1] or size
    if not 1 <= inside <= taking_part:
        raise ValueError(f"inside must be from 1 to {taking_part}, got {inside}")
    check_range("which", which, len(first))
    check_range("subsets", subsets, size)
    check_range("places", places, 2 * taking_part)
    # Scores of a unit vector have the root mean square N^((r − 1)/2) and are nearly normal.
    expected = size ** (later.shape[1] / 2) * NormalDist().inv_cdf(1 - (inside - 0.5) / (2 * taking_part))
    picked, longer = np.empty(count, np.int64), np.empty(count, np.bool_)

    def arguments(rows: slice) -> tuple[Any, ...]:
        frames, ranks = (first, later, bits), (inside, expected, places[rows])
        return x[rows], bound, uniforms[rows], frames, which[rows], subsets[rows], ranks, picked[rows], longer[rows]

    run_rows("selection.pick_rows", count, size * (later.shape[1] + 2), arguments)
    return picked, longer


@dataclass(frozen=True, eq=False)
class SignedColumns:
    """The places of d coordinates among the N inputs of a Hadamard transform, and their signs.

    Args:
        places: int64 (d,), strictly ascending, in [0, N).
        signs: float32 (d,), each +1 or −1.
        size: N, a power of two, at least d.
    """

    places: Integers
    signs: Singles
    size: int

    def __post_init__(self) -> None:
        places, signs = checked("places", self.places, np.int64, 1), checked("signs", self.signs, np.float32, 1)
        log2("size", self.size)
        if places.shape != signs.shape:
            raise ValueError(f"places and signs must have the same shape, got {places.shape} and {signs.shape}")
        check_range("places", places, self.size)
        if np.any(np.diff(places) <= 0):
            raise ValueError("places must be strictly ascending")
        if np.any(np.abs(signs) != 1):
            raise ValueError("signs must all be +1 or -1")
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "signs", signs)

    @cached_property
    def mask(self) -> NDArray[Any]:
        """The bits that are 1 at the places, in one word for each vector of the transform."""
        from sstq.kernels.kashin import mask_words

        words: NDArray[Any] = mask_words(self.places, self.size)
        return words


def kashin_pick(
    x: Singles, columns: SignedColumns, schedule: Singles, picks: Integers, *, certify: bool = True
) -> tuple[Singles, Doubles]:
    """Solve for Kashin representations and return a few of their entries.

    With v = scatter(signs·x) into R^N at the columns, H the unnormalised Hadamard matrix and P = H·mask·H/N, start from
    t = 0 and a = H v and do for every row (ω, γ, cap, box) of the schedule

        t' = clip(t + clip(r·a, ±cap), ±box),      a ← P(a − (t' − t)),      t ← t',      r = max(ω, min(γ·q, 16)),

    where q = ‖s‖²/‖P s‖² is that of the step s = t' − t before the last (0 in the first two steps). The representation
    t stands for the vector signs·gather(H t)/N. The work is the same for every input.

    Args:
        x: float32 (n, d), one client per row.
        columns: the places of the d coordinates among N, and their signs.
        schedule: float32 (steps, 4), rows (ω, γ, cap, box); cap and box may be infinite.
        picks: int64 (n, k), positions in [0, N).
        certify: whether to compute the residuals, in double precision, from t.

    Returns:
        t at the picks, float32 (n, k), and the residuals ‖x − signs·gather(H t)/N‖₂, float64 (n,), or (0,) without
        `certify`. Memory beyond the result: two vectors of length N for each thread, and one in double precision.

    Examples:
        >>> x, columns = np.ones((1, 1), np.float32), SignedColumns(np.array([0]), np.ones(1, np.float32), size=4)
        >>> schedule = np.array([[1.0, 0.0, np.inf, np.inf]], np.float32)
        >>> kashin_pick(x, columns, schedule, np.array([[0, 3]]))
        (array([[1., 1.]], dtype=float32), array([0.]))
    """
    x, picks = checked("x", x, np.float32, 2), checked("picks", picks, np.int64, 2)
    if len(picks) != len(x):
        raise ValueError(f"picks must have one row for each of the {len(x)} rows of x, got shape {picks.shape}")
    check_range("picks", picks, columns.size)
    return _solve(x, columns, schedule, picks, picks.shape[1], certify)


def kashin_represent(x: Singles, columns: SignedColumns, schedule: Singles) -> tuple[Singles, Doubles]:
    """`kashin_pick` of all entries: the whole t, float32 (n, N), and the residuals, float64 (n,)."""
    x = checked("x", x, np.float32, 2)
    return _solve(x, columns, schedule, np.empty((len(x), 0), np.int64), columns.size, True)


def _solve(
    x: Singles, columns: SignedColumns, schedule: Singles, picks: Integers, width: int, certify: bool
) -> tuple[Singles, Doubles]:
    """Return `width` entries of t, those at the picks or, without these, the first; and the residuals."""
    schedule = checked("schedule", schedule, np.float32, 2)
    dim = len(columns.places)
    if x.shape[1] != dim:
        raise ValueError(f"x must have rows of {dim} entries, one for each column, got shape {x.shape}")
    if schedule.shape[1] != 4:
        raise ValueError(f"schedule must have shape (steps, 4), got {schedule.shape}")
    values, residuals = np.empty((len(x), width), np.float32), np.empty(len(x) if certify else 0)
    frame = columns.places, columns.signs, columns.mask, columns.size.bit_length() - 1

    def arguments(rows: slice) -> tuple[Any, ...]:
        return x[rows], frame, schedule, picks[rows], values[rows], residuals[rows]

    run_rows("kashin.solve_rows", len(x), columns.size * (2 * len(schedule) + 1), arguments)
    return values, residuals
