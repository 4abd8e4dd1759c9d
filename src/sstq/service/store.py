"""The collector's store: campaigns, uploads, partial states and results, in one database."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from sstq.aggregation import Aggregator
from sstq.mechanisms import Mechanism, from_json
from sstq.service import database as tables
from sstq.service import folding, states
from sstq.service.bodies import MessagePacking, Packing
from sstq.service.database import Database
from sstq.service.receiving import Answer, Receipt, Refusal, Upload, receive

__all__ = ["Counts", "Receipt", "Refusal", "Store", "StoredCampaign", "UnknownCampaign", "Upload", "current_hour"]

_SECONDS_AN_HOUR = 3600


class UnknownCampaign(ValueError):  # noqa: N818
    """There is no campaign with this name, or it was deleted."""


@dataclass(frozen=True)
class StoredCampaign:
    """A campaign's row in the database; `terms` is the JSON text it was created with."""

    name: str
    mechanism: Mechanism
    terms: str
    closed: bool


@dataclass(frozen=True)
class Counts:
    """Counts of a campaign: messages acknowledged and folded, single-use tokens issued and left."""

    received: int
    folded: int
    issued: int
    unspent: int


class Store:
    """Everything a collector stores. Several processes may share one PostgreSQL database."""

    def __init__(self, url: str, packing: Callable[[Mechanism], Packing] = MessagePacking) -> None:
        self.database = Database(url)
        self._packing = packing
        self._mechanisms: dict[str, Mechanism] = {}

    def close(self) -> None:
        """Close all connections."""
        self.database.dispose()

    def ping(self) -> None:
        """Check that the database responds; DatabaseUnavailable otherwise."""
        self.database.read(lambda connection: connection.execute(sa.select(1)))

    # Settings

    def setting(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return a setting, created and stored on first use; all processes get the same value."""

        def work(connection: sa.Connection) -> bytes:
            query = sa.select(tables.settings.c.value).where(tables.settings.c.name == name)
            found = connection.execute(query).scalar()
            if found is None:
                found = make()
                connection.execute(tables.settings.insert(), {"name": name, "value": found})
            return bytes(found)

        return self.database.write(work)

    def known_setting(self, name: str) -> bytes | None:
        """Return the value of a setting, if any."""
        query = sa.select(tables.settings.c.value).where(tables.settings.c.name == name)
        found = self.database.read(lambda connection: connection.execute(query).scalar())
        return None if found is None else bytes(found)

    def delete_settings(self, names: Iterable[str]) -> None:
        """Delete settings, whether or not they exist."""
        statement = tables.settings.delete().where(tables.settings.c.name.in_(list(names)))
        self.database.write(lambda connection: connection.execute(statement))

    # Campaigns

    def create(self, name: str, mechanism: Mechanism, terms: str, *, last_hour: int | None = None) -> None:
        """Store a campaign that ends in this hour (since 1970) or never; ValueError if the name is taken."""
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
            elif (found.mechanism, found.terms) != (row["mechanism"], terms):  # and so not a retry of this call
                raise ValueError(f"name must be new, got {name!r}, which already exists")

        self.database.write(work)

    def campaign(self, name: str) -> StoredCampaign | None:
        """Return the campaign with this name, if any."""
        return self.database.read(lambda connection: self._stored(connection, _campaign_query(name)).get(name))

    def campaigns(self) -> list[StoredCampaign]:
        """Return all campaigns, by name."""
        query = sa.select(tables.campaigns).order_by(tables.campaigns.c.name)
        return list(self.database.read(lambda connection: self._stored(connection, query)).values())

    def _stored(self, connection: sa.Connection, query: sa.Select[tuple[object, ...]]) -> dict[str, StoredCampaign]:
        return {
            row.name: StoredCampaign(row.name, self._mechanism(row.mechanism), row.terms, row.closed)
            for row in connection.execute(query)
        }

    def _mechanism(self, text: str) -> Mechanism:
        # Parsing one takes longer than the rest of a request; there is one entry per campaign.
        if text not in self._mechanisms:
            self._mechanisms[text] = from_json(text)
        return self._mechanisms[text]

    def change_terms(self, name: str, terms: str, *, last_hour: int | None = None) -> None:
        """Replace a campaign's terms and the hour in which it ends; ValueError if there is no such campaign."""
        self._change(name, {"terms": terms, "last_hour": last_hour})

    def end(self, name: str) -> None:
        """Close a campaign for good: nothing new is stored from now on, but stored uploads are still folded."""
        self._change(name, {"closed": True, "last_hour": current_hour()})

    def _change(self, name: str, values: dict[str, object]) -> None:
        statement = tables.campaigns.update().where(tables.campaigns.c.name == name).values(values)
        if not self.database.write(lambda connection: connection.execute(statement).rowcount):
            raise _no_campaign(name)

    def delete(self, name: str) -> None:
        """Delete a campaign and everything collected for it."""

        def work(connection: sa.Connection) -> None:
            # The campaign first: concurrent uploads wait for this, and then find no campaign.
            connection.execute(tables.campaigns.delete().where(tables.campaigns.c.name == name))
            for table in tables.OF_A_CAMPAIGN:
                connection.execute(table.delete().where(table.c.campaign == name))

        self.database.write(work)

    def purge(self, grace_hours: int) -> None:
        """Delete the keys, tokens and envelopes of campaigns that ended more than this many hours ago."""
        last = tables.campaigns.c.last_hour
        ended = sa.select(tables.campaigns.c.name).where(last < current_hour() - grace_hours)

        def work(connection: sa.Connection) -> None:
            for table in (tables.receipts, tables.tokens, tables.seen):
                connection.execute(table.delete().where(table.c.campaign.in_(ended)))

        self.database.write(work)

    # Tokens

    def issue(self, name: str, digests: Iterable[bytes]) -> None:
        """Add single-use tokens by their SHA-256, once each; ValueError if there is no such campaign."""
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

    def receive(self, batch: Sequence[Upload]) -> list[Answer]:
        """Check uploads and store them in one transaction; uploads with a receipt are durable on return."""
        return self.database.write(lambda connection: receive(connection, batch, self._packing_of))

    def _packing_of(self, text: str) -> Packing:
        return self._packing(self._mechanism(text))

    def waiting(self, name: str) -> int:
        """Count the messages of a campaign that are not folded yet."""
        return self.database.read(lambda connection: _total(connection, tables.uploads, name))

    def fold(self, name: str) -> int:
        """Fold some uploads of a campaign, then merge similar pieces; returns how many messages were folded."""
        mechanism = self._named(name).mechanism
        folded = folding.fold(self.database, name, mechanism, current_hour())
        while folding.merge(self.database, name, mechanism):
            pass
        return folded

    def state(self, name: str) -> Aggregator[Any]:
        """Return the sums of all folded messages of a campaign."""
        mechanism = self._named(name).mechanism
        return self.database.read(lambda connection: states.state(connection, name, mechanism))

    def save_state(self, name: str, path: str | os.PathLike[str]) -> int:
        """Do the same as ``state(name).save(path)`` in little memory; returns the number of messages."""
        mechanism = self._named(name).mechanism
        return self.database.read(lambda connection: states.save_state(connection, name, mechanism, path))

    def _named(self, name: str) -> StoredCampaign:
        found = self.campaign(name)
        if found is None:
            raise _no_campaign(name)
        return found

    def counts(self, name: str) -> Counts:
        """Return the counts of a campaign."""

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


def _no_campaign(name: str) -> UnknownCampaign:
    return UnknownCampaign(f"name must be an existing campaign, got {name!r}")


def _campaign_query(name: str) -> sa.Select[tuple[object, ...]]:
    return sa.select(tables.campaigns).where(tables.campaigns.c.name == name)


def _total(connection: sa.Connection, table: sa.Table, name: str) -> int:
    query = sa.select(sa.func.coalesce(sa.func.sum(table.c.messages), 0)).where(table.c.campaign == name)
    return int(connection.execute(query).scalar_one())
