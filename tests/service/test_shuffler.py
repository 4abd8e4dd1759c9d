"""A shuffler and a collector as real processes, with clients and with those that misbehave."""

import json
import secrets
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

import numpy as np
import pytest
from typer.testing import CliRunner

import sstq
from sstq.cli import app

pytest.importorskip("fastapi")

from sstq.accounting import shuffled_epsilon
from sstq.client.campaigns import read_document, sealing_keys_of
from sstq.client.sealing import payloads, seal_people
from sstq.client.signing import SHUFFLER_PREFIX, SigningKey
from sstq.service import Campaign, Client, Shuffling
from tests.patience import until
from tests.service.serving import ADMINISTRATOR, serving

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0, messages=2)
X = np.eye(6).repeat(5, axis=0)
LATER = "2100-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A collector and its shuffler."""
    folders = [tmp_path_factory.mktemp(name) for name in ("collector", "shuffler")]
    with (
        serving(folders[0]) as collector,
        serving(
            folders[1], command="shuffler", collector=collector.url, closing_seconds=0, fetch_seconds=0.2
        ) as shuffler,
    ):
        shuffler.key = shuffler.http.get("/v1/key").json()["key"]
        yield collector, shuffler


def create(both, name, threshold=20, mechanism=MECHANISM, closes=LATER, senders="everybody", **terms):
    collector, shuffler = both
    shuffling = {"url": shuffler.url, "key": shuffler.key, "threshold": threshold, **terms}
    collector.create(name, mechanism, closes=closes, senders=senders, shuffling=shuffling)
    return f"{shuffler.url}/{name}"


def claim(collector, name):
    return collector.status(name)["shuffling"]


def waiting(shuffler, name):
    return shuffler.status(name)["waiting"]


def test_messages_go_through_the_shuffler_to_the_estimate(both):
    collector, shuffler = both
    url, seen = create(both, "steps"), []
    client = Client(url, most_epsilon=4.0)
    assert client.shuffler_key == shuffler.key
    assert client.send(X, progress=seen.append) == 60
    assert seen == [60]
    found = collector.estimate("steps", 60)
    assert found["count"] == 60
    expected = shuffled_epsilon(MECHANISM, 30, 1e-6, messages=2)
    assert found["shuffling"] == {
        "batches": 2,
        "accepted": 60,
        "refused": {"foreign": 0, "malformed": 0, "repeated": 0},
        "crowd": 30,
        "epsilon": pytest.approx(expected),
        "delta": 1e-6,
        "local_epsilon": 4.0,
    }
    assert claim(collector, "steps") == found["shuffling"]
    until(lambda: shuffler.status("steps")["outgoing"] == 0)
    assert waiting(shuffler, "steps") == {}


def test_the_shuffler_waits_for_a_crowd(both):
    collector, shuffler = both
    client = Client(create(both, "crowd", threshold=25), most_epsilon=4.0)
    client.send(X[:24])
    (people,) = waiting(shuffler, "crowd").values()
    assert people == 24
    time.sleep(0.3)  # six rounds
    assert collector.status("crowd")["received"] == 0
    client.send(X[:1])
    collector.wait("crowd", 50, "folded")
    assert claim(collector, "crowd")["crowd"] == 25


def test_an_upload_that_is_repeated_counts_once(both):
    collector, shuffler = both
    create(both, "once", threshold=10)
    document = shuffler.http.get("/v1/campaigns/once").content
    public = next(iter(sealing_keys_of(document).values()))
    body = sealed(MECHANISM, X[:10], public, "once")
    key = secrets.token_hex(16)
    for _ in range(2):
        assert shuffler.send("once", MECHANISM, body, 10, key=key).json() == {"count": 10}
    collector.wait("once", 20, "folded")
    assert shuffler.send("once", MECHANISM, body, 10, key=key).json() == {"count": 10}
    # The same envelopes under another key: the shuffler cannot know, but the collector does.
    assert shuffler.send("once", MECHANISM, body, 10).status_code == 200
    until(lambda: claim(collector, "once")["refused"]["repeated"] == 20)
    assert claim(collector, "once")["accepted"] == collector.status("once")["received"] == 20
    metrics = collector.administer("GET", "/metrics").text
    assert 'sstq_envelopes_opened{campaign="once",result="repeated"} 20' in metrics


def sealed(mechanism, vectors, public, name):
    messages = mechanism.encode(vectors)
    whole = payloads(messages, mechanism.message_bits).reshape(mechanism.messages, len(vectors), -1)
    return seal_people(whole, public, name, mechanism.digest())


@pytest.mark.parametrize("below", ["drop", "local"])
def test_too_few_people_at_the_end(both, below):
    collector, shuffler = both
    name = f"few-{below}"
    create(both, name, threshold=20, below_threshold=below)
    client = Client(f"{shuffler.url}/{name}", most_epsilon=4.0)
    client.send(X[:25])
    collector.wait(name, 50, "folded")
    client.send(X[:7])
    assert collector.administer("PATCH", f"/v1/campaigns/{name}", json={"closed": True}).status_code == 200
    assert collector.status(name)["status"] == "closed"
    until(lambda: not waiting(shuffler, name))
    with pytest.raises(ValueError, match="410"):
        client.send(X)
    if below == "drop":
        assert (
            f'sstq_people_total{{campaign="{name}",result="dropped"}} 7' in shuffler.administer("GET", "/metrics").text
        )
        assert claim(collector, name)["crowd"] == 25
        assert collector.status(name)["received"] == 50
    else:
        collector.wait(name, 64, "folded")
        found = claim(collector, name)
        assert (found["crowd"], found["epsilon"], found["delta"]) == (7, 4.0, 0.0)


def test_a_new_sealing_key_makes_a_new_crowd(both):
    collector, shuffler = both
    create(both, "keys", threshold=20)
    old = Client(f"{shuffler.url}/keys", most_epsilon=4.0)
    old.send(X[:15])
    environment = {"SSTQ_URL": collector.url, "SSTQ_ADMINISTRATOR_TOKEN": ADMINISTRATOR}
    said = CliRunner().invoke(app, ["campaign", "rotate", "keys"], env=environment)
    assert said.exit_code == 0, said.output
    until(lambda: len(shuffler.http.get("/v1/campaigns/keys").json()["sealing_keys"]) == 2)
    new = Client(f"{shuffler.url}/keys", most_epsilon=4.0)
    newest, oldest = (entry["id"] for entry in shuffler.http.get("/v1/campaigns/keys").json()["sealing_keys"])
    assert newest in said.output
    new.send(X[:15])
    time.sleep(0.3)
    assert waiting(shuffler, "keys") == {oldest: 15, newest: 15}
    old.send(X[:5])  # whose document is old
    collector.wait("keys", 40, "folded")
    assert waiting(shuffler, "keys") == {newest: 15}
    new.send(X[:5])
    collector.wait("keys", 80, "folded")
    assert claim(collector, "keys")["crowd"] == 20


def test_a_single_use_token_is_made_and_spent_at_the_shuffler(both):
    collector, shuffler = both
    url = create(both, "single", threshold=2, senders="single-use")
    answer = collector.administer("POST", "/v1/campaigns/single/tokens", json={"count": 1})
    assert answer.status_code == 409
    assert shuffler.url in answer.json()["detail"]
    tokens = shuffler.administer("POST", "/v1/campaigns/single/tokens", json={"count": 2}).json()["tokens"]
    for token in tokens:
        assert Client(url, most_epsilon=4.0, token=token).send(X[0]) == 2
    with pytest.raises(ValueError, match=r"403.*used before"):
        Client(url, most_epsilon=4.0, token=tokens[0]).send(X[0])
    collector.wait("single", 4, "folded")


def test_both_keys_are_checked_before_anything_is_drawn(both):
    collector, shuffler = both
    create(both, "pinned")
    collector.create("direct", MECHANISM)
    key = Client(f"{shuffler.url}/pinned", most_epsilon=4.0).key
    for url in (f"{shuffler.url}/pinned", f"{collector.url}/pinned"):
        client = Client(url, most_epsilon=4.0, pinned_key=key, pinned_shuffler=shuffler.key)
        assert (client.key, client.shuffler_key) == (key, shuffler.key)
    with pytest.raises(ValueError, match="is not the pinned one"):
        Client(f"{shuffler.url}/pinned", most_epsilon=4.0, pinned_key=shuffler.key)
    with pytest.raises(ValueError, match=f"names the shuffler {shuffler.key} instead of the pinned one"):
        Client(f"{shuffler.url}/pinned", most_epsilon=4.0, pinned_shuffler="00" * 32)
    with pytest.raises(ValueError, match="names no shuffler instead of the pinned one"):
        Client(f"{collector.url}/direct", most_epsilon=4.0, pinned_shuffler=shuffler.key)
    with pytest.raises(ValueError, match=r"asks for epsilon = 4\.0 per person"):
        Client(f"{shuffler.url}/pinned", most_epsilon=3.0)


class Imposter(BaseHTTPRequestHandler):
    """A shuffler that has the collector's document, and another key than it names."""

    def do_GET(self):
        document, key = self.server.document, SigningKey.generate()
        self.send_response(200)
        self.send_header("SSTQ-Signature", self.server.signature)
        self.send_header("SSTQ-Shuffler-Signature", key.sign(document, SHUFFLER_PREFIX))
        self.send_header("Content-Length", str(len(document)))
        self.end_headers()
        self.wfile.write(document)

    def log_message(self, *_):
        pass


def test_an_imposter_gets_nothing(both):
    collector, _ = both
    create(both, "wanted")
    answer = collector.http.get("/v1/campaigns/wanted")
    with HTTPServer(("127.0.0.1", 0), Imposter) as listening:
        listening.document, listening.signature = answer.content, answer.headers["SSTQ-Signature"]
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            with pytest.raises(ValueError, match="is not the shuffler that the campaign names; nothing was sent"):
                Client(f"http://127.0.0.1:{listening.server_port}/wanted", most_epsilon=4.0)
        finally:
            listening.shutdown()
            thread.join()


def test_the_collector_takes_nothing_directly(both):
    collector, shuffler = both
    create(both, "closed-door")
    answer = collector.send("closed-door", MECHANISM, bytes(4), 2)
    assert answer.status_code == 409
    assert shuffler.url in answer.json()["detail"]


def test_the_collector_takes_batches_of_the_shuffler_only(both):
    collector, _ = both
    create(both, "signed")
    document = json.loads(collector.http.get("/v1/campaigns/signed").content)
    stranger = SigningKey.generate()
    manifest = {"format": "sstq-batch", "version": 1, "campaign": "signed", "digest": document["digest"]}
    text = json.dumps(manifest)
    headers = {"Content-Type": "application/octet-stream", "SSTQ-Batch": text}
    for signature in ("", stranger.sign(text.encode(), b"sstq-batch-v1\x00")):
        answer = collector.http.post(
            "/v1/campaigns/signed/batches", content=b"", headers=headers | {"SSTQ-Signature": signature}
        )
        assert answer.status_code == 403


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        (lambda body: body[:-1], 422, "2 people's envelopes of 2 × 50 bytes take 208 bytes, got 207"),
        (lambda body: bytes(8) + body[8:], 409, "sealed for a key that the campaign does not have"),
    ],
)
def test_uploads_that_cannot_be_stored(both, change, status, said):
    _, shuffler = both
    if shuffler.http.get("/v1/campaigns/wrong").status_code == 404:
        create(both, "wrong")
    public = next(iter(sealing_keys_of(shuffler.http.get("/v1/campaigns/wrong").content).values()))
    body = change(sealed(MECHANISM, X[:2], public, "wrong"))
    answer = shuffler.send("wrong", MECHANISM, body, 2)
    assert answer.status_code == status
    assert said in answer.json()["detail"]


def test_a_campaign_of_another_shuffler_is_not_found(both):
    collector, shuffler = both
    terms = {"url": shuffler.url, "key": "00" * 32, "threshold": 20}
    collector.create("elsewhere", MECHANISM, closes=LATER, shuffling=terms)
    answer = shuffler.http.get("/v1/campaigns/elsewhere")
    assert answer.status_code == 404
    assert shuffler.key in answer.json()["detail"]
    assert shuffler.http.get("/v1/campaigns/nobody-knows").status_code == 404


def test_a_database_has_one_role(tmp_path):
    from sstq.service.collector import Collector
    from sstq.service.settings import Settings
    from sstq.service.shuffler import ShufflerSettings, create_shuffler_app

    database = f"sqlite:///{tmp_path}/one.sqlite3"
    Collector(Settings(database, ADMINISTRATOR)).store.close()
    with pytest.raises(ValueError, match="database must belong to a shuffler, got one of a collector"):
        create_shuffler_app(ShufflerSettings(database, ADMINISTRATOR, collector="http://127.0.0.1:1"))


def test_terms_of_a_shuffled_campaign():
    shuffling = Shuffling("https://shuffle.example", "ab" * 32, threshold=100)
    closes = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    campaign = Campaign("steps", MECHANISM, closes=closes, shuffling=shuffling)
    assert Campaign.from_json(campaign.to_json()) == campaign
    keys = [b"1" * 32, b"2" * 32]
    document = campaign.document([b"k" * 32], keys)
    assert read_document(document) == (campaign, (b"k" * 32,))
    assert list(sealing_keys_of(document).values()) == keys
    described = json.loads(document)
    assert (described["slots"], described["envelope_bytes"]) == (2, 48 + -(-MECHANISM.message_bits // 8))
    with pytest.raises(ValueError, match="sealing_keys must be one or more keys of 32 bytes"):
        read_document(campaign.document([b"k" * 32], []))
    with pytest.raises(ValueError, match="closes must be given if messages are shuffled"):
        Campaign("steps", MECHANISM, shuffling=shuffling)
    with pytest.raises(ValueError, match="senders must be 'everybody' or 'single-use'"):
        Campaign("steps", MECHANISM, closes=closes, senders="token", shuffling=shuffling)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"url": "ftp://shuffle.example"}, "url must be the shuffler's URL"),
        ({"url": "https://shuffle.example/"}, "must have no query, fragment or final slash"),
        ({"key": "AB" * 32}, "key must be 64 hexadecimal digits"),
        ({"threshold": 1}, r"threshold must be an integer in \[2, 1000000000\], got 1"),
        ({"delta": 0.5}, "delta must be a number in"),
        ({"below_threshold": "keep"}, "below_threshold must be 'drop' or 'local', got 'keep'"),
        ({"treshold": 3}, "shuffling has no field 'treshold'; did you mean 'threshold'"),
    ],
)
def test_terms_that_cannot_be(change, said):
    terms = {"url": "https://shuffle.example", "key": "ab" * 32, "threshold": 100}
    with pytest.raises(ValueError, match=said):
        Shuffling.from_dict(terms | change)


def test_the_shuffler_of_a_campaign_cannot_change(both):
    collector, shuffler = both
    create(both, "fixed")
    terms = {"url": shuffler.url, "key": shuffler.key, "threshold": 30}
    answer = collector.administer("PATCH", "/v1/campaigns/fixed", json={"shuffling": terms})
    assert (answer.status_code, "cannot change" in answer.json()["detail"]) == (422, True)


def test_the_commands(both, tmp_path):
    collector, shuffler = both
    (tmp_path / "m.json").write_text(MECHANISM.to_json())
    np.save(tmp_path / "x.npy", X)
    environment = {"SSTQ_URL": collector.url, "SSTQ_ADMINISTRATOR_TOKEN": ADMINISTRATOR}

    def run(*arguments, code=0):
        found = CliRunner().invoke(app, [str(part) for part in arguments], env=environment)
        assert found.exit_code == code, (found.output, found.exception)
        return found.output

    creation = ("campaign", "create", "walks", "-m", tmp_path / "m.json", "--closes", LATER)
    assert "needs --shuffler ADDRESS" in run(*creation, "--threshold", 20, code=2)
    # A key, an address or a collector that is not the shuffler's is noticed now, and leaves the name free.
    for address, key, reason in (
        (shuffler.url, "00" * 32, f"{urlsplit(shuffler.url).netloc} refused the request (404)"),
        (collector.url, shuffler.key, "is not the shuffler that the campaign names"),
        ("http://127.0.0.1:1", shuffler.key, "no answer from 127.0.0.1:1"),
    ):
        said = run(*creation, "--shuffler", address, "--shuffler-key", key, "--threshold", 20, code=1)
        assert reason in " ".join(said.split())
        assert "pass the address and the public key that sstq shuffler prints" in " ".join(said.split())
    run(*creation, "--shuffler", shuffler.url, "--shuffler-key", shuffler.key, "--threshold", 20, "--delta", "1e-5")
    assert "nothing arrived yet" in run("campaign", "show", "walks")
    sending = ("send", f"{collector.url}/walks", tmp_path / "x.npy", "--most-epsilon", 4)
    said = run(*sending)
    assert f"next time pass --shuffler-key {shuffler.key}" in said
    assert "--shuffler-key" not in run(*sending, "--shuffler-key", shuffler.key)
    assert "instead of the pinned one" in run(*sending, "--shuffler-key", "00" * 32, code=1)
    collector.wait("walks", 120, "folded")
    shown = run("campaign", "show", "walks")
    assert "1e-05) from what arrived" in shown
    assert "0 foreign, 0 malformed, 0 repeated" in shown
