"""A grid that runs a ClientApp for many nodes in this process, without Ray, servers or a network."""

import copy
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

SERVER = 1


class LocalGrid(Grid):
    """Runs a ClientApp for many nodes, one after the other; their ids are 2, 3, …, as 1 is the server.

    A node keeps its context from message to message. Each gets its own copy of a request's records, and an exception
    of the app becomes an error reply, as on a SuperNode.

    Args:
        client_app: the app that the nodes run.
        nodes: the number of nodes.
        node_config: the configuration of a node as a function of its partition (0, 1, …).
        run_config: the configuration of the run.
        wire: called with every reply; returns what arrives: nothing if it is lost, or the reply twice.
    """

    def __init__(
        self,
        client_app,
        nodes,
        *,
        node_config=lambda partition: {},
        run_config=None,
        wire=lambda reply: [reply],
    ):
        # This process may create messages, as a ServerApp's process may from the start.
        TaskIdentity.run_id = 1
        TaskIdentity.node_id = SERVER
        TaskIdentity.task_id = 0
        self._client_app = client_app
        self._wire = wire
        self._replies = {}
        self.set_run(Run.create_empty(1))
        self.contexts = {
            partition + SERVER + 1: Context(
                1,
                partition + SERVER + 1,
                {
                    "partition-id": partition,
                    "num-partitions": nodes,
                    **node_config(partition),
                },
                RecordDict(),
                dict(run_config or {}),
            )
            for partition in range(nodes)
        }

    run = None  # as the grid of Flower has it, but not abstract

    def set_run(self, run):
        self.run = run

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids):
        """The replies to these messages; each can be pulled once."""
        return [
            reply
            for message_id in message_ids
            for reply in self._replies.pop(message_id, [])
        ]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def _push(self, message):
        message_id = uuid4().hex
        message.metadata.__dict__.update(
            _message_id=message_id, _run_id=self.run.run_id
        )
        reply = self._answer(message)
        reply.metadata.__dict__["_message_id"] = uuid4().hex
        self._replies[message_id] = list(self._wire(reply))
        return message_id

    def _answer(self, message):
        own = copy.copy(message)
        own.content = RecordDict(
            {name: record.copy() for name, record in message.content.items()}
        )
        try:
            return self._client_app(own, self.contexts[message.metadata.dst_node_id])
        except Exception as error:
            reason = f"{type(error)}:<'{error}'>"
            return Message(
                Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message
            )
