"""Crowds in the shuffler's database: waiting envelopes become mixed batches, in one transaction.

A row of waiting envelopes holds those of one crowd that were stored in one transaction: the crowd's name, which is a
hash of the terms that its people agreed to and of the key they sealed for (`Campaign.crowd`), and then the envelopes
of every person, slot by slot. The collector could tell different crowds apart, so they are never mixed together.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from sstq.client.campaigns import Campaign
from sstq.client.sealing import CROWD_BYTES
from sstq.mechanisms import Mechanism
from sstq.randomness.secret import SecureBits
from sstq.service.batches import CROWD_NAME_BYTES, LARGEST_PART
from sstq.service.database import Database, outgoing, uploads
from sstq.service.folding import TakenByAnother
from sstq.service.receiving import Checked, Packed

_crowd = sa.func.substr(uploads.c.body, 1, CROWD_BYTES, type_=sa.LargeBinary)


def joined_by_crowd(_: Mechanism, packed: Sequence[Packed]) -> Checked:
    """Join uploads into one body per crowd; a shuffler cannot see anything wrong with them."""
    found: dict[bytes, tuple[int, list[bytes]]] = {}
    for count, body in packed:
        crowd = body[:CROWD_BYTES]
        people, bodies = found.get(crowd, (0, [crowd]))
        bodies.append(body[CROWD_BYTES:])
        found[crowd] = (people + count, bodies)
    return [(people, b"".join(bodies)) for people, bodies in found.values()], {}


class Crowd(NamedTuple):
    """People whose envelopes wait in so many rows of the database; its name is in hexadecimal."""

    name: str
    rows: int
    people: int


def waiting(database: Database, name: str) -> list[Crowd]:
    """The crowds of a campaign."""
    crowd = _crowd.label("crowd")
    query = sa.select(crowd, sa.func.count(), sa.func.sum(uploads.c.messages)).where(uploads.c.campaign == name)
    return [Crowd(bytes(own).hex(), rows, int(people)) for own, rows, people in database.rows(query.group_by(crowd))]


def _of(name: str, crowd: Crowd) -> sa.ColumnElement[bool]:
    return sa.and_(uploads.c.campaign == name, _crowd == bytes.fromhex(crowd.name))


def drop(database: Database, name: str, crowd: Crowd) -> bool:
    """Delete a crowd's envelopes; returns False if another process was faster."""
    return _replace(database, name, crowd, lambda _: None)


def forward_later(database: Database, campaign: Campaign, crowd: Crowd, folder: str | None) -> bool:
    """Replace a crowd's envelopes by mixed batches, one per slot; returns False if another process was faster.

    One transaction: a crash leaves either the envelopes as they came or the batches, and nothing that connects the
    two. The envelopes pass through a file without a name, which disappears however the process ends: memory holds 24
    bytes per person, and the system's cache as much of the file as fits.
    """
    query = sa.select(uploads.c.body).where(_of(campaign.name, crowd))

    def fill(connection: sa.Connection) -> int:
        file.truncate(file.seek(0))
        with connection.execute(query, execution_options={"yield_per": 8}).scalars() as bodies:
            return sum(file.write(bytes(body)[CROWD_BYTES:]) for body in bodies)

    with tempfile.TemporaryFile(dir=folder) as file:
        if database.read(fill) != crowd.people * campaign.slots * campaign.envelope_bytes:  # somebody came meanwhile
            return False
        file.flush()
        return _replace(database, campaign.name, crowd, lambda connection: _store(connection, campaign, crowd, file))


def _store(connection: sa.Connection, campaign: Campaign, crowd: Crowd, file: IO[bytes]) -> None:
    name, size = secrets.token_bytes(CROWD_NAME_BYTES), campaign.envelope_bytes
    shape, each = (crowd.people, campaign.slots, size), LARGEST_PART // size
    for slot in range(campaign.slots):
        for number, body in enumerate(mixed(file, shape, slot, each)):
            part = {
                "campaign": campaign.name,
                "batch": name + slot.to_bytes(4, "big"),
                "part": number,
                "slot": slot,
                "sealing_key": crowd.name,
                "size": crowd.people,
                "parts": -(-crowd.people // each),
                "count": len(body) // size,
                "body": body,
            }
            connection.execute(outgoing.insert(), part)


def mixed(file: IO[bytes], shape: tuple[int, int, int], slot: int, each: int) -> Iterator[bytes]:
    """Iterate over the envelopes of a slot in random order, in pieces of this many.

    The file holds them by person and slot; the shape is people, slots and bytes of an envelope.
    """
    envelopes, order = np.memmap(file, np.uint8, "r", shape=shape), permutation(shape[0])
    for start in range(0, shape[0], each):
        yield envelopes[order[start : start + each], slot].tobytes()


def permutation(count: int) -> NDArray[np.int64]:
    """Return a uniformly random permutation, from the operating system's randomness.

    It sorts independent 64-bit numbers; if two are equal, all are drawn again, so every order is equally likely.
    """
    while True:
        drawn = SecureBits().words(count)
        order = np.argsort(drawn)
        if not np.any(drawn[order[1:]] == drawn[order[:-1]]):
            return order


def _replace(database: Database, name: str, crowd: Crowd, put: Callable[[sa.Connection], None]) -> bool:
    def work(connection: sa.Connection) -> None:
        if connection.execute(uploads.delete().where(_of(name, crowd))).rowcount != crowd.rows:
            raise TakenByAnother
        put(connection)

    try:
        database.write(work)
    except TakenByAnother:
        return False
    return True


def _mine(part: Mapping[str, Any]) -> sa.ColumnElement[bool]:
    return sa.and_(*(column == part[column.name] for column in outgoing.primary_key))


def outgoing_parts(database: Database, name: str) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of parts that the collector has not acknowledged, one in memory at a time."""
    for key in database.rows(sa.select(*outgoing.primary_key).where(outgoing.c.campaign == name)):
        for row in database.rows(sa.select(outgoing).where(_mine(key._mapping))):  # unless another process has sent it
            yield row._asdict()


def sent(database: Database, part: Mapping[str, Any]) -> None:
    """Delete a part that the collector has acknowledged."""
    database.execute(outgoing.delete().where(_mine(part)))


def count_outgoing(database: Database, name: str) -> int:
    """Count the mixed envelopes that the collector has not acknowledged."""
    query = sa.select(sa.func.coalesce(sa.func.sum(outgoing.c.count), 0)).where(outgoing.c.campaign == name)
    return int(database.scalar(query))
