"""Crowds in the shuffler's database: waiting envelopes become mixed batches, in one transaction.

A crowd is everybody who sends to a campaign: its terms and its sealing key, of which the crowd's name is a hash
(`Campaign.crowd`), stay the same. A row of waiting envelopes holds those that were stored in one transaction: the
crowd's name, and then the envelopes of every person, slot by slot.
"""

import secrets
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from sstq.array_types import Ints
from sstq.client.campaigns import Campaign, Shuffling
from sstq.client.sealing import CROWD_BYTES
from sstq.mechanisms import Mechanism
from sstq.randomness.secret import SecureBits
from sstq.service.batches import CROWD_NAME_BYTES, LARGEST_PART
from sstq.service.database import Database, campaigns, outgoing, uploads
from sstq.service.receiving import Checked, Packed

_crowd = sa.func.substr(uploads.c.body, 1, CROWD_BYTES, type_=sa.LargeBinary)


def joined_by_crowd(_: Mechanism, packed: Sequence[Packed]) -> Checked:
    """Join uploads into one body per crowd; a shuffler cannot see anything wrong with them."""
    found: dict[bytes, list[Packed]] = {}
    for count, body in packed:
        found.setdefault(body[:CROWD_BYTES], []).append((count, body[CROWD_BYTES:]))
    return [
        (
            sum(count for count, _ in several),
            crowd + b"".join(body for _, body in several),
        )
        for crowd, several in found.items()
    ], {}


def waiting(database: Database, name: str) -> dict[str, int]:
    """Count the people of each crowd of a campaign; crowds are named in hexadecimal."""
    return database.read(lambda connection: _waiting(connection, name))


def _waiting(connection: sa.Connection, name: str) -> dict[str, int]:
    query = (
        sa.select(_crowd, sa.func.sum(uploads.c.messages))
        .where(uploads.c.campaign == name)
        .group_by(_crowd)
    )
    return {
        bytes(crowd).hex(): int(people) for crowd, people in connection.execute(query)
    }


def settle(
    database: Database,
    campaign: Campaign,
    terms: Shuffling,
    known: Collection[str],
    *,
    drop: bool,
) -> Counter[str]:
    """Replace the envelopes of known crowds by mixed batches; crowds that are too small wait, or are dropped.

    One transaction: a crash leaves either the envelopes as they came or the batches, and nothing that connects the
    two. Returns how many people were mixed and how many dropped.
    """

    def work(connection: sa.Connection) -> Counter[str]:
        counts: Counter[str] = Counter()
        for crowd, people in _waiting(connection, campaign.name).items():
            enough = people >= terms.threshold or terms.below_threshold == "local"
            if crowd not in known or not (enough or drop):
                continue
            here = sa.and_(
                uploads.c.campaign == campaign.name, _crowd == bytes.fromhex(crowd)
            )
            if enough:
                bodies = connection.execute(
                    sa.select(uploads.c.body).where(here).execution_options(yield_per=8)
                )
                _store(
                    connection,
                    campaign,
                    crowd,
                    people,
                    (bytes(body)[CROWD_BYTES:] for body in bodies.scalars()),
                )
            connection.execute(uploads.delete().where(here))
            counts["mixed" if enough else "dropped"] += people
        return counts

    return database.write(work)


def _store(
    connection: sa.Connection,
    campaign: Campaign,
    crowd: str,
    people: int,
    bodies: Iterable[bytes],
) -> None:
    """Store a crowd's envelopes as batches, one per slot."""
    name = secrets.token_bytes(CROWD_NAME_BYTES)
    size = campaign.envelope_bytes
    each = LARGEST_PART // size
    tokens = connection.execute(
        sa.select(campaigns.c.issued).where(campaigns.c.name == campaign.link_name)
    ).scalar_one()
    for slot, part, body in mixed(bodies, (people, campaign.slots, size), each):
        row = {
            "campaign": campaign.name,
            "batch": name + slot.to_bytes(4, "big"),
            "part": part,
            "slot": slot,
            "crowd": crowd,
            "size": people,
            "tokens": tokens,
            "parts": -(-people // each),
            "count": len(body) // size,
            "body": body,
        }
        connection.execute(outgoing.insert(), row)


def mixed(
    bodies: Iterable[bytes], shape: tuple[int, int, int], each: int
) -> Iterator[tuple[int, int, bytes]]:
    """Mix the envelopes of each slot; yields slot, part and at most `each` envelopes, in random order.

    The bodies hold them by person and slot; the shape is people, slots and bytes of an envelope. They pass through a
    file without a name, which disappears however the process ends: memory holds 24 bytes per person, and the system's
    cache as much of the file as fits.
    """
    with tempfile.TemporaryFile() as file:
        file.writelines(bodies)
        file.flush()
        envelopes = np.memmap(file, np.uint8, "r", shape=shape)
        for slot in range(shape[1]):
            order = permutation(shape[0])
            for part, start in enumerate(range(0, shape[0], each)):
                yield slot, part, envelopes[order[start : start + each], slot].tobytes()


def permutation(count: int) -> Ints:
    """Return a uniformly random permutation, from the operating system's randomness.

    It sorts independent 64-bit numbers; if two are equal, all are drawn again, so every order is equally likely.
    """
    while True:
        drawn = SecureBits().words(count)
        order = np.argsort(drawn)
        if not np.any(drawn[order[1:]] == drawn[order[:-1]]):
            return order


def next_part(database: Database, name: str) -> dict[str, Any] | None:
    """Return the row of a part that the collector has not acknowledged, if any."""
    rows = database.rows(
        sa.select(outgoing).where(outgoing.c.campaign == name).limit(1)
    )
    return rows[0]._asdict() if rows else None


def sent(database: Database, part: dict[str, Any]) -> None:
    """Delete a part that the collector has acknowledged."""
    database.execute(
        outgoing.delete().where(
            *(column == part[column.name] for column in outgoing.primary_key)
        )
    )


def count_outgoing(database: Database, name: str) -> int:
    """Count the mixed envelopes that the collector has not acknowledged."""
    query = sa.select(sa.func.coalesce(sa.func.sum(outgoing.c.count), 0)).where(
        outgoing.c.campaign == name
    )
    return int(database.scalar(query))
