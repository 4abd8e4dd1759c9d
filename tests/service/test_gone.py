"""What is gone in the middle of things: a campaign, the database, the space on a disk. Each has its answer."""

import resource
import secrets
import time
from contextlib import closing

import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client.campaigns import Campaign
from sstq.service import database, results
from sstq.service.store import Store, Upload
from tests.patience import PATIENCE
from tests.service import both
from tests.service.serving import packed, serving

pytestmark = pytest.mark.slow

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)


@both
def test_no_estimate_of_a_deleted_campaign_stays_behind(store, monkeypatch):
    """It is deleted and made anew while its estimate is computed."""
    store.create("again", MECHANISM, "{}")
    store.receive([Upload("again", secrets.token_bytes(16), 5, packed(MECHANISM))])
    store.fold("again")
    state = store.state("again")

    def late_state(_):
        store.delete("again")
        store.create("again", MECHANISM, "{}")
        return state

    monkeypatch.setattr(store, "state", late_state)
    results.refresh(store, Campaign("again", MECHANISM))
    assert results.covered(store) == {}


GONE = "The database is not available; nothing was stored. Try again."


def test_a_database_that_stops_and_comes_back(tmp_path, postgres):
    """The wire on PostgreSQL, too: uploads, the estimate and the state."""
    with serving(tmp_path, database=postgres.url()) as server:
        server.create("steps", MECHANISM)
        body = packed(MECHANISM, 50)
        expected = MECHANISM.aggregator()
        assert (
            server.send("steps", MECHANISM, body, 50, key="1a" * 16).text
            == '{"count":50}'
        )
        postgres.stop("fast")  # without a recovery of the databases of other tests
        refused = server.send("steps", MECHANISM, body, 50, key="2b" * 16)
        assert (refused.status_code, refused.json()["detail"]) == (503, GONE)
        assert refused.headers["retry-after"] == "5"
        assert [
            server.http.request(method, "/health").status_code
            for method in ("GET", "HEAD")
        ] == [503, 503]
        postgres.start()
        for key in ("1a", "2b"):  # the first was stored before
            assert (
                server.send("steps", MECHANISM, body, 50, key=key * 16).text
                == '{"count":50}'
            )
            expected.update(MECHANISM.messages_from_bytes(body, 50))
        assert [
            server.http.request(method, "/health").status_code
            for method in ("GET", "HEAD")
        ] == [200, 200]
        assert server.estimate("steps", 100)["value"] == expected.mean().value.tolist()
        (tmp_path / "state.npz").write_bytes(
            server.administer("GET", "/v1/campaigns/steps/state").content
        )
        assert np.array_equal(
            MECHANISM.load_aggregator(tmp_path / "state.npz").sums(), expected.sums()
        )


def test_a_full_disk_refuses_what_it_cannot_store_and_recovers(tmp_path):
    """For the server alone, whose files cannot grow."""
    with serving(tmp_path, messages_per_second=0) as server:
        server.create("steps", MECHANISM, senders="token")
        body = packed(MECHANISM, 5)
        acknowledged = 0
        before = resource.prlimit(
            server.process.pid, resource.RLIMIT_FSIZE, (1 << 12, resource.RLIM_INFINITY)
        )
        ends = time.monotonic() + PATIENCE
        # What is allocated already may still be used.
        while (
            answer := server.send(
                "steps", MECHANISM, body, 5, key=secrets.token_hex(16)
            )
        ).status_code == 200:
            acknowledged += 5
            assert time.monotonic() < ends
        key = answer.request.headers["idempotency-key"]
        assert (answer.status_code, answer.json()["detail"]) == (503, GONE)
        assert server.http.get("/health").status_code == 503
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, before)
        assert server.send("steps", MECHANISM, body, 5, key=key).status_code == 200
        server.wait("steps", acknowledged + 5)
        assert server.status("steps")["received"] == acknowledged + 5


@both
def test_a_second_process_is_refused_and_a_killed_one_leaves_no_lock(
    database_url, tmp_path, monkeypatch
):
    monkeypatch.setattr(database, "_LOCK_SECONDS", 0.01)  # in this process
    with serving(tmp_path, database=database_url) as one:
        with pytest.raises(
            ValueError,
            match=r"another server uses .*: stop it, or pass another --folder",
        ):
            Store(database_url)
        one.create("steps", MECHANISM)
        with closing(Store(database_url, read_only=True)) as reading:
            assert list(reading.campaigns()) == ["steps"]
        one.kill()
        with serving(tmp_path, database=database_url) as again:  # at once
            assert again.http.get("/v1/campaigns/steps").status_code == 200
