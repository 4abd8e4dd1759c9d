"""Storing uploads: a whole batch in a few statements of one transaction.

The keys and counts of all uploads go into a statement as one string that the database splits. So
the driver does a few steps per batch instead of a few per upload, and Python's lock is free while the database works.
The messages of a batch become one row or a few: a row holds the messages of many uploads, without their keys.
"""

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import sqlalchemy as sa

from sstq.service import database as tables
from sstq.service.bodies import Packed, Packing

KEY_BYTES = 16
"""The length of an idempotency key: 128 random bits, chosen by the client."""


class Upload(NamedTuple):
    """An upload of messages to one campaign.

    Attributes:
        campaign: the campaign's name.
        key: 16 random bytes that the client chose; a repeated upload has the same key.
        count: the number of messages.
        body: the messages as packed bits.
        token: the SHA-256 of the single-use token that pays for the upload, if the campaign asks for one.
        sender: the SHA-256 of the token of a sender of batches, whose quota pays for the upload; None without one.
        late: whether it came after the campaign's closing time. If so, it is accepted only if its key is known.
    """

    campaign: str
    key: bytes
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    body: bytes
    token: bytes | None = None
    late: bool = False
    sender: bytes | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The messages are durable and count once, however often they are sent with this key."""

    count: int


class Refusal(StrEnum):
    """Why an upload was not stored."""

    UNKNOWN = "there is no such campaign"
    CLOSED = "the campaign is closed"
    SPENT = "the token is unknown or was used before"
    KEY = "the key was used before, with another number of messages"
    SENDER = "the token is not one of the campaign's senders"
    QUOTA = "the sender's quota does not cover the upload"


@dataclass(frozen=True, slots=True)
class Malformed:
    """The body does not fit the campaign's mechanism, and why."""

    reason: str


Answer = Receipt | Refusal | Malformed

# Shared locks: closing or deleting a campaign waits for this transaction, and uploads do not wait for each other.
_CAMPAIGNS = (
    sa.select(tables.campaigns.c.name, tables.campaigns.c.closed, tables.campaigns.c.mechanism)
    .where(tables.campaigns.c.name.in_(sa.bindparam("names", expanding=True)))
    .order_by(tables.campaigns.c.name)
    .with_for_update(read=True)
)
# The keys of a batch, 16 bytes each, and its counts, padded to equally many digits.
_EACH = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :uploads)"
_KEY = f"substr(:keys, {KEY_BYTES} * i + 1, {KEY_BYTES})"
_COUNT = "CAST(substr(:counts, :digits * i + 1, :digits) AS BIGINT)"
_FIND = sa.text(
    f"SELECT key, messages FROM receipts WHERE campaign = :campaign AND key IN ({_EACH} SELECT {_KEY} FROM n)"  # noqa: S608
)
_KEEP = sa.text(
    f"INSERT INTO receipts (campaign, key, messages) {_EACH} SELECT :campaign, {_KEY}, {_COUNT} FROM n"  # noqa: S608
)
_ADD = tables.uploads.insert()


def receive(connection: sa.Connection, batch: Sequence[Upload], packing_of: Callable[[str], Packing]) -> list[Answer]:
    """Store uploads; the answers hold once the transaction is durable.

    A key that was seen before gets its first receipt again; its token and the campaign's closing time are not
    checked. A token is spent in the same transaction.
    """
    by_name: dict[str, list[int]] = {}
    # Ordered by key: this reveals nothing about who was first, and two processes with the same uploads wait for
    # each other in one direction.
    for number in sorted(range(len(batch)), key=[upload.key for upload in batch].__getitem__):
        by_name.setdefault(batch[number].campaign, []).append(number)
    answers: list[Answer] = [Refusal.UNKNOWN] * len(batch)
    for name, closed, text in connection.execute(_CAMPAIGNS, {"names": sorted(by_name)}).all():
        uploads = [batch[number] for number in by_name[name]]
        found = _receive(connection, name, closed, packing_of(text), uploads)
        for number, answer in zip(by_name[name], found, strict=True):
            answers[number] = answer
    return answers


def _receive(
    connection: sa.Connection, name: str, closed: bool, packing: Packing, uploads: Sequence[Upload]
) -> list[Answer]:
    """Store uploads of one campaign, sorted by key."""
    joined, malformed = packing.checked([(upload.count, upload.body) for upload in uploads])
    first: dict[bytes, Upload] = {}
    for number, upload in enumerate(uploads):
        if number not in malformed:
            first.setdefault(upload.key, upload)
    counts = _known_counts(connection, name, first)
    fresh = [upload for upload in first.values() if upload.key not in counts]
    refused = {upload.key: Refusal.CLOSED for upload in fresh if closed or upload.late}
    _spend_tokens(connection, name, [upload for upload in fresh if upload.key not in refused], refused)
    _charge_senders(connection, name, [upload for upload in fresh if upload.key not in refused], refused)
    stored = [upload for upload in fresh if upload.key not in refused]
    if len(stored) < len(uploads) - len(malformed):  # not all valid uploads
        joined = packing.join([(upload.count, upload.body) for upload in stored])
    _insert(connection, name, stored, joined)
    counts.update((upload.key, upload.count) for upload in stored)
    answers: list[Answer] = []
    for number, upload in enumerate(uploads):
        if number in malformed:
            answers.append(Malformed(malformed[number]))
        elif upload.key in refused:
            answers.append(refused[upload.key])
        else:
            answers.append(Receipt(upload.count) if counts[upload.key] == upload.count else Refusal.KEY)
    return answers


def _known_counts(connection: sa.Connection, name: str, keys: Collection[bytes]) -> dict[bytes, int]:
    """Return the keys that were seen before, each with its number of messages."""
    values = {"campaign": name, "uploads": len(keys), "keys": b"".join(keys)}
    return {bytes(key): count for key, count in connection.execute(_FIND, values)}


def _spend_tokens(connection: sa.Connection, name: str, fresh: Sequence[Upload], refused: dict[bytes, Refusal]) -> None:
    """Delete the tokens of new uploads, and refuse uploads whose token is unknown or used by another of them."""
    digests = sorted({upload.token for upload in fresh if upload.token is not None})
    if not digests:
        return
    table = tables.tokens
    query = sa.select(table.c.digest).where(table.c.campaign == name, table.c.digest.in_(digests))
    left = {bytes(digest) for digest in connection.execute(query.order_by(table.c.digest).with_for_update()).scalars()}
    spent = []
    for upload in fresh:
        if upload.token is None:
            continue
        if upload.token in left:
            left.remove(upload.token)
            spent.append(upload.token)
        else:
            refused[upload.key] = Refusal.SPENT
    if spent:
        connection.execute(table.delete().where(table.c.campaign == name, table.c.digest.in_(spent)))


def _charge_senders(
    connection: sa.Connection, name: str, fresh: Sequence[Upload], refused: dict[bytes, Refusal]
) -> None:
    """Count new messages against the quotas of their senders, and refuse uploads that these do not cover."""
    table = tables.senders
    for sender in sorted({upload.sender for upload in fresh if upload.sender is not None}):
        mine = (table.c.campaign == name, table.c.digest == sender)
        row = connection.execute(sa.select(table.c.quota, table.c.used).where(*mine).with_for_update()).one_or_none()
        used = before = 0 if row is None else row.used
        for upload in fresh:
            if upload.sender != sender:
                continue
            if row is None:
                refused[upload.key] = Refusal.SENDER
            elif row.quota is not None and used + upload.count > row.quota:
                refused[upload.key] = Refusal.QUOTA
            else:
                used += upload.count
        if used > before:
            connection.execute(table.update().where(*mine).values(used=used))


def _insert(connection: sa.Connection, name: str, stored: Sequence[Upload], joined: Sequence[Packed]) -> None:
    if not stored:
        return
    keys = b"".join([upload.key for upload in stored])
    digits = len(str(max(upload.count for upload in stored)))
    counts = "".join([f"{upload.count:0{digits}d}" for upload in stored])
    values = {"campaign": name, "uploads": len(stored), "keys": keys, "digits": digits, "counts": counts}
    connection.execute(_KEEP, values)
    rows = [
        {"campaign": name, "key": secrets.token_bytes(KEY_BYTES), "messages": count, "body": body}
        for count, body in joined
    ]
    connection.execute(_ADD, rows)
