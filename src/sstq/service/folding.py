"""Folding: turns stored uploads into partial states (pieces) and merges these.

A step reads rows and computes what replaces them, in any process; another transaction then replaces them, if all still
exist. So a crash leaves either the rows or the result.

A state is an array of integers, one row per number: all numbers below a limit (dense), or those that occur (sparse,
the number in the first column). It is the sum of all pieces. Two pieces are added when their sizes have the same power
of two (their level), so a row is rewritten only as often as the size of its piece doubles; a sparse piece that is large
enough stays as it is.
"""

import secrets
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from sstq.aggregation import Aggregator, Estimate
from sstq.aggregation.sparse_counts import condensed
from sstq.mechanisms import Mechanism
from sstq.messages.batch import Messages
from sstq.service.database import (
    Database,
    UnknownCampaign,
    arrivals,
    delete_keys,
    pieces,
    uploads,
)

MOST_BYTES = 1 << 26
"""A sparse piece of this size in memory is not merged any more: values of a database are limited to one gigabyte."""

# What is unpacked at a time; several of these go into one piece if states are large.
_TAKEN_UPLOADS = 4096
_TAKEN_BYTES = 1 << 22
_STREAM = {"yield_per": 8}  # rows in memory, each of up to 32 MB
# a fold reads a quarter as many bytes of messages as the state it writes
_STATE_SHARE = 4

Sums = NDArray[np.int64]


class Step(NamedTuple):
    """A new piece, and the keys of what it replaces: uploads, or other pieces if none is `folded`."""

    gone: list[bytes]
    piece: dict[str, Any]
    folded: int


class Form:
    """How the sums of such aggregators are stored.

    Dense: all rows as little-endian 64-bit integers. Sparse: each column in its narrowest unsigned type; three bytes
    name the types. The messages of all pieces add up to the campaign's.
    """

    def __init__(self, aggregator: Aggregator[Estimate]) -> None:
        self.sparse = aggregator.estimator.sparse
        self._columns = aggregator.sums().shape[1]

    def encode(self, sums: Sums) -> bytes:
        """Encode the sums as bytes."""
        if not self.sparse:
            return sums.astype("<i8", copy=False).tobytes()
        types = [
            np.min_scalar_type(column.max(initial=0)).newbyteorder("<")
            for column in sums.T
        ]
        packed = [
            column.astype(kind).tobytes()
            for column, kind in zip(sums.T, types, strict=True)
        ]
        return b"".join([bytes(kind.itemsize for kind in types), *packed])

    def decode(self, raw: bytes) -> Sums:
        """Decode what `encode` wrote."""
        if not self.sparse:
            return np.frombuffer(raw, dtype="<i8").reshape(-1, self._columns)
        sizes = list(raw[:3])
        rows = (len(raw) - 3) // sum(sizes)
        sums = np.empty((rows, 3), dtype=np.int64)
        place = 3
        for column, size in enumerate(sizes):
            sums[:, column] = np.frombuffer(
                raw, dtype=f"<u{size}", count=rows, offset=place
            )
            place += rows * size
        return sums

    def piece(self, sums: Sums, messages: int) -> dict[str, Any]:
        """Return the columns of a piece of sums."""
        return {
            "level": sums.nbytes.bit_length(),
            "messages": messages,
            "sums": self.encode(sums),
        }


def fold(database: Database, name: str, mechanism: Mechanism) -> Step | None:
    """Fold some of a campaign's uploads into a piece; None if none wait."""

    def work(connection: sa.Connection) -> Step | None:
        aggregator = mechanism.aggregator()
        enough = max(_TAKEN_BYTES, aggregator.sums().nbytes // _STATE_SHARE)
        keys: list[bytes] = []
        size = 0
        for rows in _waiting(connection, name):
            found = [
                mechanism.messages_from_bytes(bytes(row.body), row.messages)
                for row in rows
            ]
            aggregator.update(Messages.concatenate(found))
            keys += [bytes(row.key) for row in rows]
            size += sum(len(row.body) for row in rows)
            if size >= enough:
                break
        if not keys:
            return None
        return Step(
            keys,
            Form(aggregator).piece(aggregator.sums(), aggregator.count),
            aggregator.count,
        )

    return database.read(work)


def merge(database: Database, name: str, mechanism: Mechanism) -> Step | None:
    """Merge two pieces of one level; None if no two are alike."""
    form = Form(mechanism.aggregator())
    level = pieces.c.level
    mine = pieces.c.campaign == name
    small = level < MOST_BYTES.bit_length() if form.sparse else sa.true()
    alike = (
        sa.select(level)
        .where(mine, small)
        .group_by(level)
        .having(sa.func.count() > 1)
        .order_by(level)
        .limit(1)
    )
    query = sa.select(pieces).where(mine, level == alike.scalar_subquery()).limit(2)

    def work(connection: sa.Connection) -> Step | None:
        both = connection.execute(query).all()
        if not both:
            return None
        one, other = (form.decode(row.sums) for row in both)
        sums = condensed(np.concatenate([one, other])) if form.sparse else one + other
        return Step(
            [bytes(row.key) for row in both],
            form.piece(sums, sum(row.messages for row in both)),
            0,
        )

    return database.read(work)


def keep(connection: sa.Connection, name: str, step: Step, hour: int) -> None:
    """Replace the rows of a step by its piece; UnknownCampaign if they are gone with their campaign."""
    replaced = uploads if step.folded else pieces
    if delete_keys(connection, replaced.c.key, name, step.gone) < len(step.gone):
        raise UnknownCampaign(f"the campaign {name!r} was deleted")
    connection.execute(
        pieces.insert(),
        {"campaign": name, "key": secrets.token_bytes(16), **step.piece},
    )
    if step.folded:
        _count_arrivals(connection, name, hour, step.folded)


def state(
    connection: sa.Connection, name: str, mechanism: Mechanism
) -> Aggregator[Estimate]:
    """Return the sum of a campaign's pieces, one of which is in memory at a time."""
    total = mechanism.aggregator()
    form = Form(total)
    query = sa.select(pieces.c.messages, pieces.c.sums).where(pieces.c.campaign == name)
    for row in connection.execute(query, execution_options={"yield_per": 1}):
        total.merge(
            type(total).from_sums(
                mechanism.estimator, form.decode(row.sums), row.messages
            )
        )
    return total


def _count_arrivals(
    connection: sa.Connection, name: str, hour: int, messages: int
) -> None:
    table = arrivals.c
    more = arrivals.update().where(table.campaign == name, table.hour == hour)
    if not connection.execute(more.values(messages=table.messages + messages)).rowcount:
        connection.execute(
            arrivals.insert(), {"campaign": name, "hour": hour, "messages": messages}
        )


def _waiting(connection: sa.Connection, name: str) -> Iterator[list[sa.Row[Any]]]:
    """Iterate over a campaign's waiting uploads, in groups that are unpacked at once."""
    taken = []
    size = 0
    query = sa.select(uploads).where(uploads.c.campaign == name)
    with connection.execute(query, execution_options=_STREAM) as found:
        for row in found:
            taken.append(row)
            size += len(row.body)
            if len(taken) == _TAKEN_UPLOADS or size >= _TAKEN_BYTES:
                yield taken
                taken = []
                size = 0
    if taken:
        yield taken
