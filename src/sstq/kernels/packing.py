"""Bit packing: fixed-width unsigned integers, back to back, in a stream of 64-bit words.

Value i occupies the bits [i·width, (i + 1)·width) of the stream; bit k of the stream is bit k mod 64 of word k // 64.
In little-endian order that is bit k mod 8 of byte k // 8.
"""

from typing import Any

import numpy as np

from sstq.kernels.target import compiled


@compiled
def pack_words(values: Any, width: int, words: Any) -> None:
    """Pack the uint64 `values`, each below 2^width, into the uint64 `words`, just long enough; all are written."""
    pending = np.uint64(0)  # the bits of the word under way
    used = 0  # how many they are, less than 64
    word = 0
    for i in range(values.size):
        value = values[i]
        pending |= value << np.uint64(used)
        used += width
        if used >= 64:
            words[word] = pending
            word += 1
            used -= 64
            # Of this value the highest `used` bits are left; two shifts, as one by 64 is undefined.
            pending = (value >> np.uint64(1)) >> np.uint64(width - used - 1)
    if used > 0:
        words[word] = pending


@compiled
def unpack_words(words: Any, width: int, values: Any) -> None:
    """Read uint64 `values` of `width` bits from the uint64 `words`, which end with one unused word."""
    keep = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)
    for i in range(values.size):
        bit = i * width
        word = bit >> 6
        shift = np.uint64(bit & 63)
        low = words[word] >> shift
        # Two shifts, as one by 64 is undefined.
        high = (words[word + 1] << np.uint64(1)) << (np.uint64(63) - shift)
        values[i] = (low | high) & keep
