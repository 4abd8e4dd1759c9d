"""Messages that were paid for are never lost, never paid for twice and never encoded again, whatever happens."""

import os
import shlex
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from typer.testing import CliRunner

import sstq
from sstq.accounting import Ledger
from sstq.accounting.ledger import LedgerError
from sstq.cli import app
from sstq.client import Campaign, Client, DeliveryError
from sstq.client.outbox import Outbox, Upload
from sstq.client.signing import SigningKey
from tests.patience import PATIENCE
from tests.service.serving import Quiet, listening

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)
X = np.eye(6)
NOW = datetime.now(UTC).replace(microsecond=0)


class Moody(Quiet):
    """A collector that keeps what it is sent and answers as it is told: with a status, or with silence."""

    def reply(self, body):
        if self.command == "GET":
            document = self.server.campaign.document([self.server.key.public])
            self.answer(
                200, document, {"SSTQ-Signature": self.server.key.sign(document)}
            )
            return
        key = self.headers["Idempotency-Key"]
        self.server.seen.append((key, body, self.headers["Authorization"]))
        status = self.server.answers.pop(0) if self.server.answers else 200
        if status is None:
            self.server.arrived.set()
            self.server.enough.wait(PATIENCE)
            self.close_connection = True
            return
        if status == 200:
            self.server.stored[key] = body
            self.answer(200, b'{"count": %s}' % self.headers["SSTQ-Count"].encode(), {})
        else:
            self.answer(
                status, b'{"status": %d, "detail": "Status %d."}' % (status, status), {}
            )


@pytest.fixture
def server():
    state = {
        "seen": [],
        "stored": {},
        "answers": [],
        "arrived": threading.Event(),
        "enough": threading.Event(),
    }
    key = SigningKey.generate()
    with listening(
        Moody, campaign=Campaign("steps", MECHANISM), key=key, **state
    ) as running:
        yield running
        running.enough.set()


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "me.ledger", 100.0)


def client_of(server, **options):
    return Client(
        f"{server.url}/{server.campaign.name}",
        **{"most_epsilon": 2.0, "patience": 0.0} | options,
    )


def test_what_is_not_acknowledged_waits_and_is_sent_again_as_it_was(server, ledger):
    server.answers = [503, 500]
    client = client_of(server, ledger=ledger)
    with pytest.raises(
        DeliveryError,
        match=r"0 of 1 messages were stored, 1 wait in the outbox .*me\.ledger\.outbox",
    ):
        client.send(X[0])
    with pytest.raises(
        DeliveryError,
        match=r"1 messages to steps wait in the outbox .* send_waiting\(\)",
    ) as error:
        client.send(X[1])
    assert error.value.waiting == 1
    # As after a restart.
    with pytest.raises(DeliveryError, match="500"):
        client_of(server, ledger=ledger).send_waiting()
    assert client_of(server, ledger=ledger).send_waiting() == 1
    assert len(server.seen) == 3
    assert len(set(server.seen)) == 1
    assert (len(server.stored), len(ledger.entries)) == (1, 1)
    assert client.send_waiting() == 0
    assert client.send(X[1]) == 1
    assert (len(server.stored), len(ledger.entries)) == (2, 2)


def test_without_a_ledger_messages_wait_in_memory(server):
    server.answers = [503]
    client = client_of(server)
    with pytest.raises(DeliveryError, match=r"wait in the outbox \(memory\)"):
        client.send(X[0])
    assert client_of(server).send_waiting() == 0
    assert client.send_waiting() == 1
    assert len(set(server.seen)) == 1


@pytest.mark.parametrize("status", [400, 409, 410, 413, 422])
def test_a_refusal_for_good_says_what_became_of_the_budget(server, ledger, status):
    server.answers = [status]
    client = client_of(server, ledger=ledger)
    problem = rf"\({status}\): Status {status}\. \(0 of 1 messages were stored, the others were refused for good\)\. "
    with pytest.raises(
        DeliveryError, match=problem + r"Whoever .* so its epsilon = 2\.0 stays spent"
    ) as error:
        client.send(X[0])
    assert (error.value.waiting, client.send_waiting(), len(ledger.entries)) == (
        0,
        0,
        1,
    )


@pytest.mark.parametrize("status", [302, 401, 403, 404, 405, 425, 501, 521])
def test_what_another_token_or_another_server_could_change_is_no_refusal_for_good(
    server, ledger, status
):
    """Such as a wrong token, a portal that redirects, or a proxy that knows nothing of the collector."""
    server.answers = [status]
    with pytest.raises(DeliveryError, match="1 wait"):
        client_of(server, ledger=ledger, token="wrong").send(X[0])  # noqa: S106
    assert client_of(server, ledger=ledger, token="right").send_waiting() == 1  # noqa: S106
    assert [token for *_, token in server.seen] == ["Bearer wrong", "Bearer right"]
    assert len({key for key, *_ in server.seen}) == len(ledger.entries) == 1


def test_single_use_tokens_wait_with_their_messages(server, ledger):
    server.campaign = Campaign("once", MECHANISM, senders="single-use")
    server.answers = [200, 403, 503]
    client = client_of(server, ledger=ledger, token=["a", "b", "c", "d"])
    with pytest.raises(DeliveryError, match="1 of 4 messages were stored, 2 wait"):
        client.send(X[:4])
    assert client_of(server, ledger=ledger).send_waiting() == 2
    assert [token for *_, token in server.seen] == [
        f"Bearer {token}" for token in "abccd"
    ]
    assert (len(server.stored), len(ledger.entries)) == (3, 1)


SPOILED = {
    "no token": (
        {"senders": "token"},
        {},
        "token must be given: steps takes messages with a token only",
    ),
    "not open yet": (
        {"opens": NOW + timedelta(days=1)},
        {},
        r"steps opens at 20.*Z, and it is 20.*nothing was sent",
    ),
    "closed": (
        {"closes": NOW - timedelta(days=1)},
        {},
        r"steps closed at 20.*Z, and it is 20.*nothing was sent",
    ),
    "too few tokens": (
        {"senders": "single-use"},
        {"token": ["a"]},
        "one person per single-use token, got 2 people and 1 tokens",
    ),
    "a batch of strangers": (
        {},
        {},
        "without a sender's token only one person may be sent, got 2",
    ),
}


@pytest.mark.parametrize("why", SPOILED)
def test_what_can_be_known_costs_nothing(server, ledger, why):
    terms, options, message = SPOILED[why]
    server.campaign = Campaign("steps", MECHANISM, **terms)
    client = client_of(server, ledger=ledger, **options)
    with pytest.raises(ValueError, match=message):
        client.send(X[:2])
    assert (server.seen, ledger.entries, client.outbox.messages()) == ([], (), 0)


def test_what_the_ledger_does_not_pay_for_does_not_wait(server, tmp_path):
    ledger = Ledger(tmp_path / "small.ledger", 1.0)
    client = client_of(server, ledger=ledger)
    with pytest.raises(LedgerError, match="more than is left"):
        client.send(X[0])
    assert (server.seen, ledger.entries, client.outbox.messages()) == ([], (), 0)


PROGRAM = """
import os, signal, sys
import numpy as np
from sstq.accounting import Ledger
from sstq.client import Client, sending

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def before(owner, name):
    setattr(owner, name, die)

def after(owner, name):
    do = getattr(owner, name)
    def doing(*arguments, **options):
        do(*arguments, **options)
        die()
    setattr(owner, name, doing)

url, path, when, owner, name = sys.argv[1:]
client = Client(url, most_epsilon=2.0, ledger=Ledger(path, 100.0), patience=0.0)
if when != "never":
    {"before": before, "after": after}[when](eval(owner), name)
print(client.send_waiting() or client.send(np.eye(6)[0]))
"""
# Before and after every step that lasts. The messages that are stored, and the uploads that a collector sees then.
DEATHS = {
    ("before", "sending.Outbox", "put"): (0, 0, 0),
    ("after", "sending.Outbox", "put"): (0, 0, 1),
    ("after", "Ledger", "spend"): (1, 0, 1),
    ("before", "Client", "_upload"): (1, 0, 1),
    ("after", "Client", "_upload"): (1, 1, 1),
    ("after", "sending.Outbox", "finish"): (1, 1, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("death", DEATHS, ids=" ".join)
def test_a_program_that_is_killed_sends_and_pays_once(server, ledger, death):
    """Killed after the last step it cannot know that all is done; a name of the answer would tell it."""

    def run(*step):
        arguments = [
            sys.executable,
            "-c",
            PROGRAM,
            f"{server.url}/steps",
            str(ledger.path),
            *step,
        ]
        return subprocess.run(arguments, capture_output=True, text=True, check=False)

    charged, sent, waiting = DEATHS[death]
    done = run(*death)
    assert done.returncode == -9, done.stderr
    assert (len(ledger.entries), len(server.stored)) == (charged, sent)
    assert Outbox(*place_of(server, ledger)).messages() == waiting
    if death[2] != "finish":
        done = run("never", "-", "-")
        assert done.stdout == "1\n", done.stderr
    assert (len(ledger.entries), len(server.stored)) == (1, 1)
    assert len(set(server.seen)) == 1


def place_of(server, ledger):
    """The campaign and the file of the outbox beside a ledger."""
    name = f"steps {server.key.public.hex()} {server.campaign.digest}"
    return name, ledger.path.with_name("me.ledger.outbox")


def test_an_unpaid_answer_is_not_sent_without_the_ledger(server, ledger):
    place, path = place_of(server, ledger)
    upload = Upload("steps", server.campaign.digest, 2.0, "00" * 16, 1, b"\x00\x00")
    Outbox(place, path).put("steps 1", [upload], needs_ledger=True)
    with pytest.raises(
        ValueError, match="ledger must be given: the ledger pays for what waits"
    ):
        client_of(server, outbox=path).send_waiting()
    assert not server.seen
    assert client_of(server, ledger=ledger).send_waiting() == 1
    assert [entry.round_id for entry in ledger.entries] == ["steps 1"]


def sending(server, folder, *arguments, code=0):
    """What `sstq send` prints, its state being in a folder."""
    command = [
        "send",
        f"{server.url}/steps",
        *arguments,
        "--most-epsilon",
        2,
        "--ledger",
        folder / "me.ledger",
    ]
    environment = {"XDG_STATE_HOME": str(folder / "state")}
    found = CliRunner().invoke(app, [str(part) for part in command], env=environment)
    assert found.exit_code == code, (found.output, found.exception)
    return " ".join(found.output.split())


def files(folder, *contents):
    for name, row in contents:
        np.save(folder / f"{name}.npy", row[None])
    return [folder / f"{name}.npy" for name, _ in contents]


def test_the_command_counts_a_file_as_sent_when_it_was_acknowledged(
    server, tmp_path, ledger, monkeypatch
):
    monkeypatch.setattr("sstq.client.sending._PASSING", {None})
    one, copy, two = files(tmp_path, ("one", X[0]), ("copy", X[0]), ("two", X[1]))
    server.answers = [503, 410]
    waits = sending(server, tmp_path, one, code=1)
    assert "1 wait in the outbox" in waits
    assert "Run the same command again" in waits
    assert stat.S_IMODE(os.stat(tmp_path / "state" / "sstq").st_mode) == 0o700
    assert (
        stat.S_IMODE(os.stat(tmp_path / "state" / "sstq" / "outbox").st_mode) == 0o600
    )
    # The copy has the same content: the message that waits is its own.
    refused = sending(server, tmp_path, copy, code=1)
    assert "refused for good" in refused
    assert "Run the same command again" not in refused
    assert len(set(server.seen)) == len(ledger.entries) == 1
    # It was never acknowledged, so it does not count as sent.
    assert "messages acknowledged 1" in sending(server, tmp_path, one)
    for again in ([one], [copy], [two, one]):
        assert "sent to this campaign before" in sending(
            server, tmp_path, *again, code=2
        )
    assert (len(server.stored), len(ledger.entries)) == (1, 2)
    assert "messages acknowledged 1" in sending(server, tmp_path, two)
    assert "messages acknowledged 1" in sending(server, tmp_path, two, "--again")
    assert (len(server.stored), len(ledger.entries)) == (3, 4)


def test_the_command_sends_first_what_waits(server, tmp_path, ledger, monkeypatch):
    monkeypatch.setattr("sstq.client.sending._PASSING", {None})
    one, two = files(tmp_path, ("one", X[0]), ("two", X[1]))
    server.answers = [503]
    sending(server, tmp_path, one, code=1)
    assert "send the others by themselves" in sending(
        server, tmp_path, one, two, code=1
    )
    assert (len(server.stored), len(ledger.entries)) == (1, 1)
    server.answers = [503]
    sending(server, tmp_path, two, code=1)
    (three,) = files(tmp_path, ("three", X[2]))
    assert "messages acknowledged 2" in sending(server, tmp_path, three)
    assert (len(server.stored), len(ledger.entries)) == (3, 3)


@pytest.mark.slow
def test_the_command_is_killed_before_it_is_answered(server, tmp_path, ledger):
    (one,) = files(tmp_path, ("one", X[0]))
    server.answers = [None]
    command = [
        "send",
        f"{server.url}/steps",
        one,
        "--most-epsilon",
        2,
        "--ledger",
        ledger.path,
    ]
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    program = "from sstq.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, command)], env=environment
    ) as running:
        assert server.arrived.wait(PATIENCE)
        running.kill()
    server.enough.set()
    assert (len(ledger.entries), len(server.stored)) == (1, 0)
    assert "messages acknowledged 1" in sending(server, tmp_path, one)
    assert "sent to this campaign before" in sending(server, tmp_path, one, code=2)
    assert (len(ledger.entries), len(server.stored), len(set(server.seen))) == (1, 1, 1)


def test_processes_that_share_an_outbox_send_one_after_the_other(server, ledger):
    server.answers = [None]
    threads = [
        threading.Thread(
            target=client_of(server, ledger=ledger, patience=PATIENCE).send,
            args=(X[0],),
        )
    ]
    threads.append(
        threading.Thread(target=client_of(server, ledger=ledger).send, args=(X[1],))
    )
    threads[0].start()
    assert server.arrived.wait(PATIENCE)
    threads[1].start()
    server.enough.set()
    for thread in threads:
        thread.join()
    assert len(server.stored) == 2
    assert len(ledger.entries) == 2


def test_an_outbox_is_private_and_never_replaced(tmp_path):
    path = tmp_path / "outbox"
    outbox = Outbox("steps", path)
    uploads = [Upload("steps", "00" * 32, 2.0, "00" * 16, 2, b"12")]
    outbox.put("a", uploads, ["week 12"], needs_ledger=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"week 12" not in path.read_bytes()
    assert Outbox("other", path).still_wait(["week 12"]) == []
    assert Outbox("steps", path).still_wait(["week 12"]) == ["week 12"]
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 7")
    with pytest.raises(
        ValueError, match="the outbox has version 7, this library reads 2"
    ) as refused:
        Outbox("steps", path)
    # The command in the message works.
    command = str(refused.value).rpartition("away: ")[2]
    subprocess.run(shlex.split(command), check=True)
    assert Outbox("steps", path).still_wait(["week 12"]) == []
    path.write_bytes(b"no database" * 100)
    with pytest.raises(ValueError, match="not an outbox, or it is damaged"):
        Outbox("steps", path)
