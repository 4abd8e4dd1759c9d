"""Nothing lost, nothing doubled: shuffler and collector are killed in turn while people send."""

import http.client
import json
import random
import re
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client import Client
from sstq.service.store import Store
from tests.patience import PATIENCE, until
from tests.service.serving import ADMINISTRATOR, free_port, serving

pytestmark = pytest.mark.slow

KILLS = 4
SENDERS = 4
PAUSE = 40  # people between two kills
MECHANISM = sstq.FrameUnit(dim=20, epsilon=2.0, frames=64, messages=2)
HEADERS = {"Authorization": f"Bearer {ADMINISTRATOR}"}


class Forgetful(BaseHTTPRequestHandler):
    """Passes requests on to the collector, wherever it is now, and loses some answers to batches: the first always."""

    def do_GET(self):
        self._pass_on(b"")

    def do_POST(self):
        self._pass_on(self.rfile.read(int(self.headers["Content-Length"])))

    def _pass_on(self, body):
        connection = http.client.HTTPConnection(urlsplit(self.server.collector.url).netloc, timeout=PATIENCE)
        with closing(connection):
            try:
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                return
        if self.command == "POST" and answer.status == 200 and (not self.server.lost or random.random() < 0.2):
            self.server.lost += 1
            return
        self.send_response(answer.status)
        self.send_header("SSTQ-Signature", answer.getheader("SSTQ-Signature", ""))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def between():
    """What stands between the shuffler and the collector."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Forgetful) as listening:
        listening.url, listening.lost = f"http://127.0.0.1:{listening.server_port}", 0
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening
        listening.shutdown()
        thread.join()


@contextmanager
def people_sending(url, pins):
    """Threads of our own client that send until acknowledged; yields the messages of all that were."""
    acknowledged, problems, enough = [], [], threading.Event()

    def send():
        try:
            client = Client(f"{url}/steps", most_epsilon=4.0, patience=PATIENCE, **pins)
            while not enough.is_set():
                messages = MECHANISM.encode(np.random.default_rng().normal(size=20))
                client.send_messages(messages)
                acknowledged.append(messages)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=send) for _ in range(SENDERS)]
    for thread in threads:
        thread.start()
    try:
        yield acknowledged
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    assert not problems


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
def test_killed_shufflers_and_collectors_lose_and_double_nothing(kind, tmp_path, request, between):
    databases = [f"sqlite:///{tmp_path}/{role}.sqlite3" for role in ("collector", "shuffler")]
    if kind == "postgresql":
        databases = [request.getfixturevalue("postgres").url() for _ in databases]
    fast, port = {"messages_per_second": 0, "fold_seconds": 0.02}, free_port()
    with ExitStack() as servers, httpx.Client(timeout=PATIENCE) as client:

        def start_collector():
            between.collector = servers.enter_context(serving(tmp_path, **fast, database=databases[0]))
            return between.collector

        def start_shuffler():
            more = {"collector": between.url, "closing_seconds": 1, "fetch_seconds": 0.1, "database": databases[1]}
            return servers.enter_context(serving(tmp_path, command="shuffler", **fast, **more, port=port))

        collector, shuffler = start_collector(), start_shuffler()
        keys = client.get(f"{shuffler.url}/v1/key").json()
        shuffling = {"url": shuffler.url, "threshold": 2, "below_threshold": "local", **keys}
        terms = {"name": "steps", "mechanism": json.loads(MECHANISM.to_json())}
        terms |= {"closes": "2100-01-01T00:00:00Z", "shuffling": shuffling}
        assert client.post(f"{collector.url}/v1/campaigns", json=terms, headers=HEADERS).status_code == 201
        pins = {"pinned_key": client.get(f"{collector.url}/v1/key").json()["key"], "pinned_shuffler": keys["key"]}
        store = Store(databases[0], read_only=True)
        with people_sending(shuffler.url, pins) as acknowledged:
            for _ in range(KILLS // 2):
                before = len(acknowledged)
                until(lambda before=before: len(acknowledged) >= before + PAUSE)
                time.sleep(random.uniform(0.0, 0.1))
                shuffler.kill()
                shuffler = start_shuffler()
        closed = client.patch(f"{collector.url}/v1/campaigns/steps", json={"closed": True}, headers=HEADERS)
        assert closed.status_code == 200
        # While the crowd is mixed, forwarded, opened and folded.
        for number in range(KILLS):
            time.sleep(random.uniform(0.3, 0.6) if not number else random.uniform(0.0, 0.2))
            if number % 2:
                shuffler.kill()
                shuffler = start_shuffler()
            else:
                collector.kill()
                collector = start_collector()
        sent = sum(map(len, acknowledged))
        until(lambda: store.counts()["steps"].folded >= sent)
        time.sleep(0.2)  # more would be doubled
        claim = client.get(f"{collector.url}/v1/campaigns/steps/status", headers=HEADERS).json()["shuffling"]
    assert between.lost  # answers to batches that the collector had stored
    expected = MECHANISM.aggregator()
    for messages in acknowledged:
        expected.update(messages)
    found = store.state("steps")
    assert found.count == expected.count == sent == claim["accepted"]
    assert np.array_equal(found.sums(), expected.sums())
    assert claim["refused"] == {"foreign": 0, "malformed": 0, "repeated": 0}
    store.close()
    # The logs name the collector that did not answer, and nobody else.
    log = "".join((tmp_path / f"{role}.log").read_text() for role in ("collector", "shuffler"))
    addresses = set(re.findall(r"\d+\.\d+\.\d+\.\d+(?::\d+)?", log))
    assert addresses <= {urlsplit(between.url).netloc}
