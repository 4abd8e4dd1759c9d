"""Receiving uploads: bodies are checked and joined, and a whole batch is stored in one transaction.

The messages of a batch become one row or a few: a row holds the messages of many uploads, without their keys.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from sstq.mechanisms import Mechanism, from_json
from sstq.service import database as tables

Packed = tuple[int, bytes]  # a number of messages and their bits
# the valid bodies, joined, and what is wrong with the others by position
Checked = tuple[list[Packed], dict[int, str]]

# The most bytes joined at a time: shifting their bits takes eight times as much memory.
_JOINED_BYTES = 1 << 20


class Upload(NamedTuple):
    """An upload of messages, as packed bits, to one campaign."""

    campaign: str
    # 16 random bytes that the client chose; a repeated upload has the same key
    key: bytes
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    body: bytes
    # the SHA-256 of the single-use token that pays for it, if the campaign asks for one
    token: bytes | None = None
    # after the campaign's closing time it is accepted only if its key is known
    late: bool = False
    # the SHA-256 of the token of a sender of batches, whose quota pays for it
    sender: bytes | None = None


class Refusal(Enum):
    """Why an upload was not stored: a status of HTTP and a sentence."""

    UNKNOWN = 404, "There is no campaign with this name."
    CLOSED = 410, "The campaign is closed."
    SPENT = 403, "The token is unknown or was used before."
    SENDER = 403, "The token is not that of a sender of this campaign."
    QUOTA = (
        403,
        "The sender's quota of people does not cover this upload; ask the campaign's owner.",
    )
    KEY = (
        422,
        "The Idempotency-Key was used before with another number of messages; choose a new random key per upload.",
    )


Answer = int | str | Refusal
"""How many messages are durable, or what is malformed about them, or why they are refused."""

Check = Callable[[Mechanism, Sequence[Packed]], Checked]


def _some(column: sa.Column[Any], values: str) -> sa.ColumnElement[bool]:
    return column.in_(sa.bindparam(values, expanding=True))


def _of(table: sa.Table) -> sa.ColumnElement[bool]:
    campaign: sa.Column[str] = table.c.campaign
    return campaign == sa.bindparam("name")


# Statements are built once: building them again would take as long as running them.
_own = tables.campaigns.c
_CAMPAIGNS = sa.select(
    _own.name, _own.closed, _own.mechanism, _own.study, _own.room
).where(_some(_own.name, "names"))
_RECEIPTS = sa.select(tables.receipts.c.key, tables.receipts.c.messages).where(
    _of(tables.receipts), _some(tables.receipts.c.key, "keys")
)
_TOKENS = sa.select(tables.tokens.c.digest).where(
    _of(tables.tokens), _some(tables.tokens.c.digest, "digests")
)
_SENDERS = sa.select(tables.senders).where(
    _of(tables.senders), _some(tables.senders.c.digest, "digests")
)
_USED = (
    tables.senders.update()
    .where(_of(tables.senders), tables.senders.c.digest == sa.bindparam("sender"))
    .values(used=sa.bindparam("number"))
)
_NEW_MESSAGES = tables.uploads.insert()


@lru_cache(maxsize=4096)
def parsed(text: str) -> Mechanism:
    """The mechanism of this JSON, remembered: parsing takes longer than the rest of a request."""
    return from_json(text)


def checked(mechanism: Mechanism, packed: Sequence[Packed]) -> Checked:
    """Check bodies and join the valid ones: many at a time, because each call costs microseconds."""
    joined: list[Packed] = []
    wrong: dict[int, str] = {}
    left = list(_alike(packed))[::-1]
    while left:
        places = left.pop()
        try:
            count, body = _joined(mechanism, packed, places)
            messages = mechanism.messages_from_bytes(body, count)
            if _adds_vectors(mechanism):
                # Their fields can hold numbers that no honest client sends; only the sums detect these.
                mechanism.aggregator().update(messages)
            joined.append((count, body))
        except ValueError as error:
            if len(places) == 1:
                wrong[places[0]] = str(error)
            else:  # which of them?
                half = len(places) // 2
                left += [places[half:], places[:half]]
    return joined, wrong


@lru_cache(maxsize=256)
def _adds_vectors(mechanism: Mechanism) -> bool:
    return mechanism.estimator.adds_vectors


def _alike(packed: Sequence[Packed]) -> Iterator[list[int]]:
    """Iterate over the positions of bodies with equal numbers of messages, in groups that are joined at once."""
    counts = [count for count, _ in packed]
    for _, group in groupby(
        sorted(range(len(packed)), key=counts.__getitem__), counts.__getitem__
    ):
        places = list(group)
        most = max(1, _JOINED_BYTES // max(1, len(packed[places[0]][1])))
        for start in range(0, len(places), most):
            yield places[start : start + most]


def _joined(
    mechanism: Mechanism, packed: Sequence[Packed], places: list[int]
) -> Packed:
    """Join bodies with equal numbers of messages, dropping the padding bits of their last bytes."""
    if len(places) == 1:
        return packed[places[0]]
    count = packed[places[0]][0]
    bits = count * mechanism.message_bits
    bodies = [packed[place][1] for place in places]
    if set(map(len, bodies)) != {-(-bits // 8)}:
        raise ValueError(f"{count} messages take {bits} bits")
    joined = b"".join(bodies)
    if bits % 8:
        whole = np.frombuffer(joined, dtype=np.uint8).reshape(len(bodies), -1)
        if np.any(whole[:, -1] >> bits % 8):
            raise ValueError("the padding bits of a body must be zero")
        joined = np.packbits(
            np.unpackbits(whole, axis=1, count=bits, bitorder="little"),
            bitorder="little",
        ).tobytes()
    return count * len(places), joined


def receive(
    connection: sa.Connection, batch: Sequence[Upload], check: Check
) -> list[Answer]:
    """Store uploads; the answers hold once the transaction is durable.

    A key that was seen before gets its first receipt again; its token and the campaign's closing time are not
    checked. A token is spent in the same transaction.
    """
    by_name: dict[str, list[int]] = {}
    # Ordered by key: this reveals nothing about who was first.
    for number in sorted(
        range(len(batch)), key=[upload.key for upload in batch].__getitem__
    ):
        by_name.setdefault(batch[number].campaign, []).append(number)
    answers: list[Answer] = [Refusal.UNKNOWN] * len(batch)
    receipts = []
    messages = []
    for name, closed, text, study, room in connection.execute(
        _CAMPAIGNS, {"names": list(by_name)}
    ).all():
        mechanism = parsed(text)
        uploads = [batch[number] for number in by_name[name]]
        known = _known(connection, name, uploads)
        joined, malformed = check(
            mechanism, [(upload.count, upload.body) for upload in uploads]
        )
        valid = [
            upload for number, upload in enumerate(uploads) if number not in malformed
        ]
        fresh = {
            upload.key: upload for upload in reversed(valid) if upload.key not in known
        }
        refused = _without_room(list(fresh.values()), closed, room, mechanism.messages)
        for pay in (_spend_tokens, _charge_senders):
            left = [own for key, own in fresh.items() if key not in refused]
            refused |= pay(connection, study or name, left)
        stored = {key: upload for key, upload in fresh.items() if key not in refused}
        if room is not None and stored:
            less = room - sum(upload.count for upload in stored.values())
            connection.execute(
                tables.campaigns.update().where(_own.name == name).values(room=less)
            )
        if len(stored) < len(valid):
            joined, _ = check(
                mechanism, [(upload.count, upload.body) for upload in stored.values()]
            )
        receipts += [
            {"campaign": name, "key": upload.key, "messages": upload.count}
            for upload in stored.values()
        ]
        messages += message_rows(name, joined)
        for number, (place, upload) in enumerate(
            zip(by_name[name], uploads, strict=True)
        ):
            if number in malformed:
                answers[place] = malformed[number]
            elif upload.key in refused:
                answers[place] = refused[upload.key]
            else:
                count = known.get(upload.key) or stored[upload.key].count
                answers[place] = count if upload.count == count else Refusal.KEY
    # A statement costs as much as the rows of many uploads: these are for all campaigns.
    if receipts:
        tables.insert_rows(connection, tables.receipts, receipts)
        connection.execute(_NEW_MESSAGES, messages)
    return answers


def _known(
    connection: sa.Connection, name: str, uploads: Sequence[Upload]
) -> dict[bytes, int]:
    """Return the numbers of messages of keys that were seen before."""
    # One query per campaign: SQLite uses no index for pairs of a name and a key.
    found = connection.execute(
        _RECEIPTS, {"name": name, "keys": [upload.key for upload in uploads]}
    )
    return {bytes(key): count for key, count in found}


def _without_room(
    fresh: Sequence[Upload], closed: bool, room: int | None, each: int
) -> dict[bytes, Refusal]:
    """Return the keys of new uploads that come too late, or do not fit into the room, if that is limited.

    Until a full stage is closed, a person's `each` messages fit: somebody asked and encoded them while there was room.
    """
    refused = {}
    for upload in fresh:
        fits = room is None or upload.count <= max(room, each)
        if closed or upload.late or not fits:
            refused[upload.key] = Refusal.CLOSED
        elif room is not None:
            room -= upload.count
    return refused


def _spend_tokens(
    connection: sa.Connection, name: str, fresh: Sequence[Upload]
) -> dict[bytes, Refusal]:
    """Delete the tokens of new uploads; refuses those whose token is unknown or used by another of them."""
    digests = {upload.token for upload in fresh if upload.token is not None}
    if not digests:
        return {}
    found = connection.execute(_TOKENS, {"name": name, "digests": list(digests)})
    left = set(map(bytes, found.scalars()))
    tables.delete_keys(connection, tables.tokens.c.digest, name, left)
    refused = {}
    for upload in fresh:
        if upload.token is not None and upload.token not in left:
            refused[upload.key] = Refusal.SPENT
        left.discard(upload.token or b"")
    return refused


def _charge_senders(
    connection: sa.Connection, name: str, fresh: Sequence[Upload]
) -> dict[bytes, Refusal]:
    """Count new messages against the quotas of their senders; refuses uploads that these do not cover."""
    paying = [upload for upload in fresh if upload.sender is not None]
    if not paying:
        return {}
    digests = {upload.sender for upload in paying}
    rows = connection.execute(_SENDERS, {"name": name, "digests": list(digests)}).all()
    quota = {bytes(row.digest): row.quota for row in rows}
    used = {bytes(row.digest): row.used for row in rows}
    refused = {}
    for upload in paying:
        sender = upload.sender or b""
        if sender not in used:
            refused[upload.key] = Refusal.SENDER
        elif quota[sender] is not None and used[sender] + upload.count > quota[sender]:
            refused[upload.key] = Refusal.QUOTA
        else:
            used[sender] += upload.count
    for sender, number in used.items():
        connection.execute(_USED, {"name": name, "sender": sender, "number": number})
    return refused


def message_rows(name: str, joined: Sequence[Packed]) -> list[dict[str, Any]]:
    """The rows of messages that wait to be folded, under random keys."""
    return [
        {
            "campaign": name,
            "key": secrets.token_bytes(16),
            "messages": count,
            "body": body,
        }
        for count, body in joined
    ]
