"""Mixing on disk: all envelopes of a crowd in a uniformly random order, slot by slot, in bounded memory.

Each envelope of a slot goes to a uniformly random bucket, and each bucket is then
sorted by random numbers. Given the buckets' sizes, every order of all envelopes is equally likely (Rao 1961, Sandelius
1962), so the result is a uniform permutation, and only one bucket is in memory at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from sstq.randomness.secret import SecureBits

__all__ = ["MEMORY", "Mixer", "permutation"]

MEMORY = 1 << 26
"""How many bytes of envelopes are mixed in memory; peak memory is about three times that."""

# Each bucket is an open file. This many suffice for 3·10^8 envelopes of 52 bytes; beyond that buckets take more memory.
_MOST_BUCKETS = 512


class Mixer:
    """A crowd's envelopes in a file without a name, which disappears however the process ends.

    Args:
        people: the number of people.
        slots: the number of envelopes per person.
        size: the size of an envelope in bytes.
        folder: the folder for temporary files; None for the system's.
        memory: the maximum number of bytes of envelopes in memory at a time.
    """

    def __init__(self, people: int, slots: int, size: int, folder: str | None = None, memory: int = MEMORY) -> None:
        self._people, self._slots, self._size = people, slots, size
        self._folder, self._memory = folder, memory
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed by __exit__)
        self._added = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, body: bytes) -> None:
        """Add people, each with one envelope per slot."""
        bundles = np.frombuffer(body, dtype=np.uint8).reshape(-1, self._slots, self._size)
        if self._added + len(bundles) > self._people:
            raise ValueError(f"there must be {self._people} people, got more")
        for slot in range(self._slots):
            self._file.seek(self._place(slot, self._added))
            self._file.write(bundles[:, slot].tobytes())
        self._added += len(bundles)

    def mix(self) -> None:
        """Mix each slot; call it once all people are added."""
        if self._added != self._people:
            raise ValueError(f"there must be {self._people} people, got {self._added}")
        for slot in range(self._slots):
            if self._people * self._size <= self._memory:
                self._write(slot, 0, _mixed(self._read(slot, 0, self._people)))
            else:
                self._mix_in_buckets(slot)

    def parts(self, slot: int, most_bytes: int) -> Iterator[bytes]:
        """Iterate over a slot's envelopes in their present order, in pieces of at most this many bytes."""
        step = max(1, most_bytes // self._size)
        for start in range(0, self._people, step):
            yield self._read(slot, start, min(step, self._people - start)).tobytes()

    def _mix_in_buckets(self, slot: int) -> None:
        # Half full on average, so it is very unlikely that a bucket exceeds the memory limit.
        buckets = min(_MOST_BUCKETS, 1 << (2 * self._people * self._size // self._memory).bit_length())
        with ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile(dir=self._folder)) for _ in range(buckets)]
            step = max(1, self._memory // self._size // 2)
            for start in range(0, self._people, step):
                some = self._read(slot, start, min(step, self._people - start))
                # A power of two: every bucket is equally likely, exactly.
                chosen = SecureBits().words(len(some)) & np.uint64(buckets - 1)
                order = np.argsort(chosen, kind="stable")
                ends = np.cumsum(np.bincount(chosen.astype(np.int64), minlength=buckets))
                for file, group in zip(files, np.split(some[order], ends[:-1]), strict=True):
                    file.write(group.tobytes())
            place = 0
            for file in files:
                file.seek(0)
                bucket = np.frombuffer(file.read(), dtype=np.uint8).reshape(-1, self._size)
                self._write(slot, place, _mixed(bucket))
                place += len(bucket)

    def _place(self, slot: int, person: int) -> int:
        return (slot * self._people + person) * self._size

    def _read(self, slot: int, start: int, count: int) -> NDArray[np.uint8]:
        self._file.seek(self._place(slot, start))
        return np.frombuffer(self._file.read(count * self._size), dtype=np.uint8).reshape(count, self._size)

    def _write(self, slot: int, start: int, envelopes: NDArray[np.uint8]) -> None:
        self._file.seek(self._place(slot, start))
        self._file.write(envelopes.tobytes())


def permutation(count: int) -> NDArray[np.int64]:
    """Return a uniformly random permutation, from the operating system's randomness.

    It sorts independent 64-bit numbers; if two are equal, all are drawn again, so every order is equally likely.
    """
    while True:
        drawn = SecureBits().words(count)
        order = np.argsort(drawn)
        if not np.any(drawn[order[1:]] == drawn[order[:-1]]):
            return order


def _mixed(envelopes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return envelopes[permutation(len(envelopes))]
