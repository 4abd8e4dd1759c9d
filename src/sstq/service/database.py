"""The database of a collector: tables, durable connections, and transactions with retries.

It stores little. An upload is identified by the random key that its client chose: there is no serial number, no address
and no time finer than the hour. A token's row and an upload's row have only the campaign's name in common.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, InternalError, OperationalError

from sstq.service.migrations import migrate

metadata = sa.MetaData()

_TEXT, _BYTES, _NUMBER, _SMALL, _FLAG = sa.Text, sa.LargeBinary, sa.BigInteger, sa.Integer, sa.Boolean
_CAMPAIGN = {"campaign": _TEXT}
_BATCH = _CAMPAIGN | {"batch": _BYTES}


def _table(name: str, keys: Mapping[str, Any], values: Mapping[str, Any], nullable: str = "") -> sa.Table:
    columns = [sa.Column(own, kind, primary_key=True) for own, kind in keys.items()]
    columns += [sa.Column(own, kind, nullable=own == nullable) for own, kind in values.items()]
    # Otherwise SQLite numbers the rows of a table in order of arrival.
    return sa.Table(name, metadata, *columns, sqlite_with_rowid=False)


settings = _table("settings", {"name": _TEXT}, {"value": _BYTES})
# Mechanism and terms are JSON. `issued` counts single-use tokens. `ended` says after how many hours of service the
# campaign was first seen closed; NULL if it is open.
campaigns = _table(
    "campaigns",
    {"name": _TEXT},
    {"mechanism": _TEXT, "terms": _TEXT, "closed": _FLAG, "issued": _NUMBER, "ended": _NUMBER},
    nullable="ended",
)
# The acknowledged keys, each with its number of messages, so that a repeated upload gets the same answer.
receipts = _table("receipts", _CAMPAIGN | {"key": _BYTES}, {"messages": _NUMBER})
# Messages not folded yet, from one upload or several stored together. The key is random and not that of a client.
uploads = _table("uploads", _CAMPAIGN | {"key": _BYTES}, {"messages": _NUMBER, "body": _BYTES})
# Partial states, never changed: see sstq.service.folding.
pieces = _table(
    "pieces",
    _CAMPAIGN | {"first": _NUMBER, "width": _NUMBER, "identity": _BYTES},
    {"level": _SMALL, "messages": _NUMBER, "sums": _BYTES},
)
# Single-use tokens that are not spent yet, as SHA-256; a spent one is deleted.
tokens = _table("tokens", _CAMPAIGN | {"digest": _BYTES}, {})
# Tokens of senders of batches, as SHA-256: how many messages each may send (NULL for no limit), and has sent.
senders = _table("senders", _CAMPAIGN | {"digest": _BYTES}, {"quota": _NUMBER, "used": _NUMBER}, nullable="quota")
# How many messages were folded in which hour since 1970.
arrivals = _table("arrivals", _CAMPAIGN | {"hour": _NUMBER}, {"messages": _NUMBER})
# How the error shrank: the standard error of the estimate after this many messages.
history = _table("history", _CAMPAIGN | {"messages": _NUMBER}, {"error": sa.Double})
# The newest estimate of each campaign, and how many messages it covers.
estimates = _table("estimates", _CAMPAIGN, {"messages": _NUMBER, "result": _BYTES})
# The estimates of readers who are not the owner: the "public" one, which they see, and the "next" one.
releases = _table("releases", _CAMPAIGN | {"stage": _TEXT}, {"messages": _NUMBER, "result": _BYTES})
# What no honest crowd explains, by kind, and after how many messages it was seen first.
alarms = _table("alarms", _CAMPAIGN | {"kind": _TEXT}, {"messages": _NUMBER, "detail": _TEXT})

# Shuffled campaigns. The column sealing_key has the crowd's name (Campaign.crowd). At the collector: the batches that a
# shuffler forwarded, the outcome of their envelopes, those that are not opened yet, and the hashes of all others.
_SEALED = {"slot": _SMALL, "sealing_key": _TEXT, "size": _NUMBER, "parts": _SMALL}
OUTCOMES = ("accepted", "foreign", "malformed", "repeated")
batches = _table("batches", _BATCH, _SEALED | {"opened": _FLAG} | dict.fromkeys(OUTCOMES, _NUMBER))
envelopes = _table("envelopes", _BATCH | {"part": _SMALL}, {"count": _NUMBER, "body": _BYTES})
seen = _table("seen", _BATCH, {"digests": _BYTES})
# At a shuffler: mixed envelopes that the collector has not acknowledged yet.
outgoing = _table("outgoing", _BATCH | {"part": _SMALL}, _SEALED | {"count": _NUMBER, "body": _BYTES})

OF_A_CAMPAIGN = [table for table in metadata.sorted_tables if "campaign" in table.c]

_TRIES = 10
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.5
_BUSY_SECONDS = 10
_CONNECT_SECONDS = 5
_INIT_LOCK = 0x73737471  # "sstq": two servers may start at once
# PostgreSQL: serialization failure, deadlock, and a key that another process inserted at the same moment.
_CONFLICTS = {"40001", "40P01", "23505"}

T = TypeVar("T")


class DatabaseUnavailable(Exception):  # noqa: N818
    """The database cannot read or store now; nothing was acknowledged, and the request can be repeated."""


def sqlite_url(path: Path) -> str:
    """The URL of an SQLite database in a file, whose name may have any characters."""
    return sa.URL.create("sqlite", database=str(path.absolute())).render_as_string()


class _FairLock:
    """A fair lock: whoever waits longest gets it. The standard library's lock may starve a thread."""

    def __init__(self) -> None:
        self._inner = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Event] = deque()

    def __enter__(self) -> None:
        with self._inner:
            if not self._held:
                self._held = True
                return
            turn = threading.Event()
            self._waiting.append(turn)
        turn.wait()

    def __exit__(self, *_: object) -> None:
        with self._inner:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._held = False


class Database:
    """A database by its URL, set up on first use; ValueError for one that could lose acknowledged data.

    NeedsUpgrade for one of an earlier release, unless `upgrade` is true: then its tables are changed.
    """

    def __init__(self, url: str, *, upgrade: bool = False) -> None:
        try:
            self.url = sa.make_url(url)
        except sa.exc.ArgumentError as error:
            raise ValueError(f"database must be a URL such as sqlite:///collector.sqlite3, got {url!r}") from error
        self.sqlite = self.url.drivername in ("sqlite", "sqlite+pysqlite")
        if self.sqlite:
            if not self.url.database or self.url.database == ":memory:":
                raise ValueError("database must be a file: a database in memory is lost when the process ends")
            self._engine = sa.create_engine(self.url, hide_parameters=True)
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
            # SQLite has one writer at a time; without this lock waiting writers would poll.
            self._writing: AbstractContextManager[Any] = _FairLock()
        elif self.url.drivername == "postgresql+psycopg":
            arguments = {
                "options": "-c synchronous_commit=on",
                "connect_timeout": _CONNECT_SECONDS,
                # A prepared statement would keep the query plan that was best for empty tables.
                "prepare_threshold": None,
            }
            self._engine = sa.create_engine(self.url, connect_args=arguments, hide_parameters=True)
            self._writing = nullcontext()
        else:
            raise ValueError(f"database must be sqlite:///… or postgresql+psycopg://…, got {self.url.drivername}")
        self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ") if not self.sqlite else None
        self._writer = self._engine.execution_options(sstq_writes=True)
        try:
            self.write(lambda connection: self._prepare(connection, upgrade))
        except DatabaseUnavailable as error:
            self.close()
            raise ValueError(f"{error}; start the database, or pass another one") from error
        except DatabaseError as error:
            self.close()
            raise ValueError(f"{self.url.database} cannot be used: {error.orig}; pass a new database") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Run the work in one transaction, durable on return; retried after conflicts and lost connections.

        The work must be safe to repeat: after a lost connection nobody knows whether it was committed.
        """
        return self._try_again(self._writer, work, self._writing)

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Run the work on one consistent snapshot; retried as in `write`."""
        return self._try_again(self._reader or self._engine, work, nullcontext())

    def execute(self, *statements: sa.Executable) -> None:
        """Write with these statements, in one transaction."""
        self.write(lambda connection: [connection.execute(statement) for statement in statements])

    def rows(self, query: sa.Executable) -> Sequence[Any]:
        """Return what a query finds."""
        return self.read(lambda connection: connection.execute(query).all())

    def scalar(self, query: sa.Executable) -> Any:
        """Return the first value that a query finds; None if there is none."""
        return self.read(lambda connection: connection.execute(query).scalar())

    def _try_again(self, engine: sa.Engine, work: Callable[[sa.Connection], T], lock: AbstractContextManager[Any]) -> T:
        pause = _FIRST_PAUSE
        for tries in range(1, _TRIES + 1):
            try:
                with lock, engine.begin() as connection:
                    return work(connection)
            except DBAPIError as error:
                if not _passes(error) and not isinstance(error, OperationalError | InterfaceError | InternalError):
                    raise
                if tries == _TRIES or not _passes(error):
                    raise DatabaseUnavailable(_sentence(error)) from error
            # Two transactions that collided should not collide again.
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise AssertionError("unreachable")

    def _prepare(self, connection: sa.Connection, upgrade: bool) -> None:
        if not self.sqlite:
            _check_durable(connection)
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_INIT_LOCK)))
        migrate(connection, metadata, upgrade=upgrade)


def totals(connection: sa.Connection, table: sa.Table, name: str | None = None) -> dict[str, int]:
    """Add up the messages of a table, per campaign or for one."""
    query = sa.select(table.c.campaign, sa.func.sum(table.c.messages)).group_by(table.c.campaign)
    if name is not None:
        query = query.where(table.c.campaign == name)
    return {campaign: int(total) for campaign, total in connection.execute(query)}


def hold(connection: sa.Connection, name: str) -> bool:
    """Make deletion of a campaign wait until this transaction ends; returns whether the campaign exists."""
    query = sa.select(campaigns.c.name).where(campaigns.c.name == name)
    return connection.execute(query.with_for_update(read=True, key_share=True)).one_or_none() is not None


def put(connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> None:
    """Insert a row in place of the one with its primary key."""
    connection.execute(table.delete().where(*(own == row[own.name] for own in table.primary_key)))
    connection.execute(table.insert(), row)


def delete_keys(connection: sa.Connection, column: sa.Column[Any], name: str, keys: Iterable[bytes]) -> int:
    """Delete rows of a campaign by a column of the primary key; returns how many there were."""
    table, found, gone = column.table, list(keys), 0
    for start in range(0, len(found), 4096):
        some = column.in_(found[start : start + 4096])
        gone += connection.execute(sa.delete(table).where(table.c.campaign == name, some)).rowcount
    return gone


def _set_up_sqlite(connection: Any, _: Any) -> None:
    # Transactions are begun below, not by the driver, which would begin them late.
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {1000 * _BUSY_SECONDS}",
        "journal_mode = WAL",
        "synchronous = FULL",  # a commit waits for the disk
        "secure_delete = FAST",  # deleted rows are overwritten where that costs no further write
        f"journal_size_limit = {1 << 26}",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("sstq_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _check_durable(connection: sa.Connection) -> None:
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        value = connection.exec_driver_sql(f"SHOW {setting}").scalar_one()
        if value != "on":
            raise ValueError(
                f"the database has {setting} = {value}, so a crash could lose acknowledged messages; "
                f"set {setting} = on in postgresql.conf and restart it"
            )


def _passes(error: DBAPIError) -> bool:
    """Whether a retry may succeed at once: after a conflict with another transaction, or on a new connection."""
    if getattr(error.orig, "sqlstate", None) in _CONFLICTS or error.connection_invalidated:
        return True
    return getattr(error.orig, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _sentence(error: DBAPIError) -> str:
    """The driver's error, without the statement, its parameters and details, which may contain messages."""
    said = getattr(getattr(error.orig, "diag", None), "message_primary", None) or str(error.orig)
    return f"the database is not available: {' '.join(said.split())}"
