"""Sampling from the integer rows of a channel by binary search.

The number of comparisons depends on the length of a row alone and none of them is a branch, so that the time taken
tells nothing about the token or the code. Left to itself LLVM turns `first += half * (entry <= word)` into a branch on
private data, as its assembly shows; `_hidden` keeps it from seeing the bit.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from sstq.kernels.target import compiled


def _emit_hidden(_typing: Any, _value: Any) -> Any:
    """Return the uint64 argument through an empty piece of assembly, about which the compiler can assume nothing."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        return builder.asm(ir.FunctionType(word, [word]), "", "=r,0", arguments, side_effect=False)

    return types.uint64(types.uint64), generate


_hidden: Any = intrinsic(_emit_hidden)


@compiled
def search_rows(tokens: Any, words: Any, cumulative: Any, codes: Any) -> None:
    """Set codes[i] to the number of entries of cumulative[tokens[i]] that are ≤ words[i].

    tokens and codes are int64, words and cumulative uint64; rows ascend and their last entry, 2^62, exceeds every
    word. Positions are unsigned, or Numba would test each for being negative.
    """
    length = np.uint64(cumulative.shape[1])
    one = np.uint64(1)
    flat = cumulative.reshape(-1)
    for i in range(tokens.size):
        start = np.uint64(tokens[i]) * length
        first = start
        remaining = length
        # The answer lies in [first − start, first − start + remaining − 1], since the last entry exceeds the word.
        while remaining > one:
            half = remaining >> one
            # The sign bit of entry − word − 1, set exactly when entry ≤ word: both are at most 2^62.
            is_passed = _hidden((flat[first + half - one] - words[i] - one) >> np.uint64(63))
            first += half * is_passed
            remaining -= half
        codes[i] = first - start
