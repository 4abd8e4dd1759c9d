import math

import numpy as np
import pytest
from flwr.app import Error, Message, MetricRecord, RecordDict
from flwr.server.superlink.linkstate.utils import create_message_error_unavailable_res_message

import sstq
from sstq.integrations.flower.replies import sort_replies
from sstq.integrations.flower.wire import METRICS, RECORD, Answer, Request

from .apps import DIM, NAMES, frameunit, model, request_message

MECHANISM = frameunit()
REQUEST = Request(MECHANISM, 3, NAMES)


def reply(node=2, *, payload=None, used=MECHANISM, number=3, metrics=None):
    if payload is None:
        payload = used.encode(np.full(used.dim, 0.1), rng=node).to_bytes()
    content = RecordDict({RECORD: Answer(payload, used.digest(), number).to_record()})
    if metrics is not None:
        content[METRICS] = MetricRecord(metrics)
    return Message(content, reply_to=request_message(used, node=node, message_id=f"to {node}"))


def error(node=2, reason="no"):
    return Message(Error(6, reason), reply_to=request_message(MECHANISM, node=node, message_id=f"to {node}"))


def asked(*nodes):
    return {f"to {node}": node for node in nodes}


def unencoded(with_message):
    message = reply()
    if not with_message:
        del message.content[RECORD]
    message.content["arrays"] = model()
    return message


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda: error(), "refused"),
        (lambda: unencoded(True), "unencoded"),
        (lambda: unencoded(False), "unencoded"),
        (lambda: reply(payload=b""), "malformed"),
        (lambda: reply(payload=b"\xff" * 9), "malformed"),
        (lambda: reply(payload=b"\xff\xff"), "malformed"),
        (lambda: reply(used=frameunit(epsilon=3.0)), "malformed"),
        (lambda: reply(number=2), "stale"),
        (lambda: reply(number=4), "stale"),
    ],
)
def test_what_does_not_count_has_a_name(bad, reason):
    result = sort_replies([bad(), reply(3)], REQUEST, asked(2, 3))
    assert len(result.messages) == 1
    assert +result.dropped == {reason: 1}


def test_nodes_that_were_not_asked_do_not_count():
    result = sort_replies([reply(2), reply(4), error(5)], REQUEST, asked(2, 3))
    assert len(result.messages) == 1
    assert +result.dropped == {"foreign": 2, "missing": 1}


def test_a_dead_node_is_missing_although_the_superlink_answers_for_it():
    """With Flower's own error reply, which comes from the SuperLink and not from the node."""
    dead = request_message(MECHANISM, node=3, message_id="to 3")
    unavailable = create_message_error_unavailable_res_message(dead.metadata, "node_unavail")
    assert unavailable.metadata.src_node_id != 3
    result = sort_replies([reply(2), unavailable], REQUEST, asked(2, 3))
    assert +result.dropped == {"missing": 1}
    assert result.answered == {2: 1}


def test_an_answer_in_another_nodes_name_does_not_count():
    stolen = reply(4)
    stolen.metadata.__dict__["_reply_to_message_id"] = "to 2"
    assert +sort_replies([stolen], REQUEST, asked(2)).dropped == {"foreign": 1, "missing": 1}


def test_answers_are_counted_apart_from_refusals():
    spent = error(3, "SstqMod: epsilon = 2.0 is more than is left of this node's budget")
    result = sort_replies([reply(2), reply(2), reply(5, payload=b""), spent, error(4)], REQUEST, asked(2, 3, 4, 5, 6))
    assert result.answered == {2: 1, 5: 1}
    assert result.unable == {3}


def test_a_node_counts_once():
    first, second = reply(2), reply(2, payload=MECHANISM.encode(-np.ones(DIM), rng=99).to_bytes())
    result = sort_replies([first, second, first], REQUEST, asked(2))
    assert result.messages[0].to_bytes() == Answer.from_record(first.content[RECORD]).payload
    assert +result.dropped == {"duplicate": 2}


def test_behind_a_public_coin_the_node_names_the_client():
    used = sstq.mechanism("sqkr", dim=DIM, epsilon=2.0, coin="public")
    named = 3 * 2**32 + 2  # round 3, node 2
    payload = used.encode(np.ones(DIM), rng=1, clients=[named]).to_bytes()
    result = sort_replies([reply(used=used, payload=payload)], Request(used, 3, NAMES), asked(2))
    assert result.messages[0].clients.tolist() == [named]


def test_several_messages_of_a_node_count_as_one_answer():
    used = MECHANISM.replace(messages=3)
    result = sort_replies([reply(used=used)], Request(used, 3, NAMES), asked(2))
    assert len(result.messages) == 1
    assert len(result.messages[0]) == 3
    assert result.bytes == -(-3 * MECHANISM.message_bits // 8)


def test_shared_metrics_are_averaged_without_weights():
    replies = [
        reply(2, metrics={"loss": 1.0, "parts": [1.0, 3.0], "odd": 1}),
        reply(3, metrics={"loss": 2.0, "parts": [3.0, 5.0], "odd": [1]}),
        reply(4),
    ]
    result = sort_replies(replies, REQUEST, asked(2, 3, 4))
    assert len(result.messages) == 3
    assert result.metrics == {"loss": 1.5, "parts": [2.0, 4.0]}


@pytest.mark.parametrize("spoilt", [math.inf, -math.inf, math.nan, [], [1.0, math.nan]])
def test_metrics_that_are_no_finite_numbers_are_passed_over(spoilt):
    replies = [
        reply(2, metrics={"loss": 1.0, "own": spoilt}),
        reply(3, metrics={"loss": spoilt}),
        reply(4, metrics={"loss": 2.0}),
    ]
    result = sort_replies(replies, REQUEST, asked(2, 3, 4))
    assert len(result.messages) == 3
    assert result.metrics == {"loss": 1.5}


def test_a_sum_of_metrics_that_overflows_is_left_out():
    replies = [reply(node, metrics={"loss": 1.5e308, "accuracy": 0.5}) for node in (2, 3)]
    assert sort_replies(replies, REQUEST, asked(2, 3)).metrics == {"accuracy": 0.5}
