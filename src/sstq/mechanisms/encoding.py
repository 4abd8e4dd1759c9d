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
                stop = start + len(rows)
                ids = None if clients is None else clients[start:stop]
                if secret is None and groups is not None:
                    secret = groups[start:stop]
                try:
                    whole = mechanism._held(rows, secret)
                except ValueError as error:
                    raise ValueError(f"{file.name}, from row {start - first} on: {error}") from error
                # Each vector is reported once.
                once = report if slot == 0 else None
                yield replace(mechanism._encode_slots(whole, source, ids, once, slots=1), labels=labels)
                start = stop
                advance(len(rows))
