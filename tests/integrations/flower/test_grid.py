import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.supercore.run import Run

from sstq.integrations.flower import LocalGrid


def echo():
    app = ClientApp()

    @app.train()
    def train(message, context):
        seen = message.content["arrays"].pop("0").numpy()  # each node has a record of its own to spoil
        context.state["last"] = ArrayRecord([seen + context.node_config["partition-id"]])
        return Message(RecordDict({"arrays": context.state["last"]}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        raise ZeroDivisionError("no data")

    return app


def requests(grid, kind="train"):
    content = RecordDict({"arrays": ArrayRecord([np.ones(2)])})
    return [Message(content, dst_node_id=node, message_type=kind) for node in grid.get_node_ids()]


def values(replies):
    return [float(reply.content["arrays"].to_numpy_ndarrays()[0][0]) for reply in replies]


def test_every_node_answers_for_its_partition():
    grid = LocalGrid(echo(), 3)
    replies = list(grid.send_and_receive(requests(grid)))
    assert values(replies) == [1.0, 2.0, 3.0]
    assert [reply.metadata.src_node_id for reply in replies] == [2, 3, 4] == list(grid.get_node_ids())
    assert {context.node_config["num-partitions"] for context in grid.contexts.values()} == {3}
    assert grid.contexts[4].state["last"].to_numpy_ndarrays()[0][0] == 3.0


def test_replies_are_pulled_once():
    grid = LocalGrid(echo(), 3)
    ids = list(grid.push_messages(requests(grid)))
    assert len(set(ids)) == 3
    assert values(grid.pull_messages(ids[1:])) == [2.0, 3.0]
    assert values(grid.pull_messages(ids)) == [1.0]


def test_an_exception_becomes_an_error_reply():
    grid = LocalGrid(echo(), 2)
    for reply in grid.send_and_receive(requests(grid, "evaluate")):
        assert reply.error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        assert "no data" in reply.error.reason


def test_nodes_drop_out_with_the_given_probability(seed):
    grid = LocalGrid(echo(), 400, dropout=0.25, seed=seed)
    answered = len(list(grid.send_and_receive(requests(grid))))
    # Binomial with deviation 8.7: outside of ±6 deviations with probability 2e-9.
    assert abs(answered - 300) < 52
    again = LocalGrid(echo(), 400, dropout=0.25, seed=seed)
    assert len(list(again.send_and_receive(requests(again)))) == answered
    assert not list(LocalGrid(echo(), 2, dropout=1.0).send_and_receive(requests(grid)[:2]))


def test_the_wire_decides_what_arrives():
    lost = {2}

    def wire(reply):
        return [] if reply.metadata.src_node_id in lost else [reply, reply]

    grid = LocalGrid(echo(), 2, wire=wire)
    assert values(grid.send_and_receive(requests(grid))) == [2.0, 2.0]


def test_configurations_of_nodes_and_run():
    same = LocalGrid(echo(), 2, node_config={"kind": "a"}, run_config={"rate": 0.5}, run_id=7)
    assert [context.node_config["kind"] for context in same.contexts.values()] == ["a", "a"]
    assert same.contexts[2].run_config == {"rate": 0.5}
    own = LocalGrid(echo(), 2, node_config=lambda partition: {"kind": partition * 10})
    assert [context.node_config["kind"] for context in own.contexts.values()] == [0, 10]
    assert (same.run.run_id, own.run.run_id) == (7, 1)
    own.set_run(Run.create_empty(9))
    messages = requests(own)
    own.push_messages(messages)
    assert {message.metadata.run_id for message in messages} == {9}


def test_messages_can_be_made_by_the_grid():
    grid = LocalGrid(echo(), 1)
    message = grid.create_message(RecordDict(), "train", 2, group_id="3")
    assert (message.metadata.dst_node_id, message.metadata.group_id) == (2, "3")


@pytest.mark.parametrize("arguments", [{"nodes": 0}, {"nodes": 2, "dropout": 1.5}])
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"nodes|dropout"):
        LocalGrid(echo(), **arguments)
