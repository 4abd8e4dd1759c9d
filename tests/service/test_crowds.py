"""Crowds in the shuffler's database: all envelopes as they came, or all of them mixed, in any order alike."""

import secrets
import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import chi2

import sstq

pytest.importorskip("fastapi")

from sstq.client import Campaign, Shuffling
from sstq.client.sealing import CROWD_BYTES
from sstq.service import crowds
from sstq.service.crowds import (
    count_outgoing,
    joined_by_crowd,
    next_part,
    sent,
    settle,
    waiting,
)
from sstq.service.receiving import Upload
from sstq.service.store import Store
from tests.service import both

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0, messages=3)
TERMS = Shuffling("https://shuffle.example", "ab" * 32, "cd" * 32, threshold=2)
CAMPAIGN = Campaign(
    "steps", MECHANISM, closes=datetime(2100, 1, 1, tzinfo=UTC), shuffling=TERMS
)
SIZE = CAMPAIGN.envelope_bytes
# they differ in the last bit
CROWDS = (b"2" * CROWD_BYTES, b"2" * (CROWD_BYTES - 1) + b"3")
NUMBERED = 8  # bytes of an envelope that says whose it is


@pytest.fixture
def store(database_url):
    with closing(Store(database_url, joined_by_crowd)) as opened:
        opened.create("steps", MECHANISM, "{}")
        yield opened


def uploaded(store, people, key=CROWDS[0], together=1):
    """Send envelopes of random bytes, some people per upload; returns them, (people, slots)."""
    sizes = [together] * (people // together)
    envelopes = [
        [[secrets.token_bytes(SIZE) for _ in range(3)] for _ in range(size)]
        for size in sizes
    ]
    bodies = [
        key + b"".join(envelope for person in upload for envelope in person)
        for upload in envelopes
    ]
    found = store.receive(
        [
            Upload("steps", secrets.token_bytes(16), size, body)
            for size, body in zip(sizes, bodies, strict=True)
        ]
    )
    assert found == list(sizes)
    return [person for upload in envelopes for person in upload]


def settled(store, threshold=2, drop=False, **terms):
    terms = replace(TERMS, threshold=threshold, **terms)
    return dict(settle(store, CAMPAIGN, terms, [CROWDS[0].hex()], drop=drop))


def forwarded(store):
    """The parts, and the envelopes of all of them by slot, crowd and batch; they are sent."""
    parts = []
    found = {}
    while (part := next_part(store, "steps")) is not None:
        parts.append(part)
        sent(store, part)
        sent(store, part)  # twice does no harm
    for part in sorted(parts, key=lambda part: (part["batch"], part["part"])):
        cut = [
            part["body"][start : start + SIZE]
            for start in range(0, len(part["body"]), SIZE)
        ]
        assert len(cut) == part["count"]
        found.setdefault((part["slot"], part["crowd"], part["batch"]), []).extend(cut)
    return parts, found


def test_envelopes_of_one_crowd_share_a_row():
    packed = [(1, CROWDS[0] + b"a"), (2, CROWDS[1] + b"bc"), (3, CROWDS[0] + b"def")]
    assert joined_by_crowd(MECHANISM, packed) == (
        [(4, CROWDS[0] + b"adef"), (2, CROWDS[1] + b"bc")],
        {},
    )


@both
def test_a_crowd_becomes_a_batch_per_slot(store, monkeypatch, tmp_path):
    monkeypatch.setattr(crowds, "LARGEST_PART", 7 * SIZE)
    monkeypatch.setattr(crowds.tempfile, "tempdir", str(tmp_path))
    people = uploaded(store, 30) + uploaded(store, 30, together=5)
    others = uploaded(store, 4, CROWDS[1])
    assert waiting(store, "steps") == {CROWDS[0].hex(): 60, CROWDS[1].hex(): 4}
    before = list(tmp_path.iterdir())
    assert settled(store, threshold=60) == {"mixed": 60}
    assert settled(store) == {}
    assert list(tmp_path.iterdir()) == before
    assert count_outgoing(store, "steps") == 180
    parts, batches = forwarded(store)
    assert sorted(slot for slot, _, _ in batches) == [0, 1, 2]
    for (slot, key, _), envelopes in batches.items():
        assert key == CROWDS[0].hex()
        came = [person[slot] for person in people]
        assert sorted(envelopes) == sorted(came)
        assert envelopes != came  # the same order has a chance of 1/60!
    # by which the collector knows that they are one crowd
    assert len({batch[:12] for _, _, batch in batches}) == 1
    assert {(part["size"], part["parts"]) for part in parts} == {(60, 9)}
    # Those for the other key still wait, as they came.
    assert waiting(store, "steps") == {CROWDS[1].hex(): 4}
    assert not any(
        other[0] in envelopes for other in others for envelopes in batches.values()
    )


@both
def test_too_small_a_crowd_waits_until_it_is_dropped(store):
    uploaded(store, 9)
    before = waiting(store, "steps")
    assert settled(store, threshold=10) == {}
    assert waiting(store, "steps") == before
    assert settled(store, threshold=10, drop=True) == {"dropped": 9}
    assert (waiting(store, "steps"), count_outgoing(store, "steps")) == ({}, 0)
    uploaded(store, 1)
    assert settled(store, threshold=10, below_threshold="local") == {"mixed": 1}


@both
def test_a_crash_leaves_the_envelopes_as_they_came(store, monkeypatch):
    uploaded(store, 10)
    before = waiting(store, "steps")
    monkeypatch.setattr(crowds, "permutation", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        settled(store)
    assert waiting(store, "steps") == before
    assert count_outgoing(store, "steps") == 0


def test_uploads_wait_while_a_crowd_is_settled(store, monkeypatch):
    """Who comes meanwhile is neither lost nor in the batches: they are a crowd of their own."""
    uploaded(store, 10)
    coming = threading.Thread(target=uploaded, args=(store, 3))
    mix = crowds.permutation

    def meanwhile(count):
        if not coming.ident:
            coming.start()
            coming.join(0.2)
            assert coming.is_alive()
        return mix(count)

    monkeypatch.setattr(crowds, "permutation", meanwhile)
    assert settled(store) == {"mixed": 10}
    coming.join()
    assert waiting(store, "steps") == {CROWDS[0].hex(): 3}
    _, batches = forwarded(store)
    assert [len(envelopes) for envelopes in batches.values()] == [10] * 3


def numbered(people, slots):
    """Envelopes that say whose they are and of which slot."""
    found = np.zeros((people, slots, 2), dtype="<u4")
    found[..., 0] = np.arange(people)[:, None]
    found[..., 1] = np.arange(slots)
    return found


def mixed(people, slots):
    """The numbers of the people in the order after mixing, one row per slot."""
    bodies = [row.tobytes() for row in numbered(people, slots)]
    found = [[] for _ in range(slots)]
    for slot, part, body in crowds.mixed(bodies, (people, slots, NUMBERED), 5):
        assert (len(found[slot]), len(body) <= 5 * NUMBERED) == (part, True)
        found[slot].append(body)
    found = np.array(
        [
            np.frombuffer(b"".join(of_slot), dtype="<u4").reshape(-1, 2)
            for of_slot in found
        ]
    )
    assert np.array_equal(
        found[..., 1], np.broadcast_to(np.arange(slots)[:, None], found.shape[:2])
    )
    return found[..., 0]


def test_every_envelope_is_there_once_in_its_slot():
    found = mixed(1000, 3)
    assert np.array_equal(
        np.sort(found, axis=1), np.broadcast_to(np.arange(1000), (3, 1000))
    )
    # In 3000 places about one person is where it was in each slot; 20 in one are less likely than 1e-18.
    assert np.all((found == np.arange(1000)).sum(axis=1) < 20)
    assert np.all((found[0] == found[1:]).sum(axis=1) < 20)


def test_every_order_is_equally_likely():
    """Fails with probability 1e-9; each slot is mixed by itself, so that many slots are many runs."""
    runs = 20 * 24
    seen = Counter(map(tuple, mixed(4, runs).tolist()))
    expected = runs / 24
    statistic = sum(
        (seen[order] - expected) ** 2 / expected for order in permutations(range(4))
    )
    assert sum(seen.values()) == runs
    assert statistic < chi2.isf(1e-9, 23)


def test_equal_numbers_are_drawn_again(monkeypatch):
    """In their order the envelopes of equal numbers would stay; 64-bit numbers are hardly ever equal."""
    draws = [[5, 1, 5], [7, 7, 7], [3, 1, 2]]
    words = SimpleNamespace(words=lambda count: np.array(draws.pop(0), dtype=np.uint64))
    monkeypatch.setattr(crowds, "SecureBits", lambda: words)
    assert crowds.permutation(3).tolist() == [1, 2, 0]
    assert not draws
