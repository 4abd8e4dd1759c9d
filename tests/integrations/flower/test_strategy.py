"""What the server asks for, and what it makes of the replies."""

import math
from uuid import uuid4

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.serverapp import PrivacySpent
from flwr.serverapp.strategy import FedAdam, FedAvg, FedYogi

import paper.baselines  # noqa: F401 (registers csgm)
import sstq
from sstq.integrations.flower import SstqStrategy
from sstq.integrations.flower.wire import RECORD, MessageRequest

from .apps import DIM, NAMES, app_with, frameunit, model, train_to
from .local_grid import LocalGrid

UPDATE = np.array([0.3, -0.1, 0.2, 0.4, -0.5, 0.6])
LIMITS = {"max_epsilon": 5.0, "total_epsilon": 1000.0}
QUIET = {"fraction_evaluate": 0.0}


def strategy(inner=None, **arguments):
    return SstqStrategy(
        inner or FedAvg(**QUIET), **{"epsilon": 2.0, "clip": 1.0} | arguments
    )


def ask(used, grid, start=None, number=1):
    """One round's requests, with ids as the grid gives them when it sends them, and the request that they carry."""
    messages = list(
        used.configure_train(number, start or model(), ConfigRecord(), grid)
    )
    for message in messages:
        message.metadata.__dict__["_message_id"] = uuid4().hex
    return messages, MessageRequest.from_content(messages[0].content)


def answers(messages, request, updates, seed):
    """What honest clients reply, with seeded noise."""
    replies = []
    for i, (message, update) in enumerate(zip(messages, updates, strict=True)):
        payload = request.mechanism.encode(update, rng=seed + i).to_bytes()
        replies.append(
            Message(RecordDict({RECORD: request.answer(payload)}), reply_to=message)
        )
    return replies


@pytest.fixture
def lines(monkeypatch):
    """The lines of the strategy's log."""
    lines = []
    monkeypatch.setattr(
        "sstq.integrations.flower.strategy.log",
        lambda level, text, *values: lines.append(text % values),
    )
    return lines


@pytest.fixture
def grid():
    return LocalGrid(app_with(train_to(UPDATE), **LIMITS), 12)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("frameunit", {}),
        ("privunit", {}),
    ],
)
def test_the_mean_is_the_aggregators_bit_for_bit(grid, seed, name, arguments):
    used = strategy(mechanism=name, **arguments)
    start = model(np.arange(DIM) / 7)
    messages, request = ask(used, grid, start)
    updates = np.random.default_rng(seed).standard_normal((12, DIM)) / 5
    replies = answers(messages, request, updates, seed)
    arrays, metrics = used.aggregate_train(1, reversed(replies))

    nodes = [message.metadata.dst_node_id for message in messages]
    sent = [reply.content[RECORD]["message"] for reply in replies]
    aggregator = request.mechanism.aggregator()
    for _, payload in sorted(zip(nodes, sent, strict=True)):
        aggregator.update(request.mechanism.messages_from_bytes(payload, 1))
    estimate = aggregator.mean()
    for array, before, part in zip(
        NAMES, (4, 1, 1), np.split(estimate.value, [4, 5]), strict=True
    ):
        base = start[array].numpy()
        assert before == base.size
        assert np.array_equal(
            arrays[array].numpy(), (base + part.reshape(base.shape)).astype(base.dtype)
        )
    assert metrics["sstq-measured-error"] == np.linalg.norm(estimate.stderr)


def test_what_is_not_trained_stays_exactly_as_it_was(grid, seed):
    for inner in (FedAvg, FedAdam, FedYogi):
        used = strategy(inner(**QUIET), frozen=["bias"], mechanism="sstq")
        start = model(np.ones(DIM))
        messages, request = ask(used, grid, start)
        assert request.names == ("matrix", "scale")
        assert request.mechanism.dim == 5
        arrays, _ = used.aggregate_train(
            1, answers(messages, request, np.zeros((12, 5)), seed)
        )
        assert list(arrays) == list(start)
        for name in ("steps", "empty", "bias"):
            assert (arrays[name].dtype, arrays[name].data) == (
                start[name].dtype,
                start[name].data,
            )
        assert arrays["scale"].numpy().shape == ()


def test_each_round_has_a_fresh_frame_and_digest(grid):
    for name in ("frameunit", "sqkr"):
        used = strategy(mechanism=name)
        digests = {
            ask(used, grid, number=number)[1].mechanism.digest() for number in (1, 2, 1)
        }
        assert len(digests) == 3


def test_a_seed_repeats_the_frames_and_none_draws_them(grid):
    digests = [
        ask(strategy(frame_seed=s), grid)[1].mechanism.digest()
        for s in (5, 5, 6, None, None)
    ]
    assert (
        digests[0]
        == digests[1]
        == frameunit(2.0, frame_seed=sstq.mix_seed(5, 1)).digest()
    )
    assert len(set(digests)) == 4


def test_frames_follow_from_the_nodes_of_a_round(grid):
    for nodes, share in ((12, 1.0), (6, 0.5)):
        _, request = ask(
            strategy(FedAvg(fraction_train=share, **QUIET), epsilon=8.0), grid
        )
        assert (
            request.mechanism.frames
            == sstq.FrameUnit(DIM, 8.0, clients=nodes).frames
            > 1
        )


def test_metrics_say_what_arrived_and_what_it_cost(grid, seed):
    used = strategy()
    for number in (1, 2):
        messages, request = ask(used, grid, number=number)
        replies = answers(messages, request, np.zeros((12, DIM)), seed)
        arrays, metrics = used.aggregate_train(number, [*replies[:10], replies[0]])
    assert arrays is not None
    assert (metrics["sstq-replies"], metrics["sstq-bytes"]) == (10, 20)
    assert (
        metrics["sstq-invalid"],
        metrics["sstq-missing"],
        metrics["sstq-refused"],
    ) == (1, 2, 0)
    assert metrics["sstq-epsilon"] == 2.0
    assert (metrics["sstq-epsilon-asked"], metrics["sstq-epsilon-answered"]) == (
        4.0,
        4.0,
    )
    assert metrics["sstq-predicted-error"] == math.sqrt(
        request.mechanism.typical_error(10).total
    )


def test_what_was_asked_and_what_was_answered_are_those_of_the_nodes_with_the_most(
    grid, seed
):
    class Chosen(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            nodes = {1: [2, 3, 4, 5], 2: [5], 3: [2]}[server_round]
            return self._construct_messages(
                RecordDict({"arrays": arrays}), nodes, "train"
            )

    used = strategy(Chosen(**QUIET))
    asked = []
    answered = []
    assert used.privacy_spent() == PrivacySpent(0.0, 0.0, 0, "local-basic-composition")
    for number in (1, 2, 3):
        messages, request = ask(used, grid, number=number)
        refusals = [Message(Error(6, "no"), reply_to=message) for message in messages]
        replies = answers(messages, request, np.zeros((len(messages), DIM)), seed)
        # Nodes 2 and 3 answer, and node 3 nonsense, which has cost it as much. Node 4 refuses, and node 5 is silent.
        if number == 1:
            replies[1].content[RECORD]["message"] = b"nonsense"
            replies = [*replies[:2], refusals[2]]
        _, metrics = used.aggregate_train(number, refusals if number == 2 else replies)
        asked.append(metrics["sstq-epsilon-asked"])
        answered.append(metrics["sstq-epsilon-answered"])
    assert asked == [2.0, 4.0, 4.0]
    assert answered == [2.0, 2.0, 4.0]
    assert used.privacy_spent() == PrivacySpent(4.0, 0.0, 2, "local-basic-composition")


def test_a_model_that_would_overflow_stays_as_it_was(lines, grid, seed):
    class Inner(FedAvg):
        def aggregate_train(self, *_):
            pytest.fail("there is no model to aggregate")

    start = ArrayRecord({"w": Array(np.zeros(DIM, dtype=np.float16))})
    used = strategy(Inner(**QUIET), clip=1e7)
    messages, request = ask(used, grid, start)
    arrays, metrics = used.aggregate_train(
        1, answers(messages, request, np.zeros((12, DIM)), seed)
    )
    assert arrays is start
    assert metrics["sstq-replies"] == 12
    assert lines[1:] == [
        "SstqStrategy: the array 'w' would not be finite as float16 after round 1; the model is unchanged"
    ]


def test_without_a_valid_reply_the_model_and_the_inner_strategy_stay(grid):
    class Inner(FedAvg):
        def aggregate_train(self, *_):
            pytest.fail("there is nothing to aggregate")

    used = strategy(Inner(**QUIET, fraction_train=0.0))
    start = model(UPDATE)
    assert list(used.configure_train(1, start, ConfigRecord(), grid)) == []
    assert used.aggregate_train(1, [])[0] is start
    used = strategy(Inner(**QUIET))
    messages, _ = ask(used, grid, start)
    raw = Message(RecordDict({"arrays": model(np.ones(DIM))}), reply_to=messages[0])
    for replies in ([], [raw]):
        arrays, metrics = used.aggregate_train(1, replies)
        assert arrays is start
        assert metrics["sstq-replies"] == 0
        assert metrics["sstq-invalid"] == len(replies)
        assert math.isnan(metrics["sstq-predicted-error"])
        ask(used, grid, start)


@pytest.mark.parametrize(("arguments", "enough"), [({}, 6), ({"min_replies": 4}, 4)])
def test_a_round_of_too_few_replies_is_not_applied(
    lines, grid, seed, arguments, enough
):
    """By default half of the twelve nodes that were asked."""
    start = model(UPDATE)
    for count in (enough - 1, enough):
        used = strategy(**arguments)
        messages, request = ask(used, grid, start)
        arrays, metrics = used.aggregate_train(
            1, answers(messages[:count], request, np.zeros((count, DIM)), seed)
        )
        assert metrics["sstq-replies"] == count
        assert (arrays is start) == (count < enough)
        assert math.isnan(metrics["sstq-predicted-error"]) == (count < enough)
    few = f"{enough - 1} valid replies in round 1, fewer than min_replies = {enough}; the model is unchanged"
    assert [few in line for line in lines] == [False, True, False]


def test_an_evaluation_in_clear_is_warned_of(lines):
    for inner, warnings in ((FedAvg(**QUIET), 0), (FedAvg(fraction_evaluate=0.1), 1)):
        lines.clear()
        used = strategy(inner)
        used.summary()
        assert len([line for line in lines if "is not private" in line]) == warnings
        assert "frameunit(clip=1.0, epsilon=2.0), unweighted mean" in lines[-1]


def test_evaluation_is_the_inner_strategys():
    grid = LocalGrid(app_with(train_to(UPDATE), **LIMITS), 3)
    used = strategy(FedAvg())
    messages = list(used.configure_evaluate(1, model(), ConfigRecord(), grid))
    assert all(RECORD not in message.content for message in messages)
    assert used.aggregate_evaluate(1, grid.send_and_receive(messages)) == {"loss": 1.0}


class Other(FedAvg):
    """Sends another model than that of the server."""

    def configure_train(self, server_round, arrays, config, grid):
        return super().configure_train(
            server_round, ArrayRecord({"w": Array(np.zeros(2))}), config, grid
        )


def test_wrong_arguments_are_refused(grid):
    with pytest.raises(ValueError, match="dim"):
        strategy(dim=3)
    with pytest.raises(ValueError, match="mechanism must be one of"):
        strategy(mechanism="nonsense")
    with pytest.raises(ValueError, match="frame_seed"):
        strategy(frame_seed=-1)
    with pytest.raises(ValueError, match="sequence of names"):
        strategy(frozen="bias")
    for wrong in ({"epsilon": -1.0}, {"clip": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
            ask(strategy(**wrong), grid)
    with pytest.raises(
        TypeError, match="frameunit takes no option 'bitz'; it takes dim, "
    ):
        ask(strategy(bitz=3), grid)
    for wrong, message in [
        (
            {"min_replies": 13},
            "min_replies must be at most the nodes per round, 12, got 13",
        ),
        (
            {"mechanism": "csgm", "clients": 12},
            "must be locally private, got csgm; choose another, such as frameunit",
        ),
        ({"inner": Other(**QUIET)}, "no array 'matrix'"),
        (
            {"mechanism": "groupunit", "groups": 3},
            "must take vectors and nothing else, .*; use frameunit",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            ask(strategy(**wrong), grid)
    with pytest.raises(ValueError, match="after configure_train"):
        strategy().aggregate_train(1, [])
