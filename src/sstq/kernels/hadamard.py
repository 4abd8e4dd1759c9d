"""The fast Walsh–Hadamard transform of rows, in place, unnormalised, in natural (Sylvester) order.

H_N is the Kronecker power of [[1, 1], [1, −1]]: one butterfly for every bit of the index, in any order. So the bits
are taken in groups that suit the memory: the lowest in registers, the next inside a block of the L1 cache, and above
it MAX_RADIX_BITS at a time, each group as soon as the blocks it joins are complete, while they are still in the
smallest cache that holds them.

Internal functions address a flat array of float32 or float64 by offsets: x[offset : offset + 2^bits]. The order of
additions is that of ascending bits, whatever the vectors are.
"""

from typing import Any

from numba import njit

from sstq.kernels import simd
from sstq.kernels.simd import MAX_RADIX_BITS, VECTOR_WIDTH, inner

VECTOR_BITS = VECTOR_WIDTH.bit_length() - 1
# One base block is transformed entirely in registers: the bits inside a vector and MAX_RADIX_BITS across vectors.
BASE_BITS = VECTOR_BITS + MAX_RADIX_BITS
# Blocks of at most 16 KiB, 2^12 float32, leave half of a 32 KiB L1 cache to everything else.
_L1_BITS = 12


@njit(inline="always")
def radix_pass(x: Any, offset: int, span: int, stride: int, bits: int) -> None:
    """Radix-2^bits butterfly across the rows x[offset + k·stride : offset + k·stride + span], k < 2^bits."""
    for column in range(offset, offset + span, VECTOR_WIDTH):
        simd.butterfly(bits, x, column, stride, x, column, stride)


@njit(inline="always")
def _pass_over_bits(x: Any, offset: int, size: int, first: int, last: int) -> None:
    """Butterflies for the index bits first ≤ bit < last of `size` contiguous floats; first ≥ VECTOR_BITS."""
    bit = first
    while bit < last:
        bits = min(last - bit, MAX_RADIX_BITS)
        if last - bit == MAX_RADIX_BITS + 1:
            # Halves: a pass for one bit alone moves as much as any other and does the least.
            bits = (MAX_RADIX_BITS + 1) // 2
        stride = 1 << bit
        for block in range(offset, offset + size, stride << bits):
            radix_pass(x, block, stride, stride, bits)
        bit += bits


# The same as a function of its own.
transform_bits = inner(_pass_over_bits.py_func)


@njit(inline="always")
def transform_low_bits(x: Any, offset: int, size: int, last: int) -> None:
    """Butterflies for the index bits below `last` of `size` contiguous floats; last ≥ BASE_BITS."""
    for block in range(offset, offset + size, 1 << BASE_BITS):
        simd.transform_base(x, block)
    _pass_over_bits(x, offset, size, BASE_BITS, last)


@inner
def _transform_in_l1(x: Any, offset: int, bits: int) -> None:
    """Transform of a block that fits the L1 cache."""
    size = 1 << bits
    if bits >= BASE_BITS:
        transform_low_bits(x, offset, size, bits)
        return
    if bits >= VECTOR_BITS:
        for block in range(offset, offset + size, VECTOR_WIDTH):
            simd.transform_vector(x, block)
        _pass_over_bits(x, offset, size, VECTOR_BITS, bits)
        return
    half = 1
    while half < size:
        for block in range(offset, offset + size, 2 * half):
            for k in range(block, block + half):
                x[k], x[k + half] = x[k] + x[k + half], x[k] - x[k + half]
        half *= 2


@inner
def bits_of_block(x: Any, bits: int) -> int:
    """The bits of a block in a transform of 2^bits numbers."""
    most = _L1_BITS if x.itemsize == 4 else _L1_BITS - 1
    # Whole groups of MAX_RADIX_BITS above the block: a smaller last group would cost a full sweep through memory.
    return bits if bits <= most else most - (most - bits) % MAX_RADIX_BITS


@inner
def transform_block(
    x: Any, offset: int, block: int, block_bits: int, bits: int
) -> None:
    """The share of one block in the transform of x[offset : offset + 2^bits]; blocks are to be taken in order."""
    _transform_in_l1(x, offset + (block << block_bits), block_bits)
    # Join the blocks on every level that this one completes.
    done = (block + 1) << block_bits
    joined = block_bits + MAX_RADIX_BITS
    while joined <= bits and done & ((1 << joined) - 1) == 0:
        stride = 1 << (joined - MAX_RADIX_BITS)
        radix_pass(x, offset + done - (1 << joined), stride, stride, MAX_RADIX_BITS)
        joined += MAX_RADIX_BITS


@inner
def transform(x: Any, offset: int, bits: int) -> None:
    """Transform of x[offset : offset + 2^bits] for any number of bits."""
    block_bits = bits_of_block(x, bits)
    for block in range(1 << (bits - block_bits)):
        transform_block(x, offset, block, block_bits, bits)


def transform_rows(x: Any, bits: int) -> None:
    """Transform every row of the C-contiguous array x of shape (n, 2^bits).

    Rows that start on a multiple of the vector's size are a third faster than others; copying a row to a better place
    and back costs more than that.
    """
    flat = x.reshape(-1)
    for row in range(x.shape[0]):
        transform(flat, row << bits, bits)
