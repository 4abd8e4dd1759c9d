"""Whole runs: a ClientApp, a strategy and many nodes in one process."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg

from sstq.accounting import Ledger
from sstq.integrations.flower import SstqStrategy

from .apps import app_with
from .local_grid import LocalGrid

DIM = 16
TRUTH = np.linspace(-1, 1, DIM) / np.linalg.norm(np.linspace(-1, 1, DIM))


def start():
    return ArrayRecord(
        {"w": Array(np.zeros(DIM, dtype=np.float32)), "steps": Array(np.array(0))}
    )


def regression(message, context):
    """A step of gradient descent on the node's own examples of one linear model."""
    examples = np.random.default_rng(
        int(context.node_config["partition-id"])
    ).standard_normal((32, DIM))
    w = message.content["arrays"]["w"].numpy()
    w = w - 0.4 * examples.T @ (examples @ (w - TRUTH)) / 32
    arrays = ArrayRecord(
        {"w": Array(w.astype(np.float32)), "steps": Array(np.array(1))}
    )
    metrics = MetricRecord(
        {"loss": float(np.sum((w - TRUTH) ** 2)), "num-examples": 32}
    )
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def run(
    inner,
    ledgers,
    *,
    nodes=40,
    rounds=6,
    train=regression,
    epsilon=8.0,
    mechanism="sstq",
    clip=0.45,
    **rest,
):
    grid_arguments = {
        name: rest.pop(name) for name in ("wire", "node_config") if name in rest
    }
    limits = {"max_epsilon": 8.0, "total_epsilon": 800.0, "ledger": ledgers} | rest.pop(
        "limits", {}
    )
    grid = LocalGrid(app_with(train, **limits), nodes, **grid_arguments)
    used = SstqStrategy(inner, mechanism, epsilon=epsilon, clip=clip, **rest)
    return used.start(grid, start(), num_rounds=rounds)


def loss(result):
    return float(np.sum((result.arrays["w"].numpy() - TRUTH) ** 2))


# The noise of a round's mean has a norm of 0.3 at first and less as the updates shrink; what the last rounds leave of
# it is the loss: about 0.3² = 0.09 if it did not shrink. Twenty-four runs gave at most 0.05. The noise is secret: even
# if 0.05 were the mean, the squares of 16 nearly normal errors would exceed 0.3 less than once in 1e12 runs.
@pytest.mark.parametrize(
    "inner",
    [
        FedAvg(fraction_evaluate=0.0),
        FedAdam(fraction_evaluate=0.0, eta=0.5, beta_1=0.0, tau=0.1),
    ],
    ids=lambda inner: type(inner).__name__,
)
def test_training_converges_inside_other_strategies(inner, ledgers):
    result = run(inner, ledgers)
    assert loss(result) < 0.3  # it was 1
    assert result.arrays["steps"].numpy() == 0
    assert result.arrays["steps"].dtype == "int64"
    assert Ledger(ledgers / "node-2.ledger").spent == 48.0
    assert result.train_metrics_clientapp[6]["sstq-epsilon-answered"] == 48.0


def test_failures_of_all_kinds_do_not_stop_a_run(ledgers):
    def wire(reply):
        node = reply.metadata.src_node_id
        if node % 5 == 0:
            return []
        if node % 5 == 1:
            return [reply, reply]
        if node % 5 == 2 and reply.has_content() and "sstq" in reply.content:
            reply.content["sstq"]["message"] = b"nonsense"
        return [reply]

    def train(message, context):
        if context.node_config["partition-id"] % 7 == 0:
            raise ZeroDivisionError("no examples")
        return regression(message, context)

    strict = {"sstq-max-epsilon": 1.0}
    result = run(
        FedAvg(),
        ledgers,
        nodes=40,
        rounds=3,
        train=train,
        wire=wire,
        node_config=lambda partition: strict if partition % 10 == 7 else {},
    )
    assert (
        len(result.train_metrics_clientapp)
        == len(result.evaluate_metrics_clientapp)
        == 3
    )
    metrics = result.train_metrics_clientapp[3]
    # Of 40 nodes 8 are lost, 8 answer twice, 8 send nonsense, and four others refuse. Those whose training fails
    # answer nevertheless.
    counts = {
        name: metrics[f"sstq-{name}"]
        for name in ("missing", "refused", "invalid", "replies")
    }
    assert counts == {
        "missing": 8,
        "refused": 4,
        "invalid": 8 + 8,
        "replies": 40 - 8 - 4 - 8,
    }
