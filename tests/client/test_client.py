"""The client and the commands, against a real server process and against servers that misbehave."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest
from typer.testing import CliRunner

import sstq
from sstq.cli import app

pytest.importorskip("fastapi")

from sstq.accounting import Ledger
from sstq.client import Campaign, Client, DeliveryError
from sstq.client.signing import SigningKey
from tests.service.serving import ADMINISTRATOR, serving

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)
X = np.eye(6).repeat(4, axis=0)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("collector")) as running:
        running.create("steps", MECHANISM, most_messages=10, senders="token")
        running.once = running.create("once", MECHANISM, senders="single-use")
        yield running


def sstq_run(*arguments, code=0, **environment):
    found = CliRunner().invoke(app, [str(part) for part in arguments], env=environment)
    assert found.exit_code == code, (found.output, found.exception)
    return found.output


def test_a_client_imports_neither_the_server_nor_the_database():
    program = """
import sys
for name in ("fastapi", "starlette", "pydantic", "uvicorn", "httptools", "uvloop", "sqlalchemy", "psycopg"):
    sys.modules[name] = None  # as if it were not installed
from sstq.client import Campaign, Client
try:
    import sstq.service
except ImportError as error:
    assert "pip install 'sstq[service]'" in str(error)
    sys.exit(0)
sys.exit("the server needs nothing?")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_rows_that_cannot_be_encoded_are_answered(server, tmp_path, caplog):
    """The collector sees who answers, so a bad row is a message like any other."""
    bad = [
        *X[:2].tolist(),
        [np.nan] * 6,
        [np.inf, 0, 0, 0, 0, 0],
        [None, 1, 1, 1, 1, 1],
    ]
    before = server.status("steps")["received"]
    token = server.sender("steps")
    assert Client(f"{server.url}/steps", most_epsilon=2.0, token=token).send(bad) == 5
    assert (
        "3 of 5 vectors cannot be encoded; zero vectors are sent in their place"
        in caplog.text
    )
    np.save(tmp_path / "x.npy", np.array(bad, dtype=float))
    sending = ("send", f"{server.url}/steps", tmp_path / "x.npy", "--most-epsilon", 2)
    assert "acknowledged" in sstq_run(*sending, SSTQ_SEND_TOKEN=token)
    assert server.status("steps")["received"] == before + 10
    (tmp_path / "x.csv").write_text("id;a;b;c;d;e;f\n1;0;0;0;0;0;1\n2;0;0;;0;0;1\n")
    sending = (
        "send",
        f"{server.url}/steps",
        tmp_path / "x.csv",
        "--most-epsilon",
        2,
        "--columns",
        "a,b,c,d,e,f",
    )
    assert "acknowledged\t2" in sstq_run(*sending, SSTQ_SEND_TOKEN=token)


def test_several_messages_cost_as_many_epsilons(stubborn, tmp_path):
    stubborn.campaign = Campaign("steps", MECHANISM.replace(frames=4, messages=3))
    with pytest.raises(
        ValueError,
        match=r"most_epsilon must be at least 6\.0, got 5\.9: the campaign asks for epsilon = 6\.0 per person",
    ):
        Client(stubborn.url, most_epsilon=5.9)
    ledger = Ledger(tmp_path / "me.ledger", 7.0)
    assert Client(stubborn.url, most_epsilon=6.0, ledger=ledger).send(X[0]) == 3
    assert ledger.remaining == 1.0


def test_a_pinned_key_is_checked(server):
    key = Client(f"{server.url}/steps", most_epsilon=2.0).key
    assert Client(f"{server.url}/steps", most_epsilon=2.0, pinned_key=key).key == key
    with pytest.raises(ValueError, match="is not the pinned one"):
        Client(f"{server.url}/steps", most_epsilon=2.0, pinned_key="00" * 32)


def test_a_ledger_is_charged_once_per_call_and_before_anything_leaves(server, tmp_path):
    ledger = Ledger(tmp_path / "me.ledger", 4.5)
    client = Client(
        f"{server.url}/steps",
        most_epsilon=2.0,
        ledger=ledger,
        token=server.sender("steps"),
    )
    client.send(X)
    client.send(X[:1])
    assert len(ledger.entries) == 2
    before = server.status("steps")["received"]
    with pytest.raises(ValueError, match="more than is left"):
        client.send(X)
    assert server.status("steps")["received"] == before


def test_messages_are_checked_before_anything_leaves(server, tmp_path):
    server.create("batches", MECHANISM, most_messages=10, senders="token")
    ledger = Ledger(tmp_path / "me.ledger", 2.0)
    client = Client(
        f"{server.url}/batches",
        most_epsilon=2.0,
        ledger=ledger,
        token=server.sender("batches"),
    )
    with pytest.raises(
        ValueError, match="messages must come from the campaign's mechanism"
    ):
        client.send_messages(sstq.FrameUnit(dim=6, epsilon=1.0).encode(X))
    with pytest.raises(ValueError, match="encoded with secret randomness"):
        client.send_messages(MECHANISM.encode(X, 1))
    assert (server.status("batches")["received"], len(ledger.entries)) == (0, 0)
    seen = []
    sent = MECHANISM.encode(np.concatenate([X, X[:3]]))
    assert client.send_messages(sent, progress=seen.append) == 27
    assert (seen, len(ledger.entries)) == ([10, 10, 7], 1)
    server.wait("batches", 27)
    expected = MECHANISM.aggregator().update(sent)
    (tmp_path / "state.npz").write_bytes(
        server.administer("GET", "/v1/campaigns/batches/state").content
    )
    assert np.array_equal(
        MECHANISM.load_aggregator(tmp_path / "state.npz").sums(), expected.sums()
    )


class Stubborn(BaseHTTPRequestHandler):
    """Answers the second try of each upload, after it has taken the first one without a word."""

    def do_GET(self):
        document = self.server.campaign.document([self.server.key.public])
        self._answer(
            200,
            self.server.change(document),
            {"SSTQ-Signature": self.server.key.sign(document)},
        )

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.headers["Idempotency-Key"], body))
        tries = len(self.server.seen)
        if tries == 1:
            self.close_connection = True
        elif tries == 2:
            self._answer(
                503, b'{"status": 503, "detail": "Busy."}', {"Retry-After": "0"}
            )
        else:
            self._answer(
                200, b'{"count": %s}' % self.headers["SSTQ-Count"].encode(), {}
            )

    def _answer(self, status, body, headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def stubborn(monkeypatch):
    monkeypatch.setattr("sstq.client.sending._FIRST_PAUSE", 0.01)
    with HTTPServer(("127.0.0.1", 0), Stubborn) as listening:
        listening.campaign = Campaign("steps", MECHANISM)
        listening.key = SigningKey.generate()
        listening.seen = []
        listening.change = lambda document: document
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        listening.url = f"http://127.0.0.1:{listening.server_port}/steps"
        yield listening
        listening.shutdown()
        thread.join()


def test_a_retry_repeats_the_key_and_the_bytes(stubborn):
    assert Client(stubborn.url, most_epsilon=2.0, token="of a sender").send(X) == 24  # noqa: S106
    assert len(stubborn.seen) == 3
    assert len(set(stubborn.seen)) == 1


def test_a_receipt_of_another_upload_is_none(stubborn, monkeypatch):
    stubborn.seen += [None, None]  # the next try is answered
    answered = Stubborn._answer
    other = {b'{"count": 24}': b'{"count": 23}'}
    monkeypatch.setattr(
        Stubborn, "_answer", lambda *a: answered(*a[:2], other.get(a[2], a[2]), a[3])
    )
    client = Client(stubborn.url, most_epsilon=2.0, token="of a sender", patience=0.0)  # noqa: S106
    with pytest.raises(DeliveryError, match=r"the receipt of .* is for another upload"):
        client.send(X)


def test_a_changed_document_is_refused(stubborn):
    stubborn.change = lambda document: document.replace(
        b'"most_messages":1,', b'"most_messages":2,'
    )
    with pytest.raises(
        ValueError, match="signature is wrong, so it may have been tampered with"
    ):
        Client(stubborn.url, most_epsilon=2.0)


def test_a_redirect_is_not_followed(stubborn, monkeypatch):
    """Who else answers would get the token, and could be a shuffler of its own."""
    answered = Stubborn._answer
    elsewhere = {"Location": f"{stubborn.url.removesuffix('steps')}other"}
    asked = []

    def redirect(handler, _, body, __):
        asked.append(handler.path)
        answered(handler, 307, body, elsewhere)

    monkeypatch.setattr(Stubborn, "_answer", redirect)
    with pytest.raises(ValueError, match="refused the request \\(307\\)"):
        Client(stubborn.url, most_epsilon=2.0)
    assert asked == ["/v1/campaigns/steps"]


def test_an_answer_that_is_cut_off_is_asked_for_again(stubborn):
    """As of a server that is killed between the headers and the body."""
    stubborn.seen += [None, None]  # the next try is answered
    answer = Stubborn._answer
    cut = []

    def once(handler, status, body, headers):
        is_cut = handler.command == "POST" and bool(cut)
        answer(
            handler,
            status,
            b"" if is_cut else body,
            {**headers, "Content-Length": str(len(body))},
        )
        if is_cut:
            cut.pop()
            handler.close_connection = True

    with pytest.MonkeyPatch.context() as patch:
        client = Client(stubborn.url, most_epsilon=2.0)
        patch.setattr(Stubborn, "_answer", once)
        cut.append(True)
        assert client.send(X[0]) == 1
    assert len(set(stubborn.seen[2:])) == 1
    assert len(stubborn.seen) == 4


@pytest.mark.parametrize("url", ["steps", "ftp://host/steps", "http://host"])
def test_an_address_that_cannot_be(url):
    with pytest.raises(ValueError, match="url must be"):
        Client(url, most_epsilon=2.0)


def test_the_commands_from_the_mechanism_to_the_state(server, tmp_path):
    (tmp_path / "m.json").write_text(MECHANISM.to_json())
    (tmp_path / "terms.json").write_text(
        json.dumps({"labels": list("abcdef"), "image_shape": [2, 3]})
    )
    np.save(tmp_path / "x.npy", X)
    administrator = {"SSTQ_URL": server.url, "SSTQ_ADMINISTRATOR_TOKEN": ADMINISTRATOR}

    def campaign(*arguments, code=0):
        return sstq_run("campaign", *arguments, code=code, **administrator)

    options = ("-m", tmp_path / "m.json", "--terms", tmp_path / "terms.json")
    assert MECHANISM.digest() in campaign(
        "create", "walks", *options, "--senders", "token"
    )
    assert "already" in campaign("create", "walks", "-m", tmp_path / "m.json", code=1)
    assert "--closes must be a time" in campaign(
        "create", "b", "-m", tmp_path / "m.json", "--closes", "5", code=2
    )
    renewed = server.administer(
        "PATCH", "/v1/campaigns/walks", json={"renew": ["send_token"]}
    ).json()["send_token"]
    url = f"{server.url}/walks"
    ledger = tmp_path / "me.ledger"
    sending = (
        "send",
        url,
        tmp_path / "x.npy",
        "--most-epsilon",
        "2",
        "--ledger",
        ledger,
    )
    assert "pass --total-epsilon" in sstq_run(*sending, code=2)
    said = sstq_run(*sending, "--total-epsilon", "4", SSTQ_SEND_TOKEN=renewed)
    assert "messages acknowledged" in said
    assert "next time pass --collector-key" in said
    server.wait("walks", 24, "covered")
    assert "walks" in campaign("list")
    assert f"keys\t{Client(url, most_epsilon=2.0).key}" in campaign("show", "walks")
    shown = campaign("show", "walks")
    assert "tokens" not in shown  # there are none that are for single use
    mean = server.estimate("walks", 24)
    assert "coordinate\tlabel\tvalue\tstderr\thalf_width\n0\ta\t" in shown
    assert f"\t{mean['value'][0]:.4g}\t{mean['stderr'][0]:.4g}\t" in shown
    campaign("export", "walks", "-o", tmp_path / "walks.npz")
    assert MECHANISM.load_aggregator(tmp_path / "walks.npz").count == 24
    campaign("export", "walks", "-o", tmp_path / "walks.csv")
    assert (
        (tmp_path / "walks.csv")
        .read_text()
        .startswith("coordinate,label,value,stderr,half_width\n0,a,")
    )
    assert "--force" in campaign(
        "export", "walks", "-o", tmp_path / "walks.csv", code=2
    )
    campaign("close", "walks")
    assert "closed" in campaign("show", "walks")
    assert "sent to this campaign before" in sstq_run(
        *sending, code=2, SSTQ_SEND_TOKEN=renewed
    )
    assert "410" in sstq_run(*sending, "--again", code=1, SSTQ_SEND_TOKEN=renewed)
    assert len(campaign("tokens", "once", "--count", "3").split()) == 3


def test_what_cannot_be_served_is_one_sentence(tmp_path):
    folder = tmp_path / "collector"

    def serve(*arguments, code):
        return " ".join(
            sstq_run(
                "serve", "--folder", folder, "--port", "0", *arguments, code=code
            ).split()
        )

    nowhere = "postgresql+psycopg://127.0.0.1:9/nothing"
    assert "the database is not available: connection failed" in serve(
        "--database", nowhere, code=1
    )
    assert "--behind-proxy must be the addresses of a proxy with TLS" in serve(
        "--host", "192.0.2.1", code=2
    )
    assert "port must be an integer in [0, 65535], got 99999" in serve(
        "--port", "99999", code=2
    )
    folder = tmp_path / "file"
    folder.touch()
    assert f"--folder must be a folder, got the file {folder}" in serve(code=2)


def test_what_the_collector_would_refuse_costs_nothing(server, tmp_path):
    """A wrong token, a quota that is too small, and a campaign that was closed before its time."""
    ledger = Ledger(tmp_path / "me.ledger", 100.0)
    made = server.administer(
        "POST", "/v1/campaigns/steps/senders", json={"people": 3}
    ).json()
    url = f"{server.url}/steps"
    client = Client(url, most_epsilon=2.0, ledger=ledger, token=made["send_token"])
    with pytest.raises(
        ValueError, match="the token pays for 3 more people, not 4; nothing was sent"
    ):
        client.send(X[:4])
    assert ledger.entries == ()
    assert client.send(X[:2]) == 2
    with pytest.raises(
        ValueError, match="the token pays for 1 more people, not 2; nothing was sent"
    ):
        client.send(X[:2])
    with pytest.raises(
        ValueError, match=r"403.* not that of a sender.*nothing was sent"
    ):
        Client(url, most_epsilon=2.0, ledger=ledger, token="wrong").send(X[:1])  # noqa: S106
    once = server.administer(
        "POST", "/v1/campaigns/once/tokens", json={"count": 1}
    ).json()["tokens"]
    person = Client(f"{server.url}/once", most_epsilon=2.0, ledger=ledger, token=once)
    assert person.send(X[0]) == 1
    with pytest.raises(ValueError, match="the token was used before; nothing was sent"):
        person.send(X[0])
    server.create("brief", MECHANISM)
    late = Client(f"{server.url}/brief", most_epsilon=2.0, ledger=ledger)
    assert (
        server.administer(
            "PATCH", "/v1/campaigns/brief", json={"closed": True}
        ).status_code
        == 200
    )
    with pytest.raises(ValueError, match=r"410.* closed; nothing was sent"):
        late.send(X[0])
    assert (len(ledger.entries), late.outbox.messages()) == (2, 0)


@pytest.mark.parametrize(
    ("senders", "tokens"),
    [
        ("everybody", ()),
        ("everybody", ("wrong",)),
        ("token", ()),
        ("token", ("wrong",)),
        ("single-use", ()),
        ("single-use", ("too", "few")),
    ],
)
def test_a_closed_campaign_is_said_before_any_token(server, tmp_path, senders, tokens):
    """No token helps at a campaign that was closed before its time."""
    name = f"gone-{senders}-{len(tokens)}"
    server.create(name, MECHANISM, senders=senders)
    path = f"/v1/campaigns/{name}"
    assert server.administer("PATCH", path, json={"closed": True}).status_code == 200
    np.save(tmp_path / "x.npy", X)
    options = []
    if tokens:
        (tmp_path / "tokens.txt").write_text("\n".join(tokens))
        options = ["--tokens", tmp_path / "tokens.txt"]
    sending = ("send", f"{server.url}/{name}", tmp_path / "x.npy", "--most-epsilon", 2)
    said = sstq_run(*sending, *options, code=1, XDG_STATE_HOME=str(tmp_path))
    assert "The campaign is closed; nothing was sent" in said
    assert "token" not in said


@pytest.mark.slow
def test_closing_asks_on_a_terminal_and_never_in_a_script(server):
    """It cannot be undone; whoever pipes the command gets no question."""
    environment = {
        **os.environ,
        "SSTQ_URL": server.url,
        "SSTQ_ADMINISTRATOR_TOKEN": ADMINISTRATOR,
    }
    for name, terminal, typed, options, closed in (
        ("asked-no", True, b"n\n", (), False),
        ("asked-yes", True, b"y\n", (), True),
        ("not-asked", True, b"", ("--yes",), True),
        ("script", False, b"", (), True),
    ):
        server.create(name, MECHANISM)
        ours, theirs = os.openpty()
        os.write(ours, typed)
        done = subprocess.run(
            [sys.executable, "-m", "sstq", "campaign", "close", name, *options],
            env=environment,
            stdin=theirs if terminal else subprocess.DEVNULL,
            capture_output=True,
        )
        os.close(ours)
        os.close(theirs)
        assert (server.status(name)["status"] == "closed") == closed
        assert (b"for good?" in done.stdout + done.stderr) == (typed != b"")
        assert (done.returncode == 0) == closed
