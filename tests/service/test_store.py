"""Campaigns, tokens and uploads: counted once, answered alike, in one transaction."""

import asyncio
import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sqlalchemy as sa

import sstq
from sstq.service import database as tables
from sstq.service import inbox as inbox_module
from sstq.service import receiving
from sstq.service.database import DatabaseUnavailable
from sstq.service.inbox import Inbox
from sstq.service.security import Problem
from sstq.service.store import Refusal, Store, Upload
from tests.service import both

MECHANISM = sstq.FrameUnit(dim=4, epsilon=2.0, frames=1)
BODY = MECHANISM.encode([0.1, 0.2, 0.3, 0.4], rng=1).to_bytes()


def body_of(count):
    return MECHANISM.encode(np.full((count, 4), 0.1), rng=1).to_bytes()


@pytest.fixture
def store(store):
    store.create("c", MECHANISM, "{}")
    return store


def upload(**changes):
    values = {
        "campaign": "c",
        "key": os.urandom(16),
        "count": 1,
        "body": BODY,
    } | changes
    if "count" in changes and "body" not in changes:
        values["body"] = body_of(changes["count"])
    return Upload(**values)


def rows(store, table):
    return store.read(lambda connection: connection.execute(sa.select(table)).all())


def test_campaigns(store):
    store.create("b", MECHANISM, '{"labels": []}')
    assert [
        (found.name, found.terms, found.closed) for found in store.campaigns().values()
    ] == [
        ("b", '{"labels": []}', False),
        ("c", "{}", False),
    ]
    assert store.campaigns()["b"].mechanism == MECHANISM
    with pytest.raises(ValueError, match="name must be new, got 'c'"):
        store.create("c", MECHANISM, '{"other": 1}')
    known = store.campaigns()["b"]
    assert store.change(known, terms="[]")
    assert not store.change(known, terms="{}")  # somebody else has changed it meanwhile
    assert store.change(store.campaigns()["b"], closed=True)
    assert (store.campaigns()["b"].terms, store.campaigns()["b"].closed) == ("[]", True)
    gone = dataclasses.replace(known, name="none")
    with pytest.raises(
        ValueError, match="name must be an existing campaign, got 'none'"
    ):
        store.change(gone, terms="[]")
    for work in (store.fold, store.state, lambda name: store.issue(name, [b"t" * 32])):
        with pytest.raises(
            ValueError, match="name must be an existing campaign, got 'none'"
        ):
            work("none")


@both
def test_an_upload_is_counted_once(store):
    first = upload()
    second = upload(count=3)
    assert store.receive([first, second, first]) == [1, 3, 1]
    assert store.receive([second, upload(), first]) == [3, 1, 1]
    assert store.counts()["c"].received == 5
    assert sorted(row.messages for row in rows(store, tables.uploads)) == [1, 1, 3]
    assert sorted(row.messages for row in rows(store, tables.receipts)) == [1, 1, 3]


def test_the_messages_of_a_batch_are_one_row_without_their_keys(store):
    sent = [
        upload(body=MECHANISM.encode([0.1, 0.2, 0.3, 0.4], rng=rng).to_bytes())
        for rng in range(20)
    ]
    store.receive(sent)
    (row,) = rows(store, tables.uploads)
    assert row.messages == 20
    assert bytes(row.key) not in {item.key for item in sent}
    expected = MECHANISM.aggregator()
    for item in sent:
        expected.update(MECHANISM.messages_from_bytes(item.body, 1))
    assert store.fold("c") == 20
    assert np.array_equal(store.state("c").sums(), expected.sums())


@both
def test_a_malformed_upload_is_refused_alone(store):
    token = os.urandom(32)
    store.issue("c", [token])
    good = upload()
    short = upload(count=3, body=b"x")
    padded = upload(body=b"\xff\xff", token=token)
    again = upload(key=padded.key)  # the same key in the same batch, in order
    answers = store.receive([good, short, padded, again, upload()])
    assert [answers[0], *answers[3:]] == [1] * 3
    assert "3 messages of 9 bits take 4 bytes, got 1" in answers[1]
    assert "the last 7 bits" in answers[2]
    counts = store.counts()["c"]
    assert (counts.received, counts.unspent) == (3, 1)
    assert len(rows(store, tables.receipts)) == 3


def test_a_key_with_another_number_of_messages_is_refused(store):
    first = upload()
    other = upload(key=first.key, count=2)
    assert store.receive([first, other]) == [1, Refusal.KEY]
    assert store.receive([other]) == [Refusal.KEY]
    assert store.counts()["c"].received == 1


def test_closed_and_unknown_campaigns(store):
    before = upload()
    store.receive([before])
    token = os.urandom(32)
    store.issue("c", [token])
    late = upload(late=True, token=token)
    assert store.receive([late, upload(campaign="none")]) == [
        Refusal.CLOSED,
        Refusal.UNKNOWN,
    ]
    store.change(store.campaigns()["c"], closed=True)
    assert store.receive([upload(), before]) == [Refusal.CLOSED, 1]
    again = upload(key=before.key, late=True)
    assert store.receive([again]) == [1]
    assert (store.counts()["c"].received, store.counts()["c"].unspent) == (1, 1)


@both
def test_a_token_pays_once_and_a_retry_needs_none(store):
    tokens = [os.urandom(32) for _ in range(3)]
    store.issue("c", tokens)
    paid = upload(token=tokens[0])
    # The same token twice in one batch pays for one of them.
    both = [upload(token=tokens[1]), upload(token=tokens[1])]
    answers = store.receive([paid, *both])
    assert answers[0] == 1
    assert sorted(map(str, answers[1:])) == sorted(map(str, [1, Refusal.SPENT]))
    assert store.receive([paid]) == [1]
    assert (
        store.receive([upload(token=tokens[0]), upload(token=b"?" * 32)])
        == [Refusal.SPENT] * 2
    )
    counts = store.counts()["c"]
    assert (counts.received, counts.issued, counts.unspent) == (2, 3, 1)
    # A refused upload leaves nothing behind: it may come again with a good token.
    refused = upload(token=tokens[0])
    assert store.receive([refused]) == [Refusal.SPENT]
    assert store.receive([upload(key=refused.key, token=tokens[2])]) == [1]
    assert not rows(store, tables.tokens)


def test_tokens_are_issued_once(store):
    """As when the connection was lost after the commit, and the call is tried again."""
    tokens = [os.urandom(32) for _ in range(3)]
    store.issue("c", tokens)
    store.issue("c", tokens)
    store.issue("c", [])
    counts = store.counts()["c"]
    assert (counts.issued, counts.unspent) == (3, 3)


def test_keys_and_tokens_are_those_of_a_campaign(store):
    store.create("b", MECHANISM, "{}")
    token = os.urandom(32)
    store.issue("b", [token])
    first = upload(token=token)
    assert store.receive([first]) == [Refusal.SPENT]
    assert store.receive([upload(key=first.key)]) == [1]
    assert store.receive([upload(campaign="b", key=first.key, token=token)]) == [1]
    assert store.counts()["b"].received == store.counts()["c"].received == 1


@both
def test_keys_are_forgotten_after_hours_of_service(store):
    sent = upload()
    store.issue("c", [os.urandom(32)])
    store.receive([sent])
    store.change(store.campaigns()["c"], closed=True)
    for hour in range(3):  # hours of service, whatever the clock says
        store.purge([], 1000 * hour, grace_hours=3)
        assert store.receive([sent]) == [1]
        store.purge([], 1000 * hour, grace_hours=3)  # the same hour again
    store.purge([], 0, grace_hours=3)
    assert not rows(store, tables.receipts)
    assert not rows(store, tables.tokens)
    assert store.counts()["c"].received == 1
    assert store.receive([sent]) == [Refusal.CLOSED]


@both
def test_a_deleted_campaign_leaves_nothing(store):
    store.issue("c", [os.urandom(32)])
    store.receive([upload() for _ in range(4)])
    store.fold("c")
    store.receive([upload()])
    store.delete("c")
    assert store.campaigns().get("c") is None
    for table in tables.OF_A_CAMPAIGN:
        assert not rows(store, table)
    store.create("c", MECHANISM, "{}")
    assert store.counts()["c"].received == 0


def test_nothing_is_stored_if_the_transaction_fails(store, monkeypatch):
    token = os.urandom(32)
    store.issue("c", [token])
    sent = upload(token=token)

    def fail(*_):
        raise RuntimeError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(receiving, "message_rows", fail)
        with pytest.raises(RuntimeError, match="crash"):
            store.receive([sent])
    assert store.counts()["c"].unspent == 1
    assert store.receive([sent]) == [1]


def test_a_full_disk_of_postgresql_is_an_error_that_passes(postgres):
    store = Store(postgres.url())
    store.create("c", MECHANISM, "{}")
    sent = upload()
    full = """
        CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON uploads EXECUTE FUNCTION full_disk();
    """
    store.write(lambda connection: connection.exec_driver_sql(full))
    with pytest.raises(DatabaseUnavailable, match="No space left on device"):
        store.receive([sent])
    assert store.counts()["c"].received == 0
    store.write(
        lambda connection: connection.exec_driver_sql(
            "DROP TRIGGER full_disk ON uploads"
        )
    )
    assert store.receive([sent]) == [1]
    store.close()


def test_the_inbox_answers_all(store):
    sent = [upload() for _ in range(500)]
    sent[7] = upload(campaign="none")

    async def run():
        async with Inbox(store) as inbox:
            return await asyncio.gather(*map(inbox.submit, sent))

    answers = asyncio.run(run())
    assert answers == [Refusal.UNKNOWN if item is sent[7] else 1 for item in sent]
    assert store.counts()["c"].received == 499


class _Writer:
    """Remembers what it was given in each transaction."""

    def __init__(self):
        self.batches = []
        self._thread = ThreadPoolExecutor(1)

    def receiving(self, batch):
        return self._thread.submit(self._receive, batch)

    def _receive(self, batch):
        self.batches.append([item.campaign for item in batch])
        if any(item.count == 13 for item in batch):
            raise DatabaseUnavailable("gone")
        return [item.count for item in batch]


def submitted(*uploads):
    """The answers to uploads that arrive at once, and the transactions that they were in."""
    writer = _Writer()

    async def run():
        async with Inbox(writer) as inbox:
            return await asyncio.gather(
                *map(inbox.submit, uploads), return_exceptions=True
            )

    return asyncio.run(run()), writer.batches


def test_the_inbox_holds_a_bounded_number_of_bytes(monkeypatch):
    """And of uploads: see test_network."""
    monkeypatch.setattr(inbox_module, "_QUEUE_BYTES", 1000)
    answers, _ = submitted(*(upload(body=bytes(size)) for size in (600, 600, 400)))
    assert [answers[0], type(answers[1]), answers[2]] == [1, Problem, 1]


def test_a_busy_campaign_leaves_most_transactions_to_others(monkeypatch):
    monkeypatch.setattr(inbox_module, "_BATCH_UPLOADS", 4)
    monkeypatch.setattr(inbox_module, "_REST_BYTES", 1000)
    busy = [upload(campaign="busy", body=bytes(1000)) for _ in range(20)]
    others = [upload(campaign="other") for _ in range(20)]
    _, batches = submitted(*busy, *others)
    # Both in turns; then the busy one rests for two transactions, and no longer than others wait.
    assert [batch.count("other") for batch in batches] == [2, 4, 4] * 2 + [0] * 4
    assert [len(batch) for batch in batches] == [4] * 10


def test_a_transaction_is_small(monkeypatch):
    monkeypatch.setattr(inbox_module, "_BATCH_BYTES", 3000)
    _, batches = submitted(*(upload(body=bytes(1000)) for _ in range(10)))
    assert [len(batch) for batch in batches] == [3, 3, 3, 1]


def test_an_error_reaches_all_of_its_batch_and_no_other(monkeypatch):
    monkeypatch.setattr(inbox_module, "_BATCH_UPLOADS", 2)
    answers, _ = submitted(upload(), upload(count=13), upload(), upload())
    assert [type(answer) for answer in answers] == [DatabaseUnavailable] * 2 + [int] * 2


def test_a_client_that_went_away_stops_nobody(store):
    async def run():
        async with Inbox(store) as inbox:
            gone = asyncio.create_task(inbox.submit(upload()))
            await asyncio.sleep(0)
            gone.cancel()
            return await inbox.submit(upload())

    assert asyncio.run(run()) == 1
    assert store.counts()["c"].received == 2
