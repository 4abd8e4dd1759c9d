"""One signed row of a mixed Hadamard frame for each client: mixing, selection and look-up without leaving the cache.

**Selection.** Which scores are among the k largest magnitudes is decided on integers: without its sign bit a float32,
read as an integer, grows with the magnitude. One histogram of the leading bits finds the narrow bin that holds the k-th
largest, and the few members of that bin are then ordered among themselves. Ties go to the smaller index.
"""

from typing import Any

import numpy as np

from sstq.kernels.buffers import aligned
from sstq.kernels.clipping import norm
from sstq.kernels.hadamard import bits_of_block, transform_block
from sstq.kernels.target import compiled

# 128 bins an octave, from the largest magnitude down over 8 octaves; what is smaller shares the last bin.
_BIN_SHIFT = 16
_BINS = 1024
# Several histograms in turns: two neighbours that fall into one bin would wait for each other.
_TABLES = 4
_MAGNITUDE = np.int32(0x7FFFFFFF)
# Members of the bin are looked for in groups, most of which have none.
_GROUP = 64


@compiled
def magnitudes(scores: Any, keys: Any) -> Any:
    """Write the magnitudes as integers that compare alike; return the largest."""
    bits = scores.view(np.int32)
    largest = np.int32(0)
    for j in range(keys.size):
        key = bits[j] & _MAGNITUDE
        keys[j] = key
        largest = key if key > largest else largest
    return largest


@compiled
def _bin_of_rank(keys: Any, base: Any, rank: int, tables: Any) -> Any:
    """The bin that holds the key of that rank (0 is the largest), and the rank that it has within the bin."""
    for i in range(tables.size):
        tables[i] = 0
    whole = keys.size // _TABLES * _TABLES
    for start in range(0, whole, _TABLES):
        for table in range(_TABLES):
            place = max((keys[start + table] >> _BIN_SHIFT) - base, np.int32(0))
            tables[np.uint32(table * _BINS) + np.uint32(place)] += np.int32(1)
    for j in range(whole, keys.size):
        tables[np.uint32(max((keys[j] >> _BIN_SHIFT) - base, np.int32(0)))] += np.int32(1)
    place = _BINS
    passed = 0
    inside = 0
    while passed + inside <= rank:
        passed += inside
        place -= 1
        inside = 0
        for table in range(_TABLES):
            inside += tables[table * _BINS + place]
    return place, rank - passed


@compiled
def _members(keys: Any, low: Any, high: Any, found: Any) -> Any:
    """Write the places of the keys with low ≤ key ≤ high, ascending; return how many there are."""
    # As unsigned numbers the keys below `low` are far above it: one comparison does for both ends.
    above, first, width = keys.view(np.uint32), np.uint32(low), np.uint32(high - low)
    count: Any = 0
    whole = keys.size // _GROUP * _GROUP
    for start in range(0, whole, _GROUP):
        group = above[start : start + _GROUP]
        least = np.uint32(0xFFFFFFFF)
        for k in range(_GROUP):
            least = min(least, np.uint32(group[k] - first))
        if least <= width:
            for k in range(_GROUP):
                found[count] = start + k
                count += np.uint32(group[k] - first) <= width
    for j in range(whole, keys.size):
        found[count] = j
        count += np.uint32(above[j] - first) <= width
    return count


@compiled
def _kth_member(keys: Any, found: Any, count: int, rank: int, digits: Any) -> Any:
    """The place, of those in found[:count], whose key has that rank, ties by place: digit by digit, four passes.

    The passes do not depend on the keys, so that one bin with all members costs a small multiple of the usual time.
    """
    prefix = np.int64(0)
    for shift in (24, 16, 8, 0):
        for digit in range(256):
            digits[digit] = 0
        for i in range(count):
            key = np.int64(keys[found[i]])
            digits[(key >> shift) & 255] += np.int32(key >> (shift + 8) == prefix)
        digit = 255
        while digits[digit] <= rank:
            rank -= digits[digit]
            digit -= 1
        prefix = (prefix << 8) | digit
    for i in range(count):
        if keys[found[i]] == prefix:
            if rank == 0:
                return found[i]
            rank -= 1
    return -1


@compiled
def last_inside(keys: Any, largest: Any, inside: int, tables: Any, found: Any) -> Any:
    """The place of the last of the `inside` largest keys, larger ones first and ties by place."""
    base = np.int32((largest >> _BIN_SHIFT) - (_BINS - 1))
    place, rank = _bin_of_rank(keys, base, inside - 1, tables)
    low = np.int32((base + place) << _BIN_SHIFT) if place else np.int32(0)
    high = np.int32(((base + place) << _BIN_SHIFT) | ((1 << _BIN_SHIFT) - 1))
    count = _members(keys, low, high, found)
    return _kth_member(keys, found, count, rank, tables)


@compiled
def _count_at_least(keys: Any, bar: Any) -> Any:
    count = np.int32(0)
    for j in range(keys.size):
        count += np.int32(keys[j] >= bar)
    return count


@compiled
def _place_of(keys: Any, last: int, wants_inside: bool, rank: int) -> int:
    """The place, by index, of the rank-th key inside, or of those outside; `last` is that of `last_inside`."""
    # Up to `last` a key as large as its own is inside; after it, only larger ones are.
    span = 256
    start = 0
    while start < keys.size:
        bar = keys[last] if start <= last else keys[last] + np.int32(1)
        stop = min(start + span, keys.size)
        if start <= last < stop:
            stop = last + 1
        members = _count_at_least(keys[start:stop], bar)
        members = members if wants_inside else (stop - start) - members
        if rank < members:
            for j in range(start, stop):
                if (keys[j] >= bar) == wants_inside:
                    if rank == 0:
                        return j
                    rank -= 1
        rank -= members
        start = stop
    return -1


@compiled
def _mix(x: Any, sign: float, length: float, first_signs: Any, later_signs: Any, bits: int, scores: Any) -> None:
    """Write U x·sign/length, up to a positive constant, to scores; e₁ stands for x if its length is 0."""
    factor = sign / length if length > 0 else 0.0
    block_bits = bits_of_block(bits)
    for block in range(1 << (bits - block_bits)):
        # Slices: for indices from a variable start LLVM finds no vectors.
        start, stop = block << block_bits, (block + 1) << block_bits
        part, given, signs = scores[start:stop], x[start:stop], first_signs[start:stop]
        for i in range(given.size):
            part[i] = np.float32(np.float64(given[i]) * factor) * signs[i]
        for i in range(given.size, part.size):
            part[i] = 0
        if length == 0 and block == 0:
            part[0] = np.float32(sign) * signs[0]
        transform_block(scores, np.int64(0), block, block_bits, bits)
    for step in range(later_signs.shape[0]):
        for block in range(1 << (bits - block_bits)):
            start, stop = block << block_bits, (block + 1) << block_bits
            part, signs = scores[start:stop], later_signs[step, start:stop]
            for i in range(part.size):
                part[i] *= signs[i]
            transform_block(scores, np.int64(0), block, block_bits, bits)


@compiled
def pick_rows(
    x: Any,
    uniforms: Any,
    first_signs: Any,
    later_signs: Any,
    which: Any,
    bits: int,
    subsets: Any,
    inside: int,
    places: Any,
    picked: Any,
) -> None:
    """Set picked[i] to the signed row at places[i] for the client x[i], as `sstq.kernels.pick_signed_rows` defines it.

    The signs of frame f are first_signs[f] (d,) and later_signs[f] (rounds − 1, N); client i uses frame which[i]. With
    subsets of shape (n, R), R > 0, only those rows of the frame take part, in that order.
    """
    size = 1 << bits
    scores = aligned(size)
    taken = subsets.shape[1]
    candidates = aligned(taken) if taken else scores
    keys = np.empty(candidates.size, np.int32)
    found = np.empty(candidates.size + _GROUP, np.int32)
    tables = np.empty(_TABLES * _BINS, np.int32)
    for client in range(x.shape[0]):
        length = norm(x[client], 1.0)
        sign = -1.0 if uniforms[client] < (1 - length) / 2 else 1.0
        _mix(x[client], sign, length, first_signs[which[client]], later_signs[which[client]], bits, scores)
        for slot in range(taken):
            candidates[slot] = scores[subsets[client, slot]]
        largest = magnitudes(candidates, keys)
        last = last_inside(keys, largest, inside, tables, found)
        place = places[client]
        is_rest = place >= 2 * inside
        if is_rest:
            slot = _place_of(keys, last, False, (place - 2 * inside) >> 1)
            negative = place & 1
        else:
            slot = _place_of(keys, last, True, place % inside)
            negative = np.int64(candidates[slot] < 0) ^ np.int64(place >= inside)
        picked[client] = 2 * slot + negative
