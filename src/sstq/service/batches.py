"""A shuffler's batches in the collector's database: each is stored once, opened once and counted."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import sqlalchemy as sa

from sstq.mechanisms import Mechanism
from sstq.service import bodies
from sstq.service.database import Database, batches, campaigns, envelopes, seen, uploads
from sstq.service.manifests import CROWD_NAME_BYTES, Manifest
from sstq.service.receiving import KEY_BYTES

__all__ = [
    "DIGEST_BYTES",
    "Batch",
    "BatchAnswer",
    "Opened",
    "count_batches",
    "crowds_of",
    "next_batch",
    "parts_of",
    "put",
    "receive",
]

DIGEST_BYTES = 16
"""How many bytes of an envelope's hash are kept: among 10^12 envelopes two collide with probability 2^-49."""


_BATCHES_AT_ONCE = 8


class BatchAnswer(StrEnum):
    """The outcome of storing a part of a batch."""

    STORED = "it is durable"
    UNKNOWN = "there is no such campaign"
    CONFLICT = "there is another batch of this name"


@dataclass(frozen=True)
class Batch:
    """A batch that is complete but not opened yet."""

    campaign: str
    batch: bytes
    slot: int
    crowd: str
    parts: int


@dataclass(frozen=True)
class Opened:
    """The content of an opened batch.

    Attributes:
        messages: pairs (hash of the envelope, message in whole bytes), one per good envelope.
        foreign: how many envelopes could not be opened.
        malformed: how many envelopes held no valid message of the mechanism.
    """

    messages: list[tuple[bytes, bytes]]
    foreign: int
    malformed: int


def receive(database: Database, manifest: Manifest, body: bytes) -> BatchAnswer:
    """Store one part of a batch durably; storing the same part again changes nothing."""
    name, identity = manifest.campaign, bytes.fromhex(manifest.batch)
    described = {
        "slot": manifest.slot,
        "sealing_key": manifest.crowd,
        "size": manifest.size,
        "parts": manifest.parts,
    }
    mine = sa.and_(batches.c.campaign == name, batches.c.batch == identity)
    here = sa.and_(envelopes.c.campaign == name, envelopes.c.batch == identity, envelopes.c.part == manifest.part)

    def work(connection: sa.Connection) -> BatchAnswer:
        # A shared lock: deleting the campaign waits.
        there = sa.select(campaigns.c.name).where(campaigns.c.name == name).with_for_update(read=True)
        if connection.execute(there).one_or_none() is None:
            return BatchAnswer.UNKNOWN
        # Keeps others from opening the batch before this transaction commits.
        row = connection.execute(sa.select(batches).where(mine).with_for_update()).one_or_none()
        if row is None:
            counts = dict.fromkeys(("accepted", "foreign", "malformed", "repeated"), 0)
            values = {"campaign": name, "batch": identity, "opened": False} | described | counts
            connection.execute(batches.insert(), values)
        elif any(getattr(row, field) != value for field, value in described.items()):
            return BatchAnswer.CONFLICT
        elif row.opened or connection.execute(sa.select(envelopes.c.part).where(here)).one_or_none():
            return BatchAnswer.STORED
        values = {"campaign": name, "batch": identity, "part": manifest.part, "count": manifest.count, "body": body}
        connection.execute(envelopes.insert(), values)
        return BatchAnswer.STORED

    return database.write(work)


def next_batch(database: Database, name: str) -> Batch | None:
    """Return a complete batch of a campaign that waits to be opened, if any."""
    table = batches.c
    arrived = sa.select(sa.func.count()).select_from(envelopes)
    arrived = arrived.where(envelopes.c.campaign == table.campaign, envelopes.c.batch == table.batch)
    query = sa.select(batches).where(table.campaign == name, sa.not_(table.opened))
    query = query.where(arrived.scalar_subquery() == table.parts).limit(1)
    row = database.read(lambda connection: connection.execute(query).one_or_none())
    return None if row is None else Batch(name, bytes(row.batch), row.slot, row.sealing_key, row.parts)


def parts_of(database: Database, batch: Batch) -> Iterator[bytes]:
    """Iterate over a batch's envelopes, one part at a time; stops early if another process has opened the batch."""
    for part in range(batch.parts):
        query = sa.select(envelopes.c.body).where(
            envelopes.c.campaign == batch.campaign, envelopes.c.batch == batch.batch, envelopes.c.part == part
        )
        body = database.read(lambda connection, query=query: connection.execute(query).scalar())  # type: ignore[misc]
        if body is not None:
            yield bytes(body)


def put(database: Database, batch: Batch, opened: Opened, mechanism: Mechanism) -> bool:
    """Replace a batch's envelopes by its messages, leaving out envelopes seen before.

    One transaction, counts included: a crash leaves either the envelopes or the messages. Returns False if
    another process was faster.
    """
    name = batch.campaign
    mine = sa.and_(batches.c.campaign == name, batches.c.batch == batch.batch)

    def work(connection: sa.Connection) -> bool:
        # One batch of a campaign at a time, so that no envelope is in two of them.
        connection.execute(sa.select(campaigns.c.name).where(campaigns.c.name == name).with_for_update())
        row = connection.execute(sa.select(batches).where(mine).with_for_update()).one_or_none()
        if row is None or row.opened:
            return False
        fresh, digests = _unseen(connection, batch, opened.messages)
        connection.execute(envelopes.delete().where(envelopes.c.campaign == name, envelopes.c.batch == batch.batch))
        for count, body in bodies.join(mechanism, [(1, message) for message in fresh]):
            values = {"campaign": name, "key": secrets.token_bytes(KEY_BYTES), "messages": count, "body": body}
            connection.execute(uploads.insert(), values)
        if fresh:
            connection.execute(seen.insert(), {"campaign": name, "batch": batch.batch, "digests": digests})
        counts = {
            "opened": True,
            "accepted": len(fresh),
            "foreign": opened.foreign,
            "malformed": opened.malformed,
            "repeated": len(opened.messages) - len(fresh),
        }
        connection.execute(batches.update().where(mine).values(counts))
        return True

    return database.write(work)


def _unseen(connection: sa.Connection, batch: Batch, found: list[tuple[bytes, bytes]]) -> tuple[list[bytes], bytes]:
    """Return the messages of envelopes not seen before, and the sorted hashes of those envelopes."""
    if not found:
        return [], b""
    hashes = np.array([digest for digest, _ in found], dtype=f"S{DIGEST_BYTES}")
    first = np.zeros(len(found), dtype=bool)
    first[np.unique(hashes, return_index=True)[1]] = True
    # An envelope opens in one slot only. The hashes of a few batches are in memory at a time.
    alike = sa.and_(batches.c.campaign == seen.c.campaign, batches.c.batch == seen.c.batch)
    query = sa.select(seen.c.digests).join_from(seen, batches, alike)
    query = query.where(seen.c.campaign == batch.campaign, batches.c.slot == batch.slot)
    for digests in connection.execute(query, execution_options={"yield_per": _BATCHES_AT_ONCE}).scalars():
        first &= ~np.isin(hashes, np.frombuffer(digests, dtype=f"S{DIGEST_BYTES}"))
    fresh = [message for (_, message), new in zip(found, first, strict=True) if new]
    return fresh, np.sort(hashes[first]).tobytes()


def count_batches(database: Database, name: str) -> dict[str, int]:
    """Count the opened batches of a campaign, and their envelopes by outcome."""
    outcomes = ("accepted", "foreign", "malformed", "repeated")
    sums = [sa.func.coalesce(sa.func.sum(batches.c[outcome]), 0) for outcome in outcomes]
    query = sa.select(sa.func.count(), *sums).where(batches.c.campaign == name, batches.c.opened)
    row = database.read(lambda connection: connection.execute(query).one())
    return dict(zip(("batches", *outcomes), map(int, row), strict=True))


def crowds_of(database: Database, name: str) -> list[tuple[int, int]]:
    """Return (size, accepted) of each crowd that was mixed together and opened, those of its smallest slot."""
    query = sa.select(batches.c.batch, batches.c.size, batches.c.accepted)
    query = query.where(batches.c.campaign == name, batches.c.opened, batches.c.accepted > 0)
    found: dict[bytes, tuple[int, int]] = {}
    for batch, size, accepted in database.read(lambda connection: connection.execute(query).all()):
        crowd = bytes(batch)[:CROWD_NAME_BYTES]
        least_size, least = found.get(crowd, (size, accepted))
        found[crowd] = min(size, least_size), min(accepted, least)
    return list(found.values())
