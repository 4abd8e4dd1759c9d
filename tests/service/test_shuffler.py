"""A shuffler and a collector as real processes, with clients and with those that misbehave."""

import json
import secrets
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import sstq
from sstq.cli import app

pytest.importorskip("fastapi")

from sstq.accounting import shuffled_epsilon
from sstq.client import Client
from sstq.client.campaigns import read_document
from sstq.client.sealing import payloads, seal_person
from sstq.client.signing import SigningKey
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
        serving(folders[0], messages_per_second=0) as collector,
        serving(
            folders[1],
            command="shuffler",
            collector=collector.url,
            closing_seconds=0,
            fetch_seconds=0.2,
            messages_per_second=0,
        ) as shuffler,
    ):
        collector.key = collector.http.get("/v1/key").json()["key"]
        shuffler.keys = shuffler.http.get("/v1/key").json()
        yield collector, shuffler


def create(
    both,
    name,
    threshold=20,
    mechanism=MECHANISM,
    closes=LATER,
    senders="single-use",
    labels=None,
    **terms,
):
    collector, shuffler = both
    shuffling = {"url": shuffler.url, "threshold": threshold, **shuffler.keys, **terms}
    labelled = {} if labels is None else {"labels": labels}
    collector.create(
        name, mechanism, closes=closes, senders=senders, shuffling=shuffling, **labelled
    )


def client_of(both, name, **options):
    collector, shuffler = both
    pins = {"pinned_key": collector.key, "pinned_shuffler": shuffler.keys["key"]}
    return Client(f"{shuffler.url}/{name}", **{"most_epsilon": 4.0} | pins | options)


def tokens_of(both, name, count):
    return (
        both[1]
        .administer("POST", f"/v1/campaigns/{name}/tokens", json={"count": count})
        .json()["tokens"]
    )


def send(both, name, vectors):
    """Send one vector per person, each with a token of its own."""
    client = client_of(both, name, token=tokens_of(both, name, len(vectors)))
    assert client.send(vectors) == len(vectors) * client.campaign.slots


def close(both, name):
    collector, shuffler = both
    assert (
        collector.administer(
            "PATCH", f"/v1/campaigns/{name}", json={"closed": True}
        ).status_code
        == 200
    )
    assert collector.status(name)["status"] == "closed"
    until(
        lambda: not waiting(shuffler, name) and shuffler.status(name)["outgoing"] == 0
    )


def claim(collector, name):
    return collector.status(name)["shuffling"]


def waiting(shuffler, name):
    return shuffler.status(name)["waiting"]


def test_messages_go_through_the_shuffler_to_the_estimate(both):
    collector, shuffler = both
    create(both, "steps")
    seen = []
    client = client_of(both, "steps", token=tokens_of(both, "steps", 30))
    assert client.send(X, progress=seen.append) == 60
    assert seen == [2] * 30  # one person per upload
    time.sleep(0.3)  # three rounds: the shuffler mixes when the campaign has closed
    assert (
        list(waiting(shuffler, "steps").values()),
        collector.status("steps")["received"],
    ) == ([30], 0)
    close(both, "steps")
    found = collector.estimate("steps", 60)
    assert found["count"] == 60
    expected, half = (
        shuffled_epsilon(MECHANISM, people, 1e-6, messages=2) for people in (30, 15)
    )
    crowd = {
        "people": 30,
        "epsilon": expected,
        "delta": 1e-6,
        "epsilon_if_half_fake": half,
        "isolating_share": 29 / 30,
    }
    assert found["shuffling"] == {
        "batches": 2,
        "accepted": 60,
        "refused": {"foreign": 0, "malformed": 0, "repeated": 0},
        "crowds": [pytest.approx(crowd)],
        "local_epsilon": 4.0,
    }
    assert claim(collector, "steps") == found["shuffling"]


def test_an_upload_that_is_repeated_counts_once(both):
    collector, shuffler = both
    create(both, "once", threshold=2, senders="everybody")
    document = read_document(shuffler.http.get("/v1/campaigns/once").content)
    bodies = [sealed(document, row) for row in X[:3]]
    key = secrets.token_hex(16)
    for _ in range(2):
        assert shuffler.send("once", MECHANISM, bodies[0], 1, key=key).json() == {
            "count": 1
        }
    # The same envelopes under another key: the shuffler does not know, but the collector does.
    for body in bodies:
        assert shuffler.send("once", MECHANISM, body, 1).json() == {"count": 1}
    close(both, "once")
    assert shuffler.send("once", MECHANISM, bodies[0], 1, key=key).json() == {
        "count": 1
    }
    assert shuffler.send("once", MECHANISM, bodies[0], 1).status_code == 410
    until(lambda: claim(collector, "once")["refused"]["repeated"] == 2)
    assert (
        claim(collector, "once")["accepted"]
        == collector.status("once")["received"]
        == 6
    )
    metrics = collector.administer("GET", "/metrics").text
    assert 'sstq_envelopes_opened{campaign="once",result="repeated"} 2' in metrics


def sealed(document, vector):
    """The body of one person's upload."""
    campaign = document.campaign
    newest = document.sealing_keys[0]
    cover = bytes.fromhex(campaign.shuffling.sealing_key)
    return seal_person(
        payloads(campaign.mechanism.encode(vector)),
        campaign.crowd(newest),
        newest,
        cover,
    )


def test_too_few_people_are_forwarded_at_the_local_epsilon(both):
    """If the campaign says so; test_malicious has those that are dropped."""
    collector, shuffler = both
    create(both, "few", below_threshold="local")
    send(both, "few", X[:7])
    late = client_of(both, "few", token=tokens_of(both, "few", 1))
    close(both, "few")
    with pytest.raises(ValueError, match="410"):
        late.send(X[0])
    collector.wait("few", 14, "folded")
    (crowd,) = claim(collector, "few")["crowds"]
    local = {"people": 7, "epsilon": 4.0, "delta": 0.0, "epsilon_if_half_fake": 4.0}
    assert crowd == local | {"isolating_share": 6 / 8}
    assert (
        'sstq_people_total{campaign="few",result="mixed"} 7'
        in shuffler.administer("GET", "/metrics").text
    )


def test_people_agreed_to_the_terms_of_a_shuffled_campaign(both):
    collector, shuffler = both
    create(both, "agreed", labels=list("abcdef"))
    for change in (
        {"labels": list("bacdef")},
        {"labels": None},
        {"senders": "everybody"},
    ):
        answer = collector.administer("PATCH", "/v1/campaigns/agreed", json=change)
        assert (
            answer.status_code,
            "only its times and readers can change" in answer.json()["detail"],
        ) == (409, True)
    for change in ({"renew": ["sealing_key"]}, {"shuffling": {}}):
        assert (
            collector.administer(
                "PATCH", "/v1/campaigns/agreed", json=change
            ).status_code
            == 422
        )
    first = shuffler.http.get("/v1/campaigns/agreed")
    assert first.json()["labels"] == list("abcdef")
    times = {"closes": "2101-01-01T00:00:00Z", "readers": "public"}
    assert (
        collector.administer("PATCH", "/v1/campaigns/agreed", json=times).status_code
        == 200
    )
    until(
        lambda: (
            shuffler.http.get("/v1/campaigns/agreed").json()["closes"]
            == times["closes"]
        )
    )
    assert shuffler.status("agreed")["refused_change"] is None


def test_a_single_use_token_is_made_and_spent_at_the_shuffler(both):
    collector, shuffler = both
    create(both, "single", threshold=2)
    answer = collector.administer(
        "POST", "/v1/campaigns/single/tokens", json={"count": 1}
    )
    assert answer.status_code == 409
    assert shuffler.url in answer.json()["detail"]
    answer = collector.send("single", MECHANISM, bytes(4), 2)
    assert (answer.status_code, shuffler.url in answer.json()["detail"]) == (409, True)
    tokens = tokens_of(both, "single", 2)
    for token in tokens:
        assert client_of(both, "single", token=token).send(X[0]) == 2
    with pytest.raises(ValueError, match="the token was used before; nothing was sent"):
        client_of(both, "single", token=tokens[0]).send(X[0])
    with pytest.raises(
        ValueError, match="one person per single-use token, got 3 people and 2 tokens"
    ):
        client_of(both, "single", token=tokens).send(X[:3])


def test_both_keys_are_checked_before_anything_is_drawn(both):
    collector, shuffler = both
    create(both, "pinned")
    collector.create("direct", MECHANISM)
    client = client_of(both, "pinned")
    assert (client.key, client.campaign.shuffling.key) == (
        collector.key,
        shuffler.keys["key"],
    )
    link = f"{shuffler.url}/pinned#collector-key={collector.key}&shuffler-key={shuffler.keys['key']}"
    assert Client(link, most_epsilon=4.0).campaign == client.campaign
    with pytest.raises(ValueError, match="is not the pinned one"):
        client_of(both, "pinned", pinned_key=shuffler.keys["key"])
    with pytest.raises(
        ValueError,
        match=f"names the shuffler {shuffler.keys['key']} instead of the pinned one",
    ):
        client_of(both, "pinned", pinned_shuffler="00" * 32)
    for options in ({"pinned_shuffler": shuffler.keys["key"]}, {"least_threshold": 2}):
        with pytest.raises(ValueError, match="names no shuffler"):
            Client(f"{collector.url}/direct", most_epsilon=4.0, **options)
    create(both, "least-local", below_threshold="local")
    with pytest.raises(
        ValueError, match="crowds of 1 people, fewer than least_threshold = 20"
    ):
        client_of(both, "least-local", least_threshold=20)
    with pytest.raises(ValueError, match=r"asks for epsilon = 4\.0 per person"):
        client_of(both, "pinned", most_epsilon=3.0)


def test_the_collector_takes_batches_of_the_shuffler_only(both):
    collector, _ = both
    create(both, "signed")
    document = json.loads(collector.http.get("/v1/campaigns/signed").content)
    stranger = SigningKey.generate()
    manifest = {
        "format": "sstq-batch",
        "version": 2,
        "campaign": "signed",
        "digest": document["digest"],
    }
    text = json.dumps(manifest)
    headers = {"Content-Type": "application/octet-stream", "SSTQ-Batch": text}
    for signature in ("", stranger.sign(text.encode(), b"sstq-batch-v2\x00")):
        answer = collector.http.post(
            "/v1/campaigns/signed/batches",
            content=b"",
            headers=headers | {"SSTQ-Signature": signature},
        )
        assert answer.status_code == 403


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        (
            lambda body: body[:-1],
            422,
            "A person's envelopes of 2 × 50 bytes take 180 bytes with their cover, got 179",
        ),
        (
            lambda body: bytes(32) + body[32:],
            409,
            "sealed for other terms or another key",
        ),
        (
            lambda body: body[:-1] + bytes([body[-1] ^ 1]),
            422,
            "The cover of the envelopes does not open",
        ),
    ],
)
def test_uploads_that_cannot_be_stored(both, change, status, said):
    _, shuffler = both
    if shuffler.http.get("/v1/campaigns/wrong").status_code == 404:
        create(both, "wrong", senders="everybody")
    document = read_document(shuffler.http.get("/v1/campaigns/wrong").content)
    answer = shuffler.send("wrong", MECHANISM, change(sealed(document, X[0])), 1)
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True)
    assert (
        shuffler.send("wrong", MECHANISM, sealed(document, X[0]) * 2, 2).status_code
        == 413
    )
    assert waiting(shuffler, "wrong") == {}


def test_a_campaign_of_another_shuffler_is_not_signed(both):
    """Nor one at another address, which a malicious collector names in test_malicious."""
    _, shuffler = both
    for number, field in enumerate(("key", "sealing_key")):
        create(both, f"elsewhere-{number}", **{field: "00" * 32})
        answer = shuffler.http.get(f"/v1/campaigns/elsewhere-{number}")
        assert (
            answer.status_code,
            shuffler.keys[field] in answer.json()["detail"],
        ) == (404, True)
    assert shuffler.http.get("/v1/campaigns/nobody-knows").status_code == 404


def test_a_database_has_one_role(tmp_path):
    from sstq.service.collector import Collector
    from sstq.service.settings import Settings
    from sstq.service.shuffler import ShufflerSettings, create_shuffler_app

    database = f"sqlite:///{tmp_path}/one.sqlite3"
    Collector(Settings(database, ADMINISTRATOR)).store.close()
    with pytest.raises(
        ValueError, match="database must belong to a shuffler, got one of a collector"
    ):
        create_shuffler_app(
            ShufflerSettings(database, ADMINISTRATOR, collector="http://127.0.0.1:1")
        )
    with pytest.raises(ValueError, match="public_url must be given with port=0"):
        ShufflerSettings(
            database, ADMINISTRATOR, port=0, collector="http://127.0.0.1:1"
        )


def test_a_collector_that_does_not_answer_is_asked_less_and_less_often():
    from sstq.service.mixing import next_pause

    pauses = [10.0]
    for _ in range(7):
        pauses.append(next_pause(pauses[-1], usual=10.0, answered=False))
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]
    assert next_pause(300.0, usual=10.0, answered=True) == 10
    assert next_pause(600.0, usual=600.0, answered=False) == 600


def test_a_server_that_is_refused_leaves_no_folder(tmp_path):
    folder = tmp_path / "new"
    arguments = ["serve", "--folder", str(folder), "--port", "0", "--host", "192.0.2.1"]
    found = CliRunner().invoke(app, arguments)
    assert (found.exit_code, folder.exists()) == (2, False)
    assert "--behind-proxy must be" in found.stderr


def test_the_shuffler_of_a_campaign_cannot_change(both):
    collector, shuffler = both
    create(both, "fixed")
    terms = {"url": shuffler.url, "threshold": 30, **shuffler.keys}
    answer = collector.administer(
        "PATCH", "/v1/campaigns/fixed", json={"shuffling": terms}
    )
    assert (answer.status_code, answer.json()["detail"].startswith("shuffling: ")) == (
        422,
        True,
    )


def test_the_commands(both, tmp_path):
    collector, shuffler = both
    (tmp_path / "m.json").write_text(MECHANISM.to_json())
    np.save(tmp_path / "x.npy", X)
    environment = {"SSTQ_URL": collector.url, "SSTQ_ADMINISTRATOR_TOKEN": ADMINISTRATOR}

    def run(*arguments, code=0):
        found = CliRunner().invoke(
            app, [str(part) for part in arguments], env=environment
        )
        assert found.exit_code == code, (found.output, found.exception)
        return found.output

    creation = (
        "campaign",
        "create",
        "walks",
        "-m",
        tmp_path / "m.json",
        "--closes",
        LATER,
        "--senders",
        "single-use",
    )
    key = shuffler.keys["key"]

    def named(**terms):
        (tmp_path / "shuffling.json").write_text(json.dumps(terms))
        return ("--shuffling", tmp_path / "shuffling.json")

    assert "with url, key and threshold" in " ".join(
        run(*creation, *named(threshold=20), code=2).split()
    )
    # A key, an address or a collector that is not the shuffler's is noticed now, and leaves the name free.
    other = shuffler.url.replace("127.0.0.1", "localhost")
    for address, stated, reason in (
        (
            shuffler.url,
            "00" * 32,
            f"names a shuffler with the key {'00' * 32}, this one has {key}",
        ),
        (
            other,
            key,
            f"names a shuffler with the url {other}, this one has {shuffler.url}",
        ),
    ):
        said = run(*creation, *named(url=address, key=stated, threshold=20), code=1)
        assert reason in " ".join(said.split())
        assert (
            "pass the address and the public key that sstq shuffler prints"
            in " ".join(said.split())
        )
    for address, reason in (
        (collector.url, "there is no shuffler at"),
        ("http://127.0.0.1:1", "no answer from 127.0.0.1:1"),
    ):
        assert reason in run(
            *creation, *named(url=address, key=key, threshold=20), code=1
        )
    link = f"{shuffler.url}/walks#collector-key={collector.key}&shuffler-key={key}"
    shuffling = named(url=shuffler.url, key=key, threshold=20, delta=1e-5)
    assert link in run(*creation, *shuffling).replace("\n", "").replace(" ", "")
    assert "mixes the messages when the campaign has closed" in run(
        "campaign", "show", "walks"
    )
    (tmp_path / "tokens.txt").write_text("\n".join(tokens_of(both, "walks", 30)))
    sending = ("send", f"{shuffler.url}/walks", tmp_path / "x.npy", "--most-epsilon", 4)
    pins = ("--collector-key", collector.key, "--shuffler-key", key)
    tokens = ("--tokens", tmp_path / "tokens.txt")
    for missing, wrong in (
        ("--collector-key", ()),
        ("--shuffler-key", pins[:2]),
        ("--collector-key", pins[2:]),
    ):
        told = " ".join(run(*sending, *wrong, *tokens, code=2).split())
        assert f"{missing} must be given: a shuffled campaign needs both" in told
    (tmp_path / "empty.txt").write_text("\n")
    told = run(*sending, *pins, "--tokens", tmp_path / "empty.txt", code=2)
    assert "the file is empty" in told
    assert "least_threshold" in run(
        *sending, *pins, *tokens, "--least-threshold", 30, code=1
    )
    assert "messages acknowledged" in run(
        *sending, *pins, *tokens, "--least-threshold", 20
    )
    assert "are dropped" in run("campaign", "close", "walks")
    collector.wait("walks", 60, "folded")
    shown = run("campaign", "show", "walks")
    told = dict(
        line.split("\t") for line in shown.splitlines() if line.count("\t") == 1
    )
    assert (told["shuffling crowds 1 people"], told["shuffling crowds 1 delta"]) == (
        "30",
        "1e-05",
    )
    assert (
        float(told["shuffling crowds 1 epsilon"])
        < float(told["shuffling crowds 1 epsilon if half fake"])
        <= 4
    )
    assert (told["shuffling refused foreign"], told["shuffling local epsilon"]) == (
        "0",
        "4",
    )
