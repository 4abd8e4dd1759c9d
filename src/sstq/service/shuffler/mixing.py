"""Mixing: all envelopes of a crowd in a uniformly random order, slot by slot, from a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from sstq.randomness.secret import SecureBits

__all__ = ["Mixer", "permutation"]


class Mixer:
    """A crowd's envelopes in a file without a name, which disappears however the process ends.

    Memory holds 24 bytes per person, and the system's cache as much of the file as fits.

    Args:
        people: the number of people.
        slots: the number of envelopes per person.
        size: the size of an envelope in bytes.
        folder: the folder for temporary files; None for the system's.
    """

    def __init__(self, people: int, slots: int, size: int, folder: str | None = None) -> None:
        self._people, self._shape = people, (people, slots, size)
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed by __exit__)
        self._added = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    def clear(self) -> None:
        """Forget all people."""
        self._added = self._file.seek(0)

    def add(self, body: bytes) -> None:
        """Add people, each with one envelope per slot."""
        self._added += len(np.frombuffer(body, dtype=np.uint8).reshape(-1, *self._shape[1:]))
        if self._added > self._people:
            raise ValueError(f"there must be {self._people} people, got more")
        self._file.write(body)

    def parts(self, slot: int, most_bytes: int) -> Iterator[bytes]:
        """Iterate over a slot's envelopes in random order, in pieces of at most this many bytes."""
        if self._added != self._people:
            raise ValueError(f"there must be {self._people} people, got {self._added}")
        self._file.flush()
        envelopes = np.memmap(self._file, np.uint8, "r", shape=self._shape)
        order, step = permutation(self._people), max(1, most_bytes // self._shape[2])
        for start in range(0, self._people, step):
            yield envelopes[order[start : start + step], slot].tobytes()


def permutation(count: int) -> NDArray[np.int64]:
    """Return a uniformly random permutation, from the operating system's randomness.

    It sorts independent 64-bit numbers; if two are equal, all are drawn again, so every order is equally likely.
    """
    while True:
        drawn = SecureBits().words(count)
        order = np.argsort(drawn)
        if not np.any(drawn[order[1:]] == drawn[order[:-1]]):
            return order
