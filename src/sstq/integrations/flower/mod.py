"""The client's mod: nothing but one private message of the update leaves the node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from logging import ERROR, INFO, WARNING
from pathlib import Path

import numpy as np
from flwr.app import Context, Error, Message, MessageType, MetricRecord, MetricRecordValues, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.supercore import log
from numpy.typing import NDArray

from sstq.integrations.flower.budget import Limits, NodeBudget, size_limits
from sstq.integrations.flower.vectors import PrivateArrays, sole_arrays
from sstq.integrations.flower.wire import METRICS, RECORD, Answer, Request
from sstq.mechanisms import Mechanism

__all__ = ["SstqMod"]

_WARNED = "sstq-warned"  # the record in the node's state that says that a warning was logged


class SstqMod:
    """Encode the update of a training function as one private message, within the node's budget.

    Put it first in the list of mods of ``@app.train``, so that it is the last to touch what leaves. It does, in order:

    1. Before the training: the request is read, its mechanism is rebuilt from its integers, and mechanism, shapes and
       budget are checked. Invalid requests are refused with an error reply, for reasons that do not depend on data.
    2. The training function runs. If it fails (SystemExit included), or its update is not finite, the update is the
       zero vector, because a different kind of reply would leak; only the node's own log says so.
    3. The reply must hold the arrays that the server asks for, in their shapes. It may leave out others that were sent
       (such as a frozen backbone) and add none. Anything else is refused, always in the same words. This is
       visible, so the form of a reply must not depend on data (such as a head with one class per label of the node).
    4. ε is charged to the ledger, on the disk. This can still refuse, if others have spent the rest meanwhile. Then the
       update is encoded with the operating system's randomness. A node that crashes in between has spent. A request
       that was charged is never answered again.
    5. A new reply holds the message's bytes, the mechanism's digest and the round's number. Metrics, sample counts
       and arrays stay, except for metrics that are shared by name, without privacy.

    Messages that are not for training pass unchanged: their replies are not private, and the log warns about it. The
    node's configuration (``--node-config``) takes precedence over the app's arguments here: see
    `sstq.integrations.flower.budget.NodeBudget`.

    Args:
        max_epsilon: the maximum ε of one answer.
        total_epsilon: the maximum total ε of a node's answers: of two answers with the same ε it refuses the second, if
            this is less than both.
        ledger: the folder of the ledgers, one file per node. An app's folder is that app's budget: another app,
            or this one with another folder, starts again. A relative folder is resolved against the current folder.
        share_metrics: names of the training metrics to send as they are, without any privacy. A failed
            training has none, and their absence is visible.

    Examples:
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp()
        >>> @app.train(mods=[SstqMod(max_epsilon=4.0, total_epsilon=40.0, ledger="~/ledgers")])
        ... def train(message, context):
        ...     ...
    """

    def __init__(
        self,
        *,
        max_epsilon: float | None = None,
        total_epsilon: float | None = None,
        ledger: str | Path | None = None,
        share_metrics: Sequence[str] = (),
    ) -> None:
        self._limits = Limits(max_epsilon, total_epsilon, ledger)
        if isinstance(share_metrics, str):
            raise ValueError(f"share_metrics must be a sequence of names, got {share_metrics!r}")
        self._share_metrics = tuple(share_metrics)

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a request for training; other messages are passed to the next mod."""
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            _warn_of_clear_replies(context)
            return call_next(message, context)
        try:
            request = Request.from_content(message.content, **size_limits(context.node_config))
            model = sole_arrays(message.content, "the request")
            arrays = PrivateArrays.of(model, request.names)
            if arrays.dim != request.mechanism.dim:
                raise ValueError(
                    f"the mechanism must have dim = {arrays.dim}, as the arrays have, got {request.mechanism.dim}"
                )
            # Copies, since the training may change what it is given.
            sent = _Sent(frozenset(model), arrays, arrays.flatten(model))
            clients = request.clients(message.metadata.dst_node_id)
            budget = NodeBudget(self._limits, context.node_config, context.node_id, context.run_config)
            round_id = _round_id(message, request)
            budget.permit(request.mechanism, round_id)
        except ValueError as error:
            return _refuse(message, error)
        if request.evaluates:
            _warn_of_clear_replies(context)

        try:
            update, shared = _train(message, context, call_next, sent, self._share_metrics)
            budget.charge(request.mechanism, round_id)
            payload = _encode(request.mechanism, update, clients)
        except ValueError as error:
            return _refuse(message, error)
        answer = Answer(payload, request.mechanism.digest(), request.number)
        content = RecordDict({RECORD: answer.to_record()})
        if shared:
            content[METRICS] = MetricRecord(shared)
        return Message(content, reply_to=message)


@dataclass(frozen=True)
class _Sent:
    """The model that the server sent: its keys, its private arrays, and their numbers."""

    keys: frozenset[str]
    arrays: PrivateArrays
    vector: NDArray[np.float64]


class _OtherFormError(ValueError):
    """The training's reply does not fit the model; the text leaves the node, so it does not describe the reply."""

    def __init__(self) -> None:
        super().__init__("the training's reply does not fit the model that was sent")


def _round_id(message: Message, request: Request) -> str:
    """The name of the request in the ledger; a repeated request has the same name, and is answered once."""
    return f"run {message.metadata.run_id} round {request.number} message {message.metadata.message_id}"


def _train(
    message: Message, context: Context, call_next: ClientAppCallable, sent: _Sent, share_metrics: Sequence[str]
) -> tuple[NDArray[np.float64], dict[str, MetricRecordValues]]:
    """Return the update of the training and its shared metrics; zeros and nothing if it failed.

    Why it failed may depend on data, so the server is not told.
    """
    try:
        reply = call_next(message, context)
        if not reply.has_error():
            return _update(reply, sent), _shared(reply, share_metrics)
        log(ERROR, "SstqMod: the training failed (%s); a zero update is sent in its place", reply.error.reason)
    except _OtherFormError:
        raise
    except (Exception, SystemExit) as error:
        log(ERROR, "SstqMod: the training failed; a zero update is sent in its place", exc_info=error)
    return np.zeros_like(sent.vector), {}


def _update(reply: Message, sent: _Sent) -> NDArray[np.float64]:
    """Return the model of the reply minus the model of the request, or zeros if that is not finite."""
    try:
        model = sole_arrays(reply.content, "the training's reply")
        if new := set(model) - sent.keys:
            raise ValueError(f"the training must return only arrays that it was given; new: {', '.join(sorted(new))}")
        after = sent.arrays.flatten(model)
    except ValueError as error:
        log(ERROR, "SstqMod: %s", error)
        raise _OtherFormError from error
    with np.errstate(over="ignore", invalid="ignore"):
        update = after - sent.vector
    if np.isfinite(update).all():
        return update
    log(WARNING, "SstqMod: the update is not finite; a zero update is sent in its place")
    return np.zeros_like(update)


def _encode(mechanism: Mechanism, update: NDArray[np.float64], clients: list[int] | None) -> bytes:
    """Return the message's bytes; those of a zero update if this one cannot be encoded, which should not happen."""
    for vector in (update, np.zeros_like(update)):
        try:
            return mechanism.encode(vector, clients=clients).to_bytes()
        except Exception as error:
            log(ERROR, "SstqMod: the update cannot be encoded; a zero update is sent in its place", exc_info=error)
    raise ValueError("the update cannot be encoded; the node's operator can find the reason in the log")


def _shared(reply: Message, names: Sequence[str]) -> dict[str, MetricRecordValues]:
    metrics = {key: value for record in reply.content.metric_records.values() for key, value in record.items()}
    return {name: metrics[name] for name in names if name in metrics}


def _warn_of_clear_replies(context: Context) -> None:
    """Warn once per run that more than private messages leaves the node."""
    if _WARNED not in context.state:
        context.state[_WARNED] = MetricRecord()
        log(
            WARNING,
            "SstqMod: this run also asks for evaluations or queries. Their replies (loss, accuracy, numbers of "
            "examples) leave this node without privacy; an app without @app.evaluate and @app.query sends none",
        )


def _refuse(message: Message, error: ValueError) -> Message:
    log(INFO, "SstqMod: refused: %s", error)
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, f"SstqMod: {error}"), reply_to=message)
