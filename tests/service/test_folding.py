"""Folding and merging: any order, any pieces, the same bits as one pass."""

import os

import numpy as np
import pytest
import sqlalchemy as sa

import sstq
from sstq.service import database as tables
from sstq.service import folding
from sstq.service.store import Upload
from tests.service import both

MECHANISMS = {
    "sstq": sstq.SSTQ(dim=20, epsilon=2.0),
    "frame": sstq.FrameUnit(dim=20, epsilon=2.0, frames=1),
    "frames": sstq.FrameUnit(dim=20, epsilon=2.0, frames=512),
    "groups": sstq.GroupUnit(dim=6, epsilon=2.0, groups=3),
    "wide": sstq.SQKR(dim=20, epsilon=2.0, variant="dense"),
    "vectors": sstq.PrivUnit(dim=5, epsilon=2.0),
}


def encoded(mechanism, count, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, mechanism.dim)) / mechanism.dim
    groups = (
        {}
        if mechanism.groups is None
        else {"groups": rng.integers(0, mechanism.groups, count)}
    )
    return mechanism.messages_from_bytes(
        mechanism.encode(X, rng=seed, **groups).to_bytes(), count
    )


def fill(store, name, mechanism, seed, counts):
    """Store uploads of so many messages each; returns the sums of one pass."""
    messages = encoded(mechanism, sum(counts), seed)
    uploads = []
    start = 0
    for count in counts:
        uploads.append(
            Upload(
                name, os.urandom(16), count, messages[start : start + count].to_bytes()
            )
        )
        start += count
    assert store.receive(uploads) == list(counts)
    expected = mechanism.aggregator()
    expected.update(messages)
    return expected


def rows(store, table):
    return store.read(lambda connection: connection.execute(sa.select(table)).all())


def assert_same(found, expected):
    assert found.count == expected.count
    assert np.array_equal(found.sums(), expected.sums())


@pytest.mark.parametrize(
    ("database_url", "kind"),
    [
        *(("sqlite", kind) for kind in MECHANISMS),
        ("postgresql", "frames"),
        ("postgresql", "sstq"),
    ],
    indirect=["database_url"],
)
def test_the_state_is_that_of_one_pass(store, seed, kind):
    mechanism = MECHANISMS[kind]
    store.create(kind, mechanism, "{}")
    assert store.fold(kind) == 0
    assert store.state(kind).count == 0
    expected = mechanism.aggregator()
    for part in range(4):
        expected.merge(
            fill(
                store, kind, mechanism, seed + part, [1, 1, 7, 3, 1, 16, 7, 100 + part]
            )
        )
        assert store.counts()[kind].folded == store.state(kind).count < expected.count
        while store.fold(kind, 5):
            pass
        assert_same(store.state(kind), expected)
        counts = store.counts()[kind]
        assert counts.received == counts.folded == expected.count
    assert not rows(store, tables.uploads)
    assert sum(row.messages for row in rows(store, tables.arrivals)) == expected.count
    assert {row.hour for row in rows(store, tables.arrivals)} == {5}


@pytest.mark.parametrize("kind", ["frames", "sstq"])
def test_large_sparse_pieces_stay_and_all_add_up(store, seed, kind, monkeypatch):
    monkeypatch.setattr(folding, "MOST_BYTES", 4096)
    mechanism = MECHANISMS[kind]
    store.create(kind, mechanism, "{}")
    expected = mechanism.aggregator()
    for part in range(8):
        expected.merge(fill(store, kind, mechanism, seed + part, [200]))
        store.fold(kind)
        assert_same(store.state(kind), expected)
    found = rows(store, tables.pieces)
    assert sum(row.messages for row in found) == expected.count
    assert (len(found) > 1) == mechanism.estimator.sparse
    if mechanism.estimator.sparse:
        assert max(row.level for row in found) == 13  # of 8 kB at most


def test_many_uploads_are_folded_in_groups(store, seed, monkeypatch):
    monkeypatch.setattr(folding, "_TAKEN_UPLOADS", 3)
    mechanism = MECHANISMS["frame"]
    store.create("c", mechanism, "{}")
    expected = fill(store, "c", mechanism, seed, [5, 1, 2, 7, 3, 4, 9, 6])
    assert store.fold("c") == expected.count
    assert not rows(store, tables.uploads)
    assert_same(store.state("c"), expected)


def test_pieces_are_few(store, seed):
    """Many folds leave a few pieces: at most one per size."""
    mechanism = MECHANISMS["frames"]
    store.create("c", mechanism, "{}")
    expected = mechanism.aggregator()
    for part in range(20):
        expected.merge(fill(store, "c", mechanism, seed + part, [20]))
        store.fold("c")
    assert_same(store.state("c"), expected)
    found = rows(store, tables.pieces)
    assert sum(row.messages for row in found) == 400
    assert len({row.level for row in found}) == len(found) <= 16


def test_sparse_pieces_keep_all_numbers():
    form = folding.Form(MECHANISMS["frames"].aggregator())
    sums = np.array([[256, 0, 1], [257, 1 << 32, 0], [(1 << 40) + 255, 3, 70_000]])
    assert np.array_equal(form.decode(form.encode(sums)), sums)
    empty = sums[:0]
    assert np.array_equal(form.decode(form.encode(empty)), empty)


@both
def test_a_crash_in_the_middle_changes_nothing(store, seed, monkeypatch):
    mechanism = MECHANISMS["frames"]
    store.create("c", mechanism, "{}")
    expected = fill(store, "c", mechanism, seed, [9, 10, 11, 12, 13])
    with monkeypatch.context() as patch:
        patch.setattr(folding, "_count_arrivals", _crash)
        with pytest.raises(RuntimeError, match="crash"):
            store.fold("c")
    assert len(rows(store, tables.uploads)) == 5
    assert not rows(store, tables.pieces)
    store.fold("c")
    expected.merge(fill(store, "c", mechanism, seed + 1, [55]))
    keep(store, folding.fold(store, "c", mechanism))
    before = rows(store, tables.pieces)
    with monkeypatch.context() as patch:
        patch.setattr(folding.secrets, "token_bytes", _crash)
        with pytest.raises(RuntimeError, match="crash"):
            keep(store, folding.merge(store, "c", mechanism))
    assert rows(store, tables.pieces) == before
    assert_same(store.state("c"), expected)


def keep(store, step):
    store.write(lambda connection: folding.keep(connection, "c", step, 0))


def _crash(*_):
    raise RuntimeError("crash")


def test_a_damaged_row_stops_folding_and_is_kept(store):
    mechanism = MECHANISMS["frame"]
    store.create("c", mechanism, "{}")
    row = {"campaign": "c", "key": os.urandom(16), "messages": 5, "body": b"short"}
    store.write(lambda connection: connection.execute(tables.uploads.insert(), row))
    with pytest.raises(ValueError, match="messages are"):
        store.fold("c")
    assert len(rows(store, tables.uploads)) == 1
