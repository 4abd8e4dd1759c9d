"""Checked entry to the kernels that draw and pack messages and add them to an aggregator's sums."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.exactness import TOTAL
from sstq.kernels.checks import Doubles, Integers, Singles, Words, check_range, checked, kind_of
from sstq.kernels.compiling import run, run_rows

# The time of one normal number, and of one number of a cumulative sum, in numbers of a transform.
_COST_OF_A_NORMAL, _COST_OF_A_SUM = 6, 4


def box_muller(words: Words) -> Doubles:
    """As many standard normal numbers as words, uint64 (n, 2·h), row by row; none is zero.

    Word i of the first half of a row gives a radius and word i of the second half an angle, whose cosine is number i of
    the first half and whose sine is that of the second. Uniform numbers have 53 bits. Fewer would leak: where they are
    coarser than the rounding of the numbers sent, as 32 bits are for one angle in a hundred, a vector can be seen not
    to come from a direction.
    """
    words = checked("words", words, np.uint64, 2)
    if words.shape[1] % 2:
        raise ValueError(f"words must have an even number of columns, got shape {words.shape}")
    cost, numbers = _COST_OF_A_NORMAL * words.shape[1], np.empty(words.shape)
    run_rows("normals.box_muller_rows", len(words), cost, lambda rows: (words[rows], numbers[rows]))
    return numbers


def draw_around(
    directions: Doubles, along: Doubles, across: Doubles, words: Words, first: int = 0, *, to_length: bool
) -> Singles:
    """The vectors t·u + w, w being normal numbers in the hyperplane orthogonal to u, as float32 (n, d).

    Args:
        directions: float64 (n, d), unit vectors u, d ≥ 2.
        along: float64 (n,), t.
        across: float64 (n,), the length of w, or what its d − 1 numbers are multiplied by.
        words: uint64 (n, at least first + 2·⌊d/2⌋), secret.
        first: the first word of a row that is used.
        to_length: whether `across` is the length of w.
    """
    directions = checked("directions", directions, np.float64, 2)
    along, across = checked("along", along, np.float64, 1), checked("across", across, np.float64, 1)
    words = checked("words", words, np.uint64, 2)
    count, dim = directions.shape
    if not count == len(along) == len(across) == len(words):
        raise ValueError(f"along, across and words must have one entry for each of the {count} directions")
    if dim < 2 or not 0 <= first <= words.shape[1] - dim // 2 * 2:
        raise ValueError(f"words of shape {words.shape} do not suffice for directions of shape {directions.shape}")
    vectors = np.empty(directions.shape, np.float32)

    def arguments(rows: slice) -> tuple[Any, ...]:
        return directions[rows], along[rows], across[rows], to_length, words[rows], first, vectors[rows]

    run_rows("normals.draw_around", count, _COST_OF_A_NORMAL * dim, arguments)
    return vectors


def count_passed(rows: Singles, uniforms: Doubles, scale: float) -> Integers:
    """How many of the cumulative sums of scale·|x|, in double precision, are at most the row's number.

    That is the coordinate which a uniform number picks with probability scale·|x_i|, or d where these leave it over.

    Args:
        rows: float32 (n, d).
        uniforms: float64 (n,), secret numbers in [0, 1).
        scale: positive.
    """
    rows, uniforms = checked("rows", rows, np.float32, 2), checked("uniforms", uniforms, np.float64, 1)
    if len(rows) != len(uniforms):
        raise ValueError(f"uniforms must have one entry for each of the {len(rows)} rows, got {len(uniforms)}")
    scale, cost, counts = float(scale), _COST_OF_A_SUM * rows.shape[1], np.empty(len(rows), np.int64)
    name = "messages.count_passed_sums"
    run_rows(name, len(rows), cost, lambda part: (rows[part], uniforms[part], scale, counts[part]))
    return counts


def sample_table(tokens: Integers, words: Words, cumulative: Words) -> Integers:
    """Map uniform words to codes by the rows of a table: code = #{entries of the token's row that are ≤ word}.

    The search takes a number of steps that depends on the length of a row alone, without branches.

    Args:
        tokens: int64 (n,), rows of the table.
        words: uint64 (n,), uniform in [0, 2^62).
        cumulative: uint64 (M_in, M_out), inclusive cumulative sums of each row's weights; the last is 2^62.
    """
    tokens, words = checked("tokens", tokens, np.int64, 1), checked("words", words, np.uint64, 1)
    cumulative = checked("cumulative", cumulative, np.uint64, 2)
    if words.shape != tokens.shape:
        raise ValueError(f"words must have the shape of tokens, {tokens.shape}, got {words.shape}")
    if cumulative.shape[1] == 0 or np.any(cumulative[:, -1] != TOTAL):
        raise ValueError("the last entry of every row of cumulative must be 2^62")
    check_range("tokens", tokens, cumulative.shape[0])
    check_range("words", words, TOTAL)
    codes = np.empty(tokens.shape, np.int64)
    name = "messages.search_rows"
    run_rows(name, tokens.size, 1, lambda part: (tokens[part], words[part], cumulative, codes[part]))
    return codes


def _check_width(width: int) -> None:
    if not 1 <= width <= 64:
        raise ValueError(f"width must be from 1 to 64, got {width}")


def pack_bits(values: Words, width: int) -> NDArray[np.uint8]:
    """Pack unsigned integers of `width` bits back to back into ⌈n·width / 8⌉ bytes.

    Value i, uint64 and below 2^width, occupies the bits [i·width, (i + 1)·width) of the stream, and bit k of the stream
    is bit k mod 8 (least significant first) of byte k // 8. The unused bits of the last byte are 0.
    """
    values = checked("values", values, np.uint64, 1)
    _check_width(width)
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
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
        raise TypeError(f"data must be a one-dimensional uint8 array, got {kind_of(data)}")
    _check_width(width)
    if count < 0:
        raise ValueError(f"count must not be negative, got {count}")
    expected = -(-count * width // 8)
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

    Integers only, so the result is exact and independent of the order of the messages. An index or code out of range
    is a ValueError, raised before anything is added. One thread.

    Args:
        state: int64 (N, 4), C-contiguous and writable, changed in place.
        index: (n,), positions in [0, N), of any integer type.
        code: (n,), rows of the table, of any integer type.
        table: int64 (M, 3).
    """
    _check_state(state, 4)
    table = checked("table", table, np.int64, 2)
    if table.shape[1] != 3:
        raise ValueError(f"table must have shape (M, 3), got {table.shape}")
    index = _checked_messages("index", index, state.shape[0])
    code = _checked_messages("code", code, table.shape[0])
    if index.shape != code.shape:
        raise ValueError(f"code must have the shape of index, {index.shape}, got {code.shape}")
    increments = np.insert(table, 0, 1, axis=1)
    run("messages.add_messages", state, index, code, increments)


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

    Args:
        state: int64 (d, 3) or (d, 4), C-contiguous and writable, changed in place.
        vectors: float64 (n, d).
        unit: of the fixed point, positive.
        limit: what |x|/unit must not exceed.
        value_bits: of a value's fraction.
        square_bits: of a square's fraction.
    """
    _check_state(state, 3, 4)
    vectors = checked("vectors", vectors, np.float64, 2)
    if vectors.shape[1] != len(state):
        raise ValueError(f"vectors must have {len(state)} columns, got {vectors.shape[1]}")
    factors = float(unit), float(limit), 2.0**value_bits, 2.0**square_bits
    return bool(run("messages.add_vectors", state, vectors, *factors))
