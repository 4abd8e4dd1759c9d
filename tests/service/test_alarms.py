"""Alarms: honest crowds raise fewer than stated, whatever their data; attackers who send alike raise one."""

import json
import math
import os

import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client import Campaign
from sstq.service import results
from sstq.service.alarms import ALARM, ALPHA, GROWTH, cells_of, look, noticed_share, surprise, threshold
from sstq.service.store import Upload

SMALL = sstq.FrameUnit(dim=6, epsilon=2.0)
CASES = {
    "frameunit": SMALL,
    "groups": sstq.GroupUnit(dim=3, epsilon=2.0, groups=2, blocks=2),
    "frames": sstq.FrameUnit(dim=6, epsilon=4.0, frames=4),
    "sstq": sstq.SSTQ(dim=20, epsilon=2.0),
}


def sums(mechanism, X, seed, **groups):
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.encode(X, seed, **groups))
    return aggregator


def same(mechanism, count):
    """People who all hold one vector of the largest norm: the hardest case for both tests."""
    x = np.zeros((count, mechanism.dim))
    x[:, 0] = mechanism.clip
    return x


def test_the_chances_of_all_looks_add_up_to_alpha():
    counts = [math.ceil(100 * GROWTH**number) for number in range(200)]  # up to 10^12 messages
    assert 0.95 * ALPHA < 2 * sum(map(threshold, counts)) <= ALPHA


@pytest.mark.parametrize("name", CASES)
def test_counts_are_those_of_the_messages_and_within_the_law(name, seed):
    """An honest count leaves the bounds of the law only as far as Chernoff allows; fails with 10^-6."""
    mechanism = CASES[name]
    groups = {"groups": np.zeros(20_000, dtype=int)} if name == "groups" else {}
    aggregator = sums(mechanism, same(mechanism, 20_000), seed, **groups)
    cells = cells_of(mechanism, aggregator)
    assert cells.counts.sum() == 20_000
    assert (cells.counts >= 0).all()
    limit = math.log(2 * cells.size / 1e-6)
    assert surprise(int(cells.counts.max()), 20_000, cells.upper) <= limit
    assert surprise(int(cells.counts.min()), 20_000, cells.lower, below=True) <= limit
    assert cells.upper / cells.lower <= math.exp(mechanism.epsilon) * (1 + 1e-9)


def test_honest_crowds_raise_no_alarm(seed):
    """8 campaigns of up to 8,000 messages, all holding one vector: 0.001 each, so two alarms fail with 0.00003."""
    raised = 0
    for number in range(8):
        aggregator, found = SMALL.aggregator(), {}
        for size in np.diff([0, 100, 300, 1000, 3000, 8000]):
            aggregator.update(SMALL.encode(same(SMALL, size), seed + number))
            found |= {kind: said for kind, said in look(SMALL, aggregator, aggregator.mean()).items() if ALARM in said}
            seed += 1000
        raised += bool(found)
    assert raised <= 1


def test_equal_messages_raise_an_alarm_and_it_stays(store, seed):
    """20,000 honest people and 4 % who all send one row; then only honest ones."""
    store.create("c", SMALL, "{}")
    campaign = Campaign("c", SMALL)

    def add(messages):
        store.receive([Upload("c", os.urandom(16), len(messages), messages.to_bytes())])
        while store.fold("c"):
            pass
        results.refresh(store, campaign)
        return json.loads(results.latest(store, "c"))["checks"]

    assert add(SMALL.encode(np.zeros((20_000, 6)), seed))["counts"].startswith("passed")
    one = SMALL.encode(np.zeros((1, 6)), seed)
    alike = type(one).concatenate([one] * 4000)
    assert add(alike)["counts"].startswith(ALARM)
    assert add(SMALL.encode(np.zeros((100_000, 6)), seed + 1))["counts"].startswith(ALARM)
    assert results.raised(store) == {("c", "counts"): 1.0}


def test_a_mean_beyond_clip_raises_an_alarm(seed):
    honest, rows = SMALL.encode(same(SMALL, 1000), seed), SMALL.encode(np.zeros((5000, 6)), seed)
    best = rows[np.argmax(SMALL.decode(rows)[:, 0]) :][:1]
    aggregator = SMALL.aggregator()
    aggregator.update(honest)
    assert look(SMALL, aggregator, aggregator.mean())["norm"] == "passed"
    for _ in range(1000):
        aggregator.update(best)
    assert look(SMALL, aggregator, aggregator.mean())["norm"].startswith(f"{ALARM}the mean has norm")


def test_sparse_counts_are_said_to_have_no_power(seed):
    many = sstq.FrameUnit(dim=6, epsilon=2.0, frames=512)
    aggregator = sums(many, np.zeros((2000, 6)), seed)
    said = look(many, aggregator, aggregator.mean())["counts"]
    assert said.startswith("no power: 2,000 messages are too few for 262,144 different rows")
    cells = cells_of(many, aggregator)
    assert noticed_share(cells, 2000) > 0.5
    few = cells_of(SMALL, sums(SMALL, np.zeros((20_000, 6)), seed))
    assert noticed_share(few, 20_000) < 0.05


def test_too_few_messages_are_not_tested(seed):
    aggregator = sums(SMALL, np.zeros((99, 6)), seed)
    assert look(SMALL, aggregator, aggregator.mean()) == {}
    private = sstq.PrivUnit(dim=4, epsilon=3.0)
    aggregator = sums(private, np.zeros((200, 4)), seed)
    assert look(private, aggregator, aggregator.mean())["counts"].startswith("not tested")
