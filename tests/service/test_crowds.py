"""Crowds in the shuffler's database: all envelopes as they came, or all of them mixed, in any order alike."""

import secrets
import tempfile
from collections import Counter
from datetime import UTC, datetime
from itertools import permutations

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
    drop,
    forward_later,
    joined_by_crowd,
    outgoing_parts,
    sent,
    waiting,
)
from sstq.service.receiving import Receipt, Upload
from sstq.service.store import Store

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0, messages=3)
TERMS = Shuffling("https://shuffle.example", "ab" * 32, "cd" * 32, threshold=2)
CAMPAIGN = Campaign("steps", MECHANISM, closes=datetime(2100, 1, 1, tzinfo=UTC), shuffling=TERMS)
SIZE = CAMPAIGN.envelope_bytes
CROWDS = (b"2" * CROWD_BYTES, b"2" * (CROWD_BYTES - 1) + b"3")  # they differ in the last bit
NUMBERED = 8  # bytes of an envelope that says whose it is


@pytest.fixture
def store(database_url):
    opened = Store(database_url, joined_by_crowd)
    opened.create("steps", MECHANISM, "{}")
    yield opened
    opened.close()


def uploaded(store, people, key=CROWDS[0], together=1):
    """Send envelopes of random bytes, some people per upload; returns them, (people, slots)."""
    sizes = [together] * (people // together)
    envelopes = [[[secrets.token_bytes(SIZE) for _ in range(3)] for _ in range(size)] for size in sizes]
    bodies = [key + b"".join(envelope for person in upload for envelope in person) for upload in envelopes]
    found = store.receive(
        [Upload("steps", secrets.token_bytes(16), size, body) for size, body in zip(sizes, bodies, strict=True)]
    )
    assert found == [Receipt(size) for size in sizes]
    return [person for upload in envelopes for person in upload]


def forwarded(store):
    """The envelopes of all parts by batch, and the parts."""
    parts = list(outgoing_parts(store, "steps"))
    found = {}
    for part in sorted(parts, key=lambda part: (part["batch"], part["part"])):
        cut = [part["body"][start : start + SIZE] for start in range(0, len(part["body"]), SIZE)]
        assert len(cut) == part["count"]
        found.setdefault((part["slot"], part["sealing_key"], part["batch"]), []).extend(cut)
    return found, parts


def test_envelopes_of_one_crowd_share_a_row():
    packed = [(1, CROWDS[0] + b"a"), (2, CROWDS[1] + b"bc"), (3, CROWDS[0] + b"def")]
    assert joined_by_crowd(MECHANISM, packed) == ([(4, CROWDS[0] + b"adef"), (2, CROWDS[1] + b"bc")], {})


def test_a_crowd_becomes_a_batch_per_slot(store, monkeypatch, tmp_path):
    monkeypatch.setattr(crowds, "LARGEST_PART", 7 * SIZE)
    people = uploaded(store, 30) + uploaded(store, 30, together=5)
    others = uploaded(store, 4, CROWDS[1])
    found = {crowd.name: crowd for crowd in waiting(store, "steps")}
    assert {key: crowd.people for key, crowd in found.items()} == {CROWDS[0].hex(): 60, CROWDS[1].hex(): 4}
    crowd = found[CROWDS[0].hex()]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    assert forward_later(store, CAMPAIGN, crowd, str(temporary))
    assert not forward_later(store, CAMPAIGN, crowd, None)  # as another process would
    batches, parts = forwarded(store)
    assert sorted(slot for slot, _, _ in batches) == [0, 1, 2]
    for (slot, key, _), envelopes in batches.items():
        assert key == CROWDS[0].hex()
        came = [person[slot] for person in people]
        assert sorted(envelopes) == sorted(came)
        assert envelopes != came  # the same order has a chance of 1/60!
    assert len({batch[:12] for _, _, batch in batches}) == 1  # by which the collector knows that they are one crowd
    assert {(part["size"], part["parts"]) for part in parts} == {(60, 9)}
    assert count_outgoing(store, "steps") == 180
    # Those for the other key still wait, as they came.
    (left,) = waiting(store, "steps")
    assert (left.name, left.people) == (CROWDS[1].hex(), 4)
    assert not any(other[0] in envelopes for other in others for envelopes in batches.values())
    for part in parts:
        sent(store, part)
        sent(store, part)  # twice does no harm
    assert not list(outgoing_parts(store, "steps"))
    assert not list(temporary.iterdir())


def test_a_crash_leaves_the_envelopes_as_they_came(store, monkeypatch):
    uploaded(store, 10)
    before = waiting(store, "steps")
    monkeypatch.setattr(crowds, "_store", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        forward_later(store, CAMPAIGN, before[0], None)
    assert waiting(store, "steps") == before
    assert count_outgoing(store, "steps") == 0


def test_people_who_came_meanwhile_are_neither_lost_nor_left_alone(store):
    uploaded(store, 10)
    (crowd,) = waiting(store, "steps")
    uploaded(store, 3)
    assert not forward_later(store, CAMPAIGN, crowd, None)
    assert not drop(store, "steps", crowd)
    (grown,) = waiting(store, "steps")
    assert grown.people == 13
    assert forward_later(store, CAMPAIGN, grown, None)
    assert not drop(store, "steps", grown)
    assert waiting(store, "steps") == []
    batches, _ = forwarded(store)
    assert np.all([len(envelopes) == 13 for envelopes in batches.values()])


def numbered(people, slots):
    """Envelopes that say whose they are and of which slot."""
    found = np.zeros((people, slots, 2), dtype="<u4")
    found[..., 0] = np.arange(people)[:, None]
    found[..., 1] = np.arange(slots)
    return found


def mixed(people, slots):
    """The numbers of the people in the order after mixing, one row per slot."""
    with tempfile.TemporaryFile() as file:
        file.write(numbered(people, slots).tobytes())
        file.flush()
        parts = [list(crowds.mixed(file, (people, slots, NUMBERED), slot, 5)) for slot in range(slots)]
    assert all(len(part) <= 5 * NUMBERED for of_slot in parts for part in of_slot)
    found = np.array([np.frombuffer(b"".join(of_slot), dtype="<u4").reshape(-1, 2) for of_slot in parts])
    assert np.array_equal(found[..., 1], np.broadcast_to(np.arange(slots)[:, None], found.shape[:2]))
    return found[..., 0]


def test_every_envelope_is_there_once_in_its_slot():
    found = mixed(1000, 3)
    assert np.array_equal(np.sort(found, axis=1), np.broadcast_to(np.arange(1000), (3, 1000)))
    # In 3000 places about one person is where it was in each slot; 20 in one are less likely than 1e-18.
    assert np.all((found == np.arange(1000)).sum(axis=1) < 20)
    assert np.all((found[0] == found[1:]).sum(axis=1) < 20)


def test_every_order_is_equally_likely():
    """Fails with probability 1e-9; each slot is mixed by itself, so that many slots are many runs."""
    runs = 20 * 24
    seen = Counter(map(tuple, mixed(4, runs).tolist()))
    expected = runs / 24
    statistic = sum((seen[order] - expected) ** 2 / expected for order in permutations(range(4)))
    assert sum(seen.values()) == runs
    assert statistic < chi2.isf(1e-9, 23)
