"""The kernels on messages: sampling their codes, packing their bits, adding them to an aggregator's exact state.

**Sampling.** The work depends on the length of a row alone and no step is a branch on private data, so that the time
taken tells nothing about the token or the code. Left to itself LLVM turns `first += half * (entry <= word)` into a
branch, as its assembly shows; `_hidden` keeps it from seeing the bit.

**Packing.** Value i occupies the bits [i·width, (i + 1)·width) of the stream, and bit k of the stream is bit k mod 64
of word k // 64. In little-endian order that is bit k mod 8 of byte k // 8.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from sstq.kernels.api import LIMB_BITS

_LIMB_MASK = (1 << LIMB_BITS) - 1


def _emit_hidden(_typing: Any, _value: Any) -> Any:
    """Return the uint64 argument through an empty piece of assembly, about which the compiler can assume nothing."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        return builder.asm(ir.FunctionType(word, [word]), "", "=r,0", arguments, side_effect=False)

    return types.uint64(types.uint64), generate


_hidden: Any = intrinsic(_emit_hidden)


def search_rows(tokens: Any, words: Any, codes: Any, cumulative: Any) -> None:
    """Set codes[i] to the number of entries of cumulative[tokens[i]], ascending to 2^62, that are ≤ words[i] < 2^62.

    Positions are unsigned, or Numba would test each for being negative.
    """
    flat, length, one = cumulative.reshape(-1), np.uint64(cumulative.shape[1]), np.uint64(1)
    for i in range(tokens.size):
        start = np.uint64(tokens[i]) * length
        first, remaining = start, length
        # The answer lies in [first − start, first − start + remaining − 1], since the last entry exceeds the word.
        while remaining > one:
            half = remaining >> one
            # The sign bit of entry − word − 1, set exactly when entry ≤ word: both are at most 2^62.
            is_passed = _hidden((flat[first + half - one] - words[i] - one) >> np.uint64(63))
            first += half * is_passed
            remaining -= half
        codes[i] = first - start


def count_passed_sums(rows: Any, uniforms: Any, counts: Any, scale: float) -> None:
    """Set counts[i] to the number of j with scale·(|rows[i, 0]| + … + |rows[i, j]|) ≤ uniforms[i], in doubles."""
    for row in range(rows.shape[0]):
        total, passed = 0.0, np.int64(0)
        for j in range(rows.shape[1]):
            total += abs(np.float64(rows[row, j]))
            passed += np.int64(total * scale <= uniforms[row])
        counts[row] = passed


def pack_words(values: Any, width: int, words: Any) -> None:
    """Pack the uint64 `values`, each below 2^width, into the uint64 `words`, just long enough; all are written."""
    pending, used, word = np.uint64(0), 0, 0  # the bits of the word under way, how many they are, and its place
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


def unpack_words(words: Any, width: int, values: Any) -> None:
    """Read uint64 `values` of `width` bits from the uint64 `words`, which end with one unused word."""
    keep = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)
    for i in range(values.size):
        word, shift = i * width >> 6, np.uint64(i * width & 63)
        low = words[word] >> shift
        # Two shifts, as one by 64 is undefined.
        high = (words[word + 1] << np.uint64(1)) << (np.uint64(63) - shift)
        values[i] = (low | high) & keep


def add_messages(state: Any, index: Any, code: Any, increments: Any) -> None:
    """state[index[i]] += increments[code[i]] for every message i.

    A message is one vector addition. All four sums are formed before the first is stored: for all the compiler knows, a
    store may change the next increment.
    """
    for i in range(index.size):
        row, kind = index[i], code[i]
        a, b = state[row, 0] + increments[kind, 0], state[row, 1] + increments[kind, 1]
        c, d = state[row, 2] + increments[kind, 2], state[row, 3] + increments[kind, 3]
        state[row, 0], state[row, 1], state[row, 2], state[row, 3] = a, b, c, d


def add_vectors(state: Any, vectors: Any, unit: float, limit: float, value_factor: float, square_factor: float) -> bool:
    """Add each vector, coordinate by coordinate, to sums of values (two limbs) and of squares (one limb or two).

    Returns False at the first number beyond limit·unit in magnitude, or that is none; the state is of no use then.
    """
    for i in range(vectors.shape[0]):
        for j in range(vectors.shape[1]):
            relative = vectors[i, j] / unit
            if not abs(relative) <= limit:
                return False
            value = np.int64(np.rint(relative * value_factor))
            square = np.int64(np.rint(relative * relative * square_factor))
            state[j, 0] += value >> LIMB_BITS
            state[j, 1] += value & _LIMB_MASK
            if state.shape[1] == 3:
                state[j, 2] += square
            else:
                state[j, 2] += square >> LIMB_BITS
                state[j, 3] += square & _LIMB_MASK
    return True
