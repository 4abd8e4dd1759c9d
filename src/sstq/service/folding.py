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

from sstq.aggregation import Aggregator
from sstq.mechanisms import Mechanism
from sstq.messages.batch import Messages
from sstq.service import bodies
from sstq.service import pieces as parts
from sstq.service.database import Database, arrivals, delete_keys, hold, pieces, uploads
from sstq.service.pieces import Piece

# What is unpacked at a time; several of these go into one piece if states are large.
_TAKEN_UPLOADS, _TAKEN_BYTES = 4096, 1 << 22
_STREAM = {"yield_per": 8}  # rows in memory, each of up to 32 MB
_STATE_SHARE = 4  # a fold reads a quarter as many bytes of messages as the state it writes


@dataclass(frozen=True)
class _Step:
    """The rows of a table, by their last primary key column, and the pieces that replace them."""

    gone: list[bytes]
    pieces: list[Piece]
    messages: int


class TakenByAnother(Exception):  # noqa: N818
    """Another process has already replaced the rows."""


def fold(database: Database, name: str, mechanism: Mechanism, hour: int, most_bytes: int = parts.MOST_BYTES) -> int:
    """Fold some of a campaign's uploads into a partial state; returns the number of messages, 0 if none wait."""

    def take(connection: sa.Connection) -> _Step:
        hold(connection, name)
        aggregator = mechanism.aggregator()
        enough = max(_TAKEN_BYTES, aggregator.sums().nbytes // _STATE_SHARE)
        keys: list[bytes] = []
        size = 0
        for rows in _waiting(connection, name):
            aggregator.update(_messages(mechanism, rows))
            keys += [bytes(row.key) for row in rows]
            size += sum(len(row.body) for row in rows)
            if size >= enough:
                break
        form = parts.form_of(aggregator)
        found = parts.cut(form, aggregator.sums(), 0, form.root, aggregator.count, most_bytes)
        return _Step(keys, found if keys else [], aggregator.count)

    def put(connection: sa.Connection, step: _Step) -> None:
        _replace(connection, name, uploads.c.key, step)
        _count_arrivals(connection, name, hour, step.messages)

    return _exchange(database, take, put)


def merge(database: Database, name: str, mechanism: Mechanism, most_bytes: int = parts.MOST_BYTES) -> int:
    """Merge two pieces of one range and level; returns by how many the pieces were reduced, 0 if nothing was to do.

    Two processes may find the same pair; then one of them returns 0 although there may be others to merge.
    """
    form = parts.form_of(mechanism.aggregator())
    alike = (pieces.c.first, pieces.c.width, pieces.c.level)

    def take(connection: sa.Connection) -> _Step:
        hold(connection, name)
        query = sa.select(*alike).where(pieces.c.campaign == name).group_by(*alike).having(sa.func.count() > 1)
        found = connection.execute(query.order_by(pieces.c.level).limit(1)).one_or_none()
        if found is None:
            return _Step([], [], 0)
        both = sa.select(pieces).where(
            pieces.c.campaign == name, *(column == own for column, own in zip(alike, found, strict=True))
        )
        rows = connection.execute(both.limit(2).with_for_update(skip_locked=True)).all()
        if len(rows) < 2:
            return _Step([], [], 0)
        one, other = (Piece(row.first, row.width, row.level, row.messages, row.sums) for row in rows)
        return _Step([bytes(row.identity) for row in rows], parts.added(form, one, other, most_bytes), len(rows))

    return _exchange(database, take, lambda connection, step: _replace(connection, name, pieces.c.identity, step))


def state(connection: sa.Connection, name: str, mechanism: Mechanism) -> Aggregator[Any]:
    """Return the sum of a campaign's pieces, one of which is in memory at a time."""
    total = mechanism.aggregator()
    form = parts.form_of(total)
    count, sums = 0, total.sums().copy()
    query = sa.select(pieces.c.first, pieces.c.messages, pieces.c.sums).where(pieces.c.campaign == name)
    for row in connection.execute(query, execution_options={"yield_per": 1}):
        part = form.decode(row.sums, row.first)
        count += row.messages
        if total.sparse:
            total.merge(type(total).from_sums(mechanism, part, row.messages))
        else:
            sums[row.first : row.first + len(part)] += part
    return total if total.sparse else type(total).from_sums(mechanism, sums, count)


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


def _messages(mechanism: Mechanism, rows: Sequence[sa.Row[Any]]) -> Messages:
    """The messages of many rows as one batch."""
    joined = bodies.join(mechanism, [(row.messages, bytes(row.body)) for row in rows])
    return Messages.concatenate([mechanism.messages_from_bytes(body, count) for count, body in joined])
