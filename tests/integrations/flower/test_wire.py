import numpy as np
import pytest
from flwr.app import Error, Message, MetricRecord, RecordDict
from flwr.server.superlink.linkstate.utils import (
    create_message_error_unavailable_res_message,
)

from sstq.integrations.flower.wire import RECORD, MessageRequest, sort_replies
from tests.contract.cases import CASES, RECORDS, build, reread

from .apps import DIM, NAMES, frameunit, model, request_message


def content(**changes):
    record = MessageRequest(frameunit(), 3, NAMES).to_record()
    for key, value in changes.items():
        record[key] = value
    return RecordDict({RECORD: record})


def test_a_request_survives_the_wire():
    assert MessageRequest.from_content(content()) == MessageRequest(
        frameunit(), 3, NAMES
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mechanism": 3}, "no mechanism"),
        ({"mechanism": "{}"}, "format"),
        ({"digest": frameunit(epsilon=1.0).digest()}, "digest"),
        ({"round": -1}, "round"),
        ({"round": 1.0}, "round"),
        ({"arrays": []}, "name the arrays"),
        ({"arrays": [1, 2]}, "name the arrays"),
    ],
)
def test_other_requests_are_refused(changes, reason):
    with pytest.raises(ValueError, match=reason):
        MessageRequest.from_content(content(**changes))


@pytest.mark.parametrize(
    "case",
    [case for case, options in (CASES | RECORDS).items() if "epsilon" in options],
)
def test_an_epsilon_that_is_written_smaller_is_not_believed(case):
    """A server that writes a smaller ε into the JSON of a mechanism is refused."""
    original = build(case)
    smaller = original.epsilon / 4
    with pytest.raises(ValueError, match=rf"{smaller:g}\b"):
        reread(original, epsilon=smaller)


MECHANISM = frameunit()
REQUEST = MessageRequest(MECHANISM, 3, NAMES)


def reply(node=2, *, payload=None, used=MECHANISM, number=3, **changes):
    if payload is None:
        payload = used.encode(np.full(used.dim, 0.1), rng=node).to_bytes()
    record = MessageRequest(used, number, NAMES).answer(payload)
    record.update(changes)
    content = RecordDict({RECORD: record})
    return Message(
        content, reply_to=request_message(used, node=node, message_id=f"to {node}")
    )


def error(node=2, reason="no"):
    return Message(
        Error(6, reason),
        reply_to=request_message(MECHANISM, node=node, message_id=f"to {node}"),
    )


def asked(*nodes):
    return {f"to {node}": node for node in nodes}


def with_record(name, record):
    message = reply()
    message.content[name] = record
    return message


@pytest.mark.parametrize(
    "bad",
    [
        lambda: with_record("arrays", model()),
        lambda: with_record("metrics", MetricRecord({"loss": 1.0})),
        lambda: reply(payload=b""),
        lambda: reply(payload=b"\xff\xff"),
        lambda: reply(used=frameunit(epsilon=3.0)),
        lambda: reply(number=2),
        lambda: reply(message="1"),
        lambda: reply(loss=0.1),
    ],
)
def test_what_is_not_an_answer_to_the_request_does_not_count(bad):
    result = sort_replies([bad(), reply(3)], REQUEST, asked(2, 3))
    assert (len(result.messages), result.invalid, result.refused, result.missing) == (
        1,
        1,
        0,
        0,
    )
    assert result.answered == {2: 1, 3: 1}  # it has cost its node as much


def test_nodes_that_were_not_asked_do_not_count():
    result = sort_replies(
        [reply(2), reply(4), error(5), error(6)], REQUEST, asked(2, 3, 6)
    )
    assert (len(result.messages), result.invalid, result.missing, result.refused) == (
        1,
        2,
        1,
        1,
    )
    assert result.answered == {2: 1}


def test_a_dead_node_is_missing_although_the_superlink_answers_for_it():
    """With Flower's own error reply, which comes from the SuperLink and not from the node."""
    dead = request_message(MECHANISM, node=3, message_id="to 3")
    unavailable = create_message_error_unavailable_res_message(
        dead.metadata, "node_unavail"
    )
    assert unavailable.metadata.src_node_id != 3
    result = sort_replies([reply(2), unavailable], REQUEST, asked(2, 3))
    assert (result.missing, result.invalid, result.refused) == (1, 0, 0)
    assert result.answered == {2: 1}


def test_an_answer_in_another_nodes_name_does_not_count():
    stolen = reply(4)
    stolen.metadata.__dict__["_reply_to_message_id"] = "to 2"
    result = sort_replies([stolen], REQUEST, asked(2))
    assert (len(result.messages), result.invalid, result.missing) == (0, 1, 1)


def test_a_node_counts_once():
    first = reply(2)
    second = reply(2, payload=MECHANISM.encode(-np.ones(DIM), rng=99).to_bytes())
    result = sort_replies([first, second, first], REQUEST, asked(2))
    assert result.messages[0].to_bytes() == first.content[RECORD]["message"]
    assert result.invalid == 2


def test_several_messages_of_a_node_count_as_one_answer():
    used = MECHANISM.replace(messages=3)
    result = sort_replies([reply(used=used)], MessageRequest(used, 3, NAMES), asked(2))
    assert len(result.messages) == 1
    assert len(result.messages[0]) == 3
