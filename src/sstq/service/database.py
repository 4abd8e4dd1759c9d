"""The database of a collector: tables, durable connections, and transactions with retries.

It stores little. An upload is identified by the random key that its client chose: there is no serial number, no address
and no time finer than the hour. A token's row and an upload's row have only the campaign's name in common.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, InternalError, OperationalError

from sstq.service.migrations import migrate

metadata = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    # Otherwise SQLite numbers the rows of a table in order of arrival.
    return sa.Table(name, metadata, *columns, sqlite_with_rowid=False)


def _campaign() -> sa.Column[Any]:
    return sa.Column("campaign", sa.Text, primary_key=True)


settings = _table(
    "settings",
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
)

campaigns = _table(
    "campaigns",
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("mechanism", sa.Text, nullable=False),  # JSON
    sa.Column("terms", sa.Text, nullable=False),  # JSON: everything that this module need not know
    sa.Column("closed", sa.Boolean, nullable=False),
    sa.Column("issued", sa.BigInteger, nullable=False),  # single-use tokens so far
    sa.Column("ended", sa.BigInteger),  # after how many hours of service it was first seen closed; NULL if it is open
)

# The acknowledged keys, each with its number of messages, so that a repeated upload gets the same answer.
receipts = _table(
    "receipts",
    _campaign(),
    sa.Column("key", sa.LargeBinary, primary_key=True),
    sa.Column("messages", sa.BigInteger, nullable=False),
)

# Messages not folded yet, from one upload or several stored together. The key is random and not the
# key of a client.
uploads = _table(
    "uploads",
    _campaign(),
    sa.Column("key", sa.LargeBinary, primary_key=True),
    sa.Column("messages", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

# Partial states, never changed: see sstq.service.pieces.
pieces = _table(
    "pieces",
    _campaign(),
    sa.Column("first", sa.BigInteger, primary_key=True),
    sa.Column("width", sa.BigInteger, primary_key=True),
    sa.Column("identity", sa.LargeBinary, primary_key=True),
    sa.Column("level", sa.Integer, nullable=False),
    sa.Column("messages", sa.BigInteger, nullable=False),
    sa.Column("sums", sa.LargeBinary, nullable=False),
)

# Single-use tokens that are not spent yet, as SHA-256; a spent one is deleted.
tokens = _table(
    "tokens",
    _campaign(),
    sa.Column("digest", sa.LargeBinary, primary_key=True),
)

# Tokens of senders of batches, as SHA-256: how many messages each may send (NULL for no limit), and has sent.
senders = _table(
    "senders",
    _campaign(),
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("quota", sa.BigInteger),
    sa.Column("used", sa.BigInteger, nullable=False),
)

# How many messages were folded in which hour since 1970.
arrivals = _table(
    "arrivals",
    _campaign(),
    sa.Column("hour", sa.BigInteger, primary_key=True),
    sa.Column("messages", sa.BigInteger, nullable=False),
)

# How the error shrank: the standard error of the estimate after this many messages.
history = _table(
    "history",
    _campaign(),
    sa.Column("messages", sa.BigInteger, primary_key=True),
    sa.Column("error", sa.Double, nullable=False),
)

# The newest estimate of each campaign, and how many messages it covers.
estimates = _table(
    "estimates",
    _campaign(),
    sa.Column("messages", sa.BigInteger, nullable=False),
    sa.Column("result", sa.LargeBinary, nullable=False),
)

# The estimates of readers who are not the owner: the one they see, and the next one (sstq.service.results).
releases = _table(
    "releases",
    _campaign(),
    sa.Column("stage", sa.Text, primary_key=True),  # "public" or "next"
    sa.Column("messages", sa.BigInteger, nullable=False),
    sa.Column("result", sa.LargeBinary, nullable=False),
)

# What no honest crowd explains, by kind, and after how many messages it was seen first.
alarms = _table(
    "alarms",
    _campaign(),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("messages", sa.BigInteger, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)

# Shuffled campaigns. At the collector: the batches that a shuffler forwarded, and the outcome of their envelopes.
batches = _table(
    "batches",
    _campaign(),
    sa.Column("batch", sa.LargeBinary, primary_key=True),  # random, chosen by the shuffler
    sa.Column("slot", sa.Integer, nullable=False),
    sa.Column("sealing_key", sa.Text, nullable=False),  # and terms: the crowd's name, see Campaign.crowd
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("parts", sa.Integer, nullable=False),
    sa.Column("opened", sa.Boolean, nullable=False),
    sa.Column("accepted", sa.BigInteger, nullable=False),
    sa.Column("foreign", sa.BigInteger, nullable=False),  # sealed for another key, campaign or slot
    sa.Column("malformed", sa.BigInteger, nullable=False),  # no message of the mechanism in them
    sa.Column("repeated", sa.BigInteger, nullable=False),
)

# Envelopes of batches that are not opened yet, in the shuffler's order.
envelopes = _table(
    "envelopes",
    _campaign(),
    sa.Column("batch", sa.LargeBinary, primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

# The hashes of all envelopes of a batch, sorted: an envelope counts once.
seen = _table(
    "seen",
    _campaign(),
    sa.Column("batch", sa.LargeBinary, primary_key=True),
    sa.Column("digests", sa.LargeBinary, nullable=False),
)

# At a shuffler: mixed envelopes that the collector has not acknowledged yet.
outgoing = _table(
    "outgoing",
    _campaign(),
    sa.Column("batch", sa.LargeBinary, primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True),
    sa.Column("slot", sa.Integer, nullable=False),
    sa.Column("sealing_key", sa.Text, nullable=False),  # and terms: the crowd's name, see Campaign.crowd
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("parts", sa.Integer, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

OF_A_CAMPAIGN = (
    *(receipts, uploads, pieces, tokens, senders, arrivals, history, estimates, releases, alarms),
    *(batches, envelopes, seen, outgoing),
)

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
    """A database by its URL, set up on first use.

    ``sqlite:////folder/collector.sqlite3`` or ``postgresql+psycopg://user:password@host/name``. ValueError for a
    database of a later release or another program, or one whose settings allow it to lose acknowledged data;
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
        except DatabaseError as error:
            self.dispose()
            raise ValueError(f"{self.url.database} cannot be used: {error.orig}; pass a new database") from error
        except BaseException:
            self.dispose()
            raise

    def dispose(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Run the work in one transaction, durable on return; retried after conflicts and lost connections.

        The work must be safe to repeat: after a lost connection nobody knows whether it was committed. Raises
        DatabaseUnavailable if all tries fail.
        """
        return self._try_again(self._writer, work, self._writing)

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Run the work on one consistent snapshot; retried as in `write`."""
        return self._try_again(self._reader or self._engine, work, nullcontext())

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
        migrate(connection, upgrade=upgrade)


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
