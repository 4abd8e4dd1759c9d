"""A campaign's state assembled from its pieces: as an aggregator, or as a file in little memory."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from sstq.aggregation import Aggregator, write_state
from sstq.mechanisms import Mechanism
from sstq.service.database import pieces
from sstq.service.pieces import Form, Sums, form_of

_COLUMNS = 3  # columns of sparse sums


def state(connection: sa.Connection, name: str, mechanism: Mechanism) -> Aggregator[Any]:
    """Return the sum of a campaign's pieces as an aggregator."""
    total = mechanism.aggregator()
    form = form_of(total)
    count, sums = 0, total.sums().copy()
    for row in _index(connection, name):
        part = _sums(connection, name, form, row)
        count += row.messages
        if total.sparse:
            total.merge(type(total).from_sums(mechanism, part, row.messages))
        else:
            sums[row.first : row.first + len(part)] += part
    return total if total.sparse else type(total).from_sums(mechanism, sums, count)


def save_state(connection: sa.Connection, name: str, mechanism: Mechanism, path: str | os.PathLike[str]) -> int:
    """Write what `Aggregator.save` would write, in memory of a few pieces; returns the number of messages."""
    empty = mechanism.aggregator()
    if not empty.sparse:
        total = state(connection, name, mechanism)
        total.save(path)
        return total.count
    count = 0
    with tempfile.TemporaryFile(dir=Path(path).parent) as spool:
        for sums in _in_order(connection, name, form_of(empty)):
            count += int(sums[:, 1:].sum())
            spool.write(sums.tobytes())
        spool.flush()
        rows = spool.tell() // (_COLUMNS * 8)
        kept = np.memmap(spool, np.int64, "r", shape=(rows, _COLUMNS)) if rows else empty.sums()
        write_state(path, kept, empty.digest, count)
    return count


def _index(connection: sa.Connection, name: str) -> list[Any]:
    """Return all pieces without their sums."""
    columns = (pieces.c.first, pieces.c.width, pieces.c.identity, pieces.c.messages)
    return list(connection.execute(sa.select(*columns).where(pieces.c.campaign == name)))


def _sums(connection: sa.Connection, name: str, form: Form, row: Any) -> Sums:
    key = (pieces.c.first == row.first, pieces.c.width == row.width, pieces.c.identity == row.identity)
    query = sa.select(pieces.c.sums).where(pieces.c.campaign == name, *key)
    return form.decode(connection.execute(query).scalar_one(), row.first)


def _in_order(connection: sa.Connection, name: str, form: Form) -> Iterator[Sums]:
    """Iterate over the rows of sparse sums in order, one range at a time; wide pieces are read again for each range."""
    index = _index(connection, name)
    for first, width in _ranges({(row.first, row.width) for row in index}, 0, form.root):
        total: Sums = np.zeros((0, _COLUMNS), dtype=np.int64)
        for row in index:
            if row.first <= first and first + width <= row.first + row.width:
                sums = _sums(connection, name, form, row)
                start, stop = np.searchsorted(sums[:, 0], [first, first + width])
                total = form.add(total, sums[start:stop])
        yield total


def _ranges(found: set[tuple[int, int]], first: int, width: int) -> Iterator[tuple[int, int]]:
    """Split a range, in order, until no piece covers only a part of it."""
    if not any(first <= begin and begin + size <= first + width and size < width for begin, size in found):
        yield first, width
        return
    for half in (first, first + width // 2):
        yield from _ranges(found, half, width // 2)
