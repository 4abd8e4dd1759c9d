"""A local grid: runs a ClientApp for many nodes in this process, without Ray, servers or a network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from logging import ERROR
from uuid import uuid4

import numpy as np
from flwr.app import Context, Error, Message, RecordDict, UserConfigValue
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore import log
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from sstq.checks import check_number

__all__ = ["LocalGrid"]

NodeConfig = Mapping[str, UserConfigValue]

_SERVER = 1


class LocalGrid(Grid):
    """Runs a ClientApp for many nodes, one after the other, in this process.

    It is for tests and simulations with more clients than a network of processes can handle. A node keeps its context,
    and with it its state, from message to message. Each gets its own copy of a request's records, and an exception of
    the app becomes an error reply, as on a SuperNode. The privacy is the real one: the mod draws from the operating
    system and keeps one ledger per node.

    Args:
        client_app: the app that the nodes run.
        nodes: the number of nodes. Their ids are 2, 3, …; 1 is the server, as in Flower.
        node_config: the configuration of every node, or a function of the partition (0, 1, …). "partition-id" and
            "num-partitions" are set as in Flower's simulations.
        run_config: the configuration of the run, which a client app reads from its context.
        dropout: the probability that a node does not answer a message at all.
        wire: called with every reply, for tests; returns what arrives: nothing if it is lost, the reply
            twice if it is duplicated, or something else.
        seed: the seed of the drop-outs.
        run_id: the number of the run.

    Examples:
        >>> import numpy as np
        >>> from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
        >>> from flwr.serverapp.strategy import FedAvg
        >>> app = ClientApp()
        >>> @app.train()
        ... def train(message, context):
        ...     arrays = ArrayRecord([np.full(2, float(context.node_config["partition-id"]))])
        ...     content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
        ...     return Message(content, reply_to=message)
        >>> grid = LocalGrid(app, nodes=5)
        >>> strategy = FedAvg(fraction_evaluate=0.0)
        >>> result = strategy.start(grid, ArrayRecord([np.zeros(2)]), num_rounds=1)
        >>> result.arrays.to_numpy_ndarrays()
        [array([2., 2.])]
    """

    def __init__(
        self,
        client_app: ClientApp,
        nodes: int,
        *,
        node_config: NodeConfig | Callable[[int], NodeConfig] | None = None,
        run_config: NodeConfig | None = None,
        dropout: float = 0.0,
        wire: Callable[[Message], Iterable[Message]] | None = None,
        seed: int | None = None,
        run_id: int = 1,
    ) -> None:
        nodes = check_number("nodes", nodes, 1, 10**9, integer=True)
        self._dropout = check_number("dropout", dropout, 0.0, 1.0)
        self._client_app = client_app
        self._wire = wire
        self._random = np.random.default_rng(seed)
        self._run = Run.create_empty(run_id)
        self._contexts: dict[int, Context] = {}
        for partition in range(nodes):
            own = node_config(partition) if callable(node_config) else node_config or {}
            config = {"partition-id": partition, "num-partitions": nodes, **own}
            node = partition + _SERVER + 1
            self._contexts[node] = Context(run_id, node, config, RecordDict(), dict(run_config or {}))
        self._replies: dict[str, list[Message]] = {}
        _identify()

    @property
    def contexts(self) -> Mapping[int, Context]:
        """The context of each node by its number: its configuration, and its state so far."""
        return self._contexts

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message; Flower itself prefers the constructor of Message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Run the app for each message, and keep the replies until they are pulled."""
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to these messages that have arrived; each can be pulled once."""
        return [reply for message_id in message_ids for reply in self._replies.pop(message_id, [])]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:  # noqa: ARG002
        """Push the messages and pull their replies without waiting: replies that have not arrived are lost."""
        return self.pull_messages(self.push_messages(messages))

    def _push(self, message: Message) -> str:
        message_id = uuid4().hex
        message.metadata.__dict__.update(_message_id=message_id, _run_id=self._run.run_id)
        if self._random.random() < self._dropout:
            return message_id
        reply = self._answer(message)
        reply.metadata.__dict__["_message_id"] = uuid4().hex
        self._replies[message_id] = [reply] if self._wire is None else list(self._wire(reply))
        return message_id

    def _answer(self, message: Message) -> Message:
        # The requests of a strategy share their records, which a wire would have copied.
        own = copy.copy(message)
        own.content = RecordDict({name: record.copy() for name, record in message.content.items()})
        try:
            return self._client_app(own, self._contexts[message.metadata.dst_node_id])
        except Exception as error:
            log(ERROR, "the ClientApp of node %s raised an exception", message.metadata.dst_node_id, exc_info=error)
            reason = f"{type(error)}:<'{error}'>"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def _identify() -> None:
    """Allow this process to create messages, as a ServerApp's process may from the start."""
    try:
        _ = TaskIdentity.run_id
    except RuntimeError:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, _SERVER, 0
