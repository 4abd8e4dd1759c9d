"""The projection loop behind Kashin representations, fused so that a client never leaves the cache.

The computation is that of `sstq.kernels.kashin_pick`. P a = a holds throughout, so a = H(v − mask·H t/N) up to
rounding: the part of v that t does not yet reconstruct.

**Step length.** q = ‖s‖²/‖P s‖², s = t' − t, is Barzilai and Borwein's quotient: how much longer than the reduction of
the residual the step before the last was. From P a = a and a' = a − P s follows ‖P s‖² = 2⟨a, s⟩ − ‖a‖² + ‖a'‖², so the
sums ‖a‖², ⟨a, s⟩ and ‖s‖² of two sweeps are enough. They are added up while the numbers are in registers, and one step
late because ‖a'‖ is known only after the next.

**Fusion.** Index bits can be transformed in any order, so the index is cut into low bits, a *block* in the L1 cache,
and high bits, the *rows*. Each step is then one sweep over the rows (low bits forward, clip, low bits backward) and
one over columns of one vector's width (high bits backward, mask, high bits forward). When N is so large that rows must
be longer than a block, the bits between are transformed within the row, still in the L2 cache.

**Order.** The order of additions is the same on every processor: the result does not depend on the vector width.

Rows of a are padded by one cache line (`pitch`): at a stride of a power of two the vectors of a column would compete
for the same few places in the cache. Constants are handed to compiled functions as np.int64(...): for a bare literal
Numba would compile the callee once more.
"""

import math
from typing import Any

import numpy as np

from sstq.kernels import simd
from sstq.kernels.api import LEAST_REDUCTION, LONGEST_STEP
from sstq.kernels.hadamard import (
    BASE_BITS,
    VECTOR_BITS,
    radix_pass,
    transform,
    transform_bits,
    transform_low_bits,
)
from sstq.kernels.simd import (
    CACHE_LINE,
    MAX_RADIX_BITS,
    SUM_LANES,
    VECTOR_WIDTH,
    aligned,
    inner,
)

_MASK_WORD = np.uint16 if VECTOR_WIDTH == 16 else np.uint8

# A block and its part of t fill half of a 32 KiB L1 cache; a column of vectors is gathered into a tile of 8 or 16 KiB.
BLOCK_BITS = 11
MAX_ROW_COUNT_BITS = 8
# The most bits of a pass that does more than butterflies, and the least of a block below those of its clipping pass:
# the widest vectors take 8 at once.
_PASS_BITS = 3
_LEAST_LOW_BITS = 8
# The fused loop needs one bit above these for its clipping pass and one for its rows.
MIN_FUSED_BITS = _LEAST_LOW_BITS + 2


@inner
def _mask_words(columns: Any, size: int) -> Any:
    """The bits that are 1 at `columns`, in one unsigned word for each VECTOR_WIDTH of the `size` positions."""
    words = np.zeros(max(1, size >> VECTOR_BITS), _MASK_WORD)
    for column in columns:
        words[column >> VECTOR_BITS] |= _MASK_WORD(1 << (column & (VECTOR_WIDTH - 1)))
    return words


@inner
def _step_block(
    a: Any, offset: int, t: Any, t_offset: int, split: Any, factors: Any, lanes: Any
) -> None:
    """The bits of a block forward, one step, the same bits backward; the last pass each way is fused with the step."""
    low_bits, block_bits, _, _, _ = split
    fused_bits = block_bits - low_bits
    size = 1 << block_bits
    stride = 1 << low_bits
    _transform_low(a, offset, size, low_bits)
    for k in range(0, stride, VECTOR_WIDTH):
        simd.clipped(
            fused_bits,
            a,
            offset + k,
            t,
            t_offset + k,
            stride,
            factors,
            lanes,
            k % SUM_LANES,
        )
    _transform_low(a, offset, size, low_bits)


@inner
def _transform_low(a: Any, offset: int, size: int, bits: int) -> None:
    """Transform of the lowest bits of a block of `size` floats; all of them if they are few."""
    if bits >= BASE_BITS:
        transform_low_bits(a, offset, size, bits)
    else:
        transform(a, offset, bits)


@inner
def _step_rows(a: Any, t: Any, split: Any, factors: Any, lanes: Any, sums: Any) -> None:
    """Row by row: all bits forward, one step, all bits backward; ‖a‖², ⟨a, s⟩ and ‖s‖² are added to sums."""
    _, block_bits, row_bits, row_count_bits, pitch = split
    row_size = 1 << row_bits
    block_size = 1 << block_bits
    for row in range(1 << row_count_bits):
        offset = row * pitch
        t_offset = row << row_bits
        transform_bits(a, offset, row_size, block_bits, row_bits)
        for block in range(0, row_size, block_size):
            lanes[:] = 0
            _step_block(a, offset + block, t, t_offset + block, split, factors, lanes)
            # In double precision: single would not do for the sum of millions.
            for k in range(lanes.size):
                sums[k // SUM_LANES] += np.float64(lanes[k])
        transform_bits(a, offset, row_size, block_bits, row_bits)


@inner
def _project_rows(a: Any, split: Any, mask: Any, tile: Any) -> None:
    """Column by column: the bits that number the rows backward, mask, the same bits forward."""
    _, _, row_bits, row_count_bits, pitch = split
    row_size = 1 << row_bits
    words_per_row = max(1, row_size // VECTOR_WIDTH)
    if row_count_bits <= _PASS_BITS:
        for word in range(words_per_row):
            simd.masked(
                row_count_bits, a, word * VECTOR_WIDTH, pitch, mask, word, words_per_row
            )
        return
    # _PASS_BITS high bits of a row's number are done on the way between a and the tile, the rest inside the tile; of
    # the rest the lowest bits are fused with the mask.
    inner_bits = row_count_bits - _PASS_BITS
    inner_count = 1 << inner_bits
    outer_stride = pitch << inner_bits
    tile_stride = inner_count * VECTOR_WIDTH
    tile_size = VECTOR_WIDTH << row_count_bits
    masked_bits = min(inner_bits, _PASS_BITS)
    masked_size = VECTOR_WIDTH << masked_bits
    first_bit = VECTOR_BITS + masked_bits
    last_bit = VECTOR_BITS + inner_bits
    for word in range(words_per_row):
        column = word * VECTOR_WIDTH
        for k in range(inner_count):
            simd.butterfly(
                _PASS_BITS,
                a,
                column + k * pitch,
                outer_stride,
                tile,
                k * VECTOR_WIDTH,
                tile_stride,
            )
        if first_bit < last_bit:
            transform_bits(tile, np.int64(0), tile_size, first_bit, last_bit)
        for group in range(1 << (row_count_bits - masked_bits)):
            mask_offset = (group << masked_bits) * words_per_row + word
            simd.masked(
                masked_bits,
                tile,
                group * masked_size,
                VECTOR_WIDTH,
                mask,
                mask_offset,
                words_per_row,
            )
        if first_bit < last_bit:
            transform_bits(tile, np.int64(0), tile_size, first_bit, last_bit)
        for k in range(inner_count):
            simd.butterfly(
                _PASS_BITS,
                tile,
                k * VECTOR_WIDTH,
                tile_stride,
                a,
                column + k * pitch,
                outer_stride,
            )


@inner
def _split_bits(bits: int) -> Any:
    """The index bits below the clipping pass, of a block, of a row and of the rows' numbers; and the pitch.

    A small vector is one block in one row, and nothing is fused.
    """
    if bits < MIN_FUSED_BITS:
        return bits, bits, bits, 0, max(1 << bits, SUM_LANES)
    block_bits = min(BLOCK_BITS, bits - 1)
    row_count_bits = min(MAX_ROW_COUNT_BITS, bits - block_bits)
    row_bits = bits - row_count_bits
    return (
        max(_LEAST_LOW_BITS, block_bits - _PASS_BITS),
        block_bits,
        row_bits,
        row_count_bits,
        (1 << row_bits) + CACHE_LINE,
    )


@inner
def _transform_row_numbers(a: Any, split: Any) -> None:
    """Butterflies for the bits that number the rows, in place."""
    _, _, row_bits, row_count_bits, pitch = split
    bit = 0
    while bit < row_count_bits:
        bits = min(row_count_bits - bit, MAX_RADIX_BITS)
        for group in range(0, 1 << row_count_bits, 1 << (bit + bits)):
            for row in range(group, group + (1 << bit)):
                radix_pass(a, row * pitch, 1 << row_bits, pitch << bit, bits)
        bit += bits


@inner
def _solve(
    x: Any, frame: Any, mask: Any, schedule: Any, a: Any, t: Any, tile: Any, lanes: Any
) -> None:
    """Run the schedule for one client; t is the result.

    a and t have room for SUM_LANES floats at least; what lies beyond the vectors stays zero.
    """
    columns, signs, bits = frame
    split = _split_bits(bits)
    _, _, row_bits, _, pitch = split
    a.fill(0)
    t.fill(0)
    for i in range(x.size):
        column = columns[i]
        a[(column >> row_bits) * pitch + (column & ((1 << row_bits) - 1))] = (
            signs[i] * x[i]
        )
    _transform_row_numbers(a, split)
    scale = np.float32(1)
    sums = np.zeros((2, 3))
    for step in range(schedule.shape[0]):
        if step > 0:
            _project_rows(a, split, mask, tile)
            # a arrives from H·mask·H, without the factor of P
            scale = np.float32(1 / (1 << bits))
        before = sums[step & 1]
        last = sums[~step & 1]
        relaxation, stretch, cap, box = schedule[step]
        quotient = before[2] / max(2 * before[1] - before[0] + last[0], LEAST_REDUCTION)
        rate = max(relaxation, np.float32(min(stretch * quotient, LONGEST_STEP)))
        factors = scale, rate * scale, cap, box
        before[:] = 0
        _step_rows(a, t, split, factors, lanes, before)
        # Give a its scale in ‖a‖² and ⟨a, s⟩.
        before[0] *= np.float64(scale) ** 2
        before[1] *= np.float64(scale)


@inner
def _residual(x: Any, frame: Any, t: Any, doubles: Any) -> float:
    """Return ‖x − signs·gather(H t)/N‖₂, in double precision throughout; doubles, (N,), is working memory."""
    columns, signs, bits = frame
    for k in range(t.size):
        doubles[k] = t[k]
    transform(doubles, np.int64(0), bits)
    scale = 1.0 / t.size
    squares = 0.0
    for i in range(x.size):
        error = np.float64(x[i]) - scale * np.float64(signs[i]) * doubles[columns[i]]
        squares += error * error
    return math.sqrt(squares)


def solve_rows(
    x: Any, picks: Any, values: Any, residuals: Any, frame: Any, schedule: Any
) -> None:
    """Run the schedule for every row of x and write what the caller asked for.

    frame is (columns int64 (d,), signs float32 (d,), log₂ N). values, (n, k), receives t at
    picks, (n, k), or the first k entries of t without picks; residuals, (n,) or (0,), receives the residuals if it has
    entries. The working vectors are allocated once per call.
    """
    size = 1 << frame[2]
    mask = _mask_words(frame[0], size)
    _, _, _, row_count_bits, pitch = _split_bits(frame[2])
    a = aligned(pitch << row_count_bits)
    t = aligned(max(size, SUM_LANES))
    tile = aligned(VECTOR_WIDTH << MAX_ROW_COUNT_BITS)
    lanes = aligned(3 * SUM_LANES)
    doubles = np.empty(size if residuals.size else 0)
    for row in range(x.shape[0]):
        _solve(x[row], frame, mask, schedule, a, t, tile, lanes)
        # A loop: the general code behind a slice assignment takes seconds to compile.
        for k in range(values.shape[1]):
            values[row, k] = t[picks[row, k] if picks.size else k]
        if residuals.size:
            residuals[row] = _residual(x[row], frame, t[:size], doubles)
