"""What is stored of estimates: how the error shrank, in few points, and the counts that estimates cover."""

import json
import secrets

import numpy as np
import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client.campaigns import Campaign
from sstq.service import results
from sstq.service.store import Store, Upload
from tests.service.serving import packed

MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0)


@pytest.fixture
def store(database_url):
    made = Store(database_url)
    made.create("steps", MECHANISM, "{}")
    yield made
    made.close()


def receive(store, count, seed):
    store.receive([Upload("steps", secrets.token_bytes(16), count, packed(MECHANISM, count, seed))])
    while store.fold("steps"):
        pass


def test_the_history_has_a_point_per_eighth_more_messages(store):
    campaign = Campaign("steps", MECHANISM)
    assert results.covered(store, "steps") is None
    for seed in range(40):
        receive(store, 20, seed)
        assert results.refresh(store, campaign)
        assert not results.refresh(store, campaign)
    assert results.covered(store, "steps") == 800
    points = results.progress(store, campaign)["measured"]
    counts = np.array([messages for messages, _ in points])
    assert counts[0] == 20
    assert (counts[1:] >= 1.125 * counts[:-1]).all()
    assert counts[-1] * 1.125 > 780
    described = json.loads(results.latest(store, "steps"))
    assert described["count"] == 800
    if counts[-1] == 800:
        assert points[-1][1] == pytest.approx(np.linalg.norm(described["stderr"]))


def test_the_prediction_is_the_typical_error_up_to_ten_times_the_messages(store):
    campaign = Campaign("steps", MECHANISM)
    before = results.progress(store, campaign)
    assert (before["measured"], before["arrivals"]) == ([], [])
    receive(store, 50, 1)
    results.refresh(store, campaign)
    found = results.progress(store, campaign)
    assert [found["predicted"][0][0], found["predicted"][-1][0]] == [50, 500]
    for messages, error in found["predicted"]:
        assert error == pytest.approx(MECHANISM.typical_error(messages).total ** 0.5)
    assert found["bias"] == pytest.approx(MECHANISM.typical_error(1).bias2 ** 0.5)
    assert [messages for _, messages in found["arrivals"]] == [50]
    assert found["privacy_loss"] <= found["epsilon"] == 2.0
