"""Nothing lost, nothing doubled: processes are killed under load, and the state has the bits of one pass over all."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import sstq
from sstq.service.store import Store, Upload
from tests.service.collecting import send_until_acknowledged

ROUNDS = 10
CLIENTS = 8
CAMPAIGNS = {"dense": sstq.SSTQ(dim=20, epsilon=2.0), "sparse": sstq.FrameUnit(dim=20, epsilon=2.0, frames=64)}


def some_uploads(number):
    """Uploads of both campaigns, and the sums of one pass over them."""
    uploads, sums = [], {name: mechanism.aggregator() for name, mechanism in CAMPAIGNS.items()}
    for name, mechanism in CAMPAIGNS.items():
        messages = mechanism.encode(np.zeros((5 * number, 20)), rng=1)
        start = 0
        for place in range(number):
            count = 1 + place % 5
            part = messages[start : start + count]
            sums[name].update(part)
            uploads.append(Upload(name, os.urandom(16), count, part.to_bytes()))
            start += count
    random.shuffle(uploads)
    return uploads, sums


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
def clients(addresses, uploads):
    """Threads that send all uploads; leaving waits until each has its receipt. Yields whether any still sends."""
    stopping, tries = threading.Event(), []

    def run(place):
        tries.append(send_until_acknowledged(addresses[place % len(addresses)], uploads[place::CLIENTS], stopping))

    threads = [threading.Thread(target=run, args=(place,)) for place in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield tries
        for thread in threads:
            thread.join()
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    assert sum(tries) >= len(uploads)


def assert_same_bits(url, sums):
    store = Store(url)
    for name, expected in sums.items():
        while store.fold(name):
            pass
        found = store.state(name)
        assert found.count == expected.count == store.counts(name).received
        assert np.array_equal(found.sums(), expected.sums())
    store.close()


def prepared(url):
    store = Store(url)
    for name, mechanism in CAMPAIGNS.items():
        store.create(name, mechanism, "{}")
    store.close()


def wait_for_progress(url, seconds):
    """Some time under load, at a different moment of the transactions each time."""
    time.sleep(seconds * random.uniform(0.5, 1.5))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_processes_lose_and_double_nothing(kind, tmp_path, request):
    url = f"sqlite:///{tmp_path}/c.sqlite3" if kind == "sqlite" else request.getfixturevalue("postgres").url()
    prepared(url)
    uploads, sums = some_uploads(3000)
    address = str(tmp_path / "socket")
    killed = 0
    with clients([address], uploads) as tries:
        for _ in range(ROUNDS):
            with collector(url, address):
                wait_for_progress(url, 0.2)
                killed += len(tries) < CLIENTS
        with collector(url, address):
            while len(tries) < CLIENTS:
                time.sleep(0.01)
    assert killed == ROUNDS, f"{killed} of {ROUNDS} times there was load: send more uploads"
    assert_same_bits(url, sums)


def test_a_stopped_postgresql_loses_and_doubles_nothing(postgres, tmp_path):
    """Two processes on one database, whose server is stopped as by a crash, ten times; then one process is killed."""
    url = postgres.url()
    prepared(url)
    uploads, sums = some_uploads(4000)
    addresses = [str(tmp_path / name) for name in ("one", "two")]
    stopped = 0
    with collector(url, addresses[0]), collector(url, addresses[1]), clients(addresses, uploads) as tries:
        for _ in range(ROUNDS):
            wait_for_progress(url, 0.2)
            postgres.stop("immediate")
            stopped += len(tries) < CLIENTS
            postgres.start()
        while len(tries) < CLIENTS:
            time.sleep(0.01)
    assert stopped == ROUNDS, f"{stopped} of {ROUNDS} times there was load: send more uploads"
    assert_same_bits(url, sums)
