"""The collector's store: campaigns, uploads, partial states and results, in one database."""

import json
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from sstq.aggregation import Aggregator, Estimate
from sstq.mechanisms import Mechanism
from sstq.service import database as tables
from sstq.service import folding
from sstq.service.database import Database, UnknownCampaign, insert_rows, put, total
from sstq.service.receiving import (
    Answer,
    Check,
    Refusal,
    Upload,
    checked,
    parsed,
    receive,
)

__all__ = ["Counts", "Refusal", "Store", "StoredCampaign", "UnknownCampaign", "Upload"]

_SERVICE = "service-hours"  # the setting with the hours of service so far

T = TypeVar("T")


@dataclass(frozen=True)
class StoredCampaign:
    """A campaign's row in the database; `terms` is JSON text, `senders` has the hashes of its senders' tokens.

    `study` is the study whose stage it is; that of a study is its own name, and None that of a campaign by itself.
    """

    name: str
    mechanism: Mechanism
    terms: str
    version: int
    closed: bool
    senders: frozenset[bytes]
    study: str | None = None

    @property
    def payer(self) -> str:
        """The name that senders and tokens are stored under."""
        return self.study or self.name


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
        check: Check = checked,
        *,
        upgrade: bool = False,
        read_only: bool = False,
    ) -> None:
        super().__init__(url, upgrade=upgrade, read_only=read_only)
        self._check = check

    def ping(self) -> None:
        """Check that the database stores; DatabaseUnavailable otherwise."""
        self.keep_setting("written", secrets.token_bytes(1))

    # Settings

    def setting(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return a setting, created and stored on first use."""

        def work(connection: sa.Connection) -> bytes:
            found = _get(connection, name)
            if found is None:
                found = make()
                connection.execute(
                    tables.settings.insert(), {"name": name, "value": found}
                )
            return found

        return self.write(work)

    def known_setting(self, name: str) -> bytes | None:
        """Return the value of a setting, if any."""
        return self.read(lambda connection: _get(connection, name))

    def keep_setting(self, name: str, value: bytes) -> None:
        """Store a setting in place of what it was."""
        self.write(lambda connection: _set(connection, name, value))

    def delete_settings(self, names: Iterable[str]) -> None:
        """Delete settings, whether or not they exist."""
        self.execute(
            tables.settings.delete().where(tables.settings.c.name.in_(list(names)))
        )

    # Campaigns

    def create(self, name: str, mechanism: Mechanism, terms: str) -> None:
        """Store a campaign; ValueError if the name is taken."""
        self.write(lambda connection: new_campaign(connection, name, mechanism, terms))

    def campaigns(self) -> dict[str, StoredCampaign]:
        """Return all campaigns by name."""
        table = tables.campaigns.c
        kept = ("name", "mechanism", "terms", "version", "closed", "study")
        query = sa.select(*(table[column] for column in kept)).order_by(table.name)

        def work(connection: sa.Connection) -> dict[str, StoredCampaign]:
            senders: dict[str, set[bytes]] = {}
            for own, digest in connection.execute(
                sa.select(tables.senders.c.campaign, tables.senders.c.digest)
            ):
                senders.setdefault(own, set()).add(bytes(digest))
            found = {}
            for row in connection.execute(query):
                own = senders.get(row.study or row.name, ())
                solved = {"mechanism": parsed(row.mechanism), "senders": frozenset(own)}
                found[row.name] = StoredCampaign(**row._asdict() | solved)
            return found

        return self.read(work)

    def _mechanism(self, name: str) -> Mechanism:
        return parsed(self.read(lambda connection: _existing(connection, name)))

    def change(self, known: StoredCampaign, **values: Any) -> bool:
        """Change columns of a campaign, unless it is another one than was `known`: then nothing changes.

        Returns whether it was changed. If it is `closed`, stored uploads are still folded, but none is accepted.
        """
        return self._change(
            known.name, lambda connection: changed(connection, known, **values)
        )

    def _change(self, name: str, work: Callable[[sa.Connection], T]) -> T:
        def existing(connection: sa.Connection) -> T:
            _existing(connection, name)
            return work(connection)

        return self.write(existing)

    def delete(self, name: str) -> None:
        """Delete a campaign and everything collected for it; of a study also all of its stages."""
        own = tables.campaigns.c

        def work(connection: sa.Connection) -> None:
            known = sa.select(own.name).where((own.name == name) | (own.study == name))
            names = list(connection.execute(known).scalars())
            for column in [
                own.name,
                *(table.c.campaign for table in tables.OF_A_CAMPAIGN),
            ]:
                connection.execute(sa.delete(column.table).where(column.in_(names)))

        self.write(work)

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
            connection.execute(
                update.where(passed, table.ended.is_(None)).values(ended=service)
            )
            query = sa.select(table.name).where(table.ended <= service - grace_hours)
            gone = list(connection.execute(query).scalars())
            for kept in (tables.receipts, tables.tokens, tables.seen):
                connection.execute(kept.delete().where(kept.c.campaign.in_(gone)))
            connection.execute(update.where(table.name.in_(gone)).values(closed=True))

        self.write(work)

    # Tokens

    def add_sender(self, name: str, digest: bytes, quota: int | None) -> None:
        """Let the holder of a token, given by its SHA-256, send this many messages; ValueError without the campaign."""
        row = {"campaign": name, "digest": digest, "quota": quota, "used": 0}
        self._change(name, lambda connection: put(connection, tables.senders, row))

    def remove_senders(self, name: str) -> None:
        """Make all senders' tokens of a campaign worthless."""
        self.execute(tables.senders.delete().where(tables.senders.c.campaign == name))

    def issue(self, name: str, digests: Iterable[bytes]) -> None:
        """Add single-use tokens by their SHA-256, once each; ValueError if there is no such campaign."""
        rows = [{"campaign": name, "digest": digest} for digest in sorted(digests)]
        own = tables.tokens.c
        table = tables.campaigns
        first = sa.select(own.digest).where(
            own.campaign == name, own.digest.in_([row["digest"] for row in rows[:1]])
        )
        more = (
            table.update()
            .where(table.c.name == name)
            .values(issued=table.c.issued + len(rows))
        )

        def work(connection: sa.Connection) -> None:
            # and so not a retry of this call
            if rows and connection.execute(first).one_or_none() is None:
                connection.execute(more)
                insert_rows(connection, tables.tokens, rows)

        self._change(name, work)

    def allowance(
        self, name: str, token: bytes | None, sender: bytes | None
    ) -> int | None:
        """How many more messages a token pays for, given by its SHA-256; None without a limit."""
        tokens = tables.tokens.c
        senders = tables.senders.c

        def work(connection: sa.Connection) -> int | None:
            if token is not None:
                query = sa.select(sa.func.count()).where(
                    tokens.campaign == name, tokens.digest == token
                )
                return int(connection.execute(query).scalar_one())
            query = sa.select(senders.quota - senders.used).where(
                senders.campaign == name, senders.digest == sender
            )
            return connection.execute(query).scalar_one_or_none()

        return self.read(work)

    def rooms(self, names: Collection[str]) -> dict[str, int | None]:
        """How many more messages each of these campaigns wants; None for any number."""
        table = tables.campaigns.c
        return dict(
            tuple(row)
            for row in self.rows(
                sa.select(table.name, table.room).where(table.name.in_(names))
            )
        )

    # Uploads

    def receive(self, batch: Sequence[Upload]) -> list[Answer]:
        """Check uploads and store them in one transaction, durable on return."""
        return self.receiving(batch).result()

    def receiving(self, batch: Sequence[Upload]) -> Future[list[Answer]]:
        """Do as `receive` does, without waiting."""
        return self.writing(lambda connection: receive(connection, batch, self._check))

    def waiting(self) -> dict[str, int]:
        """Count the messages that are not folded yet, of all campaigns that have some."""
        left = total(tables.uploads)
        query = sa.select(tables.campaigns.c.name, left).where(left > 0)
        return {name: int(count) for name, count in self.rows(query)}

    def received(self, name: str) -> int:
        """Count the messages of a campaign."""
        both = total(tables.uploads) + total(tables.pieces)
        query = sa.select(both).where(tables.campaigns.c.name == name)
        return int(self.scalar(query) or 0)

    def study_state(self, name: str) -> str:
        """The state of a study, as JSON; UnknownCampaign if there is no such study."""
        found: str | None = self.scalar(
            sa.select(tables.studies.c.state).where(tables.studies.c.campaign == name)
        )
        if found is None:
            raise UnknownCampaign(f"name must be that of a study, got {name!r}")
        return found

    def outdated(self) -> set[str]:
        """The campaigns whose estimate does not cover all folded messages."""
        is_outdated = total(tables.estimates) < total(tables.pieces)
        query = sa.select(tables.campaigns.c.name).where(is_outdated)
        return {row.name for row in self.rows(query)}

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of a store with this one."""
        return function(self, *arguments)

    def fold(
        self, name: str, hour: int = 0, run: Callable[..., Any] | None = None
    ) -> int:
        """Fold some uploads of a campaign in this hour, then merge similar pieces; returns how many were folded.

        `run` calls a function of a store and further arguments elsewhere.
        """
        run = run or self.run
        mechanism = self._mechanism(name)
        found = step = run(folding.fold, name, mechanism)
        while step is not None:
            self.write(partial(folding.keep, name=name, step=step, hour=hour))
            step = run(folding.merge, name, mechanism)
        return 0 if found is None else int(found.folded)

    def state(self, name: str) -> Aggregator[Estimate]:
        """Return the sums of all folded messages of a campaign."""
        mechanism = self._mechanism(name)
        return self.read(lambda connection: folding.state(connection, name, mechanism))

    def counts(self) -> dict[str, Counts]:
        """Return the counts of all campaigns."""
        own = tables.campaigns.c
        folded = total(tables.pieces)
        unspent = sa.select(sa.func.count()).where(tables.tokens.c.campaign == own.name)
        query = sa.select(
            own.name,
            total(tables.uploads) + folded,
            folded,
            own.issued,
            unspent.scalar_subquery(),
        )
        return {name: Counts(*map(int, found)) for name, *found in self.rows(query)}


def new_campaign(
    connection: sa.Connection,
    name: str,
    mechanism: Mechanism,
    terms: str,
    **columns: str | int | None,
) -> None:
    """Store a campaign; ValueError if the name is taken."""
    row = {
        "name": name,
        "mechanism": mechanism.to_json(),
        "terms": terms,
        "closed": False,
        "issued": 0,
    } | columns
    # So that a change of a deleted campaign does not fit a new one of the same name.
    row["version"] = secrets.randbits(62)
    found = connection.execute(
        sa.select(tables.campaigns).where(tables.campaigns.c.name == name)
    ).one_or_none()
    if found is None:
        connection.execute(tables.campaigns.insert(), row)
    # and so not a retry of this call
    elif (found.mechanism, found.terms) != (row["mechanism"], terms):
        raise ValueError(f"name must be new, got {name!r}, which already exists")


def changed(connection: sa.Connection, known: StoredCampaign, **values: Any) -> bool:
    """Change columns of a campaign, unless it is another one than was `known`; returns whether it was changed."""
    table = tables.campaigns
    change = table.update().where(
        table.c.name == known.name, table.c.version == known.version
    )
    return (
        connection.execute(change.values(version=known.version + 1, **values)).rowcount
        == 1
    )


def _existing(connection: sa.Connection, name: str) -> str:
    """The JSON of a campaign's mechanism; UnknownCampaign if there is no such campaign."""
    table = tables.campaigns.c
    found: str | None = connection.execute(
        sa.select(table.mechanism).where(table.name == name)
    ).scalar()
    if found is None:
        raise UnknownCampaign(f"name must be an existing campaign, got {name!r}")
    return found


def _get(connection: sa.Connection, name: str) -> bytes | None:
    found = connection.execute(
        sa.select(tables.settings.c.value).where(tables.settings.c.name == name)
    ).scalar()
    return None if found is None else bytes(found)


def _set(connection: sa.Connection, name: str, value: bytes) -> None:
    put(connection, tables.settings, {"name": name, "value": value})
