"""Encoding the vectors of files, a bounded piece at a time."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sstq.mechanisms.base import LocalReport, Mechanism
from sstq.messages.batch import Messages
from sstq.messages.vectors import VectorFile
from sstq.randomness.secret import RngLike, bit_source


def encode_files(
    mechanism: Mechanism,
    files: Iterable[VectorFile],
    rng: RngLike = None,
    *,
    clients: NDArray[np.uint64] | None = None,
    groups: NDArray[np.int64] | None = None,
    report: LocalReport | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[Messages]:
    """Yield the messages of files, a bounded piece at a time; `advance` is called with the size of each piece.

    Slots come one after the other, as in `Mechanism.encode`, so files are read once per slot. Files that were opened
    with a column of public labels yield these with the messages; a file's column of private groups takes the place of
    `groups`.
    """
    source, several = bit_source(rng), list(files)
    for slot in range(mechanism.messages):
        start = 0
        for file in several:
            first = start
            for rows, labels, secret in file.pieces():
                ids, given = (None if of is None else of[start : start + len(rows)] for of in (clients, groups))
                try:
                    held = mechanism._held(rows, given if secret is None else secret)
                except ValueError as error:
                    raise ValueError(f"{file.name}, from row {start - first} on: {error}") from error
                # Each vector is reported once.
                once = report if slot == 0 else None
                yield replace(mechanism._encode_slots(held, source, ids, once, slots=1), labels=labels)
                start += len(rows)
                advance(len(rows))
