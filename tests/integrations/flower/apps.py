"""Requests, models and training functions for the tests."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import sstq
from sstq.integrations.flower import SstqMod
from sstq.integrations.flower.wire import RECORD, MessageRequest

DIM = 6


def model(values=None):
    """Four numbers in a matrix, one without a shape, one more, an integer and an empty array."""
    values = np.zeros(DIM) if values is None else np.asarray(values, dtype=np.float64)
    return ArrayRecord(
        {
            "matrix": Array(values[:4].reshape(2, 2).astype(np.float32)),
            "steps": Array(np.array(7)),
            "scale": Array(np.array(values[4])),
            "empty": Array(np.zeros((0, 3))),
            "bias": Array(values[5:].astype(np.float64)),
        }
    )


NAMES = ("matrix", "scale", "bias")


def vector(record):
    return np.concatenate(
        [np.asarray(record[name].numpy(), dtype=np.float64).ravel() for name in NAMES]
    )


def train_to(values, **metrics):
    """A training function that always ends at these values."""

    def train(message, context):
        metric = MetricRecord({"num-examples": 10, "loss": 0.5} | metrics)
        return Message(
            RecordDict({"arrays": model(values), "metrics": metric}), reply_to=message
        )

    return train


def request_message(
    mechanism, *, number=1, node=2, start=None, names=NAMES, message_id="m1"
):
    content = RecordDict({"arrays": model(start)})
    content[RECORD] = MessageRequest(mechanism, number, tuple(names)).to_record()
    message = Message(content, dst_node_id=node, message_type="train")
    message.metadata.__dict__["_message_id"] = message_id
    return message


def context(node=2, **node_config):
    return Context(1, node, node_config, RecordDict(), {})


def frameunit(epsilon=2.0, **arguments):
    return sstq.mechanism("frameunit", dim=DIM, epsilon=epsilon, **arguments)


def app_with(train, **limits):
    """A ClientApp with the mod and an evaluation in clear."""
    app = ClientApp()
    app.train(mods=[SstqMod(**limits)])(train)

    @app.evaluate()
    def evaluate(message, context):
        metrics = MetricRecord({"loss": 1.0, "num-examples": 2})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app
