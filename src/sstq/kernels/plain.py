"""The Walsh–Hadamard transform in plain Numba, for any floating type: the float64 path and an oracle for the fast one.

Radix-4 butterflies in place; blocks that fit the L1 cache are finished before they are joined.
"""

from typing import Any

from sstq.kernels.target import compiled

# 2^11 float64 are 16 KiB, half of a common L1 cache.
BLOCK_BITS = 11


@compiled
def _join_two(x: Any, offset: int, stride: int) -> None:
    """Radix-2 butterfly between x[offset : offset + stride] and the same length after it."""
    upper = x[offset : offset + stride]
    lower = x[offset + stride : offset + 2 * stride]
    for k in range(stride):
        total = upper[k] + lower[k]
        lower[k] = upper[k] - lower[k]
        upper[k] = total


@compiled
def _join_four(x: Any, offset: int, stride: int) -> None:
    """Radix-4 butterfly between four neighbouring ranges of `stride` elements."""
    x0 = x[offset : offset + stride]
    x1 = x[offset + stride : offset + 2 * stride]
    x2 = x[offset + 2 * stride : offset + 3 * stride]
    x3 = x[offset + 3 * stride : offset + 4 * stride]
    for k in range(stride):
        sum01 = x0[k] + x1[k]
        difference01 = x0[k] - x1[k]
        sum23 = x2[k] + x3[k]
        difference23 = x2[k] - x3[k]
        x0[k] = sum01 + sum23
        x1[k] = difference01 + difference23
        x2[k] = sum01 - sum23
        x3[k] = difference01 - difference23


@compiled
def _transform_bits(x: Any, offset: int, size: int, first: int, last: int) -> None:
    """Butterflies for the index bits first ≤ bit < last of x[offset : offset + size]."""
    bit = first
    while bit + 2 <= last:
        for block in range(offset, offset + size, 4 << bit):
            _join_four(x, block, 1 << bit)
        bit += 2
    if bit < last:
        for block in range(offset, offset + size, 2 << bit):
            _join_two(x, block, 1 << bit)


@compiled
def transform_rows(x: Any, bits: int) -> None:
    """Transform every row of the C-contiguous floating array x of shape (n, 2^bits), in place."""
    flat = x.reshape(-1)
    size = 1 << bits
    block_bits = min(bits, BLOCK_BITS)
    for row in range(x.shape[0]):
        offset = row << bits
        for block in range(offset, offset + size, 1 << block_bits):
            _transform_bits(flat, block, 1 << block_bits, 0, block_bits)
        _transform_bits(flat, offset, size, block_bits, bits)
