"""Load on collectors that are killed: clients that send until acknowledged, and what became of lost uploads."""

import http.client
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import numpy as np
import sqlalchemy as sa

import sstq
from sstq.service.database import DatabaseUnavailable, receipts
from sstq.service.store import Store, Upload
from tests.patience import PATIENCE, until

CAMPAIGNS = {"dense": sstq.SSTQ(dim=20, epsilon=2.0), "sparse": sstq.FrameUnit(dim=20, epsilon=2.0, frames=64)}
SENDERS = 16
SETTINGS = {"messages_per_second": 0, "fold_seconds": 0.02}


class Process(Protocol):
    """A running server."""

    @property
    def url(self) -> str: ...

    def kill(self) -> None: ...


@cache
def bodies() -> list[tuple[str, int, bytes]]:
    """A few uploads of both campaigns, of 1 to 5 messages each."""
    made = []
    for name, mechanism in CAMPAIGNS.items():
        messages = mechanism.encode(np.zeros((100, 20)), rng=1)
        made += [(name, size, messages[start : start + size].to_bytes()) for start in range(95) for size in range(1, 6)]
    return made


@dataclass
class Load:
    """Threads that send uploads to servers, each with a key of its own until it is acknowledged.

    Attributes:
        servers: where they are now; the next try of an upload goes to the next of them.
        acknowledged: the uploads that have an answer. After the end these are all that were sent.
        lost: uploads that were sent and got no answer, once per try: whether the database has them then.
        refused: answers 503.
    """

    store: Store
    servers: list[str]
    acknowledged: list[Upload] = field(default_factory=list)
    lost: list[bool] = field(default_factory=list)
    refused: int = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send while the block runs; leaving it waits until all that was sent is acknowledged."""
        enough, given_up = threading.Event(), threading.Event()
        threads = [threading.Thread(target=self._send, args=(place, enough, given_up)) for place in range(SENDERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        except BaseException:
            given_up.set()
            raise
        finally:
            enough.set()
            for thread in threads:
                thread.join()

    def _send(self, place: int, enough: threading.Event, given_up: threading.Event) -> None:
        connection = None
        while not enough.is_set():
            name, count, body = random.choice(bodies())
            upload = Upload(name, os.urandom(16), count, body)
            while not given_up.is_set():
                connection = connection or http.client.HTTPConnection(
                    urlsplit(self.servers[place % len(self.servers)]).netloc, timeout=PATIENCE
                )
                status = self._try(connection, upload)
                if status == 200:
                    self.acknowledged.append(upload)
                    break
                connection.close()
                connection = None
                place += 1
                time.sleep(random.uniform(0.1, 0.3))
        if connection is not None:
            connection.close()

    def _try(self, connection: http.client.HTTPConnection, upload: Upload) -> int | None:
        headers = {
            "Content-Type": "application/octet-stream",
            "Idempotency-Key": upload.key.hex(),
            "SSTQ-Count": str(upload.count),
            "SSTQ-Digest": CAMPAIGNS[upload.campaign].digest(),
        }
        try:
            connection.request("POST", f"/v1/campaigns/{upload.campaign}/messages", upload.body, headers)
        except OSError:
            return None
        try:
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException):
            self.lost.append(self._is_stored(upload))
            return None
        assert answer.status in (200, 503), said
        assert answer.status == 503 or said == b'{"count":%d}' % upload.count
        self.refused += answer.status == 503
        return answer.status

    def _is_stored(self, upload: Upload) -> bool:
        mine = sa.select(receipts.c.messages).where(
            receipts.c.campaign == upload.campaign, receipts.c.key == upload.key
        )
        while True:
            try:
                return self.store.database.read(lambda connection: connection.execute(mine).scalar()) is not None
            except DatabaseUnavailable:  # too busy for one connection more
                time.sleep(0.1)


def prepared(database: str) -> Store:
    """A new database with the campaigns."""
    bodies()
    store = Store(database)
    for name, mechanism in CAMPAIGNS.items():
        store.create(name, mechanism, "{}")
    return store


def under_load(load: Load) -> None:
    """Return at some moment after uploads were acknowledged and folded."""
    enough, folded = len(load.acknowledged) + 2 * SENDERS, _folded(load.store)
    until(lambda: len(load.acknowledged) >= enough and all(map(int.__gt__, _folded(load.store), folded)))
    time.sleep(random.uniform(0.0, 0.1))


def _folded(store: Store) -> list[int]:
    return [store.counts(name).folded for name in CAMPAIGNS]


def options(store: Store, folder: Path) -> list[str]:
    """The arguments of `sstq serve` for these tests."""
    database = store.database.url.render_as_string(hide_password=False)
    settings = {"folder": folder, "database": database, "port": 0, **SETTINGS}
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


def killed_under_load(store: Store, start: Callable[[], Process], kills: int, processes: int = 1) -> Load:
    """Kill processes that share a database with SIGKILL, in turn and at random moments; each is started again."""
    servers = [start() for _ in range(processes)]
    load = Load(store, [server.url for server in servers])
    with load.running():
        for number in range(kills):
            under_load(load)
            place = number % processes
            servers[place].kill()
            servers[place] = start()
            load.servers[place] = servers[place].url
    return load


def differences(store: Store, uploads: Sequence[Upload]) -> int:
    """How many messages and states differ from those of one pass over all that was acknowledged."""
    wrong = 0
    for name, mechanism in CAMPAIGNS.items():
        expected = mechanism.aggregator()
        for upload in uploads:
            if upload.campaign == name:
                expected.update(mechanism.messages_from_bytes(upload.body, upload.count))
        while (counts := store.counts(name)).folded < counts.received:  # servers that still run fold some of it
            store.fold(name)
        found = store.state(name)
        wrong += abs(found.count - expected.count) + (not np.array_equal(found.sums(), expected.sums()))
    return wrong
