"""The client's mod: nothing but one private message of the update leaves the node."""

from __future__ import annotations

from logging import ERROR, INFO, WARNING
from pathlib import Path

import numpy as np
from flwr.app import Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.supercore import log

from sstq.array_types import Floats
from sstq.integrations.flower.budget import Limits, NodeBudget
from sstq.integrations.flower.vectors import PrivateArrays, sole_arrays
from sstq.integrations.flower.wire import RECORD, MessageRequest
from sstq.mechanisms.answers import answer

# the record in the node's state that says that a warning was logged
_WARNED = "sstq-warned"


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
       and arrays stay on the node.

    Messages that are not for training pass unchanged: their replies are not private, and the log warns about it. The
    node's configuration (``--node-config``) takes precedence over the app's arguments here: see
    `sstq.integrations.flower.budget.NodeBudget`.

    Args:
        max_epsilon: the maximum ε of one answer.
        total_epsilon: the maximum total ε of a node's answers: of two answers with the same ε it refuses the second, if
            this is less than both.
        ledger: the folder of the ledgers, one file per node. An app's folder is that app's budget: another app,
            or this one with another folder, starts again. A relative folder is resolved against the current folder.

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
    ) -> None:
        self._limits = Limits(max_epsilon, total_epsilon, ledger)

    def __call__(
        self, message: Message, context: Context, call_next: ClientAppCallable
    ) -> Message:
        """Answer a request for training; other messages are passed to the next mod."""
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            _warn_of_clear_replies(context)
            return call_next(message, context)
        try:
            request = MessageRequest.from_content(message.content)
            model = sole_arrays(message.content, "the request")
            arrays = PrivateArrays.of(model, request.names)
            if arrays.dim != request.mechanism.dim:
                raise ValueError(
                    f"the mechanism must have dim = {arrays.dim}, as the arrays have, got {request.mechanism.dim}"
                )
            # Copies, since the training may change what it is given.
            names = frozenset(model)
            before = arrays.flatten(model)
            budget = NodeBudget(
                self._limits, context.node_config, context.node_id, context.run_config
            )
            # A repeated request has the same name, and is answered once.
            round_id = f"run {message.metadata.run_id} round {request.number} message {message.metadata.message_id}"
            budget.permit(request.mechanism, round_id)
            reply = _train(message, context, call_next)
            update = (
                np.zeros_like(before)
                if reply is None
                else _update(reply, names, arrays, before)
            )
            budget.charge(request.mechanism, round_id)
        except ValueError as error:
            log(INFO, "SstqMod: refused: %s", error)
            return Message(
                Error(ErrorCode.MOD_FAILED_PRECONDITION, f"SstqMod: {error}"),
                reply_to=message,
            )
        # What is not finite is sent as zeros.
        payload = answer(request.mechanism, update).to_bytes()
        return Message(RecordDict({RECORD: request.answer(payload)}), reply_to=message)


def _train(
    message: Message, context: Context, call_next: ClientAppCallable
) -> Message | None:
    """Return the training's reply, or None if it failed: why may depend on data, so the server is not told."""
    try:
        reply = call_next(message, context)
        if not reply.has_error() and reply.has_content():
            return reply
        log(
            ERROR,
            "SstqMod: the training failed (%s); a zero update is sent in its place",
            reply.error.reason,
        )
    except (Exception, SystemExit) as error:
        log(
            ERROR,
            "SstqMod: the training failed; a zero update is sent in its place",
            exc_info=error,
        )
    return None


def _update(
    reply: Message,
    names: frozenset[str],
    arrays: PrivateArrays,
    before: Floats,
) -> Floats:
    """Return the change of the vector; ValueError if the reply does not fit, in words that may leave the node."""
    try:
        model = sole_arrays(reply.content, "the training's reply")
        if new := set(model) - names:
            raise ValueError(
                f"the training must return only arrays that it was given; new: {', '.join(sorted(new))}"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            return arrays.flatten(model) - before
    except ValueError as error:
        log(ERROR, "SstqMod: %s", error)
        raise ValueError(
            "the training's reply does not fit the model that was sent"
        ) from error


def _warn_of_clear_replies(context: Context) -> None:
    """Warn once per run that more than private messages leaves the node."""
    if _WARNED not in context.state:
        context.state[_WARNED] = MetricRecord()
        log(
            WARNING,
            "SstqMod: replies to evaluations and queries (loss, accuracy, …) leave this node without privacy",
        )
