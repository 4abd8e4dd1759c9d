"""The strategy with a witness: what came over the wire, written down before anybody has decoded it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord

from sstq.integrations.flower import SstqStrategy


class WatchedStrategy(SstqStrategy):
    """`SstqStrategy`, which has all one needs for training, and a list of what was received, for the sceptical.

    Attributes:
        received: for each reply of each round its node, and either the error with which the node refused, or the sizes
            in bytes of all that the reply holds, by kind of record.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.received: list[dict[str, Any]] = []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Note what has come, then go on as usual."""
        replies = list(replies)
        self.received += [
            {"round": server_round, **_described(reply)} for reply in replies
        ]
        return super().aggregate_train(server_round, replies)


def _described(reply: Message) -> dict[str, Any]:
    node = str(reply.metadata.src_node_id)
    if reply.has_error():
        return {"node": node, "error": reply.error.reason}
    content = reply.content
    return {
        "node": node,
        "arrays": sum(
            record.count_bytes() for record in content.array_records.values()
        ),
        "metrics": sum(
            record.count_bytes() for record in content.metric_records.values()
        ),
        "config": sum(
            record.count_bytes() for record in content.config_records.values()
        ),
    }
