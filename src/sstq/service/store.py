"""The collector's store: campaigns, uploads, partial states and results, in one database."""

import json
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from sstq.aggregation import Aggregator
from sstq.mechanisms import Mechanism, from_json
from sstq.service import database as tables
from sstq.service import folding
from sstq.service.database import Database, hold, put, totals
from sstq.service.receiving import Answer, Checked, Packed, Receipt, Refusal, Upload, checked, receive

__all__ = ["Counts", "Receipt", "Refusal", "Store", "StoredCampaign", "UnknownCampaign", "Upload"]

# Names of settings: hours of service so far, and a mark that changes with any campaign.
_SERVICE, _CHANGES = "service-hours", "changes"


class UnknownCampaign(ValueError):  # noqa: N818
    """There is no campaign with this name, or it was deleted."""


@dataclass(frozen=True)
class StoredCampaign:
    """A campaign's row in the database; `terms` is JSON text, `senders` has the hashes of its senders' tokens."""

    name: str
    mechanism: Mechanism
    terms: str
    closed: bool
    senders: frozenset[bytes]


@dataclass(frozen=True)
class Counts:
    """Counts of a campaign: messages acknowledged and folded, single-use tokens issued and left."""

    received: int
    folded: int
    issued: int
    unspent: int


class Store(Database):
    """Everything a collector stores; `check` checks and joins bodies, which a shuffler cannot look into."""

    def __init__(
        self,
        url: str,
        check: Callable[[Mechanism, Sequence[Packed]], Checked] = checked,
        *,
        upgrade: bool = False,
    ) -> None:
        super().__init__(url, upgrade=upgrade)
        self._check = check
        self._mechanisms: dict[str, Mechanism] = {}

    def ping(self) -> None:
        """Check that the database stores; DatabaseUnavailable otherwise."""
        self.write(lambda connection: _set(connection, "written", secrets.token_bytes(1)))

    # Settings

    def setting(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return a setting, created and stored on first use; all processes get the same value."""

        def work(connection: sa.Connection) -> bytes:
            found = _get(connection, name)
            if found is None:
                found = make()
                connection.execute(tables.settings.insert(), {"name": name, "value": found})
            return found

        return self.write(work)

    def known_setting(self, name: str) -> bytes | None:
        """Return the value of a setting, if any."""
        return self.read(lambda connection: _get(connection, name))

    def delete_settings(self, names: Iterable[str]) -> None:
        """Delete settings, whether or not they exist."""
        self.execute(tables.settings.delete().where(tables.settings.c.name.in_(list(names))))

    # Campaigns

    def changes(self) -> bytes:
        """A mark that is another one after every change of a campaign, by any process."""
        return self.known_setting(_CHANGES) or b""

    def create(self, name: str, mechanism: Mechanism, terms: str) -> None:
        """Store a campaign; ValueError if the name is taken."""
        row = {"name": name, "mechanism": mechanism.to_json(), "terms": terms, "closed": False, "issued": 0}

        def work(connection: sa.Connection) -> None:
            query = sa.select(tables.campaigns).where(tables.campaigns.c.name == name)
            found = connection.execute(query).one_or_none()
            if found is None:
                connection.execute(tables.campaigns.insert(), row)
                _mark(connection)
            elif (found.mechanism, found.terms) != (row["mechanism"], terms):  # and so not a retry of this call
                raise ValueError(f"name must be new, got {name!r}, which already exists")

        self.write(work)

    def campaign(self, name: str) -> StoredCampaign | None:
        """Return the campaign with this name, if any."""
        return next((found for found in self.campaigns() if found.name == name), None)

    def campaigns(self) -> list[StoredCampaign]:
        """Return all campaigns by name."""
        table = tables.campaigns.c
        query = sa.select(table.name, table.mechanism, table.terms, table.closed).order_by(table.name)

        def work(connection: sa.Connection) -> list[StoredCampaign]:
            senders: dict[str, set[bytes]] = {}
            for own, digest in connection.execute(sa.select(tables.senders.c.campaign, tables.senders.c.digest)):
                senders.setdefault(own, set()).add(bytes(digest))
            return [
                StoredCampaign(name, self._mechanism(mechanism), terms, closed, frozenset(senders.get(name, ())))
                for name, mechanism, terms, closed in connection.execute(query)
            ]

        return self.read(work)

    def _mechanism(self, text: str) -> Mechanism:
        # Parsing one takes longer than the rest of a request; there is one entry per campaign.
        if text not in self._mechanisms:
            self._mechanisms[text] = from_json(text)
        return self._mechanisms[text]

    def _named(self, name: str) -> Mechanism:
        found = self.campaign(name)
        if found is None:
            raise _no_campaign(name)
        return found.mechanism

    def change_terms(self, name: str, terms: str) -> None:
        """Replace a campaign's terms; ValueError if there is no such campaign."""
        self._change(name, {"terms": terms})

    def end(self, name: str) -> None:
        """Close a campaign for good: nothing new is stored from now on, but stored uploads are still folded."""
        self._change(name, {"closed": True})

    def _change(self, name: str, values: dict[str, object]) -> None:
        change = tables.campaigns.update().where(tables.campaigns.c.name == name).values(values)
        self._within(name, lambda connection: connection.execute(change))

    def _within(self, name: str, work: Callable[[sa.Connection], object]) -> None:
        """Change a campaign in one transaction, so that all processes read it again; UnknownCampaign without it."""

        def change(connection: sa.Connection) -> bool:
            if not hold(connection, name):
                return False
            work(connection)
            _mark(connection)
            return True

        if not self.write(change):
            raise _no_campaign(name)

    def delete(self, name: str) -> None:
        """Delete a campaign and everything collected for it."""

        def work(connection: sa.Connection) -> None:
            # The campaign first: concurrent uploads wait for this, and then find no campaign.
            connection.execute(tables.campaigns.delete().where(tables.campaigns.c.name == name))
            for table in tables.OF_A_CAMPAIGN:
                connection.execute(table.delete().where(table.c.campaign == name))
            _mark(connection)

        self.write(work)

    def last_hour(self) -> int | None:
        """The hour of the last call of `purge`, if any."""
        found = self.known_setting(_SERVICE)
        return None if found is None else int(json.loads(found)[1])

    def purge(self, over: Collection[str], hour: int, grace_hours: int) -> None:
        """Delete the keys, tokens and envelopes of campaigns that ended long ago, and close them for good.

        Long ago is after this many hours of service, which are counted here: at most one per call and per hour of any
        clock. So a clock that is wrong for a while deletes nothing. A campaign not in `over` loses its mark.
        """
        table = tables.campaigns.c

        def work(connection: sa.Connection) -> None:
            service, last = json.loads(_get(connection, _SERVICE) or b"[0, 0]")
            service += last != hour
            _set(connection, _SERVICE, json.dumps([service, hour]).encode())
            passed = table.closed | table.name.in_(list(over))
            update = tables.campaigns.update()
            connection.execute(update.where(sa.not_(passed)).values(ended=None))
            connection.execute(update.where(passed, table.ended.is_(None)).values(ended=service))
            query = sa.select(table.name).where(table.ended <= service - grace_hours)
            gone = list(connection.execute(query).scalars())
            for kept in (tables.receipts, tables.tokens, tables.seen):
                connection.execute(kept.delete().where(kept.c.campaign.in_(gone)))
            end = update.where(table.name.in_(gone), sa.not_(table.closed)).values(closed=True)
            if connection.execute(end).rowcount:
                _mark(connection)

        self.write(work)

    # Tokens

    def add_sender(self, name: str, digest: bytes, quota: int | None) -> None:
        """Let the holder of a token, given by its SHA-256, send this many messages; ValueError without the campaign."""
        row = {"campaign": name, "digest": digest, "quota": quota, "used": 0}
        table = tables.senders.c
        mine = sa.select(table.used).where(table.campaign == name, table.digest == digest)

        def work(connection: sa.Connection) -> None:
            if connection.execute(mine).one_or_none() is None:  # and so not a retry of this call
                connection.execute(tables.senders.insert(), row)

        self._within(name, work)

    def remove_senders(self, name: str) -> None:
        """Make all senders' tokens of a campaign worthless."""
        gone = tables.senders.delete().where(tables.senders.c.campaign == name)
        self._within(name, lambda connection: connection.execute(gone))

    def issue(self, name: str, digests: Iterable[bytes]) -> None:
        """Add single-use tokens by their SHA-256, once each; ValueError if there is no such campaign."""
        rows = [{"campaign": name, "digest": digest} for digest in sorted(digests)]
        own, table = tables.tokens.c, tables.campaigns
        first = sa.select(own.digest).where(own.campaign == name, own.digest.in_([row["digest"] for row in rows[:1]]))
        more = table.update().where(table.c.name == name).values(issued=table.c.issued + len(rows))

        def work(connection: sa.Connection) -> None:
            if rows and connection.execute(first).one_or_none() is None:  # and so not a retry of this call
                connection.execute(more)
                connection.execute(tables.tokens.insert(), rows)

        self._within(name, work)

    # Uploads

    def receive(self, batch: Sequence[Upload]) -> list[Answer]:
        """Check uploads and store them in one transaction; uploads with a receipt are durable on return."""
        return self.write(lambda connection: receive(connection, batch, self._checked))

    def _checked(self, mechanism: str, packed: Sequence[Packed]) -> Checked:
        return self._check(self._mechanism(mechanism), packed)

    def waiting(self) -> dict[str, int]:
        """Count the messages that are not folded yet, of all campaigns that have some."""
        return self.read(lambda connection: totals(connection, tables.uploads))

    def outdated(self) -> dict[str, int]:
        """Count the folded messages of all campaigns whose estimate does not cover them."""

        def work(connection: sa.Connection) -> dict[str, int]:
            covered = totals(connection, tables.estimates)
            folded = totals(connection, tables.pieces)
            return {name: count for name, count in folded.items() if covered.get(name, 0) < count}

        return self.read(work)

    def fold(self, name: str, hour: int = 0) -> int:
        """Fold some uploads of a campaign in this hour, then merge similar pieces; returns how many were folded."""
        mechanism = self._named(name)
        folded = folding.fold(self, name, mechanism, hour)
        while folding.merge(self, name, mechanism):
            pass
        return folded

    def state(self, name: str) -> Aggregator:
        """Return the sums of all folded messages of a campaign."""
        mechanism = self._named(name)
        return self.read(lambda connection: folding.state(connection, name, mechanism))

    def counts(self, name: str) -> Counts:
        """Return the counts of a campaign."""
        found = self.all_counts().get(name)
        if found is None:
            raise _no_campaign(name)
        return found

    def all_counts(self) -> dict[str, Counts]:
        """Return the counts of all campaigns, with as many queries as for one."""
        query = sa.select(tables.campaigns.c.name, tables.campaigns.c.issued)
        left = sa.select(tables.tokens.c.campaign, sa.func.count()).group_by(tables.tokens.c.campaign)

        def work(connection: sa.Connection) -> dict[str, Counts]:
            waiting, folded = (totals(connection, table) for table in (tables.uploads, tables.pieces))
            unspent = {campaign: int(tokens) for campaign, tokens in connection.execute(left)}
            return {
                own: Counts(waiting.get(own, 0) + folded.get(own, 0), folded.get(own, 0), issued, unspent.get(own, 0))
                for own, issued in connection.execute(query)
            }

        return self.read(work)


def _no_campaign(name: str) -> UnknownCampaign:
    return UnknownCampaign(f"name must be an existing campaign, got {name!r}")


def _get(connection: sa.Connection, name: str) -> bytes | None:
    found = connection.execute(sa.select(tables.settings.c.value).where(tables.settings.c.name == name)).scalar()
    return None if found is None else bytes(found)


def _set(connection: sa.Connection, name: str, value: bytes) -> None:
    put(connection, tables.settings, {"name": name, "value": value})


def _mark(connection: sa.Connection) -> None:
    """Let all processes read the campaigns again."""
    _set(connection, _CHANGES, secrets.token_bytes(16))
