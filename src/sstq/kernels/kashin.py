"""The projection loop behind Kashin representations, fused so that a client never leaves the cache.

For one client: v ∈ R^N holds the signed coordinates at `columns` and zero elsewhere, H is the unnormalised Hadamard
matrix and P = H·mask·H/N the projection onto the coefficients of vectors supported on `columns`. From t = 0 and the
residual coefficients a = H v, every row (ω, cap, box) of the schedule does

    t' = clip(t + clip(ω·a, ±cap), ±box),      a ← P(a − (t' − t)),      t ← t'.

P a = a holds throughout, so a = H(v − mask·H t/N) up to rounding: the part of v that t does not yet reconstruct.

**Fusion.** Index bits can be transformed in any order, so the index is cut into low bits, a *block* in the L1 cache,
and high bits, the *rows*. Each step is then one sweep over the rows (low bits forward, clip, low bits backward) and
one over columns of one vector's width (high bits backward, mask, high bits forward), where an unfused step would make
two transforms and two more sweeps. The factor 1/N joins the next step's arithmetic at no cost. When N is so large
that rows must be longer than a block, the bits between are transformed within the row, still in the L2 cache.

Rows of a are padded by one cache line (`pitch`): at a stride of a power of two the vectors of a column would compete
for the same few places in the cache. Constants are handed to compiled functions as np.int64(...): for a bare literal
Numba would compile the callee once more.
"""

import math
from typing import Any

import numpy as np

from sstq.kernels.buffers import CACHE_LINE, aligned
from sstq.kernels.hadamard import radix_pass, transform, transform_bits, transform_low_bits
from sstq.kernels.target import MAX_RADIX_BITS, VECTOR_BITS, VECTOR_WIDTH, compiled, inlined
from sstq.kernels.vectors import (
    BASE_BITS,
    butterfly2,
    butterfly4,
    butterfly8,
    butterfly16,
    clipped2,
    clipped4,
    clipped8,
    clipped16,
    masked2,
    masked4,
    masked8,
    masked16,
)

_MASK_WORD = np.uint16 if VECTOR_WIDTH == 16 else np.uint8

# A block and its part of t, 2 · 2^11 floats, fill half of a 32 KiB L1 cache.
BLOCK_BITS = 11
# A column of at most 2^8 vectors is gathered into a tile of 8 or 16 KiB.
MAX_ROW_COUNT_BITS = 8
# The fused loop needs one bit above the base block for its clipping pass and one for its rows.
MIN_FUSED_BITS = BASE_BITS + 2


def mask_words(columns: Any, size: int) -> Any:
    """Return the bits that are 1 at `columns`, in one unsigned word for each VECTOR_WIDTH of the `size` positions."""
    chosen = np.zeros(max(size, VECTOR_WIDTH), np.bool_)
    chosen[columns] = True
    return np.packbits(chosen, bitorder="little").view(_MASK_WORD)


@compiled
def _step_block(
    a: Any, offset: int, t: Any, t_offset: int, bits: int, scale: Any, rate: Any, cap: Any, box: Any
) -> None:
    """Low bits forward, one step, low bits backward, on a block of 2^bits floats; the last pass each way is fused."""
    fused_bits = min(bits - BASE_BITS, MAX_RADIX_BITS)
    low_bits = bits - fused_bits
    size = 1 << bits
    stride = 1 << low_bits
    transform_low_bits(a, offset, size, low_bits)
    if MAX_RADIX_BITS == 4 and fused_bits == 4:
        for k in range(0, stride, VECTOR_WIDTH):
            clipped16(a, offset + k, t, t_offset + k, stride, scale, rate, cap, box)
    elif fused_bits == 3:
        for k in range(0, stride, VECTOR_WIDTH):
            clipped8(a, offset + k, t, t_offset + k, stride, scale, rate, cap, box)
    elif fused_bits == 2:
        for k in range(0, stride, VECTOR_WIDTH):
            clipped4(a, offset + k, t, t_offset + k, stride, scale, rate, cap, box)
    else:
        for k in range(0, stride, VECTOR_WIDTH):
            clipped2(a, offset + k, t, t_offset + k, stride, scale, rate, cap, box)
    transform_low_bits(a, offset, size, low_bits)


@compiled
def _step_rows(
    a: Any, pitch: int, t: Any, row_bits: int, block_bits: int, scale: Any, rate: Any, cap: Any, box: Any
) -> None:
    """Row by row: all bits of the row forward, one step, all bits of the row backward."""
    row_size = 1 << row_bits
    block_size = 1 << block_bits
    for row in range(t.size >> row_bits):
        offset = row * pitch
        t_offset = row << row_bits
        transform_bits(a, offset, row_size, block_bits, row_bits)
        for block in range(0, row_size, block_size):
            _step_block(a, offset + block, t, t_offset + block, block_bits, scale, rate, cap, box)
        transform_bits(a, offset, row_size, block_bits, row_bits)


@inlined
def _mask_column(x: Any, offset: int, stride: int, bits: int, mask: Any, mask_offset: int, mask_stride: int) -> None:
    """Butterfly, mask, butterfly on one column of 2^bits vectors."""
    if MAX_RADIX_BITS == 4 and bits == 4:
        masked16(x, offset, stride, mask, mask_offset, mask_stride)
    elif bits == 3:
        masked8(x, offset, stride, mask, mask_offset, mask_stride)
    elif bits == 2:
        masked4(x, offset, stride, mask, mask_offset, mask_stride)
    else:
        masked2(x, offset, stride, mask, mask_offset, mask_stride)


@inlined
def _copy_columns(
    x: Any,
    offset: int,
    stride: int,
    y: Any,
    y_offset: int,
    y_stride: int,
    bits: int,
    count: int,
    step: int,
    y_step: int,
) -> None:
    """Butterfly of `count` columns of 2^bits vectors from x to y; the columns are `step` and `y_step` floats apart."""
    if MAX_RADIX_BITS == 4 and bits == 4:
        for k in range(count):
            butterfly16(x, offset + k * step, stride, y, y_offset + k * y_step, y_stride)
    elif bits == 3:
        for k in range(count):
            butterfly8(x, offset + k * step, stride, y, y_offset + k * y_step, y_stride)
    elif bits == 2:
        for k in range(count):
            butterfly4(x, offset + k * step, stride, y, y_offset + k * y_step, y_stride)
    else:
        for k in range(count):
            butterfly2(x, offset + k * step, stride, y, y_offset + k * y_step, y_stride)


@compiled
def _project_rows(a: Any, pitch: int, row_bits: int, row_count_bits: int, mask: Any, tile: Any) -> None:
    """Column by column: the bits that number the rows backward, mask, the same bits forward."""
    row_size = 1 << row_bits
    words_a_row = row_size // VECTOR_WIDTH
    if row_count_bits <= MAX_RADIX_BITS:
        for word in range(words_a_row):
            _mask_column(a, word * VECTOR_WIDTH, pitch, row_count_bits, mask, word, words_a_row)
        return
    # A row's number is split into MAX_RADIX_BITS high bits, done on the way between a and the tile, and the rest,
    # done inside the tile; of the rest the lowest bits are fused with the mask.
    inner_bits = row_count_bits - MAX_RADIX_BITS
    inner_count = 1 << inner_bits
    outer_stride = pitch << inner_bits
    tile_stride = inner_count * VECTOR_WIDTH
    tile_size = VECTOR_WIDTH << row_count_bits
    masked_bits = min(inner_bits, MAX_RADIX_BITS)
    masked_size = VECTOR_WIDTH << masked_bits
    first_bit = VECTOR_BITS + masked_bits
    last_bit = VECTOR_BITS + inner_bits
    for word in range(words_a_row):
        column = word * VECTOR_WIDTH
        _copy_columns(a, column, outer_stride, tile, 0, tile_stride, MAX_RADIX_BITS, inner_count, pitch, VECTOR_WIDTH)
        if first_bit < last_bit:
            transform_bits(tile, np.int64(0), tile_size, first_bit, last_bit)
        for group in range(1 << (row_count_bits - masked_bits)):
            mask_offset = (group << masked_bits) * words_a_row + word
            _mask_column(tile, group * masked_size, VECTOR_WIDTH, masked_bits, mask, mask_offset, words_a_row)
        if first_bit < last_bit:
            transform_bits(tile, np.int64(0), tile_size, first_bit, last_bit)
        _copy_columns(tile, 0, tile_stride, a, column, outer_stride, MAX_RADIX_BITS, inner_count, VECTOR_WIDTH, pitch)


@compiled
def _split_bits(bits: int) -> Any:
    """Cut the index bits of a vector of size 2^bits: (bits of a block, bits of a row, bits that number the rows)."""
    block_bits = min(BLOCK_BITS, bits - 1)
    row_count_bits = min(MAX_ROW_COUNT_BITS, bits - block_bits)
    return block_bits, bits - row_count_bits, row_count_bits


@compiled
def _transform_row_numbers(a: Any, pitch: int, row_bits: int, row_count_bits: int) -> None:
    """Butterflies for the bits that number the rows, in place."""
    bit = 0
    while bit < row_count_bits:
        bits = min(row_count_bits - bit, MAX_RADIX_BITS)
        stride = pitch << bit
        for group in range(0, 1 << row_count_bits, 1 << (bit + bits)):
            for row in range(group, group + (1 << bit)):
                radix_pass(a, row * pitch, 1 << row_bits, stride, bits)
        bit += bits


@compiled
def _solve_fused(
    x: Any, columns: Any, signs: Any, mask: Any, schedule: Any, bits: int, a: Any, t: Any, tile: Any
) -> None:
    """Run the schedule for one client, whose vectors have at least MIN_FUSED_BITS index bits; t is the result."""
    block_bits, row_bits, row_count_bits = _split_bits(bits)
    row_size = 1 << row_bits
    pitch = row_size + CACHE_LINE
    a.fill(0)
    t.fill(0)
    for i in range(x.size):
        column = columns[i]
        a[(column >> row_bits) * pitch + (column & (row_size - 1))] = signs[i] * x[i]
    _transform_row_numbers(a, pitch, row_bits, row_count_bits)
    scale = np.float32(1)
    for step in range(schedule.shape[0]):
        if step > 0:
            _project_rows(a, pitch, row_bits, row_count_bits, mask, tile)
            scale = np.float32(1 / t.size)  # a arrives from H·mask·H, without the factor of P
        rate = schedule[step, 0] * scale
        _step_rows(a, pitch, t, row_bits, block_bits, scale, rate, schedule[step, 1], schedule[step, 2])


@compiled
def _solve_small(x: Any, columns: Any, signs: Any, schedule: Any, bits: int, a: Any, t: Any) -> None:
    """Run the schedule for one client as it is written, for sizes below the fused loop; t is the result."""
    kept = np.empty(x.size, np.float32)
    a.fill(0)
    t.fill(0)
    for i in range(x.size):
        a[columns[i]] = signs[i] * x[i]
    transform(a, np.int64(0), bits)
    for step in range(schedule.shape[0]):
        relaxation, cap, box = schedule[step]
        for k in range(t.size):
            move = min(max(relaxation * a[k], -cap), cap)
            new = min(max(t[k] + move, -box), box)
            a[k] -= new - t[k]
            t[k] = new
        transform(a, np.int64(0), bits)
        for i in range(x.size):
            kept[i] = a[columns[i]] / np.float32(t.size)
        a.fill(0)
        for i in range(x.size):
            a[columns[i]] = kept[i]
        transform(a, np.int64(0), bits)


@compiled
def _residual(x: Any, columns: Any, signs: Any, bits: int, t: Any) -> float:
    """Return ‖x − signs·gather(H t)/N‖₂; t is overwritten."""
    transform(t, np.int64(0), bits)
    scale = 1.0 / t.size
    squares = 0.0
    for i in range(x.size):
        error = np.float64(x[i]) - scale * np.float64(signs[i] * t[columns[i]])
        squares += error * error
    return math.sqrt(squares)


@compiled
def solve_rows(
    x: Any,
    columns: Any,
    signs: Any,
    mask: Any,
    schedule: Any,
    bits: int,
    picks: Any,
    values: Any,
    t_out: Any,
    residuals: Any,
) -> None:
    """Run the schedule for every row of x and write what the caller asked for.

    x is float32 (n, d); columns int64 (d,); signs float32 (d,); mask comes from `mask_words`; schedule is float32
    (steps, 3). values, float32 (n, k), receives t at picks, int64 (n, k); t_out, float32 (n, N) or (0, N), receives t
    itself if it has rows; residuals, float64 (n,), receives ‖x − signs·gather(H t)/N‖₂. The working vectors are
    allocated once a call.
    """
    size = 1 << bits
    a = aligned(size + (CACHE_LINE << MAX_ROW_COUNT_BITS))
    t = aligned(size)
    tile = aligned(VECTOR_WIDTH << MAX_ROW_COUNT_BITS)
    for row in range(x.shape[0]):
        if bits < MIN_FUSED_BITS:
            _solve_small(x[row], columns, signs, schedule, bits, a, t)
        else:
            _solve_fused(x[row], columns, signs, mask, schedule, bits, a, t, tile)
        for k in range(picks.shape[1]):
            values[row, k] = t[picks[row, k]]
        if t_out.shape[0] > 0:
            # A loop: the general code behind a slice assignment takes seconds to compile.
            for k in range(size):
                t_out[row, k] = t[k]
        residuals[row] = _residual(x[row], columns, signs, bits, t)
