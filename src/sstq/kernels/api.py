"""Checked entries to the kernels: transforms, clipping, choice of signed rows, Kashin representations, messages, sums.

`take` checks types and shapes (a wrong one is a programming error), `check_range` what indexes memory.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.exactness import TOTAL
from sstq.kernels.compiling import compiled
from sstq.kernels.threads import MIN_ELEMENTS_A_THREAD, run_in_chunks

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

# The time of one normal number, and of one number of a cumulative sum, in numbers of a transform.
_COST_OF_A_NORMAL, _COST_OF_A_SUM = 6, 4
# As types they would be made into these at every comparison, which takes as long as a small transform.
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
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


def run(name: str, *arguments: Any) -> Any:
    """Call a kernel in this thread."""
    return compiled(name, *arguments)(*arguments)


def run_rows(name: str, elements_per_row: int, by_row: tuple[NDArray[Any], ...], *shared: Any) -> None:
    """Call a kernel with parts of the arrays `by_row`, which cover their rows, in several threads if that is faster."""
    function, rows = compiled(name, *by_row, *shared), len(by_row[0])
    if rows * elements_per_row < MIN_ELEMENTS_A_THREAD:
        function(*by_row, *shared)
    else:
        run_in_chunks(lambda part: function(*(array[part] for array in by_row), *shared), rows, elements_per_row)


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
    if not isinstance(x, np.ndarray) or x.dtype not in _FLOATS:
        raise TypeError(f"x must be a float32 or float64 array, got {kind_of(x)}")
    if x.ndim not in (1, 2) or not x.flags.c_contiguous or not x.flags.writeable:
        raise ValueError(f"x must have 1 or 2 dimensions, C-contiguous and writable, got shape {x.shape}")
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


def clip_to_ball(x: NDArray[Any], clip: float) -> tuple[Singles, NDArray[np.bool_]]:
    """Clip every row of x, (n, d), float32 or float64, finite, to norm `clip` and divide it by that.

    Returns the rows in single precision, of norm at most 1 up to rounding, and which of them were longer than clip.
    """
    (x,) = take("x f n d", x)
    unit, longer = np.empty(x.shape, np.float32), np.empty(len(x), np.bool_)
    run_rows("clipping.clip_rows", x.shape[1], (x, unit, longer), float(clip))
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
        x: (n, d), finite; any magnitudes; e₁ stands for the direction of a zero row.
        clip: positive and finite.
        uniforms: (n,), secret numbers in [0, 1).
        signs: those of F frames before the first transform, (F, d), and before the later ones, (F, rounds − 1, N).
        which: (n,), the frame of each client.
        subsets: (n, R), the rows of the frame that take part; R = 0 for all of them, R = N.
        inside: k, from 1 to R.
        places: (n,), in [0, 2R).

    Returns 2·slot for the row in a slot of the subset (or for that row of the frame), + 1 for its opposite, (n,); and
    which rows of x are longer than clip.
    """
    shapes = "x f n d, signs f4 F d, signs f4 F r N, uniforms f8 n, which i8 n, subsets i8 n k, places i8 n"
    x, first, later, uniforms, which, subsets, places = take(shapes, x, *signs, uniforms, which, subsets, places)
    count, size = len(x), later.shape[2]
    bits = log2("the number of rows", size)
    if not 0 < x.shape[1] <= size:
        raise ValueError(f"x must have 1 to {size} columns, got shape {x.shape}")
    taking_part = subsets.shape[1] or size
    if not 1 <= inside <= taking_part:
        raise ValueError(f"inside must be from 1 to {taking_part}, got {inside}")
    check_range("which", which, len(first))
    check_range("subsets", subsets, size)
    check_range("places", places, 2 * taking_part)
    # Scores of a unit vector have the root mean square N^((r − 1)/2) and are nearly normal.
    expected = size ** (later.shape[1] / 2) * NormalDist().inv_cdf(1 - (inside - 0.5) / (2 * taking_part))
    picked, longer = np.empty(count, np.int64), np.empty(count, np.bool_)
    by_row = x, uniforms, which, subsets, places, picked, longer
    cost, frames, ranks = size * (later.shape[1] + 2), (first, later, bits), (inside, expected)
    run_rows("selection.pick_rows", cost, by_row, float(clip), frames, ranks)
    return picked, longer


@dataclass(frozen=True, eq=False)
class SignedColumns:
    """The ascending places of d coordinates among the `size` = N = 2^m inputs of a transform, and their signs ±1."""

    places: Integers
    signs: Singles
    size: int

    def __post_init__(self) -> None:
        places, signs = take("places i8 d, signs f4 d", self.places, self.signs)
        log2("size", self.size)
        check_range("places", places, self.size)
        if np.any(np.diff(places) <= 0) or np.any(np.abs(signs) != 1):
            raise ValueError("places must be strictly ascending, and signs +1 or -1")
        object.__setattr__(self, "places", places)
        object.__setattr__(self, "signs", signs)

    @cached_property
    def mask(self) -> NDArray[Any]:
        """The bits that are 1 at the places, in one word for each vector of the transform."""
        from sstq.kernels.kashin import mask_words

        words: NDArray[Any] = mask_words(self.places, self.size)
        return words


def kashin_pick(
    x: Singles, columns: SignedColumns, schedule: Singles, picks: Integers | None = None, *, certify: bool = True
) -> tuple[Singles, Doubles]:
    """Solve for Kashin representations and return a few of their entries, or all.

    With v = scatter(signs·x) into R^N at the columns, H the unnormalised Hadamard matrix and P = H·mask·H/N, start from
    t = 0 and a = H v and do for every row (ω, γ, cap, box) of the schedule

        t' = clip(t + clip(r·a, ±cap), ±box),      a ← P(a − (t' − t)),      t ← t',      r = max(ω, min(γ·q, 16)),

    where q = ‖s‖²/‖P s‖² is that of the step s = t' − t before the last (0 in the first two steps). The representation
    t stands for the vector signs·gather(H t)/N. The work is the same for every input.

    Args:
        x: (n, d), one client per row.
        columns: the places of the d coordinates among N, and their signs.
        schedule: (steps, 4), rows (ω, γ, cap, box); cap and box may be infinite.
        picks: int64 (n, k), positions in [0, N); None for all N of each row.
        certify: whether to compute the residuals, in double precision, from t.

    Returns t at the picks, (n, k), and the residuals ‖x − signs·gather(H t)/N‖₂, (n,), or (0,) without `certify`.
    Memory beyond the result: two vectors of length N for each thread, and one in double precision.

    Examples:
        >>> x, columns = np.ones((1, 1), np.float32), SignedColumns(np.array([0]), np.ones(1, np.float32), size=4)
        >>> schedule = np.array([[1.0, 0.0, np.inf, np.inf]], np.float32)
        >>> kashin_pick(x, columns, schedule, np.array([[0, 3]]))
        (array([[1., 1.]], dtype=float32), array([0.]))
    """
    chosen = np.empty((len(x), 0), np.int64) if picks is None else picks
    shapes = "places i8 d, x f4 n d, schedule f4 steps 4, picks i8 n k"
    _, x, schedule, chosen = take(shapes, columns.places, x, schedule, chosen)
    check_range("picks", chosen, columns.size)
    width = columns.size if picks is None else chosen.shape[1]
    values, residuals = np.empty((len(x), width), np.float32), np.empty(len(x) if certify else 0)
    frame = columns.places, columns.signs, columns.mask, columns.size.bit_length() - 1
    cost = columns.size * (2 * len(schedule) + 1)
    run_rows("kashin.solve_rows", cost, (x, chosen, values, residuals), frame, schedule)
    return values, residuals


def box_muller(words: Words) -> Doubles:
    """As many standard normal numbers as words, uint64 (n, 2·h), row by row; none is zero.

    Word i of the first half of a row gives a radius and word i of the second half an angle, whose cosine is number i of
    the first half and whose sine is that of the second. Uniform numbers have 53 bits. Fewer would leak: where they are
    coarser than the rounding of the numbers sent, as 32 bits are for one angle in a hundred, a vector can be seen not
    to come from a direction.
    """
    (words,) = take("words u8 n w", words)
    if words.shape[1] % 2:
        raise ValueError(f"words must have an even number of columns, got shape {words.shape}")
    numbers = np.empty(words.shape)
    run_rows("normals.box_muller_rows", _COST_OF_A_NORMAL * words.shape[1], (words, numbers))
    return numbers


def draw_around(
    directions: Doubles, along: Doubles, across: Doubles, words: Words, first: int = 0, *, to_length: bool
) -> Singles:
    """The vectors t·u + w, w being normal numbers in the hyperplane orthogonal to u, as float32 (n, d).

    `directions` are the unit vectors u, (n, d), d ≥ 2, and `along` is t, (n,). `across` is the length of w if
    `to_length`, else what its d − 1 numbers are multiplied by. Of each row of secret `words` 2·⌊d/2⌋ from `first` on
    are used.
    """
    shapes = "directions f8 n d, along f8 n, across f8 n, words u8 n w"
    directions, along, across, words = take(shapes, directions, along, across, words)
    dim = directions.shape[1]
    if dim < 2 or not 0 <= first <= words.shape[1] - dim // 2 * 2:
        raise ValueError(f"words of shape {words.shape} do not suffice for directions of shape {directions.shape}")
    vectors = np.empty(directions.shape, np.float32)
    by_row = directions, along, across, words, vectors
    run_rows("normals.draw_around", _COST_OF_A_NORMAL * dim, by_row, first, to_length)
    return vectors


def count_passed(rows: Singles, uniforms: Doubles, scale: float) -> Integers:
    """How many of the cumulative sums of scale·|x|, in double precision, are at most the row's number in [0, 1).

    That is the coordinate which a uniform number picks with probability scale·|x_i|, or d where these leave it over.
    """
    rows, uniforms = take("rows f4 n d, uniforms f8 n", rows, uniforms)
    counts = np.empty(len(rows), np.int64)
    run_rows("messages.count_passed_sums", _COST_OF_A_SUM * rows.shape[1], (rows, uniforms, counts), float(scale))
    return counts


def sample_table(tokens: Integers, words: Words, cumulative: Words) -> Integers:
    """Map uniform words to codes by the rows of a table: code = #{entries of the token's row that are ≤ word}.

    The search takes a number of steps that depends on the length of a row alone, without branches. Words are uniform in
    [0, 2^62), and a row of `cumulative` has the inclusive cumulative sums of its weights, the last of them 2^62.
    """
    shapes = "tokens i8 n, words u8 n, cumulative u8 inputs outputs"
    tokens, words, cumulative = take(shapes, tokens, words, cumulative)
    if cumulative.shape[1] == 0 or np.any(cumulative[:, -1] != TOTAL):
        raise ValueError("the last entry of every row of cumulative must be 2^62")
    check_range("tokens", tokens, cumulative.shape[0])
    check_range("words", words, TOTAL)
    codes = np.empty(tokens.shape, np.int64)
    run_rows("messages.search_rows", 1, (tokens, words, codes), cumulative)
    return codes


def pack_bits(values: Words, width: int) -> NDArray[np.uint8]:
    """Pack unsigned integers of `width` bits back to back into ⌈n·width / 8⌉ bytes.

    Value i, uint64 and below 2^width, occupies the bits [i·width, (i + 1)·width) of the stream, and bit k of the stream
    is bit k mod 8 (least significant first) of byte k // 8. The unused bits of the last byte are 0.
    """
    (values,) = take("values u8 n", values)
    if not 1 <= width <= 64:
        raise ValueError(f"width must be from 1 to 64, got {width}")
    if values.size and int(values.max()) >> width:
        raise ValueError(f"values must be below 2^{width}, got {values.max()}")
    words = np.empty(-(-values.size * width // 64), np.uint64)
    run("messages.pack_words", values, width, words)
    return words.astype("<u8", copy=False).view(np.uint8)[: -(-values.size * width // 8)]


def unpack_bits(data: NDArray[np.uint8], count: int, width: int) -> Words:
    """Undo `pack_bits`: read `count` values of `width` bits. Unused bits of the last byte are ignored.

    Examples:
        >>> packed = pack_bits(np.array([1, 2, 3], np.uint64), 4)
        >>> packed, unpack_bits(packed, 3, 4)
        (array([33,  3], dtype=uint8), array([1, 2, 3], dtype=uint64))
    """
    (data,) = take("data u1 bytes", data)
    expected = -(-count * width // 8)
    if count < 0 or not 1 <= width <= 64:
        raise ValueError(f"count must not be negative and width from 1 to 64, got {count} and {width}")
    if data.size != expected:
        raise ValueError(f"{count} values of {width} bits take {expected} bytes, but data has {data.size}")
    # One word to spare, so that the kernel can always read two.
    words = np.zeros(-(-count * width // 64) + 1, "<u8")
    words.view(np.uint8)[: data.size] = data
    native, values = words.astype(np.uint64, copy=False), np.empty(count, np.uint64)
    run("messages.unpack_words", native, width, values)
    return values


def _check_state(state: Integers, *columns: int) -> None:
    """Refuse sums that a kernel cannot change in place, or with another number of columns."""
    if not isinstance(state, np.ndarray) or state.dtype != np.int64:
        raise TypeError(f"state must be an int64 array, got {kind_of(state)}")
    if state.ndim != 2 or state.shape[1] not in columns or not state.flags.c_contiguous or not state.flags.writeable:
        wanted = " or ".join(map(str, columns))
        raise ValueError(f"state must be writable, C-contiguous and have {wanted} columns, got shape {state.shape}")


def accumulate(state: Integers, index: NDArray[np.integer], code: NDArray[np.integer], table: Integers) -> None:
    """Add messages to an aggregator's state: state[index, 0] += 1 and state[index, 1:4] += table[code], for each.

    Integers only, so the result is exact and independent of the order of the messages. Index and code may be of any
    integer type; one out of range is a ValueError, raised before anything is added. One thread.
    """
    _check_state(state, 4)
    (table,) = take("table i8 codes 3", table)
    index = _checked_messages("index", index, state.shape[0])
    code = _checked_messages("code", code, table.shape[0])
    if index.shape != code.shape:
        raise ValueError(f"code must have the shape of index, {index.shape}, got {code.shape}")
    run("messages.add_messages", state, index, code, np.insert(table, 0, 1, axis=1))


def _checked_messages(name: str, array: NDArray[Any], bound: int) -> NDArray[Any]:
    """A column of messages, read-only as those of Parquet files are: one kind of array per integer type."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be an integer array, got {kind_of(array)}")
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    # A copy only of what is not contiguous, has another byte order or starts between two of its numbers.
    column = np.require(array, array.dtype.newbyteorder("="), ["C", "A"]).view()
    column.flags.writeable = False
    check_range(name, column, bound)
    return column


def accumulate_vectors(
    state: Integers, vectors: Doubles, *, unit: float, limit: float, value_bits: int, square_bits: int
) -> bool:
    """Add vectors to sums in fixed point: of v = round(2^value_bits·x/unit), and of round(2^square_bits·(x/unit)²).

    Row j of the state has the sums of v >> 30, of v & (2^30 − 1) and of the squares of coordinate j; with a fourth
    column the squares have two limbs as well. Returns whether |x|/unit ≤ limit for all numbers; if not, the state is
    spoiled. One thread.
    """
    _check_state(state, 3, 4)
    (vectors,) = take("vectors f8 n d", vectors)
    if vectors.shape[1] != len(state):
        raise ValueError(f"vectors must have {len(state)} columns, got {vectors.shape[1]}")
    factors = float(unit), float(limit), 2.0**value_bits, 2.0**square_bits
    return bool(run("messages.add_vectors", state, vectors, *factors))
