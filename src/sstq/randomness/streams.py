"""Public randomness that is the same on all machines, versions and languages.

Client and server derive the same frame signs, columns and indices from one public seed. Everything here is a function
of the raw output of Philox4x64-10 (Salmon et al., *Parallel random numbers: as easy as 1, 2, 3*, SC 2011), which has
published test vectors; no library's sampling method is used, so nothing changes when a library changes.

The definition, in full:

* The key of a stream is the pair (seed, purpose): the seed, 0 ≤ seed < 2^64, and up to eight ASCII characters read as a
  little-endian integer.
* Word 4·b + i of a stream, b = 0, 1, …, is output i of the block with counter (b + 1, 0, 0, 0).
* The word of an identifier c, 0 ≤ c < 2^64, is output 0 of the block with counter (c, 0, 0, 0).
* A sign is −1 where the bit is 1; bit k of a stream is bit k mod 64, least significant first, of word k // 64.
* A choice of d out of N places is the d smallest of the first N words (ties: the smaller place), in ascending order.
* A uniform index below N is ⌊word · N / 2^64⌋.

None of this is secret. What protects a client is drawn in `sstq.randomness.secret`.
"""

from __future__ import annotations

import numpy as np

from sstq.array_types import Floats32, Ints, Words

_PHILOX_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157))
_WEYL_STEPS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B))
_WORD = 1 << 64
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
# A table is ten times as fast as arithmetic with bits.
_OCTETS = np.unpackbits(
    np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"
)
_SIGNS_OF_OCTETS = 1 - 2 * _OCTETS.astype(np.float32)


def _key(seed: int, purpose: str) -> tuple[int, int]:
    if not 0 <= seed < _WORD:
        raise ValueError(f"seed must be in [0, 2^64), got {seed}")
    encoded = purpose.encode("ascii")
    if not 0 < len(encoded) <= 8:
        raise ValueError(
            f"purpose must be one to eight ASCII characters, got {purpose!r}"
        )
    return seed, int.from_bytes(encoded, "little")


def words(seed: int, purpose: str, count: int) -> Words:
    """Return the first `count` words of a stream.

    Examples:
        >>> hex(words(0, "test", 2)[1])
        '0x1db6e06f469845d5'
    """
    key = np.array(_key(seed, purpose), dtype=np.uint64)
    return np.asarray(np.random.Philox(key=key, counter=0).random_raw(count))


def _multiply_high_low(a: np.uint64, b: Words) -> tuple[Words, Words]:
    """The 128-bit products a·b as (high word, low word), by 32-bit halves."""
    a_high = a >> _HALF
    a_low = a & _LOW_HALF
    b_high = b >> _HALF
    b_low = b & _LOW_HALF
    low_low = a_low * b_low
    low_high = a_low * b_high
    high_low = a_high * b_low
    middle = (low_low >> _HALF) + (low_high & _LOW_HALF) + (high_low & _LOW_HALF)
    high = (
        a_high * b_high + (low_high >> _HALF) + (high_low >> _HALF) + (middle >> _HALF)
    )
    return high, (middle << _HALF) | (low_low & _LOW_HALF)


def _philox_block(counter: Words, seeds: Words, purpose: int) -> Words:
    """Philox4x64-10 of many counters at once: (n, 4) counters to (n, 4) outputs, with one seed or a seed each."""
    c0, c1, c2, c3 = (np.ascontiguousarray(counter[:, i]) for i in range(4))
    # As arrays, which wrap around in silence.
    k0 = seeds
    k1 = np.array([purpose], dtype=np.uint64)
    for _ in range(_PHILOX_ROUNDS):
        high0, low0 = _multiply_high_low(_MULTIPLIERS[0], c0)
        high1, low1 = _multiply_high_low(_MULTIPLIERS[1], c2)
        c0 = high1 ^ c1 ^ k0
        c1 = low1
        c2 = high0 ^ c3 ^ k1
        c3 = low0
        k0 = k0 + _WEYL_STEPS[0]
        k1 = k1 + _WEYL_STEPS[1]
    return np.stack([c0, c1, c2, c3], axis=1)


def words_of(seed: int, purpose: str, identifiers: Words) -> Words:
    """Return the word of each identifier, with random access."""
    counter = np.zeros((len(identifiers), 4), dtype=np.uint64)
    counter[:, 0] = identifiers
    first, second = _key(seed, purpose)
    return _philox_block(counter, np.array([first], dtype=np.uint64), second)[:, 0]


def multiply_shift(random_words: Words, limit: int) -> Ints:
    """Uniform indices below `limit`: ⌊word · limit / 2^64⌋, exactly uniform for a power of two.

    For other limits a value's probability is off by less than limit/2^64 of itself.
    """
    high, _ = _multiply_high_low(np.uint64(limit), random_words)
    return high.astype(np.int64)


def indices_of(seed: int, purpose: str, identifiers: Words, limit: int) -> Ints:
    """Return a public uniform index below `limit` for each identifier."""
    return multiply_shift(words_of(seed, purpose, identifiers), limit)


def signs(seed: int, purpose: str, count: int) -> Floats32:
    """Return `count` public signs ±1.

    Examples:
        >>> signs(7, "signs", 6)
        array([ 1., -1., -1., -1., -1.,  1.], dtype=float32)
    """
    values: Floats32 = signs_of_words(
        words(seed, purpose, -(-count // 64))[None], count
    )[0]
    values.setflags(write=False)
    return values


def sign_rows(seeds: Words, purpose: str, count: int) -> Floats32:
    """Return the `signs` of many seeds at once, (n, count)."""
    return signs_of_words(word_rows(seeds, purpose, -(-count // 64)), count)


def word_rows(seeds: Words, purpose: str, count: int) -> Words:
    """Return the `words` of many seeds at once, (n, count)."""
    blocks = -(-count // 4)
    counter = np.zeros((len(seeds) * blocks, 4), dtype=np.uint64)
    counter[:, 0] = np.tile(np.arange(1, blocks + 1, dtype=np.uint64), len(seeds))
    raw = _philox_block(counter, np.repeat(seeds, blocks), _key(0, purpose)[1])
    return raw.reshape(len(seeds), -1)[:, :count]


def signs_of_words(raw: Words, count: int) -> Floats32:
    """The first `count` bits of each row of words as signs, (n, count)."""
    octets = np.ascontiguousarray(raw.astype("<u8", copy=False)).view(np.uint8)
    return _SIGNS_OF_OCTETS.take(octets, axis=0).reshape(len(raw), -1)[:, :count]


def choose(seed: int, purpose: str, chosen: int, places: int) -> Ints:
    """Choose `chosen` of `places` places, ascending: those with the smallest words, ties to the smaller place.

    Examples:
        >>> choose(7, "columns", 3, 8)
        array([0, 1, 4])
    """
    if not 0 <= chosen <= places:
        raise ValueError(f"chosen must be in [0, {places}], got {chosen}")
    if chosen == 0:
        return np.zeros(0, dtype=np.int64)
    keys = words(seed, purpose, places)
    threshold = np.partition(keys, chosen - 1)[chosen - 1]
    taken = keys < threshold
    taken[np.flatnonzero(keys == threshold)[: chosen - np.count_nonzero(taken)]] = True
    ascending = np.flatnonzero(taken).astype(np.int64, copy=False)
    ascending.setflags(write=False)
    return ascending


def mix_seed(base_seed: int, round_number: int) -> int:
    """Return the frame seed of one round, derived from a base seed: the word of the round number.

    Examples:
        >>> mix_seed(7, 0) != mix_seed(7, 1) != mix_seed(8, 1)
        True
    """
    if not 0 <= round_number < _WORD:
        raise ValueError(f"round_number must be in [0, 2^64), got {round_number}")
    return int(
        words_of(base_seed, "round", np.array([round_number], dtype=np.uint64))[0]
    )
