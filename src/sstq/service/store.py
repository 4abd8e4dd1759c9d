"""What a collector keeps: campaigns, uploads, partial states and results, in one database."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from sstq.aggregation import Aggregator
from sstq.mechanisms import Mechanism, from_json
from sstq.service import database as tables
from sstq.service import folding, states
from sstq.service.database import Database

KEY_BYTES = 16
"""The length of an idempotency key: 128 random bits, chosen by the client."""

TOKEN_BYTES = 32
"""The length of a token's SHA-256."""

_SECONDS_AN_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Upload:
    """Messages of one campaign, checked (`Mechanism.messages_from_bytes`), on their way into the database.

    Attributes:
        campaign: its name.
        key: 16 random bytes that the client chose; repeated uploads have the same.
        count: how many messages there are.
        body: the messages as packed bits.
        token: the SHA-256 of the single-use token that pays for the upload, if the campaign asks for one.
        late: whether it came after the campaign's closing time. Then it is answered only if its key is known.
    """

    campaign: str
    key: bytes
    count: int
    body: bytes
    token: bytes | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class Receipt:
    """The messages are durable and will be counted once, however often they are sent with this key."""

    count: int


class Refusal(StrEnum):
    """Why an upload was not stored."""

    UNKNOWN = "there is no such campaign"
    CLOSED = "the campaign is closed"
    SPENT = "the token is unknown or was used before"
    KEY = "the key was used before, with another number of messages"


@dataclass(frozen=True)
class StoredCampaign:
    """A campaign as the database has it; `terms` is the JSON text that it was created with."""

    name: str
    mechanism: Mechanism
    terms: str
    closed: bool


@dataclass(frozen=True)
class Counts:
    """How many messages of a campaign are acknowledged, how many of them are folded, and tokens issued and left."""

    received: int
    folded: int
    issued: int
    unspent: int


class Store:
    """Everything that a collector keeps. Several processes may use one PostgreSQL database at a time."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self._mechanisms: dict[str, Mechanism] = {}

    def close(self) -> None:
        """Close all connections."""
        self.database.dispose()

    def ping(self) -> None:
        """Return if the database answers; DatabaseUnavailable otherwise."""
        self.database.read(lambda connection: connection.execute(sa.select(1)))

    # Settings

    def setting(self, name: str, make: Callable[[], bytes]) -> bytes:
        """The value of a setting, which is made and stored if there is none; all processes get the same."""

        def work(connection: sa.Connection) -> bytes:
            query = sa.select(tables.settings.c.value).where(tables.settings.c.name == name)
            found = connection.execute(query).scalar()
            if found is None:
                found = make()
                connection.execute(tables.settings.insert(), {"name": name, "value": found})
            return bytes(found)

        return self.database.write(work)

    # Campaigns

    def create(self, name: str, mechanism: Mechanism, terms: str, *, last_hour: int | None = None) -> None:
        """Store a campaign that ends in that hour (since 1970) or never; ValueError if the name is taken."""
        row = {
            "name": name,
            "mechanism": mechanism.to_json(),
            "terms": terms,
            "closed": False,
            "last_hour": last_hour,
            "issued": 0,
        }

        def work(connection: sa.Connection) -> None:
            found = connection.execute(_campaign_query(name)).one_or_none()
            if found is None:
                connection.execute(tables.campaigns.insert(), row)
            elif (found.mechanism, found.terms) != (row["mechanism"], terms):  # not this call, tried again
                raise ValueError(f"name must be new, got {name!r}, which is a campaign already")

        self.database.write(work)

    def campaign(self, name: str) -> StoredCampaign | None:
        """The campaign of that name, if there is one."""
        return self.database.read(lambda connection: self._stored(connection, _campaign_query(name)).get(name))

    def campaigns(self) -> list[StoredCampaign]:
        """All campaigns by name."""
        query = sa.select(tables.campaigns).order_by(tables.campaigns.c.name)
        return list(self.database.read(lambda connection: self._stored(connection, query)).values())

    def _stored(self, connection: sa.Connection, query: sa.Select[tuple[object, ...]]) -> dict[str, StoredCampaign]:
        return {
            row.name: StoredCampaign(row.name, self._mechanism(row.mechanism), row.terms, row.closed)
            for row in connection.execute(query)
        }

    def _mechanism(self, text: str) -> Mechanism:
        # To read one takes longer than all else in a request; there are as many as campaigns.
        if text not in self._mechanisms:
            self._mechanisms[text] = from_json(text)
        return self._mechanisms[text]

    def change_terms(self, name: str, terms: str, *, last_hour: int | None = None) -> None:
        """Replace the terms of a campaign and the hour in which it ends; ValueError if there is none of that name."""
        self._change(name, {"terms": terms, "last_hour": last_hour})

    def end(self, name: str) -> None:
        """Close a campaign for good: nothing new is stored for it from now on; what is stored is still folded."""
        self._change(name, {"closed": True, "last_hour": current_hour()})

    def _change(self, name: str, values: dict[str, object]) -> None:
        statement = tables.campaigns.update().where(tables.campaigns.c.name == name).values(values)
        if not self.database.write(lambda connection: connection.execute(statement).rowcount):
            raise _no_campaign(name)

    def delete(self, name: str) -> None:
        """Delete a campaign with all that was collected for it."""

        def work(connection: sa.Connection) -> None:
            # First the campaign: uploads on their way to it wait, and then there is none.
            connection.execute(tables.campaigns.delete().where(tables.campaigns.c.name == name))
            for table in tables.OF_A_CAMPAIGN:
                connection.execute(table.delete().where(table.c.campaign == name))

        self.database.write(work)

    def purge(self, grace_hours: int) -> None:
        """Forget the keys and tokens of campaigns that ended more than so many hours ago."""
        last = tables.campaigns.c.last_hour
        ended = sa.select(tables.campaigns.c.name).where(last < current_hour() - grace_hours)

        def work(connection: sa.Connection) -> None:
            for table in (tables.receipts, tables.tokens):
                connection.execute(table.delete().where(table.c.campaign.in_(ended)))

        self.database.write(work)

    # Tokens

    def issue(self, name: str, digests: Iterable[bytes]) -> None:
        """Add single-use tokens by their SHA-256, once; ValueError if there is no such campaign."""
        rows = [{"campaign": name, "digest": digest} for digest in sorted(digests)]
        own = tables.tokens.c
        done = sa.select(own.digest).where(own.campaign == name, own.digest.in_([row["digest"] for row in rows[:1]]))

        def work(connection: sa.Connection) -> int:
            issued = tables.campaigns.c.issued + len(rows)
            there = tables.campaigns.update().where(tables.campaigns.c.name == name).values(issued=issued)
            if rows and connection.execute(done).one_or_none():  # by this call, whose connection was lost
                return 1
            changed = connection.execute(there).rowcount
            if changed and rows:
                connection.execute(tables.tokens.insert(), rows)
            return changed

        if not self.database.write(work):
            raise _no_campaign(name)

    # Uploads

    def receive(self, batch: Sequence[Upload]) -> list[Receipt | Refusal]:
        """Store uploads in one transaction; what has a receipt is durable on return.

        A key that was seen before gets the receipt that it got then: neither the token nor whether the campaign is
        still open is looked at. A token is spent in the same transaction.
        """
        return self.database.write(lambda connection: _receive(connection, batch))

    def fold(self, name: str) -> int:
        """Fold some uploads of a campaign, then merge what is alike; returns how many messages were folded."""
        mechanism = self._named(name).mechanism
        folded = folding.fold(self.database, name, mechanism, current_hour())
        while folding.merge(self.database, name, mechanism):
            pass
        return folded

    def state(self, name: str) -> Aggregator[Any]:
        """The sums of all folded messages of a campaign."""
        mechanism = self._named(name).mechanism
        return self.database.read(lambda connection: states.state(connection, name, mechanism))

    def save_state(self, name: str, path: str | os.PathLike[str]) -> int:
        """Write the same as ``state(name).save(path)``, in memory for a few pieces; returns the number of messages."""
        mechanism = self._named(name).mechanism
        return self.database.read(lambda connection: states.save_state(connection, name, mechanism, path))

    def _named(self, name: str) -> StoredCampaign:
        found = self.campaign(name)
        if found is None:
            raise _no_campaign(name)
        return found

    def counts(self, name: str) -> Counts:
        """How many messages a campaign has."""

        def work(connection: sa.Connection) -> Counts:
            found = connection.execute(_campaign_query(name)).one_or_none()
            if found is None:
                raise _no_campaign(name)
            waiting, folded = (_total(connection, table, name) for table in (tables.uploads, tables.pieces))
            unspent = connection.execute(
                sa.select(sa.func.count()).select_from(tables.tokens).where(tables.tokens.c.campaign == name)
            ).scalar_one()
            return Counts(waiting + folded, folded, found.issued, unspent)

        return self.database.read(work)


def current_hour() -> int:
    """The hours since 1970: no finer time is stored."""
    return int(time.time()) // _SECONDS_AN_HOUR


def _no_campaign(name: str) -> ValueError:
    return ValueError(f"name must be that of a campaign, got {name!r}")


def _campaign_query(name: str) -> sa.Select[tuple[object, ...]]:
    return sa.select(tables.campaigns).where(tables.campaigns.c.name == name)


def _total(connection: sa.Connection, table: sa.Table, name: str) -> int:
    query = sa.select(sa.func.coalesce(sa.func.sum(table.c.messages), 0)).where(table.c.campaign == name)
    return int(connection.execute(query).scalar_one())


def _receive(connection: sa.Connection, batch: Sequence[Upload]) -> list[Receipt | Refusal]:
    # In the order of their keys, so that two processes with the same uploads wait for each other in one direction.
    first: dict[tuple[str, bytes], Upload] = {}
    for upload in batch:
        first.setdefault((upload.campaign, upload.key), upload)
    wanted = dict(sorted(first.items()))
    names = sorted({name for name, _ in wanted})
    # Shared locks: closing or deleting a campaign waits for this transaction, and uploads do not wait for each other.
    query = sa.select(tables.campaigns.c.name, tables.campaigns.c.closed).where(tables.campaigns.c.name.in_(names))
    closed = {row.name: row.closed for row in connection.execute(query.with_for_update(read=True))}
    known = _known_keys(connection, names, [key for _, key in wanted])
    fresh = {place: upload for place, upload in wanted.items() if place not in known}
    refused: dict[tuple[str, bytes], Refusal] = {}
    for place, upload in fresh.items():
        if upload.campaign not in closed:
            refused[place] = Refusal.UNKNOWN
        elif closed[upload.campaign] or upload.late:
            refused[place] = Refusal.CLOSED
    _spend_tokens(connection, {place: upload for place, upload in fresh.items() if place not in refused}, refused)
    _insert(connection, [upload for place, upload in fresh.items() if place not in refused])
    answers: list[Receipt | Refusal] = []
    for upload in batch:
        place = (upload.campaign, upload.key)
        count = known.get(place, wanted[place].count)
        if place in refused:
            answers.append(refused[place])
        else:
            answers.append(Receipt(count) if count == upload.count else Refusal.KEY)
    return answers


def _known_keys(connection: sa.Connection, names: list[str], keys: list[bytes]) -> dict[tuple[str, bytes], int]:
    table = tables.receipts
    query = sa.select(table).where(table.c.campaign.in_(names), table.c.key.in_(keys))
    return {(row.campaign, bytes(row.key)): row.messages for row in connection.execute(query)}


def _spend_tokens(
    connection: sa.Connection,
    fresh: dict[tuple[str, bytes], Upload],
    refused: dict[tuple[str, bytes], Refusal],
) -> None:
    """Delete the tokens of new uploads, and refuse those whose token is not there or pays for another of them."""
    paying = sorted((upload.campaign, upload.token) for upload in fresh.values() if upload.token is not None)
    if not paying:
        return
    table = tables.tokens
    names, digests = (sorted(set(values)) for values in zip(*paying, strict=True))
    query = sa.select(table).where(table.c.campaign.in_(names), table.c.digest.in_(digests))
    locked = connection.execute(query.order_by(table.c.campaign, table.c.digest).with_for_update())
    left = {(row.campaign, bytes(row.digest)) for row in locked}
    spent = []
    for place, upload in fresh.items():
        if upload.token is None:
            continue
        if (upload.campaign, upload.token) in left:
            left.remove((upload.campaign, upload.token))
            spent.append({"name": upload.campaign, "token": upload.token})
        else:
            refused[place] = Refusal.SPENT
    if spent:
        own = sa.and_(table.c.campaign == sa.bindparam("name"), table.c.digest == sa.bindparam("token"))
        connection.execute(table.delete().where(own), spent)


def _insert(connection: sa.Connection, fresh: list[Upload]) -> None:
    if not fresh:
        return
    rows = [{"campaign": u.campaign, "key": u.key, "messages": u.count, "body": u.body} for u in fresh]
    connection.execute(tables.receipts.insert(), [{name: row[name] for name in row if name != "body"} for row in rows])
    connection.execute(tables.uploads.insert(), rows)
