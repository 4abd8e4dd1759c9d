"""Crowds in the shuffler's database: waiting envelopes become mixed batches, in one transaction.

A row of waiting envelopes holds those of one crowd that were stored in one transaction: the crowd's name, which is a
hash of the terms that its people agreed to and of the key they sealed for (`Campaign.crowd`), and then the envelopes
of every person, slot by slot. The collector could tell different crowds apart, so they are never mixed together.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from sstq.client.campaigns import Campaign
from sstq.client.sealing import CROWD_BYTES
from sstq.mechanisms import Mechanism
from sstq.service.bodies import Packed
from sstq.service.database import Database, outgoing, uploads
from sstq.service.manifests import CROWD_NAME_BYTES, LARGEST_PART
from sstq.service.shuffler.mixing import Mixer

__all__ = ["Crowd", "EnvelopePacking", "Part", "drop", "forward_later", "outgoing_parts", "sent", "waiting"]

_READ_BYTES = 1 << 22
_ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class EnvelopePacking:
    """Joins uploads of the same crowd into one row; the shuffler cannot open envelopes."""

    mechanism: Mechanism

    def checked(self, packed: Sequence[Packed]) -> tuple[list[Packed], dict[int, str]]:
        """Join the bodies; a shuffler cannot see anything wrong with them."""
        return self.join(packed), {}

    def join(self, packed: Sequence[Packed]) -> list[Packed]:
        """Join the envelopes into one body per crowd."""
        found: dict[bytes, tuple[int, list[bytes]]] = {}
        for count, body in packed:
            crowd = body[:CROWD_BYTES]
            people, bodies = found.get(crowd, (0, [crowd]))
            bodies.append(body[CROWD_BYTES:])
            found[crowd] = (people + count, bodies)
        return [(people, b"".join(bodies)) for people, bodies in found.values()]


@dataclass(frozen=True)
class Crowd:
    """People whose envelopes wait; `rows` has the keys of their rows in the database, each with its people."""

    name: str
    rows: dict[bytes, int]

    @property
    def people(self) -> int:
        """The number of people."""
        return sum(self.rows.values())


@dataclass(frozen=True)
class Part:
    """A part of a mixed batch, on its way to the collector; its fields are those of the manifest."""

    campaign: str
    batch: bytes
    part: int
    slot: int
    sealing_key: str
    size: int
    parts: int
    count: int
    body: bytes


class _TakenByAnother(Exception):  # noqa: N818
    """Another process has already mixed the crowd."""


def waiting(database: Database, name: str) -> list[Crowd]:
    """The crowds of a campaign."""
    table = uploads.c
    name_of = sa.func.substr(table.body, 1, CROWD_BYTES, type_=sa.LargeBinary).label("crowd")
    query = sa.select(table.key, table.messages, name_of).where(table.campaign == name)
    rows = database.read(lambda connection: connection.execute(query).all())
    found: dict[bytes, dict[bytes, int]] = {}
    for row in rows:
        found.setdefault(bytes(row.crowd), {})[bytes(row.key)] = row.messages
    return [Crowd(crowd.hex(), rows_of) for crowd, rows_of in found.items()]


def drop(database: Database, name: str, crowd: Crowd) -> bool:
    """Delete a crowd's envelopes; returns False if another process was faster."""
    return _replace(database, name, crowd, lambda _: None)


def forward_later(database: Database, campaign: Campaign, crowd: Crowd, folder: str | None) -> bool:
    """Replace a crowd's envelopes by mixed batches, one per slot; returns False if another process was faster.

    One transaction: a crash leaves either the envelopes as they came or the batches, and nothing that
    connects the two.
    """
    with Mixer(crowd.people, campaign.slots, campaign.envelope_bytes, folder) as mixer:
        try:
            for body in _bodies(database, campaign, crowd):
                mixer.add(body[CROWD_BYTES:])
        except _TakenByAnother:
            return False
        mixer.mix()
        return _replace(database, campaign.name, crowd, lambda connection: _store(connection, campaign, crowd, mixer))


def _bodies(database: Database, campaign: Campaign, crowd: Crowd) -> Iterator[bytes]:
    """Iterate over the rows of a crowd, in groups that fit in memory."""
    for some in _groups(crowd, campaign.slots * campaign.envelope_bytes):
        query = sa.select(uploads.c.body).where(uploads.c.campaign == campaign.name, uploads.c.key.in_(some))
        found = database.read(lambda connection, query=query: connection.execute(query).scalars().all())  # type: ignore[misc]
        if len(found) != len(some):
            raise _TakenByAnother
        yield from map(bytes, found)


def _groups(crowd: Crowd, bytes_each: int) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for key, people in crowd.rows.items():
        if group and (size + people * bytes_each > _READ_BYTES or len(group) == _ROWS_AT_ONCE):
            yield group
            group, size = [], 0
        group.append(key)
        size += people * bytes_each
    if group:
        yield group


def _store(connection: sa.Connection, campaign: Campaign, crowd: Crowd, mixer: Mixer) -> None:
    each = LARGEST_PART // campaign.envelope_bytes
    name = secrets.token_bytes(CROWD_NAME_BYTES)
    for slot in range(campaign.slots):
        batch = name + slot.to_bytes(4, "big")
        for number, body in enumerate(mixer.parts(slot, LARGEST_PART)):
            part = Part(
                campaign=campaign.name,
                batch=batch,
                part=number,
                slot=slot,
                sealing_key=crowd.name,
                size=crowd.people,
                parts=-(-crowd.people // each),
                count=len(body) // campaign.envelope_bytes,
                body=body,
            )
            connection.execute(outgoing.insert(), vars(part))


def _replace(database: Database, name: str, crowd: Crowd, put: Callable[[sa.Connection], None]) -> bool:
    def work(connection: sa.Connection) -> None:
        gone, keys = 0, list(crowd.rows)
        for start in range(0, len(keys), _ROWS_AT_ONCE):
            some = keys[start : start + _ROWS_AT_ONCE]
            statement = uploads.delete().where(uploads.c.campaign == name, uploads.c.key.in_(some))
            gone += connection.execute(statement).rowcount
        if gone != len(keys):
            raise _TakenByAnother
        put(connection)

    try:
        database.write(work)
    except _TakenByAnother:
        return False
    return True


def outgoing_parts(database: Database, name: str) -> Iterator[Part]:
    """Iterate over the parts of batches that the collector has not acknowledged, one in memory at a time."""
    table = outgoing.c
    index = sa.select(table.batch, table.part).where(table.campaign == name)
    for batch, part in database.read(lambda connection: connection.execute(index).all()):
        query = sa.select(outgoing).where(table.campaign == name, table.batch == batch, table.part == part)
        row = database.read(lambda connection, query=query: connection.execute(query).one_or_none())  # type: ignore[misc]
        if row is not None:  # and no other process has sent it
            values = row._asdict()
            yield Part(**values | {"batch": bytes(row.batch), "body": bytes(row.body)})


def sent(database: Database, part: Part) -> None:
    """Delete a part that the collector has acknowledged."""
    table = outgoing.c
    mine = (table.campaign == part.campaign, table.batch == part.batch, table.part == part.part)
    database.write(lambda connection: connection.execute(outgoing.delete().where(*mine)))


def count_outgoing(database: Database, name: str) -> int:
    """Count the mixed envelopes that the collector has not acknowledged."""
    query = sa.select(sa.func.coalesce(sa.func.sum(outgoing.c.count), 0)).where(outgoing.c.campaign == name)
    return int(database.read(lambda connection: connection.execute(query).scalar_one()))
