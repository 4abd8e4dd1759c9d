"""Checked entry to the kernels on messages: sampling their codes, packing and unpacking their bits."""

import numpy as np
from numpy.typing import NDArray

from sstq.exactness import TOTAL
from sstq.kernels.checks import check_range, check_width, checked, kind_of
from sstq.kernels.compiling import prepare
from sstq.kernels.threads import run_in_chunks


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
