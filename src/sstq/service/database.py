"""The database of a collector: tables, durable connections, and transactions with retries.

One thread of one process writes to a database; others are kept out by a lock that ends with the process. It stores
little. An upload is identified by the random key that its client chose: there is no serial number, no address
and no time finer than the hour. A token's row and an upload's row have only the campaign's name in common.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import (
    DatabaseError,
    InterfaceError,
    InternalError,
    OperationalError,
)

from sstq.service.migrations import migrate

metadata = sa.MetaData()

_TEXT = sa.Text
_BYTES = sa.LargeBinary
_NUMBER = sa.BigInteger
_SMALL = sa.Integer
_FLAG = sa.Boolean
_CAMPAIGN = {"campaign": _TEXT}
_BATCH = _CAMPAIGN | {"batch": _BYTES}


def _table(
    name: str, keys: Mapping[str, Any], values: Mapping[str, Any], *nullable: str
) -> sa.Table:
    columns = [sa.Column(own, kind, primary_key=True) for own, kind in keys.items()]
    columns += [
        sa.Column(own, kind, nullable=own in nullable) for own, kind in values.items()
    ]
    # Otherwise SQLite numbers the rows of a table in order of arrival.
    return sa.Table(name, metadata, *columns, sqlite_with_rowid=False)


settings = _table("settings", {"name": _TEXT}, {"value": _BYTES})
# Mechanism and terms are JSON. `version` is another number after each change. `issued` counts single-use tokens.
# `ended` says after how many hours of service the campaign was first seen closed; NULL if it is open.
# `study` is the name of the study whose stage this is, and that of a study itself: senders and tokens are the study's.
# `room` is how many more messages a stage wants, below zero if more came; NULL for any number.
campaigns = _table(
    "campaigns",
    {"name": _TEXT},
    {
        "mechanism": _TEXT,
        "terms": _TEXT,
        "version": _NUMBER,
        "closed": _FLAG,
        "issued": _NUMBER,
        "ended": _NUMBER,
        "study": _TEXT,
        "room": _NUMBER,
    },
    "ended",
    "study",
    "room",
)
# The states of studies, as JSON.
studies = _table("studies", _CAMPAIGN, {"state": _TEXT})
# The acknowledged keys, each with its number of messages, so that a repeated upload gets the same answer.
receipts = _table("receipts", _CAMPAIGN | {"key": _BYTES}, {"messages": _NUMBER})
# Messages not folded yet, from one upload or several stored together. The key is random and not that of a client.
uploads = _table(
    "uploads", _CAMPAIGN | {"key": _BYTES}, {"messages": _NUMBER, "body": _BYTES}
)
# Partial states, never changed: see sstq.service.folding.
pieces = _table(
    "pieces",
    _CAMPAIGN | {"key": _BYTES},
    {"level": _SMALL, "messages": _NUMBER, "sums": _BYTES},
)
# Single-use tokens that are not spent yet, as SHA-256; a spent one is deleted.
tokens = _table("tokens", _CAMPAIGN | {"digest": _BYTES}, {})
# Tokens of senders of batches, as SHA-256: how many messages each may send (NULL for no limit), and has sent.
senders = _table(
    "senders",
    _CAMPAIGN | {"digest": _BYTES},
    {"quota": _NUMBER, "used": _NUMBER},
    "quota",
)
# How many messages were folded in which hour since 1970.
arrivals = _table("arrivals", _CAMPAIGN | {"hour": _NUMBER}, {"messages": _NUMBER})
# How the error shrank: the standard error of estimates that readers may have seen.
history = _table("history", _CAMPAIGN | {"messages": _NUMBER}, {"error": sa.Double})
# The newest estimate of each campaign, and how many messages it covers.
estimates = _table("estimates", _CAMPAIGN, {"messages": _NUMBER, "result": _BYTES})
# The estimates that readers see who are not the owner.
releases = _table("releases", _CAMPAIGN, {"messages": _NUMBER, "result": _BYTES})
# What the tests of `sstq.service.alarms` said, by kind, and after how many messages.
verdicts = _table(
    "verdicts", _CAMPAIGN | {"kind": _TEXT}, {"messages": _NUMBER, "detail": _TEXT}
)

# Shuffled campaigns. A crowd has its name (Campaign.crowd). At the collector: the batches that a shuffler forwarded,
# the outcome of their envelopes, those that are not opened yet, and the hashes of all others.
SEALED = {
    "slot": _SMALL,
    "crowd": _TEXT,
    "size": _NUMBER,
    "tokens": _NUMBER,
    "parts": _SMALL,
}
OUTCOMES = ("accepted", "foreign", "malformed", "repeated")
batches = _table(
    "batches", _BATCH, SEALED | {"opened": _FLAG} | dict.fromkeys(OUTCOMES, _NUMBER)
)
envelopes = _table("envelopes", _BATCH | {"part": _SMALL}, {"body": _BYTES})
seen = _table("seen", _BATCH, {"digests": _BYTES})
# At a shuffler: mixed envelopes that the collector has not acknowledged yet.
outgoing = _table(
    "outgoing", _BATCH | {"part": _SMALL}, SEALED | {"count": _NUMBER, "body": _BYTES}
)

OF_A_CAMPAIGN = [table for table in metadata.sorted_tables if "campaign" in table.c]

# before a transaction is tried again, in seconds
_PAUSES = tuple(0.005 * 2**number for number in range(8))
_BUSY_SECONDS = 10
_CONNECT_SECONDS = 5
# How long to wait for the lock of a process that was killed a moment ago.
_LOCK_SECONDS = 5
_LOCK = 0x73737471  # "sstq"
_IN_USE = "another process uses it"
# The last ones let the server notice soon that the machine of a process is gone, and with it the lock.
_POSTGRES = "-c synchronous_commit=on -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"

T = TypeVar("T")


class DatabaseUnavailable(Exception):  # noqa: N818
    """The database cannot read or store now; nothing was acknowledged, and the request can be repeated."""


class UnknownCampaign(ValueError):  # noqa: N818
    """There is no campaign with this name, or it was deleted."""


def sqlite_url(path: Path) -> str:
    """The URL of an SQLite database in a file, whose name may have any characters."""
    return sa.URL.create("sqlite", database=str(path.absolute())).render_as_string()


class Database:
    """A database by its URL, set up on first use; ValueError for one that could lose acknowledged data.

    NeedsUpgrade for one of an earlier release, unless `upgrade` is true: then its tables are changed. Another process
    may open it meanwhile with `read_only`.
    """

    def __init__(
        self, url: str, *, upgrade: bool = False, read_only: bool = False
    ) -> None:
        try:
            self.url = sa.make_url(url)
        except sa.exc.ArgumentError as error:
            raise ValueError(
                f"database must be a URL such as sqlite:///collector.sqlite3, got {url!r}"
            ) from error
        self.sqlite = self.url.drivername in ("sqlite", "sqlite+pysqlite")
        # In the order of asking: a lock of the standard library may starve a thread.
        self._writing = ThreadPoolExecutor(1, "sstq-writer")
        # whether the database stored last, and when it did
        self.failing = False
        self.stored = time.monotonic()
        self._lock: sqlite3.Connection | None = None
        if self.sqlite:
            if not self.url.database or self.url.database == ":memory:":
                raise ValueError(
                    "database must be a file: a database in memory is lost when the process ends"
                )
            self._engine = sa.create_engine(self.url, hide_parameters=True)
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
            self._writer: sa.Engine = self._engine.execution_options(sstq_writes=True)
        elif self.url.drivername == "postgresql+psycopg":
            arguments = {
                "options": _POSTGRES,
                "connect_timeout": _CONNECT_SECONDS,
                # A prepared statement would keep the query plan that was best for empty tables.
                "prepare_threshold": None,
            }
            create = partial(
                sa.create_engine, self.url, connect_args=arguments, hide_parameters=True
            )
            self._engine = create(isolation_level="REPEATABLE READ")
            self._writer = create(pool_size=1, max_overflow=0)
            sa.event.listen(self._writer, "connect", _lock_postgres)
        else:
            raise ValueError(
                f"database must be sqlite:///… or postgresql+psycopg://…, got {self.url.drivername}"
            )
        if not read_only:
            self._prepare(upgrade)

    def _prepare(self, upgrade: bool) -> None:
        def work(connection: sa.Connection) -> None:
            if not self.sqlite:
                _check_durable(connection)
            migrate(connection, metadata, upgrade=upgrade)

        try:
            if self.sqlite:
                # A file of its own: anybody may write to the other one for a moment, as for a backup.
                self._lock = sqlite3.connect(
                    f"{self.url.database}-lock",
                    timeout=_LOCK_SECONDS,
                    check_same_thread=False,
                )
                self._lock.execute("BEGIN EXCLUSIVE")
            self.write(work)
        except BaseException as error:
            self.close()
            if isinstance(error, DatabaseUnavailable | sqlite3.OperationalError):
                said = (
                    str(error)
                    if isinstance(error, DatabaseUnavailable)
                    else _sentence(error)
                )
                if said.endswith(_IN_USE):
                    raise ValueError(
                        f"another server uses {self.url.database}: stop it, or pass another --folder or --database"
                    ) from error
                raise ValueError(
                    f"{said}; start it, or pass another database"
                ) from error
            if isinstance(error, DatabaseError):
                raise ValueError(
                    f"{self.url.database} cannot be used: {error.orig}; pass a new database"
                ) from error
            raise

    def close(self) -> None:
        """Close all connections."""
        self._writing.shutdown()
        self._engine.dispose()
        self._writer.dispose()
        if self._lock is not None:
            self._lock.close()

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Run the work in one transaction, durable on return; retried after lost connections.

        The work must be safe to repeat: after a lost connection nobody knows whether it was committed.
        """
        return self.writing(work).result()

    def writing(self, work: Callable[[sa.Connection], T]) -> Future[T]:
        """Do as `write` does, without waiting."""
        return self._writing.submit(self._write, work)

    def _write(self, work: Callable[[sa.Connection], T]) -> T:
        try:
            found = _try_again(self._writer, work)
        except DatabaseUnavailable:
            self.failing = True
            raise
        self.failing = False
        self.stored = time.monotonic()
        return found

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Run the work on one consistent snapshot; retried as in `write`."""
        return _try_again(self._engine, work)

    def execute(self, *statements: sa.Executable) -> None:
        """Write with these statements, in one transaction."""
        self.write(
            lambda connection: [
                connection.execute(statement) for statement in statements
            ]
        )

    def rows(self, query: sa.Executable) -> Sequence[Any]:
        """Return what a query finds."""
        return self.read(lambda connection: connection.execute(query).all())

    def scalar(self, query: sa.Executable) -> Any:
        """Return the first value that a query finds; None if there is none."""
        return self.read(lambda connection: connection.execute(query).scalar())


def _try_again(engine: sa.Engine, work: Callable[[sa.Connection], T]) -> T:
    for pause in (*_PAUSES, None):
        try:
            with engine.begin() as connection:
                return work(connection)
        except (OperationalError, InterfaceError, InternalError) as error:
            if not error.connection_invalidated or pause is None:
                raise DatabaseUnavailable(_sentence(error.orig)) from error
            time.sleep(pause)
    raise AssertionError("unreachable")


def total(table: sa.Table) -> sa.ColumnElement[int]:
    """The sum of a table's messages, as a column of queries of campaigns."""
    found = sa.select(sa.func.coalesce(sa.func.sum(table.c.messages), 0))
    return found.where(table.c.campaign == campaigns.c.name).scalar_subquery()


def put(connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> None:
    """Insert a row in place of the one with its primary key."""
    connection.execute(
        table.delete().where(*(own == row[own.name] for own in table.primary_key))
    )
    connection.execute(table.insert(), row)


def insert_rows(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Insert some rows at once: into PostgreSQL as an array per column, which takes it half the time."""
    if connection.dialect.name == "postgresql":
        columns = {own: [row[own] for row in rows] for own in table.c.keys()}  # noqa: SIM118
        connection.execute(_from_arrays(table), columns)
    else:
        connection.execute(table.insert(), rows)


@cache
def _from_arrays(table: sa.Table) -> sa.Insert:
    columns = [
        sa.func.unnest(sa.bindparam(own.name, type_=sa.ARRAY(own.type)))
        for own in table.c
    ]
    return table.insert().from_select(list(table.c.keys()), sa.select(*columns))


def delete_keys(
    connection: sa.Connection, column: sa.Column[Any], name: str, keys: Iterable[bytes]
) -> int:
    """Delete rows of a campaign by a column of the primary key; returns how many there were."""
    table = column.table
    found = list(keys)
    gone = 0
    for start in range(0, len(found), 4096):
        some = column.in_(found[start : start + 4096])
        gone += connection.execute(
            sa.delete(table).where(table.c.campaign == name, some)
        ).rowcount
    return gone


def _lock_postgres(connection: Any, _: Any) -> None:
    # With each connection that writes: also after the server has started again.
    try:
        connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
        connection.execute(f"SELECT pg_advisory_lock({_LOCK})")
        connection.execute("RESET lock_timeout")
        connection.commit()
    except BaseException:
        connection.close()
        raise


def _set_up_sqlite(connection: Any, _: Any) -> None:
    # Transactions are begun below, not by the driver, which would begin them late.
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {1000 * _BUSY_SECONDS}",
        "journal_mode = WAL",
        "synchronous = FULL",  # a commit waits for the disk
        # deleted rows are overwritten where that costs no further write
        "secure_delete = FAST",
        # in pages: a checkpoint waits for the disk as well, so it is made for many commits at once
        f"wal_autocheckpoint = {1 << 12}",
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


def _sentence(error: Any) -> str:
    """The driver's error, without the statement, its parameters and details, which may contain messages."""
    if (
        getattr(error, "sqlstate", None) == "55P03"
        or getattr(error, "sqlite_errorname", None) == "SQLITE_BUSY"
    ):
        said = _IN_USE
    else:
        said = getattr(getattr(error, "diag", None), "message_primary", None) or str(
            error
        )
    return f"the database is not available: {' '.join(said.split())}"
