"""The JavaScript client in Node, a shuffler and a collector: what is sealed in one language counts in the other."""

import subprocess

import numpy as np
import pytest

import sstq
from tests.clients.node import JAVASCRIPT, find_node

pytest.importorskip("fastapi")

from sstq.client import Client
from tests.service.serving import serving

pytestmark = pytest.mark.slow

PEOPLE, VECTOR = 50, [0.6, 0.0, -0.8]
PROGRAM = """
import {{ Client, Ledger }} from "{module}";

const ledger = await Ledger.open("me.ledger", {{ epsilon: 100 }});
const options = {{ mostEpsilon: 36, pinnedKey: "{key}", pinnedShuffler: "{shuffler_key}", ledger }};
const client = await Client.open("{address}/steps", {{ ...options, leastThreshold: {people} }});
console.log(await client.send(Array({people}).fill({vector})), await ledger.spent());
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folders = [tmp_path_factory.mktemp(name) for name in ("collector", "shuffler")]
    with (
        serving(folders[0]) as collector,
        serving(
            folders[1], command="shuffler", collector=collector.url, fetch_seconds=0.2, closing_seconds=0
        ) as shuffler,
    ):
        collector.key = collector.http.get("/v1/key").json()["key"]
        shuffler.keys = shuffler.http.get("/v1/key").json()
        yield collector, shuffler


def close(collector, name):
    assert collector.administer("PATCH", f"/v1/campaigns/{name}", json={"closed": True}).status_code == 200


def test_a_gateway_seals_what_a_device_has_encoded(both):
    """As docs/sending.md says for the C client: bytes of m messages, packed one after the other."""
    collector, shuffler = both
    mechanism = sstq.FrameUnit(3, 2.0, frames=40, messages=2)
    terms = {"url": shuffler.url, "threshold": 2, **shuffler.keys}
    collector.create("devices", mechanism, closes="2100-01-01T00:00:00Z", shuffling=terms)
    pins = {"pinned_key": collector.key, "pinned_shuffler": shuffler.keys["key"]}
    client = Client(f"{shuffler.url}/devices", most_epsilon=4.0, **pins)
    for _ in range(2):
        encoded = mechanism.encode(np.array(VECTOR)).to_bytes()
        assert client.send_messages(client.campaign.mechanism.messages_from_bytes(encoded, 2)) == 2
    close(collector, "devices")
    assert collector.estimate("devices", 4)["shuffling"]["accepted"] == 4


def test_a_crowd_from_javascript_is_counted(both, tmp_path):
    collector, shuffler = both
    mechanism = sstq.FrameUnit(3, 18.0, frames=10_000, messages=2)
    terms = {"url": shuffler.url, "threshold": PEOPLE, **shuffler.keys}
    collector.create("steps", mechanism, closes="2100-01-01T00:00:00Z", shuffling=terms)

    program = PROGRAM.format(
        module=(JAVASCRIPT / "sstq.js").as_uri(),
        key=collector.key,
        shuffler_key=shuffler.keys["key"],
        address=shuffler.url,
        people=PEOPLE,
        vector=VECTOR,
    )
    (tmp_path / "send.mjs").write_text(program)
    done = subprocess.run([find_node(), "send.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == f"{2 * PEOPLE} 36\n", done.stderr

    close(collector, "steps")
    found = collector.estimate("steps", 2 * PEOPLE)
    assert found["count"] == 2 * PEOPLE
    claim = found["shuffling"]
    assert (claim["batches"], claim["accepted"]) == (2, 2 * PEOPLE)
    assert [crowd["people"] for crowd in claim["crowds"]] == [PEOPLE]
    assert claim["refused"] == {"foreign": 0, "malformed": 0, "repeated": 0}
    assert claim["local_epsilon"] == 36.0
    # About normal. At worst all of it is in one direction; beyond 30 times the variance lies a share of 4e-8.
    error = np.sum((np.array(found["value"]) - VECTOR) ** 2)
    assert error < 30 * mechanism.expected_mse(np.array(VECTOR), clients=PEOPLE).total < 0.15
