"""What goes on beside the requests: every campaign has its turn, and estimates are not older than they must be."""

import secrets

import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client.campaigns import Campaign
from sstq.service import Settings, background, results
from sstq.service.background import Folding
from sstq.service.collector import Collector
from sstq.service.store import Store, Upload
from sstq.service.terms import OwnTerms
from tests.service.serving import ADMINISTRATOR, packed

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)


@pytest.fixture
def collector(tmp_path):
    made = Collector(Settings(f"sqlite:///{tmp_path}/c.sqlite3", ADMINISTRATOR))
    for name in ("a", "b"):
        made.create(Campaign(name, MECHANISM), OwnTerms())
    yield made
    made.store.close()


def receive(collector, *names):
    for name in names:
        collector.store.receive(
            [Upload(name, secrets.token_bytes(16), 5, packed(MECHANISM))]
        )


def folded(collector):
    return [collector.store.counts()[name].folded for name in ("a", "b")]


def test_uploads_that_never_end_leave_the_other_campaigns_their_turn(
    collector, monkeypatch
):
    fold = Store.fold

    def while_more_arrive(store, name, *_):
        found = fold(store, name)
        receive(collector, name)
        return found

    monkeypatch.setattr(Store, "fold", while_more_arrive)
    receive(collector, "a", "b")
    Folding(collector).round()  # it ends
    assert min(folded(collector)) >= 5
    monkeypatch.undo()
    Folding(collector).round()
    assert [collector.store.counts()[name].received for name in ("a", "b")] == folded(
        collector
    )


def test_a_campaign_that_cannot_be_folded_holds_up_no_other(
    collector, monkeypatch, caplog
):
    fold = Store.fold
    monkeypatch.setattr(
        Store,
        "fold",
        lambda store, name, *_: 1 / 0 if name == "a" else fold(store, name),
    )
    receive(collector, "a", "b")
    Folding(collector).round()
    assert folded(collector) == [0, 5]
    assert collector.metrics.rounds.labels("failed")._value.get() == 1
    assert [record.getMessage() for record in caplog.records] == [
        "folding failed for the campaign a"
    ]


def test_a_slow_estimate_waits_while_messages_arrive_and_not_afterwards(
    collector, monkeypatch
):
    monkeypatch.setattr(background, "_ESTIMATE_PAUSE", 1e9)  # whatever it takes
    running = Folding(collector)
    for _ in range(2):
        receive(collector, "a")
        running.round()
        assert results.covered(collector.store)["a"] == 5
    running.round()  # nothing has arrived since
    assert results.covered(collector.store)["a"] == 10
    monkeypatch.setattr(background, "_LONGEST_PAUSE", 0.0)
    running = Folding(collector)
    for covered in (15, 20):
        receive(collector, "a")
        running.round()
        assert results.covered(collector.store)["a"] == covered
