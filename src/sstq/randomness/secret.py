"""Secret randomness: the operating system's by default, a seed for simulation.

An encoder asks for 64-bit words and for nothing else; it asks for the same number of words whatever its input is.
"""

from __future__ import annotations

import math
import os
from typing import Protocol

import numpy as np

from sstq import kernels
from sstq.array_types import Floats, Words
from sstq.kernels.threads import MIN_ELEMENTS_PER_THREAD, run_in_chunks

RngLike = int | np.random.Generator | None

# This many words stay in the cache; smaller requests would pay for the system call, and one is worth a thread.
_WORDS_PER_REQUEST = 1 << 14


class BitSource(Protocol):
    """A source of independent uniform 64-bit words."""

    simulated: bool

    def words(self, count: int) -> Words:
        """Return `count` fresh words."""
        ...


class SecureBits:
    """The operating system's cryptographic generator, read in bulk.

    It keeps no state: no buffer that two threads could share, that a fork would copy or that would hold words before or
    after their use. A generator of our own would be faster, but one more thing to trust.
    """

    simulated = False

    def words(self, count: int) -> Words:
        """Return `count` fresh words from the operating system."""
        if count <= _WORDS_PER_REQUEST:
            return np.frombuffer(bytearray(os.urandom(8 * count)), dtype=np.uint64)
        drawn = np.empty(count, dtype=np.uint64)

        def fill(requests: slice) -> None:
            for request in range(requests.start, requests.stop):
                part = drawn[
                    request * _WORDS_PER_REQUEST : (request + 1) * _WORDS_PER_REQUEST
                ]
                part[:] = np.frombuffer(os.urandom(8 * len(part)), dtype=np.uint64)

        run_in_chunks(fill, -(-count // _WORDS_PER_REQUEST), MIN_ELEMENTS_PER_THREAD)
        return drawn


class SeededBits:
    """Reproducible words for simulations. Messages encoded with them are not private."""

    simulated = True

    def __init__(self, rng: int | np.random.Generator) -> None:
        self._rng = np.random.default_rng(rng)

    def words(self, count: int) -> Words:
        """Return the next `count` words of the generator."""
        return self._rng.integers(0, 1 << 64, size=count, dtype=np.uint64)


def bit_source(rng: RngLike) -> BitSource:
    """Return the source of randomness for an `rng` argument: None, an integer seed or a NumPy Generator.

    Examples:
        >>> bit_source(None).simulated, bit_source(3).simulated
        (False, True)
    """
    if rng is None:
        return SecureBits()
    if isinstance(rng, np.random.Generator):
        return SeededBits(rng)
    if (
        isinstance(rng, (bool, np.bool_))
        or not isinstance(rng, (int, np.integer))
        or rng < 0
    ):
        got = rng if isinstance(rng, (int, np.integer)) else type(rng).__name__
        raise ValueError(
            f"rng must be None, a non-negative integer seed or a numpy Generator, got {got}"
        )
    return SeededBits(int(rng))


def unit_interval(words: Words) -> Floats:
    """Convert words to multiples of 2^-53 in [0, 1)."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def open_interval(words: Words) -> Floats:
    """Convert words to odd multiples of 2^-53: uniform in (0, 1), never 0 or 1, and 1 − u is as exact as u."""
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def normals(source: BitSource, shape: tuple[int, ...]) -> Floats:
    """Independent standard normal numbers by `sstq.kernels.box_muller`: one word per number (one more if odd)."""
    count = math.prod(shape)
    return kernels.box_muller(source.words(count + count % 2)[None])[0, :count].reshape(
        shape
    )


def channel_words(words: Words) -> Words:
    """Convert words to uniform integers below 2^62, the scale of a channel's weights."""
    return words >> np.uint64(2)
