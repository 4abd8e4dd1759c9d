"""Nothing lost, nothing doubled: shuffler and collector are killed in turn while people send."""

import http.client
import random
import re
import time
from contextlib import ExitStack, closing, suppress
from urllib.parse import urlsplit

import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client import Client
from sstq.service.store import Store
from tests.patience import PATIENCE, until
from tests.service.serving import Quiet, free_port, listening, repeating, serving

pytestmark = pytest.mark.slow

KILLS = 4
SENDERS = 4
PAUSE = 20  # people between two kills
MECHANISM = sstq.FrameUnit(dim=20, epsilon=2.0, frames=64, messages=2)


class Forgetful(Quiet):
    """Passes requests on to the collector, wherever it is now, and loses some answers to batches: the first always."""

    def reply(self, body):
        connection = http.client.HTTPConnection(
            urlsplit(self.server.collector.url).netloc, timeout=PATIENCE
        )
        with closing(connection), suppress(OSError, http.client.HTTPException):
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            if (
                self.command == "POST"
                and answer.status == 200
                and (not self.server.lost or random.random() < 0.2)
            ):
                self.server.lost += 1
            else:
                self.answer(
                    answer.status,
                    content,
                    {"SSTQ-Signature": answer.getheader("SSTQ-Signature", "")},
                )


@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)]
)
def test_killed_shufflers_and_collectors_lose_and_double_nothing(
    kind, tmp_path, request
):
    databases = [
        f"sqlite:///{tmp_path}/{role}.sqlite3" for role in ("collector", "shuffler")
    ]
    if kind == "postgresql":
        databases = [request.getfixturevalue("postgres").url() for _ in databases]
    fast = {"messages_per_second": 0, "fold_seconds": 0.02}
    port = free_port()
    acknowledged = []
    with listening(Forgetful, lost=0) as between, ExitStack() as servers:

        def start_collector():
            between.collector = servers.enter_context(
                serving(tmp_path, **fast, database=databases[0])
            )
            return between.collector

        def start_shuffler():
            more = {
                "collector": between.url,
                "closing_seconds": 1,
                "fetch_seconds": 0.1,
                "database": databases[1],
            }
            return servers.enter_context(
                serving(tmp_path, command="shuffler", **fast, **more, port=port)
            )

        collector = start_collector()
        shuffler = start_shuffler()
        keys = shuffler.http.get("/v1/key").json()
        shuffling = {
            "url": shuffler.url,
            "threshold": 2,
            "below_threshold": "local",
            **keys,
        }
        collector.create(
            "steps", MECHANISM, closes="2100-01-01T00:00:00Z", shuffling=shuffling
        )
        pins = {
            "pinned_key": collector.http.get("/v1/key").json()["key"],
            "pinned_shuffler": keys["key"],
        }
        store = Store(databases[0], read_only=True)

        def sender(url=f"{shuffler.url}/steps"):
            client = Client(url, most_epsilon=4.0, patience=PATIENCE, **pins)

            def send():
                messages = MECHANISM.encode(np.random.default_rng().normal(size=20))
                client.send_messages(messages)
                acknowledged.append(messages)

            return send

        with repeating(SENDERS, sender):
            for _ in range(KILLS // 2):
                before = len(acknowledged)
                until(lambda before=before: len(acknowledged) >= before + PAUSE)
                time.sleep(random.uniform(0.0, 0.1))
                shuffler.kill()
                shuffler = start_shuffler()
        assert (
            collector.administer(
                "PATCH", "/v1/campaigns/steps", json={"closed": True}
            ).status_code
            == 200
        )
        # While the crowd is mixed, forwarded, opened and folded.
        for number in range(KILLS):
            time.sleep(
                random.uniform(0.3, 0.6) if not number else random.uniform(0.0, 0.2)
            )
            if number % 2:
                shuffler.kill()
                shuffler = start_shuffler()
            else:
                collector.kill()
                collector = start_collector()
        sent = sum(map(len, acknowledged))
        until(lambda: store.counts()["steps"].folded >= sent)
        time.sleep(0.2)  # more would be doubled
        claim = collector.status("steps")["shuffling"]
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
    log = "".join(
        (tmp_path / f"{role}.log").read_text() for role in ("collector", "shuffler")
    )
    addresses = set(re.findall(r"\d+\.\d+\.\d+\.\d+(?::\d+)?", log))
    assert addresses <= {urlsplit(between.url).netloc}
