"""The fast Walsh–Hadamard transform of rows, in place, unnormalised, in natural (Sylvester) order.

H_N is the Kronecker power of [[1, 1], [1, −1]]: one butterfly for every bit of the index, in any order. So the bits
are taken in groups that suit the memory: the lowest in registers, the next inside a block of the L1 cache, and above
it MAX_RADIX_BITS at a time, each group as soon as the blocks it joins are complete, while they are still in the
smallest cache that holds them.

Internal functions address a flat float32 array by offsets: x[offset : offset + 2^bits]. `transform_rows_plainly` takes
any floating type: it is the path of float64 and an oracle for the fast one.
"""

from typing import Any

from sstq.kernels.fallback import MAX_RADIX_BITS
from sstq.kernels.target import BASE_BITS, BASE_SIZE, VECTOR_BITS, VECTOR_WIDTH, compiled, inlined, passes

# Blocks of at most 2^12 floats (16 KiB), or half as many doubles, leave half of a 32 KiB L1 cache to everything else.
L1_BITS, _PLAIN_BLOCK_BITS = 12, 11


@inlined
def radix_pass(x: Any, offset: int, span: int, stride: int, bits: int) -> None:
    """Radix-2^bits butterfly across the rows x[offset + k·stride : offset + k·stride + span], k < 2^bits."""
    if bits == 3:
        for column in range(offset, offset + span, VECTOR_WIDTH):
            passes.butterfly8(x, column, stride, x, column, stride)
    elif bits == 2:
        for column in range(offset, offset + span, VECTOR_WIDTH):
            passes.butterfly4(x, column, stride, x, column, stride)
    else:
        for column in range(offset, offset + span, VECTOR_WIDTH):
            passes.butterfly2(x, column, stride, x, column, stride)


@inlined
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
transform_bits = compiled(_pass_over_bits.py_func)


@inlined
def transform_low_bits(x: Any, offset: int, size: int, last: int) -> None:
    """Butterflies for the index bits below `last` of `size` contiguous floats; last ≥ BASE_BITS."""
    for block in range(offset, offset + size, BASE_SIZE):
        passes.transform_base(x, block)
    _pass_over_bits(x, offset, size, BASE_BITS, last)


@compiled
def _transform_in_l1(x: Any, offset: int, bits: int) -> None:
    """Transform of a block that fits the L1 cache."""
    size = 1 << bits
    if bits >= BASE_BITS:
        transform_low_bits(x, offset, size, bits)
        return
    if bits >= VECTOR_BITS:
        for block in range(offset, offset + size, VECTOR_WIDTH):
            passes.transform_vector(x, block)
        _pass_over_bits(x, offset, size, VECTOR_BITS, bits)
        return
    half = 1
    while half < size:
        for block in range(offset, offset + size, 2 * half):
            for k in range(block, block + half):
                x[k], x[k + half] = x[k] + x[k + half], x[k] - x[k + half]
        half *= 2


@compiled
def bits_of_block(bits: int) -> int:
    """The bits of a block in a transform of 2^bits floats."""
    if bits <= L1_BITS:
        return bits
    # Whole groups of MAX_RADIX_BITS above the block: a smaller last group would cost a full sweep through memory.
    return L1_BITS - (L1_BITS - bits) % MAX_RADIX_BITS


@compiled
def transform_block(x: Any, offset: int, block: int, block_bits: int, bits: int) -> None:
    """The share of one block in the transform of x[offset : offset + 2^bits]; blocks are to be taken in order."""
    _transform_in_l1(x, offset + (block << block_bits), block_bits)
    # Join the blocks on every level that this one completes.
    done = (block + 1) << block_bits
    joined = block_bits + MAX_RADIX_BITS
    while joined <= bits and done & ((1 << joined) - 1) == 0:
        stride = 1 << (joined - MAX_RADIX_BITS)
        radix_pass(x, offset + done - (1 << joined), stride, stride, MAX_RADIX_BITS)
        joined += MAX_RADIX_BITS


@compiled
def transform(x: Any, offset: int, bits: int) -> None:
    """Transform of x[offset : offset + 2^bits] for any number of bits."""
    block_bits = bits_of_block(bits)
    for block in range(1 << (bits - block_bits)):
        transform_block(x, offset, block, block_bits, bits)


@compiled
def transform_rows(x: Any, bits: int) -> None:
    """Transform every row of the C-contiguous float32 array x of shape (n, 2^bits).

    Rows that start on a multiple of the vector's size are a third faster than others; copying a row to a better place
    and back costs more than that.
    """
    flat = x.reshape(-1)
    for row in range(x.shape[0]):
        transform(flat, row << bits, bits)


@compiled
def _join_two(x: Any, offset: int, stride: int) -> None:
    """Radix-2 butterfly between x[offset : offset + stride] and the same length after it."""
    upper, lower = x[offset : offset + stride], x[offset + stride : offset + 2 * stride]
    for k in range(stride):
        upper[k], lower[k] = upper[k] + lower[k], upper[k] - lower[k]


@compiled
def _join_four(x: Any, offset: int, stride: int) -> None:
    """Radix-4 butterfly between four neighbouring ranges of `stride` elements."""
    x0, x1 = x[offset : offset + stride], x[offset + stride : offset + 2 * stride]
    x2, x3 = x[offset + 2 * stride : offset + 3 * stride], x[offset + 3 * stride : offset + 4 * stride]
    for k in range(stride):
        a, b, c, d = x0[k] + x1[k], x0[k] - x1[k], x2[k] + x3[k], x2[k] - x3[k]
        x0[k], x1[k], x2[k], x3[k] = a + c, b + d, a - c, b - d


@compiled
def _transform_bits_plainly(x: Any, offset: int, size: int, first: int, last: int) -> None:
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
def transform_rows_plainly(x: Any, bits: int) -> None:
    """Transform every row of the C-contiguous floating array x of shape (n, 2^bits), in place, by radix 4."""
    flat, size, block_bits = x.reshape(-1), 1 << bits, min(bits, _PLAIN_BLOCK_BITS)
    for row in range(x.shape[0]):
        offset = row << bits
        for block in range(offset, offset + size, 1 << block_bits):
            _transform_bits_plainly(flat, block, 1 << block_bits, 0, block_bits)
        _transform_bits_plainly(flat, offset, size, block_bits, bits)
