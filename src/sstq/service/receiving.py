"""Storing uploads: a whole batch in one transaction.

The messages of a batch become one row or a few: a row holds the messages of many uploads, without their keys.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import sqlalchemy as sa

from sstq.service import database as tables
from sstq.service.bodies import Checked, Packed

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
        late: whether it came after the campaign's closing time. If so, it is accepted only if its key is known.
        sender: the SHA-256 of the token of a sender of batches, whose quota pays for the upload; None without one.
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
Check = Callable[[str, Sequence[Packed]], Checked]


def receive(connection: sa.Connection, batch: Sequence[Upload], check: Check) -> list[Answer]:
    """Store uploads; the answers hold once the transaction is durable.

    A key that was seen before gets its first receipt again; its token and the campaign's closing time are not
    checked. A token is spent in the same transaction. `check` takes a mechanism's JSON and bodies.
    """
    by_name: dict[str, list[int]] = {}
    # Ordered by key: this reveals nothing about who was first, and two processes with the same uploads wait for
    # each other in one direction.
    for number in sorted(range(len(batch)), key=[upload.key for upload in batch].__getitem__):
        by_name.setdefault(batch[number].campaign, []).append(number)
    answers: list[Answer] = [Refusal.UNKNOWN] * len(batch)
    table = tables.campaigns.c
    query = sa.select(table.name, table.closed, table.mechanism).where(table.name.in_(list(by_name)))
    # Shared locks: closing or deleting a campaign waits for this transaction, and uploads do not wait for each other.
    for name, closed, mechanism in connection.execute(query.order_by(table.name).with_for_update(read=True)).all():
        uploads = [batch[number] for number in by_name[name]]
        joined, malformed = check(mechanism, [(upload.count, upload.body) for upload in uploads])
        valid = [upload for number, upload in enumerate(uploads) if number not in malformed]
        known, refused = _settle(connection, name, closed, valid)
        stored = {upload.key: upload for upload in reversed(valid) if upload.key not in known | refused}
        if len(stored) < len(valid):
            joined, _ = check(mechanism, [(upload.count, upload.body) for upload in stored.values()])
        _insert(connection, name, list(stored.values()), joined)
        for number, (place, upload) in enumerate(zip(by_name[name], uploads, strict=True)):
            answers[place] = (
                Malformed(malformed[number])
                if number in malformed
                else refused.get(upload.key) or _receipt(upload, known.get(upload.key) or stored[upload.key].count)
            )
    return answers


def _receipt(upload: Upload, count: int) -> Answer:
    return Receipt(count) if upload.count == count else Refusal.KEY


def _settle(
    connection: sa.Connection, name: str, closed: bool, uploads: Sequence[Upload]
) -> tuple[dict[bytes, int], dict[bytes, Refusal]]:
    """Return the counts of keys that were seen before, and the keys that are refused; the other uploads are paid."""
    first = {upload.key: upload for upload in reversed(uploads)}
    table = tables.receipts.c
    query = sa.select(table.key, table.messages).where(table.campaign == name, table.key.in_(list(first)))
    known = {bytes(key): count for key, count in connection.execute(query)}
    fresh = [upload for upload in first.values() if upload.key not in known]
    refused = {upload.key: Refusal.CLOSED for upload in fresh if closed or upload.late}
    for pay in (_spend_tokens, _charge_senders):
        refused |= pay(connection, name, [upload for upload in fresh if upload.key not in refused])
    return known, refused


def _spend_tokens(connection: sa.Connection, name: str, fresh: Sequence[Upload]) -> dict[bytes, Refusal]:
    """Delete the tokens of new uploads; refuses those whose token is unknown or used by another of them."""
    digests = sorted({upload.token for upload in fresh if upload.token is not None})
    if not digests:
        return {}
    table = tables.tokens
    query = sa.select(table.c.digest).where(table.c.campaign == name, table.c.digest.in_(digests))
    left = {bytes(digest) for digest in connection.execute(query.order_by(table.c.digest).with_for_update()).scalars()}
    tables.delete_keys(connection, table.c.digest, name, left)
    refused = {}
    for upload in fresh:
        if upload.token is not None and upload.token not in left:
            refused[upload.key] = Refusal.SPENT
        left.discard(upload.token or b"")
    return refused


def _charge_senders(connection: sa.Connection, name: str, fresh: Sequence[Upload]) -> dict[bytes, Refusal]:
    """Count new messages against the quotas of their senders; refuses uploads that these do not cover."""
    table, refused = tables.senders, {}
    for sender in sorted({upload.sender for upload in fresh if upload.sender is not None}):
        mine = (table.c.campaign == name, table.c.digest == sender)
        row = connection.execute(sa.select(table.c.quota, table.c.used).where(*mine).with_for_update()).one_or_none()
        used = 0 if row is None else row.used
        for upload in (upload for upload in fresh if upload.sender == sender):
            if row is None:
                refused[upload.key] = Refusal.SENDER
            elif row.quota is not None and used + upload.count > row.quota:
                refused[upload.key] = Refusal.QUOTA
            else:
                used += upload.count
        connection.execute(table.update().where(*mine).values(used=used))
    return refused


def _insert(connection: sa.Connection, name: str, stored: Sequence[Upload], joined: Sequence[Packed]) -> None:
    if stored:
        rows = [{"campaign": name, "key": upload.key, "messages": upload.count} for upload in stored]
        connection.execute(tables.receipts.insert(), rows)
        insert_messages(connection, name, joined)


def insert_messages(connection: sa.Connection, name: str, joined: Sequence[Packed]) -> None:
    """Store messages that wait to be folded, under random keys."""
    rows = [
        {"campaign": name, "key": secrets.token_bytes(KEY_BYTES), "messages": count, "body": body}
        for count, body in joined
    ]
    connection.execute(tables.uploads.insert(), rows)
