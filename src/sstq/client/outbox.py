"""Messages that were paid for and not acknowledged yet: they wait here, and the same bytes are sent again.

An answer is everything that one call of `Client.send` encoded: one or more uploads. It is written here before a ledger
is charged, and leaves when its last upload was acknowledged or refused for good. So whatever kills the process, nothing
is encoded or paid for twice.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from sstq.files.atomic import locked_file

__all__ = ["Outbox", "Upload"]

_TABLES = """
CREATE TABLE IF NOT EXISTS outbox (salt BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS uploads (
    number INTEGER PRIMARY KEY,
    campaign TEXT NOT NULL,
    answer TEXT NOT NULL,
    key TEXT NOT NULL,
    count INTEGER NOT NULL,
    body BLOB NOT NULL,
    token TEXT,
    payment INTEGER NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    price REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS by_campaign ON uploads (campaign, number);
CREATE TABLE IF NOT EXISTS names (
    campaign TEXT NOT NULL,
    answer TEXT NOT NULL,
    hash TEXT NOT NULL,
    sent INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS studies (
    link TEXT PRIMARY KEY,
    answer TEXT NOT NULL,
    stage INTEGER NOT NULL,
    turn INTEGER,
    answered INTEGER NOT NULL
);
"""
_VERSION = 2


class Upload(NamedTuple):
    """The body of an upload, with the key that makes it count once.

    Attributes:
        name: the campaign or stage that it is for.
        digest: that of its mechanism.
        price: the ε per person.
        key: the key.
        messages: how many messages it has.
        body: the body.
        token: its single-use token, if it has one.
    """

    name: str
    digest: str
    price: float
    key: str
    messages: int
    body: bytes
    token: str | None = None


class Payment(IntEnum):
    """Whether a ledger pays for an answer, and whether a process has begun to charge it."""

    NONE = 0
    DUE = 1
    BEGUN = 2


class Waiting(NamedTuple):
    """An upload that waits: its place in the outbox, its answer, and how far that is paid."""

    number: int
    answer: str
    payment: Payment
    upload: Upload


class Part(NamedTuple):
    """What a device remembers of a study.

    Attributes:
        answer: the name of the answer to it, the same at every address and for every key of a collector.
        stage: the number of the newest stage that it has seen or, once it has answered, of that which it answered.
        turn: the period in which it answers, if that was drawn.
        answered: whether it has answered. It never answers again.
    """

    answer: str
    stage: int = 0
    turn: int | None = None
    answered: bool = False


class Outbox:
    """The answers to one campaign that wait, in a private SQLite file; without a path they are kept in memory.

    Args:
        campaign: the campaign, as precisely as the client knows it. Several campaigns may share a file.
        path: the file; created, readable by its owner only, if it does not exist. Its folder must.

    Examples:
        >>> outbox = Outbox("steps")
        >>> upload = Upload("steps", "00" * 32, 2.0, "00" * 16, 1, b"message")
        >>> outbox.put("answer 1", [upload], ["week 12"], needs_ledger=False)
        >>> [waiting] = outbox.waiting()
        >>> waiting.upload.body
        b'message'
        >>> outbox.finish(waiting, acknowledged=True)
        >>> list(outbox.waiting()), outbox.were_sent(["week 12", "week 13"])
        ([], ['week 12'])
    """

    def __init__(
        self, campaign: str, path: str | os.PathLike[str] | None = None
    ) -> None:
        self._campaign = campaign
        self.path = None if path is None else Path(path).resolve()
        if self.path is None:
            self._lock: AbstractContextManager[Any] = threading.Lock()
        else:
            # SQLite would create a file that others may read.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        try:
            self._database = sqlite3.connect(
                self.path or ":memory:", timeout=60.0, check_same_thread=False
            )
            # whoever forgets the outbox closes it
            weakref.finalize(self, self._database.close)
            # An answer must last as soon as it is here; what has left must not be readable.
            self._database.executescript(
                "PRAGMA synchronous = EXTRA; PRAGMA secure_delete = ON;"
            )
            self._prepare()
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"{self}: this is not an outbox, or it is damaged: {error}"
            ) from error

    def _prepare(self) -> None:
        with self._database:
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise ValueError(
                    f"{self}: the outbox has version {version}, this library reads {_VERSION}; send what waits in it "
                    f"with the sstq that wrote it, then move it away: {shlex.join(['mv', str(self), f'{self}.old'])}"
                )
        self._database.executescript(
            f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;"
        )
        with self._database:
            salt = secrets.token_bytes(16)
            self._database.execute(
                "INSERT INTO outbox SELECT ? WHERE NOT EXISTS (SELECT * FROM outbox)",
                (salt,),
            )
        (self._salt,) = self._database.execute("SELECT salt FROM outbox").fetchone()

    def __str__(self) -> str:
        return "memory" if self.path is None else str(self.path)

    def locked(self) -> AbstractContextManager[Any]:
        """Hold the outbox against other threads and processes while an answer is on its way."""
        if self.path is None:
            return self._lock
        return locked_file(self.path.with_name(f"{self.path.name}.lock"))

    def put(
        self,
        answer: str,
        uploads: Iterable[Upload],
        names: Iterable[str] = (),
        *,
        needs_ledger: bool,
        taken: tuple[str, Part] | None = None,
    ) -> None:
        """Keep an answer; when this returns, it lasts.

        Args:
            answer: a name of its own; its expense in the ledger has the same.
            uploads: its uploads, in the order to send them.
            names: what it was made of, such as hashes of files.
            needs_ledger: whether a ledger pays for it, so that no client without one may send it.
            taken: what to remember of the study that it answers, with its link.
        """
        payment = Payment.DUE if needs_ledger else Payment.NONE
        with self._database:
            if taken is not None:
                self._remember(*taken)
            self._database.executemany(
                "INSERT INTO uploads (campaign, answer, payment, name, digest, price, key, count, body, token) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ((self._campaign, answer, payment, *upload) for upload in uploads),
            )
            self._database.executemany(
                "INSERT INTO names (campaign, answer, hash) VALUES (?, ?, ?)",
                [(self._campaign, answer, self._hash(name)) for name in names],
            )

    def waiting(self) -> Iterator[Waiting]:
        """Iterate over the uploads that wait, oldest first; they may be finished meanwhile."""
        number = 0
        query = (
            "SELECT number, answer, payment, name, digest, price, key, count, body, token "
            "FROM uploads WHERE campaign = ? AND number > ? ORDER BY number LIMIT 1"
        )
        while row := self._database.execute(query, (self._campaign, number)).fetchone():
            number, answer, payment, *upload = row
            yield Waiting(number, answer, Payment(payment), Upload(*upload))

    def begin_payment(self, answer: str) -> None:
        """Note that a ledger is charged for an answer from now on."""
        with self._database:
            self._database.execute(
                "UPDATE uploads SET payment = ? WHERE answer = ?",
                (Payment.BEGUN, answer),
            )

    def messages(self) -> int:
        """Return how many messages wait."""
        query = "SELECT COALESCE(SUM(count), 0) FROM uploads WHERE campaign = ?"
        (count,) = self._database.execute(query, (self._campaign,)).fetchone()
        return int(count)

    def finish(self, waiting: Waiting, *, acknowledged: bool) -> None:
        """Remove an upload that was acknowledged or refused for good; names count as sent from the first receipt on."""
        with self._database:
            self._database.execute(
                "DELETE FROM uploads WHERE number = ?", (waiting.number,)
            )
            if acknowledged:
                self._database.execute(
                    "UPDATE names SET sent = 1 WHERE answer = ?", (waiting.answer,)
                )
            self._database.execute(
                "DELETE FROM names WHERE sent = 0 AND answer = ? "
                "AND NOT EXISTS (SELECT * FROM uploads WHERE answer = names.answer)",
                (waiting.answer,),
            )

    def study_of(self, link: str) -> str | None:
        """Return the answer to the study that a link led to, if any."""
        query = "SELECT answer FROM studies WHERE link = ?"
        row = self._database.execute(query, (link,)).fetchone()
        return None if row is None else str(row[0])

    def remembered(self, answer: str) -> Part:
        """Return what is known of the study with this answer, whichever links led to it."""
        query = (
            "SELECT MAX(stage), MAX(turn), MAX(answered) FROM studies WHERE answer = ?"
        )
        stage, turn, answered = self._database.execute(query, (answer,)).fetchone()
        return Part(answer, stage or 0, turn, bool(answered))

    def remember(self, link: str, part: Part) -> None:
        """Keep what is known of the study at a link; when this returns, it lasts."""
        with self._database:
            self._remember(link, part)

    def _remember(self, link: str, part: Part) -> None:
        self._database.execute(
            "REPLACE INTO studies VALUES (?, ?, ?, ?, ?)", (link, *part)
        )

    def drop(self, answer: str) -> None:
        """Remove an answer that was not paid for."""
        with self._database:
            self._database.execute(
                "UPDATE studies SET answered = FALSE WHERE answer = ?", (answer,)
            )
            for table in ("uploads", "names"):
                self._database.execute(
                    f"DELETE FROM {table} WHERE answer = ?",  # noqa: S608
                    (answer,),
                )

    def were_sent(self, names: Iterable[str]) -> list[str]:
        """Return those names of which something was acknowledged."""
        return self._named(names, "sent = 1")

    def still_wait(self, names: Iterable[str]) -> list[str]:
        """Return those names of which something waits."""
        return self._named(names, "answer IN (SELECT answer FROM uploads)")

    def _named(self, names: Iterable[str], condition: str) -> list[str]:
        query = f"SELECT hash FROM names WHERE campaign = ? AND {condition}"  # noqa: S608 (a constant)
        hashes = {row[0] for row in self._database.execute(query, (self._campaign,))}
        return [name for name in names if self._hash(name) in hashes]

    def _hash(self, name: str) -> str:
        """A salted hash: whoever reads the file cannot compare it with that of another machine."""
        return hashlib.sha256(self._salt + name.encode()).hexdigest()
