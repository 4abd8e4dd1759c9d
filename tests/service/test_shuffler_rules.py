"""What a shuffler accepts, mixes, forwards and deletes: one in this process, without a server or a collector."""

import json
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client import Campaign, Shuffling
from sstq.client.campaigns import read_document
from sstq.client.http import RequestError
from sstq.client.sealing import SealingKey
from sstq.service import clock as clocks
from sstq.service import mixing
from sstq.service.crowds import count_outgoing, waiting
from sstq.service.mixing import Work
from sstq.service.shuffler import Shuffler, ShufflerSettings
from sstq.service.store import Upload
from tests.service.serving import ADMINISTRATOR

MECHANISM = sstq.GroupUnit(4, 2.0, groups=2)
SEAL = SealingKey.generate().public
NOW = datetime.now(UTC).replace(microsecond=0)
TERMS = {
    "senders": "single-use",
    "closes": NOW + timedelta(hours=5),
    "group_labels": ("yes", "no"),
}


@pytest.fixture
def shuffler(tmp_path):
    settings = {
        "collector": "http://127.0.0.1:1",
        "grace_hours": 3,
        "closing_seconds": 0,
    }
    made = Shuffler(
        ShufflerSettings(f"sqlite:///{tmp_path}/s.sqlite3", ADMINISTRATOR, **settings)
    )
    with closing(made.store):
        yield made


def document(shuffler, *keys, mechanism=MECHANISM, shuffled=None, **terms):
    """The document of a campaign whose shuffler this is, with these changes."""
    keys = keys or (SEAL,)
    own = shuffler.public_keys
    named = {
        "url": "http://127.0.0.1:8080",
        "key": own["key"],
        "sealing_key": own["sealing_key"],
        "threshold": 20,
    }
    shuffling = Shuffling(**named | (shuffled or {}))
    return Campaign("rooms", mechanism, shuffling=shuffling, **TERMS | terms).document(
        [b"k" * 32], keys
    )


def started(shuffler, people, **changes):
    """The campaign as the shuffler knows it, with people who wait."""
    raw = document(shuffler, **changes)
    campaign = read_document(raw).campaign
    shuffler.store.create(
        "rooms", MECHANISM, json.dumps({"document": raw.decode(), "signature": ""})
    )
    for number in range(people):
        body = campaign.crowd(SEAL) + bytes(campaign.envelope_bytes)
        shuffler.store.issue("rooms", [bytes([number]) * 32])
        shuffler.store.receive(
            [Upload("rooms", bytes([number]) * 16, 1, body, bytes([number]) * 32)]
        )
    shuffler.refresh()
    return shuffler.entries["rooms"]


def refused(shuffler, known, *keys, **changes):
    return shuffler.forbidden_change(
        known, read_document(document(shuffler, *keys, **changes))
    )


@pytest.mark.parametrize(
    "change",
    [
        {"shuffled": {"threshold": 2}},
        {"shuffled": {"delta": 0.1}},
        {"shuffled": {"below_threshold": "local"}},
        {"shuffled": {"url": "http://127.0.0.1:2"}},
        {"senders": "everybody"},
        {"mechanism": sstq.GroupUnit(4, 2.5, groups=2)},
        {"group_labels": ("no", "yes")},
        {"group_labels": ()},
        {"labels": ("a", "b", "c", "d")},
        {"image_shape": (2, 2)},
    ],
)
def test_what_people_agreed_to_does_not_change(shuffler, change):
    known = started(shuffler, 0)
    said = refused(shuffler, known, **change)
    assert said.startswith(
        f"the collector changed what people agreed to: {'shuffling' if 'shuffled' in change else ''}"
    )
    assert next(iter(change)).removesuffix("ed") in said


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"readers": "public"},
        {"closes": NOW + timedelta(hours=9)},
        {"opens": NOW - timedelta(hours=9)},
    ],
)
def test_times_and_readers_may_change(shuffler, change):
    assert refused(shuffler, started(shuffler, 0), **change) == ""


def test_a_sealing_key_does_not_change(shuffler):
    known = started(shuffler, 0)
    other = SealingKey.generate().public
    for keys in ((other,), (other, SEAL), (SEAL, other)):
        assert (
            refused(shuffler, known, *keys) == "the collector changed its sealing key"
        )


def test_what_has_ended_is_not_reopened(shuffler):
    known = started(shuffler, 0, closes=NOW - timedelta(seconds=1))
    assert refused(shuffler, known, closes=NOW - timedelta(hours=1)) == ""
    assert (
        refused(shuffler, known) == "the collector reopened the campaign after its end"
    )


def test_an_open_campaign_is_not_mixed(shuffler):
    entry = started(shuffler, 25)
    Work(shuffler).mix(entry)
    assert (
        waiting(shuffler.store, "rooms"),
        count_outgoing(shuffler.store, "rooms"),
    ) == (
        {next(iter(entry.crowds)): 25},
        0,
    )


@pytest.mark.parametrize("status", [404, 410, 403, 409, 500, None])
def test_a_batch_that_is_not_accepted_waits(shuffler, monkeypatch, status):
    entry = started(shuffler, 25, closes=NOW - timedelta(seconds=1))
    work = Work(shuffler)
    work.mix(entry)
    asked = []

    def refuse(*_, **options):
        asked.append(json.loads(options["headers"]["SSTQ-Batch"]))
        raise RequestError("no", status)

    monkeypatch.setattr(mixing, "request", refuse)
    work.forward_when_due(entry)
    work.forward_when_due(entry)  # not before a pause
    assert [(manifest["size"], manifest["tokens"]) for manifest in asked] == [(25, 25)]
    assert (count_outgoing(shuffler.store, "rooms"), shuffler.refused) == (
        25,
        {("rooms", "batch"): "no"},
    )


def test_too_small_a_crowd_is_dropped_after_hours_of_service_only(
    shuffler, monkeypatch
):
    """A campaign has ended for three hours: what waits is deleted after the grace period, whatever the clock says."""
    started(shuffler, 19, closes=NOW - timedelta(hours=3))
    now = time.time()
    steady = clocks.steady()
    work = Work(shuffler)
    left = []
    for hours in range(5):
        monkeypatch.setattr(time, "time", lambda hours=hours: now + 3600 * hours)
        monkeypatch.setattr(clocks, "steady", lambda hours=hours: steady + 3600 * hours)
        shuffler.purge()
        work.mix(shuffler.entries["rooms"])
        left.append(sum(waiting(shuffler.store, "rooms").values()))
    assert left == [19, 19, 19, 0, 0]
    assert count_outgoing(shuffler.store, "rooms") == 0
