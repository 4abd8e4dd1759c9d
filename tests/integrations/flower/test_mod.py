"""What leaves a node, and when nothing does."""

from io import BytesIO

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.common.constant import ErrorCode
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

import sstq
from paper.baselines import Clean
from sstq.accounting import Ledger
from sstq.integrations.flower import SstqMod
from sstq.integrations.flower.wire import RECORD
from sstq.mechanisms.answers import answer

from .apps import DIM, context, frameunit, model, request_message, train_to

UPDATE = np.array([0.3, -0.1, 0.2, 0.4, -0.5, 0.6])


@pytest.fixture
def mod(tmp_path):
    return SstqMod(max_epsilon=4.0, total_epsilon=10.0, ledger=tmp_path)


def wire_bytes(message):
    """Everything that Flower would send of a message."""
    return b"".join(part.deflate() for part in get_all_nested_objects(message).values())


def never(message, context):
    pytest.fail("the training must not run")


@pytest.fixture
def encoded(monkeypatch):
    """The vectors that are encoded."""
    seen = []

    def watched(mechanism, x):
        seen.append(x)
        return answer(mechanism, x)

    monkeypatch.setattr("sstq.integrations.flower.mod.answer", watched)
    return seen


def refusal(reply):
    assert reply.has_error()
    assert not reply.has_content()
    assert reply.error.code == ErrorCode.MOD_FAILED_PRECONDITION
    return reply.error.reason


def test_a_reply_is_one_message_of_the_mechanism(mod, tmp_path):
    reply = mod(request_message(frameunit(), number=5), context(), train_to(UPDATE))
    assert list(reply.content) == [RECORD]
    answer = reply.content[RECORD]
    assert (answer["digest"].hex(), answer["round"]) == (frameunit().digest(), 5)
    assert len(frameunit().messages_from_bytes(answer["message"], 1)) == 1
    assert Ledger(tmp_path / "node-2.ledger").spent == 2.0


def test_nothing_of_the_update_or_the_metrics_is_in_the_reply(mod):
    secret = 0.123456789
    reply = mod(
        request_message(frameunit()),
        context(),
        train_to(np.full(DIM, secret), accuracy=secret),
    )
    sent = wire_bytes(reply)
    for dtype in ("<f4", "<f8", ">f4", ">f8"):
        assert np.array(secret, dtype).tobytes() not in sent
    for word in (b"accuracy", b"loss", b"num-examples", b"matrix", b"numpy"):
        assert word not in sent
    assert len(sent) < 400


@pytest.mark.parametrize("spoils", [False, True])
def test_the_message_encodes_the_difference_from_the_model_that_was_sent(
    mod, encoded, spoils
):
    """A training may change its request."""

    def train(message, context):
        if spoils:
            message.content["arrays"] = model(UPDATE)
            message.content[RECORD] = ConfigRecord()
        return train_to(start + UPDATE)(message, context)

    start = np.arange(DIM) + 1.0
    assert mod(
        request_message(frameunit(), start=start), context(), train
    ).has_content()
    assert encoded[0] == pytest.approx(UPDATE, abs=1e-6)


def test_a_request_that_would_exhaust_the_node_is_refused_and_costs_nothing(
    mod, tmp_path
):
    costly = sstq.mechanism("sstq", dim=DIM, epsilon=2.0, bits=1, steps=10_000)
    assert "steps must be at most" in refusal(
        mod(request_message(costly), context(), never)
    )
    assert not list(tmp_path.iterdir())


class _NoMessage:
    """What a training function should not return."""

    def has_error(self):
        return False

    @property
    def content(self):
        raise RuntimeError("patient 17")


def _raise(*_, **__):
    raise ZeroDivisionError("patient 17 has no examples")


def _exit(message, context):
    raise SystemExit("patient 17 is missing")


LARGE = train_to([0, 0, 0, 0, 0, 1.7e308])


def _error(message, context):
    return Message(Error(ErrorCode.UNKNOWN, "patient 17"), reply_to=message)


@pytest.mark.parametrize(
    "train",
    [
        train_to([0, 0, np.inf, 0, 0, 0]),
        LARGE,
        _raise,
        _exit,
        _error,
        lambda message, context: _NoMessage(),
        lambda message, context: None,
    ],
)
def test_no_data_changes_the_kind_of_a_reply(mod, tmp_path, train, monkeypatch):
    vectors = []
    original = type(frameunit()).encode_slots

    def encode_slots(self, rows, *arguments):
        vectors.append(rows)
        return original(self, rows, *arguments)

    monkeypatch.setattr(type(frameunit()), "encode_slots", encode_slots)
    normal = mod(
        request_message(frameunit(), message_id="a"), context(), train_to(UPDATE)
    )
    reply = mod(request_message(frameunit(), message_id="b"), context(), train)
    # What fails or is not finite is sent as zeros.
    assert [bool(vector.any()) for vector in vectors] == [True, train is LARGE]
    assert {key: type(value) for key, value in reply.content[RECORD].items()} == {
        key: type(value) for key, value in normal.content[RECORD].items()
    }
    assert list(reply.content) == list(normal.content)
    # timestamps vary in length
    assert len(wire_bytes(reply)) == pytest.approx(len(wire_bytes(normal)), abs=2)
    assert b"patient" not in wire_bytes(reply)
    assert Ledger(tmp_path / "node-2.ledger").spent == 4.0


def test_a_request_is_answered_once(mod, tmp_path):
    mod(request_message(frameunit()), context(), train_to(UPDATE))
    assert "already answered" in refusal(
        mod(request_message(frameunit()), context(), never)
    )
    assert Ledger(tmp_path / "node-2.ledger").spent == 2.0


def test_a_crash_between_expense_and_reply_has_spent(mod, tmp_path, monkeypatch):
    def crash(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(frameunit()), "encode_slots", crash)
    with pytest.raises(KeyboardInterrupt):
        mod(request_message(frameunit()), context(), train_to(UPDATE))
    monkeypatch.undo()
    assert Ledger(tmp_path / "node-2.ledger").spent == 2.0
    assert "already answered" in refusal(
        mod(request_message(frameunit()), context(), never)
    )


def test_a_crash_in_the_training_has_not(mod, tmp_path):
    def crash(message, context):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mod(request_message(frameunit()), context(), crash)
    assert Ledger(tmp_path / "node-2.ledger").spent == 0.0
    assert mod(request_message(frameunit()), context(), train_to(UPDATE)).has_content()


def _without_request():
    message = request_message(frameunit())
    del message.content[RECORD]
    return message


def _with_bytes(data):
    message = request_message(frameunit())
    message.content["arrays"]["bias"] = _unreadable(data)
    return message


def _unreadable(data):
    return Array("float64", (1,), "numpy.ndarray", data)


def _npz():
    buffer = BytesIO()
    np.savez(buffer, np.zeros(1))
    return buffer.getvalue()


def _with_two_models():
    message = request_message(frameunit())
    message.content["more"] = model()
    return message


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (_without_request, "no 'sstq' record"),
        (
            lambda: request_message(frameunit(), names=["matrix"]),
            "must have dim = 4, as the arrays have, got 6",
        ),
        (_with_two_models, "exactly one ArrayRecord, got 2"),
        (lambda: _with_bytes(b"PK\x03\x04 nonsense"), "'bias' cannot be read"),
        (lambda: _with_bytes(_npz()), "'bias' cannot be read: it is a NpzFile"),
        (
            lambda: request_message(frameunit(epsilon=4.5)),
            "allows for one message, 4.0",
        ),
        (lambda: request_message(Clean(dim=DIM)), "must be locally private"),
        (
            lambda: request_message(sstq.GroupUnit(dim=DIM, epsilon=2.0, groups=3)),
            "must take vectors and nothing else",
        ),
        (lambda: request_message(frameunit(), message_id="x" * 300), "round_id"),
    ],
)
def test_refusals_come_before_the_training_and_cost_nothing(
    mod, tmp_path, message, reason
):
    assert reason in refusal(mod(message(), context(), never))
    for ledger in tmp_path.glob("*.ledger"):
        assert Ledger(ledger).spent == 0.0


@pytest.mark.parametrize(
    ("node", "run", "reason"),
    [
        ({"SSTQ_max_epsilom": 1.0}, {}, "did you mean 'sstq-max-epsilon'?"),
        (
            {"sstq-trust": "none"},
            {},
            "no key 'sstq-trust'; valid are sstq-max-epsilon, sstq-total-epsilon",
        ),
        (
            {},
            {"sstq-max-epsilon": 1.0},
            "'sstq-max-epsilon' has no effect in the run's configuration",
        ),
    ],
)
def test_a_setting_that_nobody_reads_sends_nothing(mod, tmp_path, node, run, reason):
    assert reason in refusal(
        mod(request_message(frameunit()), Context(1, 2, node, RecordDict(), run), never)
    )
    assert not list(tmp_path.iterdir())


def test_a_node_warns_once_of_what_leaves_in_clear(mod, monkeypatch):
    lines = []
    monkeypatch.setattr(
        "sstq.integrations.flower.mod.log",
        lambda level, text, *values, **_: lines.append(text),
    )
    own = context()
    message = Message(
        RecordDict({"arrays": model()}), dst_node_id=2, message_type="evaluate"
    )
    reply = Message(
        RecordDict({"metrics": MetricRecord({"loss": 1.0})}), reply_to=message
    )
    for _ in range(2):
        assert mod(message, own, lambda *_: reply) is reply
    assert len(lines) == 1
    assert "leave this node without privacy" in lines[0]


def _with_arrays(change):
    """A training whose reply has other arrays."""

    def train(message, context):
        arrays = dict(model(UPDATE))
        change(arrays)
        return Message(RecordDict({"arrays": ArrayRecord(arrays)}), reply_to=message)

    return train


def _renamed(arrays):
    arrays["module.bias"] = arrays.pop("bias")


def _twice(message, context):
    return Message(RecordDict({"arrays": model(), "more": model()}), reply_to=message)


@pytest.mark.parametrize(
    ("train", "detail"),
    [
        (_with_arrays(_renamed), "given; new: module.bias"),
        (_with_arrays(lambda arrays: arrays.pop("bias")), "no array 'bias'"),
        (
            _with_arrays(lambda arrays: arrays.update(bias=Array(np.zeros(2)))),
            "must have shape (1,), got (2,)",
        ),
        (
            _with_arrays(
                lambda arrays: arrays.update(bias=Array(np.zeros(1, np.int64)))
            ),
            "got dtype int64",
        ),
        (
            _with_arrays(lambda arrays: arrays.update(bias=_unreadable(_npz()))),
            "'bias' cannot be read",
        ),
        (_twice, "exactly one ArrayRecord, got 2"),
    ],
)
def test_an_update_of_another_form_is_refused_in_the_same_words_and_costs_nothing(
    mod, tmp_path, monkeypatch, train, detail
):
    lines = []
    monkeypatch.setattr(
        "sstq.integrations.flower.mod.log",
        lambda level, text, *values, **_: lines.append(text % values),
    )
    reason = refusal(mod(request_message(frameunit()), context(), train))
    assert (
        reason == "SstqMod: the training's reply does not fit the model that was sent"
    )
    assert any(detail in line for line in lines)
    assert Ledger(tmp_path / "node-2.ledger").spent == 0.0


def test_arrays_that_the_server_does_not_ask_for_may_be_left_out(mod, encoded):
    """As with adapters on a frozen backbone."""
    message = request_message(sstq.FrameUnit(2, 2.0), names=["scale", "bias"])
    train = _with_arrays(
        lambda arrays: [arrays.pop(name) for name in ("matrix", "steps", "empty")]
    )
    assert mod(message, context(), train).has_content()
    assert encoded[0] == pytest.approx(UPDATE[4:], abs=1e-6)
