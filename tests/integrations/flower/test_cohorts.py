"""Nodes that answer so many times, and a server that is killed."""

from collections import Counter

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAvg

from sstq.accounting import Ledger
from sstq.integrations.flower import SstqStrategy
from sstq.integrations.flower.turns import ServerState, Turns
from sstq.integrations.flower.wire import MessageRequest

from .apps import app_with, model, train_to
from .local_grid import LocalGrid
from .test_training import loss, regression, start

UPDATE = np.array([0.3, -0.1, 0.2, 0.4, -0.5, 0.6])
INNER = {"fraction_evaluate": 0.0}


def limits(folder, total=8.0):
    return {"max_epsilon": 8.0, "total_epsilon": total, "ledger": folder}


def cohorts_of(used, grid, rounds):
    """The nodes that are asked in each round, without waiting for answers."""
    return [
        [
            message.metadata.dst_node_id
            for message in used.configure_train(number, model(), ConfigRecord(), grid)
        ]
        for number in range(1, rounds + 1)
    ]


def test_nodes_that_answer_once_have_spent_their_total_and_no_more(ledgers):
    # 120 answers of ε = 8 in cohorts of 40: the error of a round is that of `test_training`.
    grid = LocalGrid(app_with(regression, **limits(ledgers)), 120)
    used = SstqStrategy(
        FedAvg(**INNER), "sstq", epsilon=8.0, clip=0.45, participation="once", cohort=40
    )
    result = used.start(grid, start(), num_rounds=5)
    replies = [
        metrics["sstq-replies"] for metrics in result.train_metrics_clientapp.values()
    ]
    assert replies == [40, 40, 40]  # then nobody is left to be asked
    assert [Ledger(path).spent for path in ledgers.glob("*.ledger")] == [8.0] * 120
    assert used.privacy_spent().epsilon == 8.0
    # It was 1; the error of a round's mean, 0.3, would have to be three times what is expected in all 16 directions.
    assert loss(result) < 1


@pytest.mark.parametrize("participation", ["once", 2])
def test_nobody_is_asked_more_often_than_promised(ledgers, participation):
    grid = LocalGrid(app_with(train_to(UPDATE), **limits(ledgers)), 20)
    used = SstqStrategy(
        FedAvg(**INNER), epsilon=2.0, clip=1.0, participation=participation, cohort=8
    )
    answers = 1 if participation == "once" else participation
    asked = Counter(node for cohort in cohorts_of(used, grid, 12) for node in cohort)
    assert set(asked.values()) == {answers}
    assert len(asked) == 20


def test_who_was_asked_least_comes_first():
    state = ServerState(0, asked=Counter({1: 2, 2: 1, 3: 1, 10: 1}))
    inner = FedAvg(min_train_nodes=1, min_available_nodes=1)
    assert Turns(2, 1, inner).cohort([1, 2, 3, 4], state) == [4]
    assert Turns(2, 9, inner).cohort([1, 2, 3, 4], state) == [2, 3, 4]
    assert Turns(2, 9, inner).cohort([1], state) == []
    assert Turns("once", 2, inner).cohort([2**64 - 1, 7], state) == [7, 2**64 - 1]
    # These numbers must never change: a restarted server would ask other nodes.
    assert Turns("once", 2, inner).cohort([10, 11, 12, 13], state) == [11, 12]


def test_a_server_that_was_killed_asks_nobody_twice(ledgers):
    grid = LocalGrid(app_with(train_to(UPDATE), **limits(ledgers)), 20)
    arguments = {
        "epsilon": 2.0,
        "clip": 1.0,
        "participation": "once",
        "cohort": 8,
        "state": ledgers / "state.json",
    }
    before = SstqStrategy(FedAvg(**INNER), **arguments)
    # It dies after the messages of its second round have left.
    first = cohorts_of(before, grid, 2)
    after = SstqStrategy(FedAvg(**INNER), **arguments)
    assert after.frame_seed == before.frame_seed
    messages = list(after.configure_train(1, model(), ConfigRecord(), grid))
    rest = [message.metadata.dst_node_id for message in messages]
    assert sorted(first[0] + first[1] + rest) == list(range(2, 22))
    # so its frame is a fresh one
    assert MessageRequest.from_content(messages[0].content).number == 3
    with pytest.raises(ValueError, match="frame_seed must be"):
        SstqStrategy(
            FedAvg(**INNER), **arguments, frame_seed=(before.frame_seed + 1) % 2**64
        )
    (ledgers / "state.json").write_text("{}")
    with pytest.raises(ValueError, match="damaged or not the state"):
        SstqStrategy(FedAvg(**INNER), **arguments)


def test_a_node_that_is_asked_too_often_refuses(ledgers):
    """A server that has forgotten whom it asked, or never cared, gets refusals and the nodes spend nothing."""
    grid = LocalGrid(app_with(train_to(UPDATE), **limits(ledgers)), 6)
    for number, answered in ((1, 6), (2, 0)):
        used = SstqStrategy(
            FedAvg(**INNER), epsilon=8.0, clip=1.0, participation="once", cohort=6
        )
        metrics = used.start(grid, model(), num_rounds=1).train_metrics_clientapp[1]
        assert metrics["sstq-replies"] == answered, number
        assert metrics["sstq-refused"] == 6 - answered
    assert [Ledger(path).spent for path in ledgers.glob("*.ledger")] == [8.0] * 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"participation": "once"}, "cohort must be given"),
        ({"cohort": 5}, "participation must be given"),
        (
            {"participation": "often", "cohort": 5},
            "participation must be 'once' or an integer",
        ),
        (
            {"participation": 0, "cohort": 5},
            "participation must be 'once' or an integer",
        ),
        (
            {"participation": 1, "cohort": 1},
            "min_train_nodes of the inner strategy must be at most cohort = 1, got 2",
        ),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SstqStrategy(FedAvg(**INNER), epsilon=2.0, clip=1.0, **arguments)
