"""Nothing lost, nothing doubled: shuffler and collector are killed in turn while people send."""

import http.client
import json
import random
import re
import secrets
import threading
import time
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client.campaigns import read_document
from sstq.client.sealing import payloads, seal_person
from sstq.service.store import Store
from tests.patience import PATIENCE, until
from tests.service.serving import ADMINISTRATOR, serving

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


class Senders:
    """Threads that send envelopes until they are acknowledged; `messages` are those of all that were sent."""

    def __init__(self, shuffler, document):
        self.shuffler, self._document = shuffler, document
        self.messages, self.lost = [], 0
        self._enough, self._failed = threading.Event(), []
        self._threads = [threading.Thread(target=self._run) for _ in range(SENDERS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._enough.set()
        for thread in self._threads:
            thread.join()
        assert not self._failed

    def _run(self):
        try:
            while not self._enough.is_set():
                self._send()
        except BaseException as error:
            self._failed.append(error)
            raise

    def _send(self):
        messages = MECHANISM.encode(np.random.default_rng().normal(size=20))
        campaign, _, (newest,) = self._document
        cover = bytes.fromhex(campaign.shuffling.sealing_key)
        rows = [row.tobytes() for row in payloads(messages, MECHANISM.message_bits)]
        body = seal_person(rows, campaign.crowd(newest), newest, cover)
        headers = {
            "Content-Type": "application/octet-stream",
            "Idempotency-Key": secrets.token_hex(16),
            "SSTQ-Count": "1",
            "SSTQ-Digest": MECHANISM.digest(),
        }
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            connection = http.client.HTTPConnection(urlsplit(self.shuffler.url).netloc, timeout=PATIENCE)
            with closing(connection):
                try:
                    connection.request("POST", "/v1/campaigns/steps/messages", body, headers)
                    answer = connection.getresponse()
                    said = answer.read()
                except (OSError, http.client.HTTPException):
                    self.lost += 1
                    time.sleep(random.uniform(0.02, 0.1))
                    continue
            if answer.status == 503:  # the database of a busy machine: nothing was stored
                continue
            assert (answer.status, said) == (200, b'{"count":1}')
            self.messages.append(messages)
            return
        raise AssertionError("an upload was never acknowledged")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
def test_killed_shufflers_and_collectors_lose_and_double_nothing(kind, tmp_path, request, between):
    databases = [f"sqlite:///{tmp_path}/{role}.sqlite3" for role in ("collector", "shuffler")]
    if kind == "postgresql":
        databases = [request.getfixturevalue("postgres").url() for _ in databases]
    fast = {"messages_per_second": 0, "fold_seconds": 0.02}
    with ExitStack() as servers, httpx.Client(timeout=PATIENCE) as client:

        def start_collector():
            between.collector = servers.enter_context(serving(tmp_path, **fast, database=databases[0]))
            return between.collector

        def start_shuffler():
            more = {"collector": between.url, "closing_seconds": 1, "fetch_seconds": 0.1, "database": databases[1]}
            more["public_url"] = "https://shuffle.example"
            return servers.enter_context(serving(tmp_path, command="shuffler", **fast, **more, port=0))

        collector, shuffler = start_collector(), start_shuffler()
        keys = client.get(f"{shuffler.url}/v1/key").json()
        shuffling = {"url": "https://shuffle.example", "threshold": 2, "below_threshold": "local", **keys}
        terms = {"name": "steps", "mechanism": json.loads(MECHANISM.to_json())}
        terms |= {"closes": "2100-01-01T00:00:00Z", "shuffling": shuffling}
        assert client.post(f"{collector.url}/v1/campaigns", json=terms, headers=HEADERS).status_code == 201
        document = read_document(client.get(f"{shuffler.url}/v1/campaigns/steps").content)
        store = Store(databases[0])
        with Senders(shuffler, document) as senders:
            for _ in range(KILLS // 2):
                before = len(senders.messages)
                until(lambda before=before: len(senders.messages) >= before + PAUSE)
                time.sleep(random.uniform(0.0, 0.1))
                shuffler.kill()
                senders.shuffler = shuffler = start_shuffler()
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
        sent = sum(map(len, senders.messages))
        until(lambda: store.counts("steps").folded >= sent)
        time.sleep(0.2)  # more would be doubled
        claim = client.get(f"{collector.url}/v1/campaigns/steps/status", headers=HEADERS).json()["shuffling"]
    assert senders.lost  # uploads were cut off, and sent again
    assert between.lost  # and so were batches that the collector had stored
    expected = MECHANISM.aggregator()
    for messages in senders.messages:
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
