"""Folding: turns stored uploads into partial states (pieces) and merges these, each step in one transaction.

A step reads rows, computes, and replaces the rows by the result. So a crash leaves either the rows or the result.
On PostgreSQL the rows are locked meanwhile, and other processes take other rows. SQLite has one lock for all
writers, which is not held that long: the step reads a snapshot, and replaces the rows only if all still exist.

A state is an array of integers, one row per number: all numbers below a limit (dense), or those that occur (sparse,
the number in the first column). It is the sum of all pieces. Two pieces are added when their sizes have the same power
of two (their level), so a row is rewritten only as often as the size of its piece doubles; a sparse piece that is large
enough stays as it is.
"""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from sstq.aggregation import Aggregator
from sstq.aggregation.sparse_counts import condensed
from sstq.mechanisms import Mechanism
from sstq.messages.batch import Messages
from sstq.service.database import Database, arrivals, delete_keys, hold, pieces, uploads

MOST_BYTES = 1 << 26
"""A sparse piece of this size in memory is not merged any more: values of a database are limited to one gigabyte."""

# What is unpacked at a time; several of these go into one piece if states are large.
_TAKEN_UPLOADS, _TAKEN_BYTES = 4096, 1 << 22
_STREAM = {"yield_per": 8}  # rows in memory, each of up to 32 MB
_STATE_SHARE = 4  # a fold reads a quarter as many bytes of messages as the state it writes

Sums = NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """Sums of the numbers from `first` on, as the database has them; earlier releases made pieces of part of a state.

    The `messages` of all pieces add up to the campaign's.
    """

    first: int
    width: int
    level: int
    messages: int
    sums: bytes


class Form:
    """How the sums of such aggregators are stored.

    Dense: all rows as little-endian 64-bit integers. Sparse: each column in its narrowest unsigned type, numbers
    relative to `first`; three bytes name the types.
    """

    def __init__(self, aggregator: Aggregator) -> None:
        self.sparse, self._columns = aggregator.sparse, aggregator.sums().shape[1]
        self._width = 1 << (aggregator.numbers - 1).bit_length()

    def encode(self, sums: Sums, first: int) -> bytes:
        """Encode the sums as bytes."""
        if not self.sparse:
            return sums.astype("<i8", copy=False).tobytes()
        columns = [sums[:, 0] - first, sums[:, 1], sums[:, 2]]
        types = [np.min_scalar_type(column.max(initial=0)).newbyteorder("<") for column in columns]
        packed = [column.astype(kind).tobytes() for column, kind in zip(columns, types, strict=True)]
        return b"".join([bytes(kind.itemsize for kind in types), *packed])

    def decode(self, raw: bytes, first: int) -> Sums:
        """Decode what `encode` wrote."""
        if not self.sparse:
            return np.frombuffer(raw, dtype="<i8").reshape(-1, self._columns)
        sizes = list(raw[:3])
        rows = (len(raw) - 3) // sum(sizes)
        sums = np.empty((rows, 3), dtype=np.int64)
        place = 3
        for column, size in enumerate(sizes):
            sums[:, column] = np.frombuffer(raw, dtype=f"<u{size}", count=rows, offset=place)
            place += rows * size
        sums[:, 0] += first
        return sums

    def piece(self, sums: Sums, messages: int) -> Piece:
        """Make a piece of sums."""
        return Piece(0, self._width, sums.nbytes.bit_length(), messages, self.encode(sums, 0))

    def add(self, one: Piece, other: Piece) -> Piece:
        """Add two pieces."""
        both = [self.decode(piece.sums, piece.first) for piece in (one, other)]
        sums = condensed(np.concatenate(both)) if self.sparse else both[0] + both[1]
        return self.piece(sums, one.messages + other.messages)


@dataclass(frozen=True)
class _Step:
    """The rows of a table, by their last primary key column, the piece that replaces them, and its new messages."""

    gone: list[bytes]
    piece: Piece
    messages: int


class TakenByAnother(Exception):  # noqa: N818
    """Another process has already replaced the rows."""


def fold(database: Database, name: str, mechanism: Mechanism, hour: int) -> int:
    """Fold some of a campaign's uploads into a partial state; returns the number of messages, 0 if none wait."""

    def take(connection: sa.Connection) -> _Step | None:
        hold(connection, name)
        aggregator = mechanism.aggregator()
        enough = max(_TAKEN_BYTES, aggregator.sums().nbytes // _STATE_SHARE)
        keys: list[bytes] = []
        size = 0
        for rows in _waiting(connection, name):
            found = [mechanism.messages_from_bytes(bytes(row.body), row.messages) for row in rows]
            aggregator.update(Messages.concatenate(found))
            keys += [bytes(row.key) for row in rows]
            size += sum(len(row.body) for row in rows)
            if size >= enough:
                break
        if not keys:
            return None
        return _Step(keys, Form(aggregator).piece(aggregator.sums(), aggregator.count), aggregator.count)

    def put(connection: sa.Connection, step: _Step) -> None:
        _replace(connection, name, uploads.c.key, step)
        _count_arrivals(connection, name, hour, step.messages)

    return _exchange(database, take, put)


def merge(database: Database, name: str, mechanism: Mechanism) -> int:
    """Merge two pieces of one level; returns 0 if there was nothing to do.

    Two processes may find the same pair; then one of them returns 0 although there may be others to merge.
    """
    alike = (pieces.c.first, pieces.c.width, pieces.c.level)
    form = Form(mechanism.aggregator())
    small = pieces.c.level < MOST_BYTES.bit_length() if form.sparse else sa.true()

    def take(connection: sa.Connection) -> _Step | None:
        hold(connection, name)
        query = sa.select(*alike).where(pieces.c.campaign == name, small).group_by(*alike).having(sa.func.count() > 1)
        found = connection.execute(query.order_by(pieces.c.level).limit(1)).one_or_none()
        if found is None:
            return None
        same = (column == own for column, own in zip(alike, found, strict=True))
        both = sa.select(pieces).where(pieces.c.campaign == name, *same).limit(2)
        rows = connection.execute(both.with_for_update(skip_locked=True)).all()
        if len(rows) < 2:
            return None
        one, other = (Piece(row.first, row.width, row.level, row.messages, row.sums) for row in rows)
        return _Step([bytes(row.identity) for row in rows], form.add(one, other), len(rows))

    return _exchange(database, take, lambda connection, step: _replace(connection, name, pieces.c.identity, step))


def state(connection: sa.Connection, name: str, mechanism: Mechanism) -> Aggregator:
    """Return the sum of a campaign's pieces, one of which is in memory at a time."""
    total = mechanism.aggregator()
    form = Form(total)
    query = sa.select(pieces.c.first, pieces.c.messages, pieces.c.sums).where(pieces.c.campaign == name)
    for row in connection.execute(query, execution_options={"yield_per": 1}):
        total.merge(type(total).from_sums(mechanism, form.decode(row.sums, row.first), row.messages))
    return total


def _exchange(
    database: Database, take: Callable[[sa.Connection], _Step | None], put: Callable[[sa.Connection, _Step], None]
) -> int:
    def work(connection: sa.Connection) -> _Step | None:
        step = take(connection)
        if step is not None:
            put(connection, step)
        return step

    if not database.sqlite:
        step = database.write(work)
        return 0 if step is None else step.messages
    step = database.read(take)
    if step is None:
        return 0
    try:
        database.write(lambda connection: put(connection, step))
    except TakenByAnother:
        return 0
    return step.messages


def _replace(connection: sa.Connection, name: str, key: sa.Column[Any], step: _Step) -> None:
    if delete_keys(connection, key, name, step.gone) != len(step.gone):
        raise TakenByAnother
    row = {"campaign": name, "identity": secrets.token_bytes(16), **vars(step.piece)}
    connection.execute(pieces.insert(), row)


def _count_arrivals(connection: sa.Connection, name: str, hour: int, messages: int) -> None:
    # Last in its transaction: another process that folds in the same hour waits for this row.
    table = arrivals.c
    more = arrivals.update().where(table.campaign == name, table.hour == hour)
    if not connection.execute(more.values(messages=table.messages + messages)).rowcount:
        connection.execute(arrivals.insert(), {"campaign": name, "hour": hour, "messages": messages})


def _waiting(connection: sa.Connection, name: str) -> Iterator[list[sa.Row[Any]]]:
    """Iterate over a campaign's waiting uploads, in groups that are unpacked at once.

    The order starts at a random key, so that two processes rarely take the same ones.
    """
    start = secrets.token_bytes(16)
    table, taken, size = uploads.c, [], 0
    for here in (table.key >= start, table.key < start):
        query = sa.select(uploads).where(table.campaign == name, here).order_by(table.key)
        with connection.execute(query.with_for_update(skip_locked=True), execution_options=_STREAM) as found:
            for row in found:
                taken.append(row)
                size += len(row.body)
                if len(taken) == _TAKEN_UPLOADS or size >= _TAKEN_BYTES:
                    yield taken
                    taken, size = [], 0
    if taken:
        yield taken
