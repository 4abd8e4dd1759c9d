"""One signed row of a mixed Hadamard frame for each client: mixing, selection and look-up without leaving the cache.

**Selection.** Which scores are among the k largest magnitudes is decided on integers: without its sign bit a float32,
read as an integer, grows with the magnitude. Its leading bits put it into one of 256 narrow bins around the magnitude
that the k-th largest is expected to have: mixing is a rotation, after which scores are nearly normal. Bisection finds
the bin that holds the k-th largest, and the few members of that bin are then ordered among themselves. Ties go to the
smaller index.
"""

from typing import Any

import numpy as np

from sstq.kernels.clipping import measure
from sstq.kernels.fallback import COUNTED_AT_A_TIME
from sstq.kernels.hadamard import bits_of_block, transform_block
from sstq.kernels.target import aligned, compiled, passes

# So many bits of a magnitude, read as an integer, are behind those that number the bins: 256 bins per octave; 128; one.
_NARROW, _WIDE, _OCTAVES = 15, 16, 23
# Bins are signed bytes, which all processors can compare. The lowest and the highest take what lies beyond them, too.
_BINS, _LOWEST, _HIGHEST = 256, -128, 127
_MAGNITUDE = np.int32(0x7FFFFFFF)
# Members of the bin are looked for in groups, most of which have none.
_GROUP = 64


@compiled
def _find_bins(scores: Any, shift: int, middle: int, bins: Any) -> None:
    """Write the bin of every score: its magnitude, read as an integer, without `shift` bits, less `middle`."""
    bits = scores.view(np.int32)
    # Narrow at every step: Numba computes with 64 bits otherwise, of which a vector holds half as many.
    base, behind = np.int32(middle), np.int32(shift)
    for j in range(bins.size):
        leading = np.int32(np.int32(bits[j] & _MAGNITUDE) >> behind)
        bins[j] = np.int8(min(max(np.int32(leading - base), np.int32(_LOWEST)), np.int32(_HIGHEST)))


@compiled
def _bin_of_rank(bins: Any, rank: int) -> Any:
    """The bin that holds the score of that rank (0 is the largest), and its rank within the bin, by bisection."""
    place: Any = _LOWEST
    higher: Any = 0
    step, vectors = _BINS >> 1, bins.size // COUNTED_AT_A_TIME
    while step > 0:
        bar = np.int8(place + step - 1)
        count = passes.count_above(bins, vectors, bar)
        for j in range(vectors * COUNTED_AT_A_TIME, bins.size):
            count += np.int64(bins[j] > bar)
        if count > rank:
            place += step
        else:
            higher = count
        step >>= 1
    return place, rank - higher


@compiled
def _members(bins: Any, place: int, found: Any) -> Any:
    """Write the indices of the scores in that bin, ascending; return how many there are."""
    count: Any = 0
    wanted, whole = np.int8(place), bins.size // _GROUP * _GROUP
    for start in range(0, whole, _GROUP):
        group = bins[start : start + _GROUP]
        # A form of “is any equal” that LLVM finds vectors for.
        least = np.uint8(0xFF)
        for k in range(_GROUP):
            least = min(least, np.uint8(group[k] ^ wanted))
        if least == 0:
            for k in range(_GROUP):
                found[count] = start + k
                count += group[k] == wanted
    for j in range(whole, bins.size):
        found[count] = j
        count += bins[j] == wanted
    return count


@compiled
def _kth_member(scores: Any, found: Any, count: int, rank: int, digits: Any) -> Any:
    """The index, of those in found[:count], whose magnitude has that rank, ties by index: digit by digit.

    The members of a bin are alike in all but their last 16 bits. There are two passes whatever the scores are, so that
    one bin with all members costs a small multiple of the usual time.
    """
    bits, shift = scores.view(np.int32), 8
    prefix = np.int64((bits[found[0]] & _MAGNITUDE) >> 16)
    while shift >= 0:
        for digit in range(256):
            digits[digit] = 0
        for i in range(count):
            key = np.int64(bits[found[i]] & _MAGNITUDE)
            digits[(key >> shift) & 255] += np.int32(key >> (shift + 8) == prefix)
        digit = 255
        while digits[digit] <= rank:
            rank -= digits[digit]
            digit -= 1
        prefix = (prefix << 8) | digit
        shift -= 8
    for i in range(count):
        if bits[found[i]] & _MAGNITUDE == prefix:
            if rank == 0:
                return found[i]
            rank -= 1
    return -1


@compiled
def last_inside(scores: Any, expected: float, inside: int, bins: Any, digits: Any, found: Any) -> Any:
    """The index of the last of the `inside` scores, float32 (N,), of largest magnitude; ties by index.

    `expected` is about its magnitude; another number costs time, not correctness. Working memory: bins, int8 (N,),
    digits, int32 (256,), and found, int32 (N + 1,).
    """
    middle = np.empty(1, np.float32)
    middle[0] = expected
    _find_bins(scores, _NARROW, middle.view(np.int32)[0] >> _NARROW, bins)
    place, rank = _bin_of_rank(bins, inside - 1)
    if not _LOWEST < place < _HIGHEST:
        # Scores that are far from normal, as those of a row of the frame: find the octave first.
        _find_bins(scores, _OCTAVES, -_LOWEST, bins)
        octave = _bin_of_rank(bins, inside - 1)[0] - _LOWEST
        _find_bins(scores, _WIDE, (2 * octave + 1) << (_OCTAVES - _WIDE - 1), bins)
        place, rank = _bin_of_rank(bins, inside - 1)
    return _kth_member(scores, found, _members(bins, place, found), rank, digits)


@compiled
def _count_at_least(bits: Any, bar: Any) -> Any:
    count = np.int32(0)
    for j in range(bits.size):
        count += np.int32((bits[j] & _MAGNITUDE) >= bar)
    return count


@compiled
def _place_of(scores: Any, last: int, wants_inside: bool, rank: int) -> int:
    """The rank-th index of those inside, or of those outside; `last` is that of `last_inside`."""
    bits = scores.view(np.int32)
    # Up to `last` a magnitude as large as its own is inside; after it, only larger ones are.
    own, start = bits[last] & _MAGNITUDE, 0
    while start < bits.size:
        bar = own if start <= last else own + np.int32(1)
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


@compiled
def _mix(
    x: Any, scale: float, length: float, sign: float, first_signs: Any, later_signs: Any, bits: int, scores: Any
) -> None:
    """Write U x·sign·scale/length, up to a positive constant, to scores; e₁ stands for x if its length is 0."""
    factor = sign / length if length > 0 else 0.0
    block_bits = bits_of_block(bits)
    for block in range(1 << (bits - block_bits)):
        # Slices: for indices from a variable start LLVM finds no vectors.
        start, stop = block << block_bits, (block + 1) << block_bits
        part, given, signs = scores[start:stop], x[start:stop], first_signs[start:stop]
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
            start, stop = block << block_bits, (block + 1) << block_bits
            part, signs = scores[start:stop], later_signs[step, start:stop]
            for i in range(part.size):
                part[i] *= signs[i]
            transform_block(scores, np.int64(0), block, block_bits, bits)


@compiled
def pick_rows(
    x: Any, measured: Any, uniforms: Any, frames: Any, which: Any, subsets: Any, ranks: Any, picked: Any, longer: Any
) -> None:
    """Set picked[i] and longer[i] for the client x[i] as `sstq.kernels.pick_signed_rows` defines them.

    `measured` are the arguments of `measure` after the row; frames are (first_signs (F, d), later_signs (F, rounds − 1,
    N), log₂ N); ranks are (inside, about the magnitude of the last score inside, places).
    """
    keys, magnitude, fraction_bits, clip = measured
    first_signs, later_signs, bits = frames
    inside, expected, places = ranks
    scores, taken = aligned(1 << bits), subsets.shape[1]
    candidates = aligned(taken) if taken else scores
    bins, digits = np.empty(candidates.size, np.int8), np.empty(256, np.int32)
    found = np.empty(candidates.size + 1, np.int32)
    for client in range(x.shape[0]):
        scale, length, natural = measure(x[client], keys[client], magnitude, fraction_bits, clip)
        longer[client] = natural * length > 1
        share = 1.0 if longer[client] else natural * length
        sign = -1.0 if uniforms[client] < (1 - share) / 2 else 1.0
        first, later = first_signs[which[client]], later_signs[which[client]]
        _mix(x[client], scale, length, sign, first, later, bits, scores)
        for slot in range(taken):
            candidates[slot] = scores[subsets[client, slot]]
        last = last_inside(candidates, expected, inside, bins, digits, found)
        place = places[client]
        if place >= 2 * inside:
            slot = _place_of(candidates, last, False, (place - 2 * inside) >> 1)
            negative = place & 1
        else:
            slot = _place_of(candidates, last, True, place % inside)
            negative = np.int64(candidates[slot] < 0) ^ np.int64(place >= inside)
        picked[client] = 2 * slot + negative
