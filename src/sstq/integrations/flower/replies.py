"""Sorting the replies of a round: valid messages, and invalid replies by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO

import numpy as np
from flwr.app import Message, MetricRecord, MetricRecordValues
from flwr.supercore import log

from sstq.integrations.flower.wire import METRICS, RECORD, TOO_MUCH, Answer, Request
from sstq.messages.batch import Messages

__all__ = ["DROPPED", "SortedReplies", "sort_replies"]

DROPPED = ("refused", "unencoded", "malformed", "stale", "foreign", "duplicate", "missing")
"""Why a reply does not count: the node refused or failed (an error reply); it holds no private message, or arrays in
clear; what it holds cannot be a message of this round's mechanism; it answers another round; it answers nothing that
its node was asked; its node has answered already; or a node that was asked sent nothing itself (where a node is dead,
Flower's SuperLink sends an error in its place)."""


@dataclass
class SortedReplies:
    """What arrived in a round.

    Attributes:
        messages: the valid messages, one per node, in the order of node ids.
        bytes: the total size of their payloads in bytes.
        dropped: the number of invalid replies, by reason.
        metrics: the unweighted means of shared metrics, over the nodes that share finite numbers.
        answered: how many requests each node answered, whether or not the answer counts: each has cost it ε.
        unable: the nodes that refused because they cannot spend this ε.
    """

    messages: list[Messages] = field(default_factory=list)
    bytes: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    metrics: dict[str, MetricRecordValues] = field(default_factory=dict)
    answered: Counter[int] = field(default_factory=Counter)
    unable: set[int] = field(default_factory=set)


class _Dropped(Exception):  # noqa: N818 (a verdict, not an error)
    """A reply is invalid; the argument says why."""


def sort_replies(replies: Iterable[Message], request: Request, asked: Mapping[str, int]) -> SortedReplies:
    """Collect one private message from each node that was asked, and count the rest.

    Args:
        replies: the replies in any order.
        request: the request.
        asked: the node that each message was sent to, by the message's id. A reply names the message that it answers.
    """
    result = SortedReplies()
    taken: dict[int, tuple[Messages, MetricRecord | None]] = {}
    silent, answered = set(asked), dict[str, int]()
    errors: Counter[tuple[str, str]] = Counter()
    for reply in replies:
        message_id = reply.metadata.reply_to_message_id
        addressee = asked.get(message_id)
        node = addressee if addressee == reply.metadata.src_node_id else None
        if node is not None:
            silent.discard(message_id)
        try:
            if reply.has_error():
                reason = reply.error.reason or "no reason given"
                kind = "foreign" if addressee is None else "missing" if node is None else "refused"
                errors[kind, reason] += 1
                if node is not None and reason.removeprefix("SstqMod: ").startswith(TOO_MUCH):
                    result.unable.add(node)
                raise _Dropped(kind)
            if node is not None:
                answered[message_id] = node
            answer, metrics = _answer(reply, request)
            if node is None:
                raise _Dropped("foreign")
            messages = _messages(answer, request, node)
            if node in taken:
                raise _Dropped("duplicate")
        except _Dropped as verdict:
            result.dropped[str(verdict)] += 1
        else:
            taken[node] = messages, metrics
    for (kind, reason), times in errors.most_common(5):
        log(INFO, "\t> SstqStrategy: %s %s: %s", times, kind, reason)
    # Whatever the order of arrival, the same replies give the same bits.
    result.messages = [taken[node][0] for node in sorted(taken)]
    result.bytes = len(result.messages) * -(-request.mechanism.bundle_bits // 8)
    result.dropped["missing"] = len(silent)
    result.metrics = _mean_metrics([record for _, (_, record) in sorted(taken.items()) if record is not None])
    result.answered = Counter(answered.values())
    return result


def _answer(reply: Message, request: Request) -> tuple[Answer, MetricRecord | None]:
    content = reply.content
    record = content.config_records.get(RECORD)
    if record is None or content.array_records or not set(content) <= {RECORD, METRICS}:
        raise _Dropped("unencoded")
    try:
        answer = Answer.from_record(record)
    except ValueError as error:
        raise _Dropped("malformed") from error
    if answer.number != request.number:
        raise _Dropped("stale")
    return answer, content.metric_records.get(METRICS)


def _messages(answer: Answer, request: Request, node: int) -> Messages:
    if answer.digest != request.mechanism.digest():
        raise _Dropped("malformed")
    try:
        return request.mechanism.messages_from_bytes(
            answer.payload, request.mechanism.messages, clients=request.clients(node)
        )
    except ValueError as error:
        raise _Dropped("malformed") from error


def _mean_metrics(records: list[MetricRecord]) -> dict[str, MetricRecordValues]:
    """Return the mean of each metric over the nodes that share finite numbers, without those of another shape.

    Names and values are the clients' own, so nothing that they send may stop the server.
    """
    means: dict[str, MetricRecordValues] = {}
    for key in sorted({key for record in records for key in record}):
        values = [np.asarray(record[key], dtype=np.float64) for record in records if key in record]
        values = [value for value in values if value.size and np.isfinite(value).all()]
        if len({value.shape for value in values}) == 1:
            with np.errstate(over="ignore", invalid="ignore"):
                mean = np.mean(values, axis=0)
            if np.isfinite(mean).all():
                means[key] = mean.tolist() if mean.ndim else float(mean)
    return means
