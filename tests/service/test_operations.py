"""What an operator does: files that nobody else reads, a token printed once, campaigns on the command line."""

import json
import secrets
import shutil
import stat

import numpy as np
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

import sstq

pytest.importorskip("fastapi")

from sstq.cli import app
from sstq.client import Campaign
from sstq.service import Settings, background, observing, rendering, results
from sstq.service.background import Folding
from sstq.service.collector import Collector
from sstq.service.database import sqlite_url
from sstq.service.observing import check_health
from sstq.service.security import Problem
from sstq.service.store import Store, Upload
from sstq.service.terms import OwnTerms
from tests.patience import until
from tests.service.serving import ADMINISTRATOR, packed, serving
from tests.service.test_upgrade import publish

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)


def command(*arguments):
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, " ".join(done.output.split())


# Files


@pytest.mark.slow
def test_nobody_else_reads_the_folder_and_the_token_is_printed_once(tmp_path):
    folder = tmp_path / "collector"
    said = []
    folder.mkdir(mode=0o700)
    for _ in range(2):
        with serving(folder, administrator_token="") as run:
            said.append(run.process.stdout.readline().split()[-1])
            modes = {
                path.name: stat.S_IMODE(path.stat().st_mode)
                for path in folder.iterdir()
            }
        modes.pop("collector.log")  # of this test
        assert set(modes.values()) == {0o600}
        assert {"administrator-token", "collector.sqlite3"} <= set(modes)
    token = (folder / "administrator-token").read_text().strip()
    assert said == [token, str(folder / "administrator-token")]


@pytest.mark.slow
def test_a_token_of_the_environment_is_in_no_file_and_the_start_says_so(tmp_path):
    with serving(tmp_path) as run:
        said = run.process.stdout.readline()
        assert "that of SSTQ_ADMINISTRATOR_TOKEN, in no file" in said
        assert not (tmp_path / "administrator-token").exists()


def test_an_open_folder_is_named_with_the_remedy(tmp_path, monkeypatch):
    tmp_path.chmod(0o755)
    for wrong, sentence in (
        ("0", "burst must be an integer"),
        ("many", "SSTQ_BURST must be a number, got 'many'"),
    ):
        monkeypatch.setenv("SSTQ_BURST", wrong)
        code, said = command("serve", "--folder", str(tmp_path))  # it does not start
        assert (code, f"chmod -R go-rwx {tmp_path}" in said, sentence in said) == (
            2,
            True,
            True,
        )


# Upgrades


def test_a_folder_of_an_earlier_release_is_refused_with_the_command_that_upgrades_it(
    tmp_path, monkeypatch
):
    Store(sqlite_url(tmp_path / "collector.sqlite3")).close()
    publish(tmp_path, monkeypatch)
    code, said = command("serve", "--folder", str(tmp_path))
    assert code == 1
    assert f"sstq serve --folder {tmp_path} --upgrade".replace(" ", "") in said.replace(
        " ", ""
    )


# The command line


@pytest.mark.slow
def test_an_export_waits_until_what_has_arrived_is_counted(tmp_path, monkeypatch):
    (tmp_path / "m.json").write_text(MECHANISM.to_json())
    # Rounds are so rare that an export right after the upload is before one.
    with serving(tmp_path, messages_per_second=0, fold_seconds=1.5) as server:
        monkeypatch.setenv("SSTQ_URL", server.url)
        monkeypatch.setenv("SSTQ_ADMINISTRATOR_TOKEN", ADMINISTRATOR)
        mechanism = str(tmp_path / "m.json")
        assert command("campaign", "create", "late", "-m", mechanism)[0] == 0
        quota = command("campaign", "tokens", "late", "--people", "100")[1]
        monkeypatch.setenv("SSTQ_SEND_TOKEN", quota)
        to = f"{server.url}/late"
        for sent in (50, 100):
            vectors = tmp_path / f"{sent}.npy"
            np.save(vectors, np.full((50, 6), sent / 1000))
            sending = command("send", to, str(vectors), "--most-epsilon", "2")
            assert sending[0] == 0, sending[1]
            state = tmp_path / f"{sent}.npz"
            estimate = tmp_path / f"{sent}.json"
            export = ("campaign", "export", "late", "--output")
            assert command(*export, str(state))[0] == 0
            assert MECHANISM.load_aggregator(state).count == sent
            assert command(*export, str(estimate))[0] == 0
            assert json.loads(estimate.read_text())["count"] == sent


@pytest.mark.slow
def test_campaigns_are_changed_renewed_and_deleted_on_the_command_line(
    tmp_path, monkeypatch
):
    (tmp_path / "m.json").write_text(MECHANISM.to_json())
    with serving(tmp_path, messages_per_second=0) as server:
        monkeypatch.setenv("SSTQ_URL", server.url)
        monkeypatch.setenv("SSTQ_ADMINISTRATOR_TOKEN", ADMINISTRATOR)
        create = [
            "campaign",
            "create",
            "rooms",
            "--mechanism",
            str(tmp_path / "m.json"),
            "--readers",
            "token",
        ]
        assert command(*create)[0] == 0
        change = [
            "campaign",
            "change",
            "rooms",
            "--origin",
            "https://a.example",
            "--release-every",
            "7",
        ]
        assert command(*change, "--closes", "2100-01-01T00:00:00Z")[0] == 0
        assert (
            server.http.get("/v1/campaigns/rooms").json()["closes"]
            == "2100-01-01T00:00:00Z"
        )
        assert command("campaign", "change", "rooms")[0] == 2
        # A slip of the pen does not close a campaign for good.
        for wrong in (["change", "rooms"], ["create", "more", *create[3:]]):
            code, said = command("campaign", *wrong, "--closes", "2020-01-01T00:00:00Z")
            assert (
                code,
                "2020-01-01T00:00:00Z has passed" in said,
                "Go on?" in said and "add --yes" in said,
            ) == (
                1,
                True,
                True,
            )
        assert server.status("rooms")["status"] == "open"
        assert server.http.get("/v1/campaigns/more").status_code == 404
        assert (
            command(
                "campaign",
                "create",
                "more",
                *create[3:],
                "--closes",
                "2020-01-01T00:00:00Z",
                "--yes",
            )[0]
            == 0
        )
        assert server.status("more")["status"] == "closed"
        code, said = command("campaign", "change", "rooms", "--renew", "read-token")
        assert code == 0
        path = "/v1/campaigns/rooms/status"
        assert server.administer("GET", path, token=said.split()[-1]).status_code == 200
        np.save(tmp_path / "x.npy", np.zeros((3, 6)))
        send = [
            "send",
            f"{server.url}/rooms",
            str(tmp_path / "x.npy"),
            "--most-epsilon",
            "2",
        ]
        code, said = command(*send)
        assert (code, "sstq campaign tokens rooms --people 3" in said) == (1, True)
        assert "without a sender's token only one person may be sent, got 3" in said
        code, token = command("campaign", "tokens", "rooms", "--people", "3")
        assert command(*send, "--token", token)[0] == 0
        assert server.status("rooms")["received"] == 3
        # No other token helps at a campaign that is closed.
        assert command("campaign", "close", "rooms")[0] == 0
        np.save(tmp_path / "x.npy", np.ones((3, 6)))
        code, said = command(*send, "--token", token)
        assert (code, "is closed" in said, "campaign tokens" in said) == (
            1,
            True,
            False,
        )
        assert command("campaign", "delete", "rooms", "--yes")[0] == 0
        assert server.http.get("/v1/campaigns/rooms").status_code == 404
        code, said = command(*create[:2], "health", *create[3:])
        assert (code, "name must not be one of" in said) == (1, True)


def test_no_label_is_a_formula():
    labels = ("=1+1", "+1", "-1", "@a", "plain", "a=b")
    estimate = sstq.FrameUnit(dim=6, epsilon=2.0).aggregator()
    estimate.update(MECHANISM.encode(np.zeros((5, 6)), 1))
    campaign = Campaign("c", MECHANISM, labels=labels)
    rows = rendering.as_csv(
        campaign, rendering.describe(campaign, estimate.mean(), None)
    ).splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == [
        "'=1+1",
        "'+1",
        "'-1",
        "'@a",
        "plain",
        "a=b",
    ]


# Many campaigns, and large ones


@pytest.fixture
def collector(tmp_path):
    made = Collector(Settings(f"sqlite:///{tmp_path}/c.sqlite3", ADMINISTRATOR))
    yield made
    made.store.close()


def test_idle_campaigns_cost_no_queries(collector):
    statements = []
    sa.event.listen(
        collector.store._engine,
        "before_cursor_execute",
        lambda *given: statements.append(given[2]),
    )

    def asked():
        running.round()  # what is new is read
        statements.clear()
        running.round()
        return len(statements)

    running = Folding(collector)
    running._purge_due = float("inf")
    collector.create(Campaign("first", MECHANISM), OwnTerms())
    one = asked()
    for number in range(40):
        collector.create(Campaign(f"more-{number}", MECHANISM), OwnTerms())
    assert asked() == one


@pytest.mark.slow
def test_large_campaigns_have_a_process_of_their_own(collector, monkeypatch):
    monkeypatch.setattr(background, "_is_slow", lambda mechanism: mechanism.dim == 7)
    large = sstq.FrameUnit(dim=7, epsilon=2.0)
    for name, mechanism in (("large", large), ("small", MECHANISM)):
        collector.create(Campaign(name, mechanism), OwnTerms())
        collector.store.receive(
            [Upload(name, secrets.token_bytes(16), 5, packed(mechanism))]
        )
    Folding(collector).round()
    assert [
        results.covered(collector.store).get(name) for name in ("large", "small")
    ] == [None, 5]
    running = Folding(collector, slow=True)
    try:
        running.round()
    finally:
        running._workers.stop()
    assert results.covered(collector.store).get("large") == 5
    assert json.loads(results.latest(collector.store, "large"))["count"] == 5


def test_a_full_disk_is_known_to_health(collector, monkeypatch):
    check_health(collector.store)
    full = shutil.disk_usage("/").free * 4
    monkeypatch.setattr(observing, "_LEAST_FREE_BYTES", full)
    with pytest.raises(Problem, match="almost full") as caught:
        check_health(collector.store)
    assert caught.value.status_code == 503


@pytest.mark.slow
def test_the_administrator_is_shown_alarms(server, monkeypatch):
    """4,000 equal messages, which honest people send with probability below 1e-9."""
    monkeypatch.setenv("SSTQ_URL", server.url)
    monkeypatch.setenv("SSTQ_ADMINISTRATOR_TOKEN", ADMINISTRATOR)
    server.create("alike", MECHANISM)
    one = MECHANISM.encode(np.zeros((1, 6)), 1)
    alike = type(one).concatenate([one] * 4000)
    token = server.sender("alike")
    server.send("alike", MECHANISM, alike.to_bytes(), 4000, token=token)
    server.wait("alike", 4000)
    until(lambda: "counts alarm: " in command("campaign", "show", "alike")[1])
