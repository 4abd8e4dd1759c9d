"""One signed row of a mixed Hadamard frame for each client: mixing, selection and look-up without leaving the cache.

**Selection.** Which scores are among the k largest magnitudes is decided on integers: without its sign bit a float32,
read as an integer, grows with the magnitude. Mixing is a rotation, after which scores are nearly normal, so the k-th
largest magnitude is close to what normal numbers have. From there a search counts the scores above a bar until few are
left between two bars. Ties go to the smaller index.
"""

from typing import Any

import numpy as np
from numba import njit

from sstq.kernels.clipping import measure
from sstq.kernels.hadamard import bits_of_block, transform_block
from sstq.kernels.simd import aligned, inner

_MAGNITUDE = np.int32(0x7FFFFFFF)
_ABOVE_ALL = 0x7F800001
# The first step from the expected magnitude, in units of its last place: about the deviation at N = 2^15.
_STEP = 1 << 16
# So many scores between the bars are few. They are looked for in groups, most of which have none.
_FEW = 32
_GROUP = 64


@inner
def _count_at_least(bits: Any, bar: Any) -> Any:
    # Narrow at every step: Numba computes with 64 bits otherwise, of which a vector holds half as many.
    count = np.int32(0)
    for j in range(bits.size):
        count = np.int32(count + np.int32(np.int32(bits[j] & _MAGNITUDE) >= bar))
    return count


@inner
def _members(bits: Any, low: Any, high: Any, members: Any) -> Any:
    """Write the indices of the scores with low ≤ magnitude < high, ascending; return how many there are."""
    count: Any = 0
    least = np.int32(low)
    width = np.uint32(high - low)
    for start in range(0, bits.size, _GROUP):
        group = bits[start : start + _GROUP]
        inside = np.int32(0)
        for k in range(group.size):
            above = np.int32(np.int32(group[k] & _MAGNITUDE) - least)
            inside = np.int32(inside + np.int32(np.uint32(above) < width))
        if inside > 0:
            for k in range(group.size):
                members[count] = start + k
                count += np.uint32(np.int32(group[k] & _MAGNITUDE) - least) < width
    return count


@njit
def last_inside(scores: Any, expected: float, inside: int, members: Any) -> Any:
    """The index of the last of the `inside` scores, float32 (N,), of largest magnitude; ties by index.

    `expected` is about its magnitude; another number costs time, not correctness. members, int32 (N + 1,), is working
    memory.
    """
    bits = scores.view(np.int32)
    middle = np.empty(1, np.float32)
    middle[0] = expected
    # The k-th largest magnitude is in [low, high); so many are at least low, and at least high.
    low: Any = 0
    high: Any = _ABOVE_ALL
    at_low = bits.size
    at_high = low
    bar: Any = np.int64(middle.view(np.int32)[0])
    step = _STEP
    while at_low - at_high > _FEW and high - low > 1:
        reached: Any = np.int64(_count_at_least(bits, np.int32(bar)))
        if reached >= inside:
            low = bar
            at_low = reached
        else:
            high = bar
            at_high = reached
        # Longer and longer steps until the magnitude lies between two bars, then halves.
        bar = low + step if high == _ABOVE_ALL else high - step
        step *= 4
        if (low > 0 and high < _ABOVE_ALL) or not low < bar < high:
            bar = (low + high) >> 1
    count = _members(bits, low, high, members)
    rank = inside - 1 - at_high
    larger: Any = 0
    while high - low > 1:
        bar = (low + high) >> 1
        reached = 0
        for i in range(count):
            reached += np.int64((bits[members[i]] & _MAGNITUDE) >= bar)
        if reached > rank:
            low = bar
        else:
            high = bar
            larger = reached
    rank -= larger
    for i in range(count):
        if (bits[members[i]] & _MAGNITUDE) == low:
            if rank == 0:
                return members[i]
            rank -= 1
    return -1


@inner
def _place_of(scores: Any, last: int, wants_inside: bool, rank: int) -> int:
    """The rank-th index of those inside, or of those outside; `last` is that of `last_inside`."""
    bits = scores.view(np.int32)
    # Up to `last` a magnitude as large as that of the last is inside; after it, only larger ones are.
    bar_of_last = np.int32(bits[last] & _MAGNITUDE)
    start = 0
    while start < bits.size:
        bar = bar_of_last if start <= last else np.int32(bar_of_last + 1)
        stop = min(start + 256, bits.size)
        if start <= last < stop:
            stop = last + 1
        members = _count_at_least(bits[start:stop], bar)
        members = members if wants_inside else (stop - start) - members
        if rank < members:
            for j in range(start, stop):
                if ((bits[j] & _MAGNITUDE) >= bar) == wants_inside:
                    if rank == 0:
                        return j
                    rank -= 1
        rank -= members
        start = stop
    return -1


@inner
def _mix(
    x: Any,
    scale: float,
    length: float,
    sign: float,
    first_signs: Any,
    later_signs: Any,
    bits: int,
    scores: Any,
) -> None:
    """Write U x·sign·scale/length, up to a positive constant, to scores; e₁ stands for x if its length is 0."""
    factor = sign / length if length > 0 else 0.0
    block_bits = bits_of_block(scores, bits)
    for block in range(1 << (bits - block_bits)):
        # Slices: for indices from a variable start LLVM finds no vectors.
        start = block << block_bits
        stop = (block + 1) << block_bits
        part = scores[start:stop]
        given = x[start:stop]
        signs = first_signs[start:stop]
        for i in range(given.size):
            # In this order, so that neither overflows nor underflows: only the scale can be huge or tiny.
            part[i] = np.float32(scale * np.float64(given[i]) * factor) * signs[i]
        rest = part[given.size :]
        for i in range(rest.size):
            rest[i] = 0
        if length == 0 and block == 0:
            part[0] = np.float32(sign) * signs[0]
        transform_block(scores, np.int64(0), block, block_bits, bits)
    for step in range(later_signs.shape[0]):
        for block in range(1 << (bits - block_bits)):
            start = block << block_bits
            stop = (block + 1) << block_bits
            part = scores[start:stop]
            signs = later_signs[step, start:stop]
            for i in range(part.size):
                part[i] *= signs[i]
            transform_block(scores, np.int64(0), block, block_bits, bits)


def pick_rows(
    x: Any,
    uniforms: Any,
    which: Any,
    places: Any,
    picked: Any,
    longer: Any,
    clip: float,
    frames: Any,
    ranks: Any,
) -> None:
    """Set picked[i] and longer[i] for the client x[i] as `sstq.kernels.pick_signed_rows` defines them.

    frames are (first_signs (F, d), later_signs (F, rounds − 1, N), log₂ N); ranks are (inside, about the magnitude of
    the last score inside).
    """
    first_signs, later_signs, bits = frames
    inside, expected = ranks
    scores = aligned(1 << bits)
    members = np.empty(scores.size + 1, np.int32)
    for client in range(x.shape[0]):
        scale, length, natural = measure(x[client], clip)
        longer[client] = natural * length > 1
        share = 1.0 if longer[client] else natural * length
        sign = -1.0 if uniforms[client] < (1 - share) / 2 else 1.0
        first = first_signs[which[client]]
        later = later_signs[which[client]]
        _mix(x[client], scale, length, sign, first, later, bits, scores)
        last = last_inside(scores, expected, inside, members)
        place = places[client]
        if place >= 2 * inside:
            row = _place_of(scores, last, False, (place - 2 * inside) >> 1)
            negative = place & 1
        else:
            row = _place_of(scores, last, True, place % inside)
            negative = np.int64(scores[row] < 0) ^ np.int64(place >= inside)
        picked[client] = 2 * row + negative
