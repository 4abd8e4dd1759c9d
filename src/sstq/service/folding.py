"""Folding: turns stored uploads into partial states (pieces) and merges these, each step in one transaction.

A step reads rows, computes, and replaces the rows by the result. So a crash leaves either the rows or the result.
On PostgreSQL the rows are locked meanwhile, and other processes take other rows. SQLite has one lock for all
writers, which is not held that long: the step reads a snapshot, and replaces the rows only if all still exist.

A state is an array of integers, one row per number: all numbers below a limit (dense), or those that occur (sparse,
the number in the first column). A piece holds rows of one range of numbers, [first, first + width) with a power of two
as width. The state is the sum of all pieces, including pieces of different widths. Two pieces of the same range add up
to one, and a sparse piece that is too large is halved; a dense one has the whole range. Pieces are added when their
sizes have the same power of two (their level), so a row is rewritten only as often as the size of its piece doubles or
its range is halved.
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
"""The maximum size of a piece in memory, and so in the database, where values are limited to one gigabyte."""

# What is unpacked at a time; several of these go into one piece if states are large.
_TAKEN_UPLOADS, _TAKEN_BYTES = 4096, 1 << 22
_STREAM = {"yield_per": 8}  # rows in memory, each of up to 32 MB
_STATE_SHARE = 4  # a fold reads a quarter as many bytes of messages as the state it writes

Sums = NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """Sums of one range of numbers, as the database has them; `messages` of all pieces add up to the campaign's."""

    first: int
    width: int
    level: int
    messages: int
    sums: bytes


class Form:
    """How the sums of such aggregators are stored.

    Dense: all rows as little-endian 64-bit integers. Sparse: each column in its narrowest unsigned type, numbers
    relative to the start of the range; three bytes name the types.
    """

    def __init__(self, aggregator: Aggregator) -> None:
        self._sparse, self._columns = aggregator.sparse, aggregator.sums().shape[1]
        self.root = 1 << (aggregator.numbers - 1).bit_length()

    def encode(self, sums: Sums, first: int) -> bytes:
        """Encode the sums as bytes."""
        if not self._sparse:
            return sums.astype("<i8", copy=False).tobytes()
        columns = [sums[:, 0] - first, sums[:, 1], sums[:, 2]]
        types = [np.min_scalar_type(column.max(initial=0)).newbyteorder("<") for column in columns]
        packed = [column.astype(kind).tobytes() for column, kind in zip(columns, types, strict=True)]
        return b"".join([bytes(kind.itemsize for kind in types), *packed])

    def decode(self, raw: bytes, first: int) -> Sums:
        """Decode what `encode` wrote."""
        if not self._sparse:
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

    def cut(self, sums: Sums, first: int, width: int, messages: int, most_bytes: int) -> list[Piece]:
        """Cut the sums of a range into pieces, sparse ones of at most this many bytes."""
        if not self._sparse or sums.nbytes <= most_bytes or width == 1:
            return [Piece(first, width, sums.nbytes.bit_length(), messages, self.encode(sums, first))]
        middle = first + width // 2
        place = int(np.searchsorted(sums[:, 0], middle))
        lower = int(sums[:place, 1:].sum())
        halves = ((first, sums[:place], lower), (middle, sums[place:], messages - lower))
        found = [self.cut(half, begin, width // 2, own, most_bytes) for begin, half, own in halves if len(half)]
        return [piece for some in found for piece in some]

    def add(self, one: Piece, other: Piece, most_bytes: int) -> list[Piece]:
        """Add two pieces of one range."""
        both = [self.decode(piece.sums, piece.first) for piece in (one, other)]
        sums = condensed(np.concatenate(both)) if self._sparse else both[0] + both[1]
        return self.cut(sums, one.first, one.width, one.messages + other.messages, most_bytes)


@dataclass(frozen=True)
class _Step:
    """The rows of a table, by their last primary key column, and the pieces that replace them."""

    gone: list[bytes]
    pieces: list[Piece]
    messages: int


class TakenByAnother(Exception):  # noqa: N818
    """Another process has already replaced the rows."""


def fold(database: Database, name: str, mechanism: Mechanism, hour: int, most_bytes: int = MOST_BYTES) -> int:
    """Fold some of a campaign's uploads into a partial state; returns the number of messages, 0 if none wait."""

    def take(connection: sa.Connection) -> _Step:
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
        form = Form(aggregator)
        made = form.cut(aggregator.sums(), 0, form.root, aggregator.count, most_bytes) if keys else []
        return _Step(keys, made, aggregator.count)

    def put(connection: sa.Connection, step: _Step) -> None:
        _replace(connection, name, uploads.c.key, step)
        _count_arrivals(connection, name, hour, step.messages)

    return _exchange(database, take, put)


def merge(database: Database, name: str, mechanism: Mechanism, most_bytes: int = MOST_BYTES) -> int:
    """Merge two pieces of one range and level; returns by how many the pieces were reduced, 0 if nothing was to do.

    Two processes may find the same pair; then one of them returns 0 although there may be others to merge.
    """
    alike = (pieces.c.first, pieces.c.width, pieces.c.level)

    def take(connection: sa.Connection) -> _Step:
        hold(connection, name)
        query = sa.select(*alike).where(pieces.c.campaign == name).group_by(*alike).having(sa.func.count() > 1)
        found = connection.execute(query.order_by(pieces.c.level).limit(1)).one_or_none()
        if found is None:
            return _Step([], [], 0)
        same = (column == own for column, own in zip(alike, found, strict=True))
        both = sa.select(pieces).where(pieces.c.campaign == name, *same).limit(2)
        rows = connection.execute(both.with_for_update(skip_locked=True)).all()
        if len(rows) < 2:
            return _Step([], [], 0)
        one, other = (Piece(row.first, row.width, row.level, row.messages, row.sums) for row in rows)
        made = Form(mechanism.aggregator()).add(one, other, most_bytes)
        return _Step([bytes(row.identity) for row in rows], made, len(rows))

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
    database: Database, take: Callable[[sa.Connection], _Step], put: Callable[[sa.Connection, _Step], None]
) -> int:
    def work(connection: sa.Connection) -> int:
        step = take(connection)
        if step.gone:
            put(connection, step)
        return step.messages

    if not database.sqlite:
        return database.write(work)
    step = database.read(take)
    try:
        if step.gone:
            database.write(lambda connection: put(connection, step))
    except TakenByAnother:
        return 0
    return step.messages


def _replace(connection: sa.Connection, name: str, key: sa.Column[Any], step: _Step) -> None:
    if delete_keys(connection, key, name, step.gone) != len(step.gone):
        raise TakenByAnother
    rows = [{"campaign": name, "identity": secrets.token_bytes(16), **vars(piece)} for piece in step.pieces]
    connection.execute(pieces.insert(), rows)


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
