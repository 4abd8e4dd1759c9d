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
from sstq.service.alarms import (
    ALARM,
    ALPHA,
    GROWTH,
    Cells,
    _counts,
    cells_of,
    look,
    noticed_share,
    surprise,
    threshold,
)
from sstq.service.store import Upload

SMALL = sstq.FrameUnit(dim=6, epsilon=2.0)
CASES = {
    "frameunit": SMALL,
    "groups": sstq.GroupUnit(dim=3, epsilon=2.0, groups=2, blocks=2),
    "frames": sstq.FrameUnit(dim=6, epsilon=4.0, frames=4),
    "sstq": sstq.SSTQ(dim=20, epsilon=2.0),
    "frequencies": sstq.Frequencies(categories=6, epsilon=2.0),
    "sets": sstq.Frequencies(categories=100, epsilon=1.0),
}


def sums(mechanism, X, seed):
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.encode(X, seed))
    return aggregator


def same(mechanism, count):
    """People who all hold one vector of the largest norm: the hardest case for both tests."""
    x = np.zeros((count, mechanism.dim))
    x[:, 0] = mechanism.clip
    return x


def alike(mechanism, count, seed):
    """The messages of people who all hold the same."""
    if isinstance(mechanism, sstq.Frequencies):
        return mechanism.encode(np.zeros(count, dtype=int), seed)
    groups = {} if mechanism.groups is None else {"groups": np.zeros(count, dtype=int)}
    return mechanism.encode(same(mechanism, count), seed, **groups)


def test_the_chances_of_all_looks_add_up_to_alpha():
    # up to 10^12 messages
    counts = [math.ceil(100 * GROWTH**number) for number in range(200)]
    assert 0.95 * ALPHA < 2 * sum(map(threshold, counts)) <= ALPHA


@pytest.mark.parametrize("name", CASES)
def test_counts_are_those_of_the_messages_and_within_the_law(name, seed):
    """An honest count leaves the bounds of the law only as far as Chernoff allows; fails with 10^-6."""
    mechanism = CASES[name]
    aggregator = mechanism.aggregator()
    aggregator.update(alike(mechanism, 20_000, seed))
    found = cells_of(mechanism, aggregator)
    assert found.counts.sum() == 20_000
    assert (found.counts >= 0).all()
    limit = math.log(2 * found.size / 1e-6)
    assert surprise(int(found.counts.max()), 20_000, found.upper) <= limit
    assert surprise(int(found.counts.min()), 20_000, found.lower, below=True) <= limit
    assert found.upper / found.lower <= math.exp(mechanism.epsilon) * (1 + 1e-9)


@pytest.mark.parametrize("name", CASES)
def test_honest_crowds_raise_no_alarm(name, seed):
    """8 campaigns of up to 30,000 messages, all holding one vector: 0.001 each, so two alarms fail with 0.00003.

    Until it did not, each of those of one frame raised an alarm: all of its codes had occurred.
    """
    mechanism = CASES[name]
    raised = 0
    for number in range(8):
        aggregator = mechanism.aggregator()
        found = {}
        for size in np.diff([0, 100, 300, 1000, 3000, 8000, 30_000]):
            aggregator.update(alike(mechanism, size, seed + number))
            checks = look(mechanism, aggregator, aggregator.mean())
            found |= {kind: said for kind, said in checks.items() if ALARM in said}
            seed += 1000
        raised += bool(found)
    assert raised <= 1


def cells(counts, lower=0.2, upper=0.3, size=4):
    return Cells(np.array(counts), size, lower, upper)


@pytest.mark.parametrize(
    ("counted", "raised"),
    [
        # every code occurs, within the bounds
        (cells([2000, 2900, 2500, 2600]), False),
        (cells([1500, 2900, 2800, 2800]), True),  # one occurs too rarely
        (cells([3300, 3300, 3400]), True),  # one never
        (cells([2100, 2100, 2100, 3700]), True),  # one too often
        (cells([3300, 3300, 3400], lower=1e-5, upper=0.4), False),
    ],
)
def test_codes_beyond_the_bounds_of_the_law_raise_an_alarm(counted, raised):
    assert _counts(counted, 10_000).startswith(ALARM) == raised


def test_a_mean_in_units_of_bounds_is_compared_with_them(seed):
    """Until it was, an income of 40,000 was longer than clip = 1 and every honest crowd raised an alarm."""
    mechanism = sstq.FrameUnit(
        dim=2, epsilon=3.0, bounds={"age": (0, 110), "income": (0, 200_000)}
    )
    honest = sums(mechanism, np.full((5000, 2), [110.0, 0.0]), seed)
    assert look(mechanism, honest, honest.mean())["norm"] == "passed"
    wrong = mechanism.replace(epsilon=8.0)
    raw = wrong.encode(np.full((5000, 2), [110.0, 0.0]), seed).to_bytes()
    false = mechanism.aggregator().update(mechanism.messages_from_bytes(raw, 5000))
    said = look(mechanism, false, false.mean())["norm"]
    assert said.startswith(f"{ALARM}the mean of ")
    assert "beyond its bounds 0 and" in said


WRONG = {
    "frameunit": SMALL.replace(epsilon=8.0),
    "groups": CASES["groups"].replace(epsilon=4.0),
    "frequencies": CASES["frequencies"].replace(epsilon=3.0),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_client_with_another_law_raises_an_alarm(name, seed):
    """Its ε is larger than that of the campaign, and all of its people hold the same."""
    mechanism = CASES[name]
    wrong = WRONG[name]
    assert wrong.message_bits == mechanism.message_bits
    raw = alike(wrong, 20_000, seed).to_bytes()
    aggregator = mechanism.aggregator()
    aggregator.update(mechanism.messages_from_bytes(raw, 20_000))
    assert look(mechanism, aggregator, aggregator.mean())["counts"].startswith(ALARM)


def most_common(messages):
    """The place of a message that occurred most."""
    whole = np.stack([column.astype(np.int64) for column in messages.columns], axis=1)
    _, first, times = np.unique(whole, axis=0, return_index=True, return_counts=True)
    return first[np.argmax(times)]


@pytest.mark.parametrize("name", CASES)
def test_made_up_messages_raise_an_alarm(name, seed):
    """A quarter of 20,000 messages is one and the same: the one that occurred most."""
    mechanism = CASES[name]
    messages = alike(mechanism, 20_000, seed)
    taken = np.arange(20_000)
    taken[:5000] = most_common(messages)
    aggregator = mechanism.aggregator()
    aggregator.update(messages[taken])
    assert look(mechanism, aggregator, aggregator.mean())["counts"].startswith(ALARM)


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
    assert add(SMALL.encode(np.zeros((100_000, 6)), seed + 1))["counts"].startswith(
        ALARM
    )
    assert results.raised(store) == {("c", "counts"): 1.0}


def test_a_mean_beyond_clip_raises_an_alarm(seed):
    honest = SMALL.encode(same(SMALL, 1000), seed)
    rows = SMALL.encode(np.zeros((5000, 6)), seed)
    best = rows[np.argmax(SMALL.decode(rows)[:, 0]) :][:1]
    aggregator = SMALL.aggregator()
    aggregator.update(honest)
    assert look(SMALL, aggregator, aggregator.mean())["norm"] == "passed"
    for _ in range(1000):
        aggregator.update(best)
    assert look(SMALL, aggregator, aggregator.mean())["norm"].startswith(
        f"{ALARM}the mean has norm"
    )


def test_sparse_counts_are_said_to_have_no_power(seed):
    many = sstq.FrameUnit(dim=6, epsilon=2.0, frames=512)
    aggregator = sums(many, np.zeros((2000, 6)), seed)
    said = look(many, aggregator, aggregator.mean())["counts"]
    assert said.startswith(
        "no power: there are 262,144 different messages, more than 2,000 messages tell apart"
    )
    assert noticed_share(cells_of(many, aggregator), 2000) > 0.5
    few = cells_of(SMALL, sums(SMALL, np.zeros((20_000, 6)), seed))
    assert noticed_share(few, 20_000) < 0.05


def test_too_few_messages_are_not_tested(seed):
    aggregator = sums(SMALL, np.zeros((99, 6)), seed)
    assert look(SMALL, aggregator, aggregator.mean()) == {}
    private = sstq.PrivUnit(dim=4, epsilon=3.0)
    aggregator = sums(private, np.zeros((200, 4)), seed)
    assert look(private, aggregator, aggregator.mean())["counts"].startswith(
        "not tested"
    )


def test_a_coordinate_that_the_data_choose_is_no_alarm():
    """Messages of vqSGD are vertices near the vector: how often a coordinate occurs says nothing of attackers."""
    mechanism = sstq.mechanism("vqsgd", dim=20, epsilon=4.0)
    aggregator = sums(mechanism, same(mechanism, 20_000), 1)
    assert not look(mechanism, aggregator, aggregator.mean())["counts"].startswith(
        ALARM
    )
