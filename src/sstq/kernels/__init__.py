"""Numerical kernels: transforms, clipping, Kashin projections, selection, bit packing, sampling, accumulation.

Pure functions on arrays. Each checks what it is handed (a wrong type or shape is a programming error), compiles its
Numba kernel on first use and spreads rows over threads; the result does not depend on their number. Importing this
package does not import Numba.

Environment: SSTQ_THREADS is the number of threads (default: the cores this process may use); SSTQ_QUIET silences the
line that announces the first compilation.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.exactness import TOTAL
from sstq.kernels.checks import check_range, check_width, checked, kind_of, log2
from sstq.kernels.columns import SignedColumns
from sstq.kernels.compiling import prepare
from sstq.kernels.threads import run_in_chunks

__all__ = [
    "SignedColumns",
    "accumulate",
    "accumulate_vectors",
    "clip_to_ball",
    "hadamard_transform",
    "kashin_pick",
    "kashin_represent",
    "pack_bits",
    "pick_signed_rows",
    "sample_table",
    "unpack_bits",
]


LONGEST_STEP = 16.0
"""The longest adaptive step of `kashin_pick`. Only inputs that no number of steps would represent ask for more."""


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
    if not isinstance(x, np.ndarray) or x.dtype not in (np.float32, np.float64):
        raise TypeError(f"x must be a float32 or float64 array, not {kind_of(x)}")
    if x.ndim not in (1, 2):
        raise ValueError(f"x must have 1 or 2 dimensions, not shape {x.shape}")
    if not x.flags.c_contiguous or not x.flags.writeable:
        raise ValueError("x must be C-contiguous and writable: it is transformed in place")
    bits = log2("the length of a row of x", x.shape[-1])
    rows = x.reshape(-1, x.shape[-1])
    if x.dtype == np.float32:
        from sstq.kernels.hadamard import transform_rows
    else:
        from sstq.kernels.plain import transform_rows
    prepare(transform_rows, rows, bits)
    run_in_chunks(lambda chunk: transform_rows(rows[chunk], bits), rows.shape[0], rows.shape[1])


def clip_to_ball(x: NDArray[Any], clip: float) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Clip every row to norm `clip` and divide it by that.

    Args:
        x: (n, d), float32 or float64, finite; any magnitudes.
        clip: positive.

    Returns:
        The rows in single precision, of norm at most 1 up to rounding, and which of them were longer than clip.

    Examples:
        >>> clip_to_ball(np.array([[3.0, 4.0], [0.0, 0.5]]), 1.0)
        (array([[0.6, 0.8],
               [0. , 0.5]], dtype=float32), array([ True, False]))

    """
    if not isinstance(x, np.ndarray) or x.dtype not in (np.float32, np.float64):
        raise TypeError(f"x must be a float32 or float64 array, not {kind_of(x)}")
    # Broadcast and strided arrays, too.
    x = checked("x", np.ascontiguousarray(x), x.dtype.type, 2)
    integer = np.int32 if x.dtype == np.float32 else np.int64
    magnitude, fraction_bits = integer(np.iinfo(integer).max), int(np.finfo(x.dtype).nmant)
    unit = np.empty(x.shape, np.float32)
    longer = np.empty(x.shape[0], np.bool_)
    from sstq.kernels.clipping import clip_rows

    bits = x.view(integer)
    prepare(clip_rows, x, bits, magnitude, fraction_bits, float(clip), unit, longer)

    def work(rows: slice) -> None:
        clip_rows(x[rows], bits[rows], magnitude, fraction_bits, float(clip), unit[rows], longer[rows])

    run_in_chunks(work, x.shape[0], x.shape[1])
    return unit, longer


def pick_signed_rows(
    x: NDArray[np.float32],
    uniforms: NDArray[np.float64],
    signs: tuple[NDArray[np.float32], NDArray[np.float32]],
    which: NDArray[np.int64],
    subsets: NDArray[np.int64],
    inside: int,
    places: NDArray[np.int64],
) -> NDArray[np.int64]:
    """One signed row of a mixed Hadamard frame for every client, by its place among the best aligned.

    The scores of client i are c = ±U x, U being H·D_r·…·H·D_1 with the signs of its frame; the sign is − if
    uniforms[i] < (1 − ‖x‖)/2. Of the R rows that take part, the `inside` ones of the largest |c_j| (ties: the smaller
    j) come first, with the sign of c_j (c_j = 0 counts as positive), by index; then they come again with the opposite
    sign; and then all others, each with both signs.

    Args:
        x: float32 (n, d), rows of the unit ball; e₁ stands for the direction of a zero row.
        uniforms: float64 (n,), secret numbers in [0, 1).
        signs: those of F frames before the first transform, float32 (F, d), and before the later ones, float32
            (F, rounds − 1, N).
        which: int64 (n,), the frame of each client.
        subsets: int64 (n, R), the rows of the frame that take part; R = 0 for all of them, R = N.
        inside: k, from 1 to R.
        places: int64 (n,), in [0, 2R).

    Returns:
        int64 (n,): 2·slot for the row in a slot of the subset (or for that row of the frame), + 1 for its opposite.

    Examples:
        >>> x, half = np.float32([[0.6, 0.8]]), np.array([0.5])
        >>> signs = np.ones((1, 2), np.float32), np.empty((1, 0, 2), np.float32)
        >>> [int(pick_signed_rows(x, half, signs, np.array([0]), np.empty((1, 0), int), 1, np.array([p]))[0])
        ...  for p in range(4)]
        [0, 1, 2, 3]

    """
    x = checked("x", x, np.float32, 2)
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

    picked = np.empty(count, np.int64)
    prepare(pick_rows, x, uniforms, first, later, which, bits, subsets, inside, places, picked)

    def work(rows: slice) -> None:
        pick_rows(
            x[rows], uniforms[rows], first, later, which[rows], bits, subsets[rows], inside, places[rows], picked[rows]
        )

    run_in_chunks(work, count, size * (later.shape[1] + 2))
    return picked


def kashin_pick(
    x: NDArray[np.float32],
    columns: SignedColumns,
    schedule: NDArray[np.float32],
    picks: NDArray[np.int64],
    *,
    certify: bool = True,
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Solve for Kashin representations and return a few of their entries.

    With v = scatter(signs·x) into R^N at the columns, H the unnormalised Hadamard matrix and P = H·mask·H/N, start from
    t = 0 and a = H v and do for every row (ω, γ, cap, box) of the schedule

        t' = clip(t + clip(r·a, ±cap), ±box),      a ← P(a − (t' − t)),      t ← t',      r = max(ω, min(γ·q, 16)),

    where q = ‖s‖²/‖P s‖² is that of the step s = t' − t before the last (0 in the first two steps). The representation
    t stands for the vector signs·gather(H t)/N. The work is the same for every input.

    Args:
        x: float32 (n, d), one client a row.
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
    x = checked("x", x, np.float32, 2)
    picks = checked("picks", picks, np.int64, 2)
    if picks.shape[0] != x.shape[0]:
        raise ValueError(f"picks must have one row for each of the {x.shape[0]} rows of x, not shape {picks.shape}")
    check_range("picks", picks, columns.size)
    values = np.empty(picks.shape, np.float32)
    unused = np.empty((0, columns.size), np.float32)
    residuals = np.empty(len(x) if certify else 0)
    _solve(x, columns, schedule, picks, values, unused, residuals)
    return values, residuals


def kashin_represent(
    x: NDArray[np.float32], columns: SignedColumns, schedule: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Solve for Kashin representations and return them whole: t, float32 (n, N), and the residuals, float64 (n,).

    The arguments and the computation are those of `kashin_pick`.
    """
    x = checked("x", x, np.float32, 2)
    t = np.empty((x.shape[0], columns.size), np.float32)
    no_picks = np.empty((x.shape[0], 0), np.int64)
    no_values = np.empty((x.shape[0], 0), np.float32)
    residuals = np.empty(len(x))
    _solve(x, columns, schedule, no_picks, no_values, t, residuals)
    return t, residuals


def _solve(
    x: NDArray[np.float32],
    columns: SignedColumns,
    schedule: NDArray[np.float32],
    picks: NDArray[np.int64],
    values: NDArray[np.float32],
    t: NDArray[np.float32],
    residuals: NDArray[np.float64],
) -> None:
    """Check what both Kashin functions share and run the kernel on all rows."""
    schedule = checked("schedule", schedule, np.float32, 2)
    if x.shape[1] != columns.dim:
        raise ValueError(f"x must have rows of {columns.dim} entries, one for each column, not shape {x.shape}")
    if schedule.shape[1] != 4:
        raise ValueError(f"schedule must have shape (steps, 4), not {schedule.shape}")
    from sstq.kernels.kashin import solve_rows

    frame = columns.places, columns.signs, columns.mask, schedule, columns.bits
    prepare(solve_rows, x, *frame, picks, values, t, residuals)

    def work(rows: slice) -> None:
        solve_rows(x[rows], *frame, picks[rows], values[rows], t[rows], residuals[rows])

    run_in_chunks(work, x.shape[0], columns.size * (2 * schedule.shape[0] + 1))


def pack_bits(values: NDArray[np.uint64], width: int) -> NDArray[np.uint8]:
    """Pack unsigned integers of `width` bits back to back into bytes.

    Value i occupies the bits [i·width, (i + 1)·width) of the stream, and bit k of the stream is bit k mod 8 (least
    significant first) of byte k // 8. The unused bits of the last byte are 0.

    Args:
        values: uint64 (n,), each below 2^width.
        width: from 1 to 64.

    Returns:
        uint8, ⌈n·width / 8⌉ bytes.

    Examples:
        >>> pack_bits(np.array([1, 2, 3], np.uint64), 4)
        array([33,  3], dtype=uint8)

    """
    values = checked("values", values, np.uint64, 1)
    check_width(width)
    if values.size and int(values.max()) >> width:
        raise ValueError(f"values must be below 2^{width}, but one is {values.max()}")
    from sstq.kernels.packing import pack_words

    words = np.empty(-(-values.size * width // 64), np.uint64)
    prepare(pack_words, values, width, words)
    pack_words(values, width, words)
    packed = words.astype("<u8", copy=False).view(np.uint8)
    return packed[: -(-values.size * width // 8)]


def unpack_bits(data: NDArray[np.uint8], count: int, width: int) -> NDArray[np.uint64]:
    """Undo `pack_bits`: read `count` values of `width` bits. Unused bits of the last byte are ignored.

    Examples:
        >>> unpack_bits(np.array([33, 3], np.uint8), 3, 4)
        array([1, 2, 3], dtype=uint64)

    """
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
        raise TypeError(f"data must be a one-dimensional uint8 array, not {kind_of(data)}")
    check_width(width)
    if count < 0:
        raise ValueError(f"count must not be negative, but is {count}")
    expected = -(-count * width // 8)
    if data.size != expected:
        raise ValueError(f"{count} values of {width} bits take {expected} bytes, but data has {data.size}")
    from sstq.kernels.packing import unpack_words

    # One word to spare, so that the kernel can always read two.
    words = np.zeros(-(-count * width // 64) + 1, "<u8")
    words.view(np.uint8)[: data.size] = data
    native = words.astype(np.uint64, copy=False)
    values = np.empty(count, np.uint64)
    prepare(unpack_words, native, width, values)
    unpack_words(native, width, values)
    return values


def sample_table(
    tokens: NDArray[np.int64], words: NDArray[np.uint64], cumulative: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Map uniform words to codes by the rows of a table: code = #{entries of the token's row that are ≤ word}.

    The search takes a number of steps that depends on the length of a row alone, without branches.

    Args:
        tokens: int64 (n,), rows of the table.
        words: uint64 (n,), uniform in [0, 2^62).
        cumulative: uint64 (M_in, M_out), inclusive cumulative sums of each row's weights; the last is 2^62.

    Returns:
        int64 (n,), codes in [0, M_out).

    Examples:
        >>> half = np.array([[2**61, 2**62]], np.uint64)
        >>> sample_table(np.array([0, 0]), np.array([5, 2**61], np.uint64), half)
        array([0, 1])

    """
    tokens = checked("tokens", tokens, np.int64, 1)
    words = checked("words", words, np.uint64, 1)
    cumulative = checked("cumulative", cumulative, np.uint64, 2)
    if words.shape != tokens.shape:
        raise ValueError(f"words must have the shape of tokens, {tokens.shape}, not {words.shape}")
    if cumulative.shape[1] == 0 or np.any(cumulative[:, -1] != TOTAL):
        raise ValueError("the last entry of every row of cumulative must be 2^62")
    check_range("tokens", tokens, cumulative.shape[0])
    check_range("words", words, TOTAL)
    from sstq.kernels.sampling import search_rows

    codes = np.empty(tokens.shape, np.int64)
    prepare(search_rows, tokens, words, cumulative, codes)
    run_in_chunks(lambda chunk: search_rows(tokens[chunk], words[chunk], cumulative, codes[chunk]), tokens.size, 1)
    return codes


def accumulate(
    state: NDArray[np.int64], index: NDArray[np.integer], code: NDArray[np.integer], table: NDArray[np.int64]
) -> None:
    """Add messages to an aggregator's state: state[index, 0] += 1 and state[index, 1:4] += table[code], for each.

    Integers only, so the result is exact and independent of the order of the messages. An index or code out of range
    is a ValueError, raised before anything is added. One thread.

    Args:
        state: int64 (N, 4), C-contiguous and writable, changed in place.
        index: (n,), positions in [0, N), of any integer type.
        code: (n,), rows of the table, of any integer type.
        table: int64 (M, 3).

    Examples:
        >>> state = np.zeros((2, 4), np.int64)
        >>> accumulate(state, np.array([1, 1]), np.array([0, 1]), np.array([[1, 10, 100], [2, 20, 200]]))
        >>> state
        array([[  0,   0,   0,   0],
               [  2,   3,  30, 300]])

    """
    if not isinstance(state, np.ndarray) or state.dtype != np.int64:
        raise TypeError(f"state must be an int64 array, not {kind_of(state)}")
    if state.ndim != 2 or state.shape[1] != 4 or not state.flags.c_contiguous or not state.flags.writeable:
        raise ValueError(f"state must be a writable C-contiguous array of shape (N, 4), not {state.shape}")
    table = checked("table", table, np.int64, 2)
    if table.shape[1] != 3:
        raise ValueError(f"table must have shape (M, 3), not {table.shape}")
    for name, array in (("index", index), ("code", code)):
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu":
            raise TypeError(f"{name} must be an integer array, not {kind_of(array)}")
        if array.ndim != 1 or not array.flags.c_contiguous:
            raise ValueError(f"{name} must be one-dimensional and C-contiguous, not of shape {array.shape}")
    if index.shape != code.shape:
        raise ValueError(f"code must have the shape of index, {index.shape}, not {code.shape}")
    check_range("index", index, state.shape[0])
    check_range("code", code, table.shape[0])
    from sstq.kernels.accumulation import add_messages

    increments = np.concatenate([np.ones((table.shape[0], 1), np.int64), table], axis=1)
    prepare(add_messages, state, index, code, increments)
    add_messages(state, index, code, increments)


def accumulate_vectors(
    state: NDArray[np.int64],
    vectors: NDArray[np.float64],
    *,
    unit: float,
    limit: float,
    value_bits: int,
    square_bits: int,
) -> bool:
    """Add vectors to sums in fixed point: of v = round(2^value_bits·x/unit), and of round(2^square_bits·(x/unit)²).

    Row j of the state has the sums of v >> 30, of v & (2^30 − 1) and of the squares of coordinate j; with a fourth
    column the squares have two limbs as well. One thread.

    Args:
        state: int64 (d, 3) or (d, 4), C-contiguous and writable, changed in place.
        vectors: float64 (n, d).
        unit: of the fixed point, positive.
        limit: what |x|/unit must not exceed.
        value_bits: of a value's fraction.
        square_bits: of a square's fraction.

    Returns:
        Whether all numbers are within the limit; if not, the state has been spoiled.

    Examples:
        >>> state = np.zeros((2, 3), np.int64)
        >>> accumulate_vectors(state, np.array([[1.0, -0.5]]), unit=1.0, limit=1.0, value_bits=31, square_bits=4)
        True
        >>> state
        array([[ 2,  0, 16],
               [-1,  0,  4]])

    """
    if not isinstance(state, np.ndarray) or state.dtype != np.int64:
        raise TypeError(f"state must be an int64 array, not {kind_of(state)}")
    vectors = checked("vectors", vectors, np.float64, 2)
    if state.ndim != 2 or state.shape[1] not in (3, 4) or not state.flags.c_contiguous or not state.flags.writeable:
        raise ValueError(f"state must be a writable C-contiguous array of shape (d, 3) or (d, 4), not {state.shape}")
    if vectors.shape[1] != len(state):
        raise ValueError(f"vectors must have {len(state)} columns, not {vectors.shape[1]}")
    from sstq.kernels.accumulation import add_vectors

    factors = (float(unit), float(limit), 2.0**value_bits, 2.0**square_bits)
    prepare(add_vectors, state, vectors, *factors)
    return bool(add_vectors(state, vectors, *factors))
