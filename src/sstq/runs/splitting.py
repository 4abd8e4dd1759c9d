"""One stream of seeded randomness, taken up in the middle: parts of a simulation give the bits of the whole.

Every encoder draws the same number of 64-bit words for each vector, whatever the vector is, one vector after the other.
So the words of vector number k are known beforehand to begin at k times that number, and parts of one long run can be
encoded anywhere, in any order and more than once. Secret randomness has no stream and needs none of this.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from sstq.mechanisms import Mechanism

__all__ = ["stream_part", "words_a_message"]


class _Counter:
    """A source that counts the words that are asked for."""

    simulated = True
    asked = 0

    def words(self, count: int) -> NDArray[np.uint64]:
        self.asked += count
        return np.zeros(count, dtype=np.uint64)


def words_a_message(mechanism: Mechanism) -> int:
    """How many random words the encoding of one vector takes.

    Examples:
        >>> import sstq
        >>> words_a_message(sstq.SSTQ(dim=3, epsilon=2.0, bits=2)), words_a_message(sstq.mechanism("clean", dim=3))
        (3, 0)
    """
    counter = _Counter()
    clients = None if mechanism.coin == "private" else np.zeros(1, dtype=np.uint64)
    mechanism._encode_rows(np.zeros((1, mechanism.dim), dtype=np.float32), clients, counter, None)
    return counter.asked


@contextmanager
def stream_part(
    rng: np.random.Generator | None, mechanism: Mechanism, first: int, count: int
) -> Iterator[np.random.Generator | None]:
    """A generator for the vectors from number `first` on of a run that began with `rng`, which stays as it is.

    Exactly `count` vectors must be encoded with it; RuntimeError if it is left at another place. None (secret
    randomness) stays None.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.SSTQ(dim=3, epsilon=2.0, bits=2)
        >>> X, rng = np.ones((10, 3)), np.random.default_rng(5)
        >>> with stream_part(rng, mechanism, first=4, count=6) as part:
        ...     later = mechanism.encode(X[4:], part)
        >>> later.to_bytes() == mechanism.encode(X, rng)[4:].to_bytes()
        True
    """
    if rng is None:
        yield None
        return
    words = words_a_message(mechanism)
    part = _ahead(rng, first * words)
    yield part
    if part.bit_generator.state != _ahead(rng, (first + count) * words).bit_generator.state:
        raise RuntimeError(f"{mechanism.name} did not draw {words} words for each of {count} vectors")


def _ahead(rng: np.random.Generator, words: int) -> np.random.Generator:
    """A copy of the generator, that many words further on: a full 64-bit word is one step of PCG64."""
    copied = copy.deepcopy(rng)
    if not isinstance(copied.bit_generator, np.random.PCG64):
        raise ValueError(f"rng must be a PCG64 generator (numpy's default), got {type(rng.bit_generator).__name__}")
    if words:
        copied.bit_generator.advance(words)
    return copied
