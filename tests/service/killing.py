"""Load on collectors that are killed: our own clients send until acknowledged, and count what they sent."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

import sstq
from sstq.client import Client
from sstq.messages.batch import Messages
from sstq.service.security import token_hash
from sstq.service.store import Store
from tests.patience import PATIENCE, until
from tests.service.serving import free_port, repeating

CAMPAIGNS = {
    "dense": sstq.SSTQ(dim=20, epsilon=2.0),
    "sparse": sstq.FrameUnit(dim=20, epsilon=2.0, frames=64),
}
SENDERS = 16
SETTINGS = {"messages_per_second": 0, "fold_seconds": 0.02}
TOKEN = "token-of-the-senders-of-the-tests"  # noqa: S105


class Process(Protocol):
    """A running server."""

    @property
    def url(self) -> str: ...

    def kill(self) -> None: ...


@dataclass
class Load:
    """Threads of clients that send uploads of 1 to 5 messages; a client repeats one until it is acknowledged.

    Attributes:
        server: where they send to; a server that is killed starts again at its address.
        acknowledged: what has an answer. After the end this is all that was sent.
    """

    store: Store
    server: str
    acknowledged: list[tuple[str, Messages]] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send while the block runs; leaving it waits until all that was sent is acknowledged."""
        with repeating(SENDERS, self._sender):
            yield

    def _sender(self) -> Callable[[], None]:
        name = random.choice(list(CAMPAIGNS))
        client = Client(
            f"{self.server}/{name}", most_epsilon=2.0, token=TOKEN, patience=PATIENCE
        )

        def send() -> None:
            messages = client.campaign.mechanism.encode(
                np.zeros((random.randint(1, 5), 20))
            )
            client.send_messages(messages)
            self.acknowledged.append((name, messages))

        return send


def prepared(database: str) -> Store:
    """A new database with the campaigns and a token for batches, to read what a server writes to it."""
    store = Store(database)
    for name, mechanism in CAMPAIGNS.items():
        store.create(name, mechanism, "{}")
        store.add_sender(name, token_hash(TOKEN), None)
    store.close()
    return Store(database, read_only=True)


def under_load(load: Load) -> None:
    """Return at some moment after uploads were acknowledged and folded."""
    enough = len(load.acknowledged) + 2 * SENDERS
    folded = _folded(load.store)
    until(
        lambda: (
            len(load.acknowledged) >= enough and sum(_folded(load.store)) > sum(folded)
        )
    )
    time.sleep(random.uniform(0.0, 0.1))


def _folded(store: Store) -> list[int]:
    return [counts.folded for counts in store.counts().values()]


def settings_of(store: Store, port: int) -> dict[str, object]:
    """The settings of `sstq serve` for these tests."""
    database = store.url.render_as_string(hide_password=False)
    return {"database": database, "port": port, **SETTINGS}


def killed_under_load(
    store: Store, start: Callable[[int], Process], kills: int
) -> Load:
    """Kill the process of a database with SIGKILL at random moments; it is started again at once."""
    port = free_port()
    server = start(port)
    load = Load(store, server.url)
    with load.running():
        for _ in range(kills):
            under_load(load)
            server.kill()
            server = start(port)
    return load


def differences(store: Store, sent: Sequence[tuple[str, Messages]]) -> int:
    """How many messages and states differ from those of one pass over all that was acknowledged."""
    wrong = 0
    for name, mechanism in CAMPAIGNS.items():
        expected = mechanism.aggregator()
        expected.update(
            Messages.concatenate([messages for own, messages in sent if own == name])
        )
        # the server folds them
        until(
            lambda name=name: (counts := store.counts()[name]).folded == counts.received
        )
        found = store.state(name)
        wrong += abs(found.count - expected.count) + (
            not np.array_equal(found.sums(), expected.sums())
        )
    return wrong
