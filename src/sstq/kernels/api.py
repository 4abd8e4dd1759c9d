"""Checked entries to the kernels: transforms, clipping, choice of signed rows, Kashin representations, sums.

`_take` checks types and shapes (a wrong one is a programming error), `_check_range` what indexes memory.
"""

from functools import cache
from statistics import NormalDist
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.array_types import Bools, Floats, Floats32, Ints, Words
from sstq.kernels.compiling import compiled
from sstq.kernels.threads import MIN_ELEMENTS_PER_THREAD, row_chunks, run_in_chunks

LONGEST_STEP = 16.0
"""The longest adaptive step of `kashin_pick`. Only inputs that no number of steps would represent ask for more."""

LEAST_REDUCTION = 1e-30
"""Stands in for a reduction of the residual that is zero, as that of a zero vector, or lost to rounding."""

LIMB_BITS = 30
"""The bits of a low limb of fixed-point sums; limbs and squares of 30 bits leave room for 2^32 messages in 63 bits."""

# The time of one normal number, in numbers of a transform.
_COST_OF_A_NORMAL = 6
# Messages are added in blocks of about 32,000, which stay in the cache.
_COST_OF_A_MESSAGE = 64

_kernels: dict[tuple[str, np.dtype[Any]], Any] = {}
_compiling = Lock()


def _take(shapes: str, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
    """Return input arrays as the kernels are compiled for them, read-only, or say what is wrong with one.

    `shapes` has the name, type and axes of each, such as "rows f4 n d, uniforms f8 n". Axes of one name have one
    length, a number is a length, and the type f is f4 or f8.
    """
    lengths: dict[str, int] = {}
    taken = []
    for (name, kinds, axes), array in zip(_read(shapes), arrays, strict=True):
        if (
            not isinstance(array, np.ndarray)
            or array.dtype not in kinds
            or array.ndim != len(axes)
        ):
            raise TypeError(
                f"{name} must be {' or '.join(map(str, kinds))} with {len(axes)} axes, got {_kind(array)}"
            )
        wanted = tuple(
            int(axis) if axis.isdecimal() else lengths.setdefault(axis, length)
            for axis, length in zip(axes, array.shape, strict=True)
        )
        if wanted != array.shape:
            raise ValueError(f"{name} must have shape {wanted}, got {array.shape}")
        # Copied only if it is strided or unaligned: to Numba each of these is another type.
        view = np.require(array, requirements=["C", "A"]).view()
        view.flags.writeable = False
        taken.append(view)
    return taken


@cache
def _read(shapes: str) -> list[tuple[str, list[np.dtype[Any]], list[str]]]:
    """The name, types and axes of each array."""
    parts = [part.split() for part in shapes.split(", ")]
    return [
        (
            name,
            [np.dtype(one) for one in (["f4", "f8"] if kind == "f" else [kind])],
            axes,
        )
        for name, kind, *axes in parts
    ]


def _kind(value: object) -> str:
    """Describe a rejected argument."""
    return (
        f"{value.dtype} of shape {value.shape}"
        if isinstance(value, np.ndarray)
        else type(value).__name__
    )


def _check_range(name: str, array: NDArray[Any], bound: int) -> None:
    """Refuse entries outside [0, bound), naming one."""
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < bound:
        extreme = next(
            number
            for number in (int(array.min()), int(array.max()))
            if not 0 <= number < bound
        )
        raise ValueError(f"{name} must lie in [0, {bound}), got {extreme}")


def _log2(name: str, size: int) -> int:
    """Return log₂ of a power of two, or say that it is none."""
    if size < 1 or size & (size - 1):
        raise ValueError(f"{name} must be a power of two, got {size}")
    return size.bit_length() - 1


def _kernel(name: str, first: Any, *others: Any) -> Any:
    """The kernel "module.function", compiled on first use; but for the first, its arguments are always of one type."""
    key = name, first.dtype
    if key not in _kernels:
        # Threads that need a kernel at the same time would compile it each, and draw over each other's bar.
        with _compiling:
            if key not in _kernels:
                _kernels[key] = compiled(name, (first, *others))
    return _kernels[key]


def _run_rows(
    name: str, elements_per_row: int, by_row: tuple[NDArray[Any], ...], *shared: Any
) -> None:
    """Call a kernel with parts of the arrays `by_row`, which cover their rows, in several threads if that is faster."""
    kernel = _kernel(name, *by_row, *shared)
    # slicing takes as long as a small transform
    if len(by_row[0]) * elements_per_row < MIN_ELEMENTS_PER_THREAD:
        kernel(*by_row, *shared)
        return
    run_in_chunks(
        lambda part: kernel(*(array[part] for array in by_row), *shared),
        len(by_row[0]),
        elements_per_row,
    )


def hadamard_transform(x: NDArray[Any]) -> None:
    """Multiply every row by the unnormalised Hadamard matrix, in place.

    H_1 = [1] and H_2N = [[H_N, H_N], [H_N, −H_N]] (natural or Sylvester order), so transforming twice multiplies by N.
    x is float32 or float64, C-contiguous and writable, of shape (N,) or (n, N) with N a power of two.

    Examples:
        >>> x = np.array([1.0, 2.0, 3.0, 4.0])
        >>> hadamard_transform(x)
        >>> x
        array([10., -2., -4.,  0.])
    """
    if not isinstance(x, np.ndarray) or x.dtype.char not in "fd":
        raise TypeError(f"x must be a float32 or float64 array, got {_kind(x)}")
    if x.ndim not in (1, 2) or not x.flags.c_contiguous or not x.flags.writeable:
        raise ValueError(
            f"x must have 1 or 2 dimensions, C-contiguous and writable, got shape {x.shape}"
        )
    bits = _log2("the length of a row of x", x.shape[-1])
    _run_rows(
        "hadamard.transform_rows", x.shape[-1], (x if x.ndim == 2 else x[None],), bits
    )


def clip_to_ball(x: NDArray[Any], clip: float) -> tuple[Floats32, Bools]:
    """Clip every row of x, (n, d), float32 or float64, finite, to norm `clip` and divide it by that.

    Returns the rows in single precision, of norm at most 1 up to rounding, and which of them were longer than clip.
    """
    (x,) = _take("x f n d", x)
    unit = np.empty(x.shape, np.float32)
    longer = np.empty(len(x), np.bool_)
    _run_rows("clipping.clip_rows", x.shape[1], (x, unit, longer), float(clip))
    return unit, longer


def pick_signed_rows(
    x: NDArray[Any],
    clip: float,
    uniforms: Floats,
    signs: tuple[Floats32, Floats32],
    which: Ints,
    inside: int,
    places: Ints,
) -> tuple[Ints, Bools]:
    """One signed row of a mixed Hadamard frame for every client, by its place among the best aligned.

    The scores of client i are c = ±U x, U being H·D_r·…·H·D_1 with the signs of its frame; the sign is − if uniforms[i]
    < (1 − ‖x‖/clip)/2. The `inside` rows of the largest |c_j| (ties: the smaller j) come first, with the sign of c_j
    (c_j = 0 counts as positive), by index; then they come again with the opposite sign; and then all others, each with
    both signs.

    Args:
        x: (n, d), finite; any magnitudes; e₁ stands for the direction of a zero row.
        clip: positive and finite.
        uniforms: (n,), secret numbers in [0, 1).
        signs: those of F frames before the first transform, (F, d), and before the later ones, (F, rounds − 1, N).
        which: (n,), the frame of each client.
        inside: k, from 1 to N.
        places: (n,), in [0, 2N).

    Returns 2·j for row j, + 1 for its opposite, (n,); and which rows of x are longer than clip.
    """
    shapes = (
        "x f n d, signs f4 F d, signs f4 F r N, uniforms f8 n, which i8 n, places i8 n"
    )
    x, first, later, uniforms, which, places = _take(
        shapes, x, *signs, uniforms, which, places
    )
    count = len(x)
    size = later.shape[2]
    bits = _log2("the number of rows", size)
    _check_range("the last column of x", np.array(x.shape[1] - 1), size)
    _check_range("inside - 1", np.array(inside - 1), size)
    _check_range("which", which, len(first))
    _check_range("places", places, 2 * size)
    # Scores of a unit vector have the root mean square N^((r − 1)/2) and are nearly normal.
    expected = size ** (later.shape[1] / 2) * NormalDist().inv_cdf(
        1 - (inside - 0.5) / (2 * size)
    )
    picked = np.empty(count, np.int64)
    longer = np.empty(count, np.bool_)
    by_row = x, uniforms, which, places, picked, longer
    cost = size * (later.shape[1] + 2)
    frames = (first, later, bits)
    ranks = (int(inside), expected)
    _run_rows("selection.pick_rows", cost, by_row, float(clip), frames, ranks)
    return picked, longer


def kashin_pick(
    x: Floats32,
    columns: Ints,
    signs: Floats32,
    size: int,
    schedule: Floats32,
    picks: Ints | None = None,
    *,
    certify: bool = True,
) -> tuple[Floats32, Floats]:
    """Solve for Kashin representations and return a few of their entries, or all.

    With v = scatter(signs·x) into R^N at the columns, H the unnormalised Hadamard matrix and P = H·mask·H/N, start from
    t = 0 and a = H v and do for every row (ω, γ, cap, box) of the schedule

        t' = clip(t + clip(r·a, ±cap), ±box),      a ← P(a − (t' − t)),      t ← t',      r = max(ω, min(γ·q, 16)),

    where q = ‖s‖²/‖P s‖² is that of the step s = t' − t before the last (0 in the first two steps). The representation
    t stands for the vector signs·gather(H t)/N. The work is the same for every input.

    Args:
        x: (n, d), one client per row.
        columns: (d,), the different places of the coordinates among N.
        signs: (d,), their signs ±1.
        size: N, a power of two.
        schedule: (steps, 4), rows (ω, γ, cap, box); cap and box may be infinite.
        picks: int64 (n, k), positions in [0, N); None for all N of each row.
        certify: whether to compute the residuals, in double precision, from t.

    Returns t at the picks, (n, k), and the residuals ‖x − signs·gather(H t)/N‖₂, (n,), or (0,) without `certify`.
    Memory beyond the result: two vectors of length N for each thread, and one in double precision.

    Examples:
        >>> x, columns, signs = np.ones((1, 1), np.float32), np.array([0]), np.ones(1, np.float32)
        >>> schedule = np.array([[1.0, 0.0, np.inf, np.inf]], np.float32)
        >>> kashin_pick(x, columns, signs, 4, schedule, np.array([[0, 3]]))
        (array([[1., 1.]], dtype=float32), array([0.]))
    """
    chosen = np.empty((len(x), 0), np.int64) if picks is None else picks
    shapes = "columns i8 d, signs f4 d, x f4 n d, schedule f4 steps 4, picks i8 n k"
    columns, signs, x, schedule, chosen = _take(
        shapes, columns, signs, x, schedule, chosen
    )
    frame = columns, signs, _log2("size", size)
    _check_range("columns", columns, size)
    _check_range("picks", chosen, size)
    width = size if picks is None else chosen.shape[1]
    values = np.empty((len(x), width), np.float32)
    residuals = np.empty(len(x) if certify else 0)
    _run_rows(
        "kashin.solve_rows",
        size * (2 * len(schedule) + 1),
        (x, chosen, values, residuals),
        frame,
        schedule,
    )
    return values, residuals


def box_muller(words: Words) -> Floats:
    """As many standard normal numbers as words, uint64 (n, 2·h), row by row; none is zero.

    Word i of the first half of a row gives a radius and word i of the second half an angle, whose cosine is number i of
    the first half and whose sine is that of the second. Uniform numbers have 53 bits. Fewer would leak: where they are
    coarser than the rounding of the numbers sent, as 32 bits are for one angle in a hundred, a vector can be seen not
    to come from a direction.
    """
    (words,) = _take("words u8 n w", words)
    if words.shape[1] % 2:
        raise ValueError(
            f"words must have an even number of columns, got shape {words.shape}"
        )
    numbers = np.empty(words.shape)
    _run_rows(
        "normals.box_muller_rows", _COST_OF_A_NORMAL * words.shape[1], (words, numbers)
    )
    return numbers


def draw_around(
    directions: Floats,
    along: Floats,
    across: Floats,
    words: Words,
    first: int = 0,
    *,
    to_length: bool,
) -> Floats32:
    """The vectors t·u + w, w being normal numbers in the hyperplane orthogonal to u, as float32 (n, d).

    `directions` are the unit vectors u, (n, d), d ≥ 2, and `along` is t, (n,). `across` is the length of w if
    `to_length`, else what its d − 1 numbers are multiplied by. Of each row of secret `words` 2·⌊d/2⌋ from `first` on
    are used.
    """
    shapes = "directions f8 n d, along f8 n, across f8 n, words u8 n w"
    directions, along, across, words = _take(shapes, directions, along, across, words)
    dim = directions.shape[1]
    if dim < 2 or not 0 <= first <= words.shape[1] - dim // 2 * 2:
        raise ValueError(
            f"words of shape {words.shape} do not suffice for directions of shape {directions.shape}"
        )
    vectors = np.empty(directions.shape, np.float32)
    by_row = directions, along, across, words, vectors
    _run_rows("normals.draw_around", _COST_OF_A_NORMAL * dim, by_row, first, to_length)
    return vectors


def accumulate(
    state: Ints, index: NDArray[np.integer], code: NDArray[np.integer], table: Ints
) -> None:
    """Add messages to an aggregator's state: state[index, 0] += 1 and state[index, 1:4] += table[code], for each.

    The state is int64 (N, 4), C-contiguous, and the table (codes, 3). Ints only, so the result is exact and
    independent of the order of the messages. Index and code may be of any integer type; one out of range is a
    ValueError, raised before anything is added. One thread.
    """
    _take("state i8 N 4, table i8 codes 3", state, table)
    if (
        not state.flags.c_contiguous
        or index.shape != code.shape
        or len(state) > 1 << 32
    ):
        raise ValueError(
            f"state must be contiguous and code have the shape of index, {index.shape}, got {code.shape}"
        )
    _check_range("index", index, len(state))
    _check_range("code", code, len(table))
    increments = np.insert(table, 0, 1, axis=1)
    none = np.empty(0, dtype=np.uint32)
    add = _kernel("sums.add_messages", state, none, none, increments)
    for part in row_chunks(len(index), _COST_OF_A_MESSAGE):
        add(
            state,
            index[part].astype(np.uint32),
            code[part].astype(np.uint32),
            increments,
        )


def accumulate_vectors(
    state: Ints,
    vectors: Floats,
    unit: float,
    limit: float,
    value_bits: int,
    square_bits: int,
) -> bool:
    """Add dense vectors, (n, d), to a state of d rows: round(v/unit·2^value_bits) in two limbs, and its square's.

    The state, int64, has three columns for squares in one limb and four for two. False if a number is beyond
    limit·unit or none, which leaves the state of no use.
    """
    (vectors,) = _take("vectors f8 n d", vectors)
    if (
        state.shape not in ((vectors.shape[1], 3), (vectors.shape[1], 4))
        or not state.flags.c_contiguous
    ):
        raise ValueError(
            f"state must have one row of 3 or 4 integers per coordinate, got shape {state.shape}"
        )
    numbers = float(unit), float(limit), 2.0**value_bits, 2.0**square_bits
    return bool(
        _kernel("sums.add_vectors", state, vectors, *numbers)(state, vectors, *numbers)
    )


def count_passed(rows: Floats32, uniforms: Floats, scale: float) -> Ints:
    """The number of sums scale·(|rows[i, 0]| + … + |rows[i, j]|), j = 0, 1, …, that are ≤ uniforms[i], (n,)."""
    rows, uniforms = _take("rows f4 n d, uniforms f8 n", rows, uniforms)
    counts = np.empty(len(rows), np.int64)
    _run_rows(
        "sums.count_passed_sums", rows.shape[1], (rows, uniforms, counts), float(scale)
    )
    return counts


def count_walks(first: Ints, step: Ints, times: Ints, length: int, size: int) -> Ints:
    """How often walks visit each place, (size,): walk i is at (first[i] + j·step[i]) mod size for j < length."""
    first, step, times = _take("first i8 n, step i8 n, times i8 n", first, step, times)
    _check_range("first", first, size)
    _check_range("step", step, size)
    parts = []

    def count(part: slice) -> None:
        counts = np.zeros(size, np.int64)
        walks = first[part], step[part], times[part], length, counts
        _kernel("sums.count_walks", *walks)(*walks)
        parts.append(counts)

    run_in_chunks(count, len(first), max(1, length))
    return np.asarray(sum(parts, np.zeros(size, np.int64)))
