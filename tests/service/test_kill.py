"""Nothing lost, nothing doubled: processes are killed under load, and the state has the bits of one pass over all."""

import functools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

import sstq
from sstq.service.store import Store, Upload
from tests.service.collecting import send_until_acknowledged

ROUNDS = 10
CLIENTS = 8
CAMPAIGNS = {"dense": sstq.SSTQ(dim=20, epsilon=2.0), "sparse": sstq.FrameUnit(dim=20, epsilon=2.0, frames=64)}


@functools.cache
def bodies():
    """A few uploads of both campaigns, of 1 to 5 messages each."""
    made = []
    for name, mechanism in CAMPAIGNS.items():
        messages = mechanism.encode(np.zeros((100, 20)), rng=1)
        made += [
            (name, count, messages[start : start + count].to_bytes())
            for start in range(0, 95, 5)
            for count in range(1, 6)
        ]
    return made


def endless_uploads(enough):
    """Uploads with keys of their own until there are enough."""
    while not enough.is_set():
        name, count, body = random.choice(bodies())
        yield Upload(name, os.urandom(16), count, body)


@contextmanager
def collector(url, address):
    """A running process."""
    Path(address).unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.service.collecting", url, str(address)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


@contextmanager
def clients(addresses):
    """Threads that send as long as the block runs; leaving waits until all that was sent has its receipt."""
    enough, stopping, acknowledged = threading.Event(), threading.Event(), []

    def run(place):
        acknowledged.extend(
            send_until_acknowledged(addresses[place % len(addresses)], endless_uploads(enough), stopping)
        )

    threads = [threading.Thread(target=run, args=(place,)) for place in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield acknowledged
    except BaseException:
        stopping.set()
        raise
    finally:
        enough.set()
        for thread in threads:
            thread.join()


def assert_same_bits(url, uploads):
    """The state is that of one pass over all that was acknowledged, which is all that was sent."""
    store = Store(url)
    assert len(uploads) > 100
    for name, mechanism in CAMPAIGNS.items():
        expected = mechanism.aggregator()
        for upload in uploads:
            if upload.campaign == name:
                expected.update(mechanism.messages_from_bytes(upload.body, upload.count))
        assert store.counts(name).folded  # by the processes that were killed
        while store.fold(name):
            pass
        found = store.state(name)
        assert found.count == expected.count == store.counts(name).received
        assert np.array_equal(found.sums(), expected.sums())
    store.close()


def prepared(url):
    bodies()
    store = Store(url)
    for name, mechanism in CAMPAIGNS.items():
        store.create(name, mechanism, "{}")
    store.close()


def some_time():
    """Long enough for many transactions, and ending at another moment of them each time."""
    time.sleep(random.uniform(0.1, 0.3))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_processes_lose_and_double_nothing(kind, tmp_path, request):
    url = f"sqlite:///{tmp_path}/c.sqlite3" if kind == "sqlite" else request.getfixturevalue("postgres").url()
    prepared(url)
    address = str(tmp_path / "socket")
    with ExitStack() as last, clients([address]) as sent:
        for _ in range(ROUNDS):
            with collector(url, address):
                some_time()
        last.enter_context(collector(url, address))
    assert_same_bits(url, sent)


def test_a_stopped_postgresql_loses_and_doubles_nothing(own_postgres, tmp_path):
    """Two processes share the database, whose server is stopped as by a crash, ten times."""
    url = own_postgres.url()
    prepared(url)
    addresses = [str(tmp_path / name) for name in ("one", "two")]
    with collector(url, addresses[0]), collector(url, addresses[1]), clients(addresses) as sent:
        for _ in range(ROUNDS):
            some_time()
            own_postgres.stop("immediate")
            own_postgres.start()
    assert_same_bits(url, sent)
