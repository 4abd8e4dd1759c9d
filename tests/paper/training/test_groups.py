import math

import numpy as np
import pytest
from paper.training.groups import CLIENTS_AT_A_TIME, client_groups, mean_of_groups, round_identities

import sstq
from paper.training import private_mean
from sstq.runs.rounds import mean_of_round


@pytest.mark.parametrize("clients", [1, 255, 256, 257, 512, 1000])
def test_groups_cover_all_clients_in_order(clients):
    groups = list(client_groups(clients))
    np.testing.assert_array_equal(np.concatenate([np.arange(clients)[group] for group in groups]), np.arange(clients))
    assert all(group.stop - group.start == CLIENTS_AT_A_TIME for group in groups[:-1])


def test_the_mean_of_one_group_is_that_group_s_to_the_last_bit(seed):
    value = float(np.random.default_rng(seed).standard_normal())
    assert mean_of_groups([value], 100) == value
    assert math.isnan(mean_of_groups([math.nan], 7))
    assert mean_of_groups([math.inf, 1.0], 300) == math.inf


def test_the_mean_of_groups_is_weighted_by_their_clients(seed):
    losses = np.random.default_rng(seed).standard_normal(600)
    parts = [float(np.mean(losses[group])) for group in client_groups(600)]
    assert mean_of_groups(parts, 600) == pytest.approx(losses.mean(), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    ("name", "options"), [("frameunit", {}), ("privunitg", {}), ("sstq", {"bits": 2, "coin": "public"})]
)
def test_messages_in_groups_are_those_of_all_at_once(name, options, seed):
    mechanism = sstq.mechanism(name, dim=6, epsilon=4.0, **options)
    x = np.random.default_rng(seed).standard_normal((600, 6)).astype(np.float32)
    aggregator = mechanism.aggregator()
    clients = round_identities(mechanism, 600, 2)
    aggregator.update(mechanism.encode(x, rng=seed, clients=clients))
    grouped = private_mean(mechanism, x, 2, np.random.default_rng(seed))
    np.testing.assert_array_equal(grouped, mean_of_round(aggregator).value)
