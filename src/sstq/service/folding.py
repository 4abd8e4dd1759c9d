"""Folding: turns stored uploads into partial states and merges these, each step in one transaction.

A step reads rows, computes, and replaces the rows by the result. So a crash leaves either the rows or the result.
On PostgreSQL the rows are locked meanwhile, and other processes take other rows. SQLite has one lock for all
writers, which is not held that long: the step reads a snapshot, and replaces the rows only if all still exist.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sstq.mechanisms import Mechanism
from sstq.messages.batch import Messages
from sstq.service import bodies
from sstq.service import pieces as parts
from sstq.service.database import Database, arrivals, campaigns, pieces, uploads
from sstq.service.pieces import Piece

# Bytes unpacked at a time; several of these go into one piece if states are large.
_TAKEN_UPLOADS, _TAKEN_MESSAGES, _TAKEN_BYTES = 4096, 1 << 20, 1 << 22
_STATE_SHARE = 4  # a fold reads a quarter as many bytes of messages as the state it writes


@dataclass(frozen=True)
class _Step:
    """The rows of a table, by their last primary key column, and the pieces that replace them."""

    gone: list[bytes]
    pieces: list[Piece]
    messages: int


class _TakenByAnother(Exception):  # noqa: N818
    """Another process has already replaced the rows."""


def fold(database: Database, name: str, mechanism: Mechanism, hour: int, most_bytes: int = parts.MOST_BYTES) -> int:
    """Fold some of a campaign's uploads into a partial state; returns the number of messages, 0 if none wait."""

    def take(connection: sa.Connection) -> _Step:
        _hold(connection, name)
        aggregator = mechanism.aggregator()
        enough = max(_TAKEN_BYTES, aggregator.sums().nbytes // _STATE_SHARE)
        keys: list[bytes] = []
        size = 0
        for wanted in _batches(connection, name, mechanism.message_bits):
            rows = _take_uploads(connection, name, wanted)
            if rows:
                aggregator.update(_messages(mechanism, rows))
            keys += [key for key, _, _ in rows]
            size += sum(len(body) for _, _, body in rows)
            if size >= enough:
                break
        form = parts.form_of(aggregator)
        found = parts.cut(form, aggregator.sums(), 0, form.root, aggregator.count, most_bytes)
        return _Step(keys, found if keys else [], aggregator.count)

    def put(connection: sa.Connection, step: _Step) -> None:
        _replace(connection, name, uploads, uploads.c.key, step)
        _count_arrivals(connection, name, hour, step.messages)

    return _exchange(database, take, put)


def merge(database: Database, name: str, mechanism: Mechanism, most_bytes: int = parts.MOST_BYTES) -> int:
    """Merge two pieces of one range and level; returns by how many the pieces were reduced, 0 if nothing was to do.

    Two processes may find the same pair; then one of them returns 0 although there may be others to merge.
    """
    form = parts.form_of(mechanism.aggregator())

    def take(connection: sa.Connection) -> _Step:
        _hold(connection, name)
        table = pieces.c
        alike = sa.select(table.first, table.width, table.level).where(table.campaign == name)
        alike = alike.group_by(table.first, table.width, table.level).having(sa.func.count() > 1)
        found = connection.execute(alike.order_by(table.level).limit(1)).one_or_none()
        if found is None:
            return _Step([], [], 0)
        both = sa.select(pieces).where(
            table.campaign == name,
            table.first == found.first,
            table.width == found.width,
            table.level == found.level,
        )
        rows = connection.execute(both.limit(2).with_for_update(skip_locked=True)).all()
        if len(rows) < 2:
            return _Step([], [], 0)
        one, other = (Piece(row.first, row.width, row.level, row.messages, row.sums) for row in rows)
        made = parts.added(form, one, other, most_bytes)
        return _Step([bytes(row.identity) for row in rows], made, len(rows))

    def put(connection: sa.Connection, step: _Step) -> None:
        _replace(connection, name, pieces, pieces.c.identity, step)

    return _exchange(database, take, put)


def _exchange(
    database: Database,
    take: Callable[[sa.Connection], _Step],
    put: Callable[[sa.Connection, _Step], None],
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
    except _TakenByAnother:
        return 0
    return step.messages


def _hold(connection: sa.Connection, name: str) -> None:
    """Make deletion of the campaign wait until this transaction ends, so that no piece is left behind."""
    query = sa.select(campaigns.c.name).where(campaigns.c.name == name)
    connection.execute(query.with_for_update(read=True, key_share=True))


def _replace(connection: sa.Connection, name: str, table: sa.Table, key: sa.Column[Any], step: _Step) -> None:
    gone = 0
    for start in range(0, len(step.gone), _TAKEN_UPLOADS):
        some = step.gone[start : start + _TAKEN_UPLOADS]
        gone += connection.execute(table.delete().where(table.c.campaign == name, key.in_(some))).rowcount
    if gone != len(step.gone):
        raise _TakenByAnother
    for piece in step.pieces:
        row = {"campaign": name, "identity": secrets.token_bytes(16), **vars(piece)}
        connection.execute(pieces.insert(), row)


def _count_arrivals(connection: sa.Connection, name: str, hour: int, messages: int) -> None:
    # Last in its transaction: another process that folds in the same hour waits for this row.
    table = arrivals.c
    more = arrivals.update().where(table.campaign == name, table.hour == hour)
    if not connection.execute(more.values(messages=table.messages + messages)).rowcount:
        connection.execute(arrivals.insert(), {"campaign": name, "hour": hour, "messages": messages})


def _batches(connection: sa.Connection, name: str, message_bits: int) -> Iterator[list[bytes]]:
    """Iterate over the keys of a campaign's waiting uploads, in groups that are unpacked at once.

    The order starts at a random key, so that two processes rarely take the same ones.
    """
    start = secrets.token_bytes(16)
    for here in (uploads.c.key >= start, uploads.c.key < start):
        last = b""
        while True:
            query = sa.select(uploads.c.key, uploads.c.messages).where(uploads.c.campaign == name, here)
            query = query.where(uploads.c.key > last).order_by(uploads.c.key).limit(_TAKEN_UPLOADS)
            rows = connection.execute(query).all()
            if not rows:
                break
            batch: list[bytes] = []
            taken = 0
            for row in rows:
                batch.append(bytes(row.key))
                taken += row.messages
                if taken >= _TAKEN_MESSAGES or taken * message_bits >= 8 * _TAKEN_BYTES:
                    break
            last = batch[-1]
            yield batch


def _take_uploads(connection: sa.Connection, name: str, keys: Sequence[bytes]) -> list[tuple[bytes, int, bytes]]:
    table = uploads.c
    query = sa.select(table.key, table.messages, table.body).where(table.campaign == name, table.key.in_(keys))
    rows = connection.execute(query.with_for_update(skip_locked=True))
    return [(bytes(key), messages, bytes(body)) for key, messages, body in rows]


def _messages(mechanism: Mechanism, rows: Sequence[tuple[bytes, int, bytes]]) -> Messages:
    """The messages of many rows as one batch."""
    joined = bodies.join(mechanism, [(count, body) for _, count, body in rows])
    return Messages.concatenate([mechanism.messages_from_bytes(body, count) for count, body in joined])
