"""A shuffler's batches in the collector's database: each is stored once, opened once and counted.

A batch is the envelopes of one slot of one crowd, in random order, in parts that fit into a request. The shuffler signs
a manifest of each part, which is a header and covers the hash of the body: it is checked before that is read.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

import rfc8785
import sqlalchemy as sa

from sstq.accounting import shuffled_epsilon
from sstq.accounting.ledger import price
from sstq.checks import check_number
from sstq.client.campaigns import MOST_PEOPLE, Campaign, check_key, check_text
from sstq.client.sealing import envelope_info, open_envelopes
from sstq.client.signing import SigningKey, verify
from sstq.files.strict_json import read_json
from sstq.mechanisms import Mechanism
from sstq.service.database import (
    OUTCOMES,
    SEALED,
    Database,
    UnknownCampaign,
    batches,
    campaigns,
    envelopes,
    seen,
    uploads,
)
from sstq.service.receiving import checked, message_rows
from sstq.service.security import Problem

_FORMAT = "sstq-batch"
_VERSION = 2
BATCH_PREFIX = b"sstq-batch-v2\x00"  # of a manifest when it is signed
# of a batch's name that are the same for all slots of a crowd that was mixed together
CROWD_NAME_BYTES = 12
LARGEST_PART = 1 << 24  # bytes of one part of a batch
# of an envelope's hash that are kept: among 10^12 envelopes two collide with probability 2^-49
DIGEST_BYTES = 16
_BATCHES_AT_ONCE = 8
# Opening fewer envelopes takes less time than starting a worker: each takes 100 µs of a core.
_WORTH_A_WORKER = 5_000
_TASK_ENVELOPES = 1_000

logger = logging.getLogger("sstq.service")


@dataclass(frozen=True)
class Manifest:
    """One part of a batch: the envelopes of one slot of one crowd.

    Attributes:
        campaign: its name.
        digest: of the campaign's mechanism.
        crowd: what its people agreed to (`Campaign.crowd`).
        slot: which message of each person.
        batch: 96 random bits and the slot, in hexadecimal: the same for all parts and retries.
        size: envelopes of the whole batch.
        tokens: single-use tokens that were made for the campaign.
        part: the number of this part.
        parts: how many there are.
        count: envelopes of this part.
        sha256: of the body.
    """

    campaign: str
    digest: str
    crowd: str
    slot: int
    batch: str
    size: int
    tokens: int
    part: int
    parts: int
    count: int
    sha256: str
    format: str = _FORMAT
    version: int = _VERSION

    def __post_init__(self) -> None:
        if (self.format, self.version) != (_FORMAT, _VERSION):
            raise ValueError(
                f"format and version must be {_FORMAT} and {_VERSION}, got {self.format} {self.version}"
            )
        for name in ("digest", "crowd", "sha256"):
            check_key(name, getattr(self, name))
        digits = "32 hexadecimal digits (0-9, a-f)"
        check_text("batch", self.batch, "[0-9a-f]{32}", digits)
        check_number("slot", self.slot, 0, 1 << 16, integer=True)
        check_number("tokens", self.tokens, 0, 1 << 62, integer=True)
        check_number("size", self.size, 1, MOST_PEOPLE, integer=True)
        check_number("count", self.count, 1, self.size, integer=True)
        check_number("parts", self.parts, 1, self.size, integer=True)
        check_number("part", self.part, 0, self.parts - 1, integer=True)

    def signed(self, key: SigningKey) -> dict[str, str]:
        """Return the headers for uploading this part: the manifest and its signature."""
        text = rfc8785.dumps(asdict(self))
        return {
            "SSTQ-Batch": text.decode(),
            "SSTQ-Signature": key.sign(text, BATCH_PREFIX),
        }


def read_manifest(text: str, signature: str, public: bytes) -> Manifest:
    """Read a manifest; a Problem unless the owner of this public key signed it, and for anything else."""
    raw = text.encode("latin-1", "replace")
    try:
        verify(raw, signature, public, BATCH_PREFIX)
    except ValueError as error:
        raise Problem(
            403, "The batch is not signed by the campaign's shuffler."
        ) from error
    try:
        return Manifest(**read_json(raw))
    except (ValueError, TypeError) as error:
        raise Problem(400, f"The header SSTQ-Batch cannot be read: {error}.") from error


def receive(database: Database, manifest: Manifest, body: bytes) -> bool:
    """Store one part of a batch durably; storing the same part again changes nothing.

    Returns False if a different batch has this name. UnknownCampaign if there is no such campaign.
    """
    name = manifest.campaign
    identity = bytes.fromhex(manifest.batch)
    described = {field: getattr(manifest, field) for field in SEALED}
    part = {"campaign": name, "batch": identity, "part": manifest.part}
    here = sa.select(envelopes.c.part).where(
        *(envelopes.c[own] == value for own, value in part.items())
    )

    def work(connection: sa.Connection) -> bool:
        if (
            connection.execute(
                sa.select(campaigns.c.name).where(campaigns.c.name == name)
            ).scalar()
            is None
        ):
            raise UnknownCampaign(f"there is no campaign {name!r}")
        row = connection.execute(
            sa.select(batches).where(*_is(name, identity))
        ).one_or_none()
        if row is None:
            values = (
                {"campaign": name, "batch": identity, "opened": False}
                | described
                | dict.fromkeys(OUTCOMES, 0)
            )
            connection.execute(batches.insert(), values)
        elif any(getattr(row, field) != value for field, value in described.items()):
            return False
        elif row.opened or connection.execute(here).one_or_none():
            return True
        connection.execute(envelopes.insert(), part | {"body": body})
        return True

    return database.write(work)


def _is(
    name: str, identity: bytes, table: sa.Table = batches
) -> tuple[sa.ColumnElement[bool], ...]:
    return (table.c.campaign == name, table.c.batch == identity)


def open_next(
    database: Database,
    campaign: Campaign,
    secret_of: dict[str, bytes],
    workers: Executor,
) -> bool:
    """Open one complete batch of a campaign and store its messages; returns False if there is none.

    `secret_of` has the secret sealing keys by crowd. Memory: about 200 bytes per message of the batch, plus one part of
    envelopes.
    """
    table = batches.c
    part = envelopes.c
    arrived = sa.select(sa.func.count()).where(
        part.campaign == table.campaign, part.batch == table.batch
    )
    complete = sa.and_(sa.not_(table.opened), arrived.scalar_subquery() == table.parts)
    batch: Any
    for batch in database.rows(
        sa.select(batches).where(table.campaign == campaign.name, complete).limit(1)
    ):
        secret = secret_of.get(batch.crowd)
        info = envelope_info(bytes.fromhex(batch.crowd), batch.slot)
        here = _is(batch.campaign, batch.batch, envelopes)
        size = campaign.envelope_bytes
        good: dict[bytes, bytes] = {}  # messages by the hashes of their envelopes
        refused: Counter[str] = Counter()
        for number in range(batch.parts):
            # Nothing if the campaign was deleted.
            body = bytes(
                database.scalar(sa.select(part.body).where(*here, part.part == number))
                or b""
            )
            found = (
                open_all(workers, secret, info, body, size)
                if secret
                else [None] * (len(body) // size)
            )
            both = zip(_cut(body, size), found, strict=True)
            pairs = [
                (envelope, message) for envelope, message in both if message is not None
            ]
            _, wrong = checked(
                campaign.mechanism, [(1, message) for _, message in pairs]
            )
            refused["foreign"] += len(found) - len(pairs)
            refused["malformed"] += len(wrong)
            for place, (envelope, message) in enumerate(pairs):
                if place not in wrong:
                    digest = hashlib.sha256(envelope).digest()[:DIGEST_BYTES]
                    refused["repeated"] += digest in good
                    good[digest] = message
        if _put(database, batch, campaign.mechanism, good, refused) and refused.total():
            logger.warning(
                "a batch of %s had envelopes that do not count: %s",
                campaign.name,
                dict(refused),
            )
        return True
    return False


def open_all(
    workers: Executor, secret: bytes, info: bytes, body: bytes, size: int
) -> list[bytes | None]:
    """Return the message of each envelope of this size, in order; None for an envelope that does not open."""
    open_some = partial(_open, secret, info, size)
    if len(body) < size * _WORTH_A_WORKER:
        return open_some(body)
    parts = workers.map(open_some, _cut(body, size * _TASK_ENVELOPES))
    return [message for part in parts for message in part]


def _open(secret: bytes, info: bytes, size: int, body: bytes) -> list[bytes | None]:
    return open_envelopes(secret, info, _cut(body, size))


def _cut(body: bytes, size: int) -> Iterator[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))


def _put(
    database: Database,
    batch: Any,
    mechanism: Mechanism,
    good: dict[bytes, bytes],
    refused: Counter[str],
) -> bool:
    """Replace a batch's envelopes by its messages (by their envelopes' hashes), leaving out envelopes seen before.

    One transaction, counts included: a crash leaves either the envelopes or the messages. Returns False if
    the campaign was deleted meanwhile.
    """
    name = batch.campaign
    mine = _is(batch.campaign, batch.batch)
    # An envelope opens in one slot only. The hashes of a few batches are in memory at a time.
    alike = sa.and_(
        batches.c.campaign == seen.c.campaign, batches.c.batch == seen.c.batch
    )
    earlier = sa.select(seen.c.digests).join_from(seen, batches, alike)
    earlier = earlier.where(seen.c.campaign == name, batches.c.slot == batch.slot)
    earlier = earlier.execution_options(yield_per=_BATCHES_AT_ONCE)

    def work(connection: sa.Connection) -> bool:
        row = connection.execute(sa.select(batches).where(*mine)).one_or_none()
        if row is None or row.opened:
            return False
        fresh = dict(good)
        for digests in connection.execute(earlier).scalars():
            for digest in _cut(bytes(digests), DIGEST_BYTES):
                fresh.pop(digest, None)
        connection.execute(envelopes.delete().where(*_is(name, batch.batch, envelopes)))
        if fresh:
            joined, _ = checked(mechanism, [(1, message) for message in fresh.values()])
            connection.execute(uploads.insert(), message_rows(name, joined))
            digests = b"".join(sorted(fresh))
            connection.execute(
                seen.insert(),
                {"campaign": name, "batch": batch.batch, "digests": digests},
            )
        counts = refused + Counter(accepted=len(fresh), repeated=len(good) - len(fresh))
        connection.execute(batches.update().where(*mine).values(opened=True, **counts))
        return True

    return database.write(work)


def all_opened(database: Database, campaign: Campaign) -> bool:
    """Whether the batches of all slots have arrived and been opened."""
    table = batches.c
    found = database.rows(
        sa.select(table.slot, table.opened).where(table.campaign == campaign.name)
    )
    return len({row.slot for row in found}) == campaign.slots and all(
        row.opened for row in found
    )


def count_batches(database: Database, name: str) -> dict[str, int]:
    """Count the opened batches of a campaign, and their envelopes by outcome."""
    sums = [
        sa.func.coalesce(sa.func.sum(batches.c[outcome]), 0) for outcome in OUTCOMES
    ]
    (row,) = database.rows(
        sa.select(sa.func.count(), *sums).where(
            batches.c.campaign == name, batches.c.opened
        )
    )
    return dict(zip(("batches", *OUTCOMES), map(int, row), strict=True))


def shuffled_claim(store: Database, campaign: Campaign) -> dict[str, Any] | None:
    """Return the privacy that a campaign's batches justify, as JSON values; None for a campaign without a shuffler.

    A person's message hides among the accepted messages of its own crowd, so each crowd has a claim of its own.
    Refused envelopes hide nobody, nor do accepted envelopes of cheating clients, which cannot be counted: hence the
    second ε, for a crowd of which half is fake, and the share of all single-use tokens whose owner, such as the
    collector itself, could be all of the crowd but one person. The claim is the local ε for a crowd below the
    threshold, and for all crowds unless every person needs a single-use token.
    """
    terms = campaign.shuffling
    if terms is None:
        return None
    # All slots of a crowd have names that begin alike; its smallest slot counts.
    smallest = sa.select(
        sa.func.min(batches.c.size),
        sa.func.min(batches.c.accepted),
        sa.func.max(batches.c.tokens),
    )
    smallest = smallest.where(
        batches.c.campaign == campaign.name, batches.c.opened, batches.c.accepted > 0
    )
    rows = store.rows(
        smallest.group_by(sa.func.substr(batches.c.batch, 1, CROWD_NAME_BYTES))
    )
    crowds = []
    local = price(campaign.mechanism)
    for size, people, tokens in sorted(map(tuple, rows), reverse=True):
        hidden = campaign.senders == "single-use" and size >= terms.threshold
        epsilon, half = (
            _shuffled(campaign.mechanism, honest, terms.delta)
            if hidden and honest
            else local
            for honest in (people, people // 2)
        )
        # Pure ε: without a crowd there is no δ.
        delta = 0.0 if epsilon >= local else terms.delta
        crowds.append(
            {
                "people": people,
                "epsilon": epsilon,
                "delta": delta,
                "epsilon_if_half_fake": half,
                "isolating_share": (people - 1) / tokens if tokens else None,
            }
        )
    counts = count_batches(store, campaign.name)
    refused = {reason: counts.pop(reason) for reason in OUTCOMES[1:]}
    return counts | {"refused": refused, "crowds": crowds, "local_epsilon": local}


@lru_cache(maxsize=1024)
def _shuffled(mechanism: Mechanism, crowd: int, delta: float) -> float:
    """The ε of a person whose messages are all in crowds of at least this size."""
    return min(
        price(mechanism),
        shuffled_epsilon(mechanism, crowd, delta, messages=mechanism.messages),
    )
