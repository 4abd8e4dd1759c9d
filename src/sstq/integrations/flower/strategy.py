"""The server side: a strategy around a strategy, which asks for private messages and passes on their mean."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log

from sstq.accounting.limits import round_up
from sstq.aggregation import Estimate
from sstq.integrations.flower.replies import DROPPED, SortedReplies, sort_replies
from sstq.integrations.flower.vectors import PrivateArrays, private_names, sole_arrays
from sstq.integrations.flower.wire import METRICS, RECORD, Request, delta_of, price
from sstq.messages import Messages
from sstq.rounds import mean_of_round, round_mechanism
from sstq.schemes import Mechanism, mechanism, mechanism_class
from sstq.schemes.base import check_number

__all__ = ["SstqStrategy"]


@dataclass(frozen=True)
class _Round:
    """What was sent to whom."""

    request: Request
    model: ArrayRecord
    arrays: PrivateArrays
    asked: frozenset[int]


class SstqStrategy(Strategy):
    """Wraps a strategy, so that it sees nothing of a round but the private mean of all clients' updates.

    The clients' updates are differences from the model that was sent. Each client with `SstqMod` answers with one
    message; the messages are added up in the frame domain, and the inner strategy gets a single reply: the model that
    was sent plus the mean update, with weight 1. FedAvg then returns that model, and FedAvgM, FedAdam, FedYogi and
    others take their step towards it. The mean is *unweighted*: how many examples a client has is private, so each
    client counts the same.

    Arrays of real numbers make up the private vector, of any shape. Arrays of integers and booleans, empty ones and
    those named in `frozen` are not part of it and keep the server's values.

    Each round has a fresh public frame, where the mechanism has one. Replies that do not count are dropped and counted
    (`sstq.integrations.flower.replies.DROPPED`). A round without a single valid reply leaves model and inner strategy
    as they were, and so does one after which the model would not be finite in its own dtype (float16, say); both are
    logged. Evaluation is the inner strategy's own, and not private.

    Metrics of a round: ``sstq-replies`` and ``sstq-bytes`` (of the messages that counted, without Flower's envelope);
    ``sstq-refused``, ``-unencoded``, ``-malformed``, ``-stale``, ``-foreign``, ``-duplicate`` and ``-missing``;
    ``sstq-predicted-error``, the expected distance (root of the mean square) of the mean update from the true one if
    all clients held the same update of norm `clip`; ``sstq-measured-error``, the same from the scatter of the messages,
    with the bias that frames leave, but not that of a mean that is divided by more clients than answered (CSGM);
    ``sstq-epsilon`` and ``sstq-delta``, what one answer costs a client; and ``sstq-epsilon-total``, what those clients
    have spent that were asked most often. An error that cannot be known, from one reply or none, is nan. Other names
    are metrics that clients share: names and values are the clients' own.

    Args:
        strategy: one that averages arrays. Those that compare clients with each other have only the mean to look at.
        mechanism: its name, one of `sstq.mechanisms`.
        epsilon: ε of one message; None for mechanisms without privacy, which take none.
        clip: updates longer than this are scaled down to it.
        frame_seed: of the frames of all rounds, for a run to be repeated; drawn at random unless given.
        frozen: names of arrays, or patterns such as ``"backbone.*"``, that are not trained.
        arguments: of the mechanism, but for `dim`, which is the model's.

    Examples:
        >>> from flwr.serverapp.strategy import FedAvg
        >>> strategy = SstqStrategy(FedAvg(), epsilon=4.0, clip=0.5)
    """

    def __init__(
        self,
        strategy: Strategy,
        mechanism: str = "frameunit",
        *,
        epsilon: float | None,
        clip: float,
        frame_seed: int | None = None,
        frozen: Sequence[str] = (),
        **arguments: Any,
    ) -> None:
        if "dim" in arguments:
            raise ValueError("dim is the number of the model's private parameters; it cannot be set")
        if isinstance(frozen, str):
            raise ValueError(f"frozen must be a sequence of names, got {frozen!r}")
        self.strategy = strategy
        self.frame_seed = (
            secrets.randbits(64)
            if frame_seed is None
            else check_number("frame_seed", frame_seed, 0, 2**64 - 1, integer=True)
        )
        self._name = mechanism
        mechanism_class(mechanism)  # refuses an unknown name now, not in the first round
        self._arguments = arguments | {"clip": clip} | ({} if epsilon is None else {"epsilon": epsilon})
        self._frozen = tuple(frozen)
        self._mechanism: Mechanism | None = None
        self._rounds = 0
        self._round: _Round | None = None
        self._asked: Counter[int] = Counter()

    def summary(self) -> None:
        """Log what is asked of the clients, and the inner strategy's summary."""
        settings = ", ".join(f"{name}={value}" for name, value in self._arguments.items())
        log(INFO, "\t├──> SstqStrategy: %s(%s), unweighted mean", self._name, settings)
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The inner strategy's requests, each with the mechanism of this round."""
        names = private_names(arrays, self._frozen)
        private = PrivateArrays.of(arrays, names)
        self._rounds += 1
        request = Request(self._mechanism_of_round(private.dim), self._rounds, names)
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        record = request.to_record()
        for message in messages:
            sent = sole_arrays(message.content, "a request of the inner strategy")
            if sent is not arrays and PrivateArrays.of(sent, names) != private:
                raise ValueError("the inner strategy sends other arrays than those of the model")
            message.content[RECORD] = record
        nodes = [message.metadata.dst_node_id for message in messages]
        # Behind a trusted aggregator the noise is made for a number of clients.
        most = getattr(request.mechanism, "clients", len(nodes))
        if len(nodes) > most:
            raise ValueError(f"{self._name} is for clients = {most} a round, but {len(nodes)} nodes were chosen")
        self._asked.update(nodes)
        self._round = _Round(request, arrays, private, frozenset(nodes))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The inner strategy's model after the private mean, and the metrics of the round."""
        if self._round is None:
            raise ValueError("aggregate_train needs the round that configure_train begins")
        this, self._round = self._round, None
        result = sort_replies(replies, this.request, set(this.asked))
        if not result.messages:
            log(WARNING, "SstqStrategy: no valid reply in round %s; the model stays as it was", server_round)
            return this.model, MetricRecord(self._metrics(this.request.mechanism, result, None))
        estimate = _mean(this.request.mechanism, result.messages)
        ours = self._metrics(this.request.mechanism, result, estimate)
        try:
            model = this.arrays.add(this.model, estimate.value)
        except OverflowError as error:
            log(WARNING, "SstqStrategy: %s after round %s; the model stays as it was", error, server_round)
            return this.model, MetricRecord(ours)
        arrays, metrics = self.strategy.aggregate_train(server_round, [self._synthetic_reply(model, result)])
        return _restored(arrays, this), MetricRecord({**(metrics or {}), **ours})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the inner strategy does."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the inner strategy does."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def _mechanism_of_round(self, dim: int) -> Mechanism:
        if self._mechanism is None or self._mechanism.dim != dim:
            self._mechanism = mechanism(self._name, dim=dim, **self._arguments)
        return round_mechanism(self._mechanism, self.frame_seed, self._rounds)

    def _synthetic_reply(self, model: ArrayRecord, result: SortedReplies) -> Message:
        """One reply with the mean, of weight 1, as if a single client had sent it."""
        weight = getattr(self.strategy, "weighted_by_key", "num-examples")
        metrics = MetricRecord({**result.metrics, weight: 1.0})
        content = RecordDict({getattr(self.strategy, "arrayrecord_key", "arrays"): model})
        content[METRICS] = metrics
        return Message(content, dst_node_id=0, message_type=MessageType.TRAIN)

    def _metrics(self, used: Mechanism, result: SortedReplies, estimate: Estimate | None) -> dict[str, Any]:
        count = len(result.messages)
        most = max(self._asked.values(), default=0)
        epsilon = price(used)
        predicted, measured = math.nan, math.nan
        if estimate is not None:
            predicted = _predicted_error(used, count)
            measured = float(np.linalg.norm(estimate.stderr))
        return {
            **result.metrics,
            "sstq-replies": count,
            "sstq-bytes": result.bytes,
            **{f"sstq-{reason}": result.dropped[reason] for reason in DROPPED},
            "sstq-predicted-error": predicted,
            "sstq-measured-error": measured,
            "sstq-epsilon": epsilon,
            "sstq-delta": delta_of(used),
            "sstq-epsilon-total": round_up(most * Fraction(epsilon)) if math.isfinite(epsilon) else epsilon,
        }


def _mean(used: Mechanism, messages: list[Messages]) -> Estimate:
    aggregator = used.aggregator()
    aggregator.update(Messages.concatenate(messages))
    return mean_of_round(aggregator)


def _predicted_error(used: Mechanism, count: int) -> float:
    try:
        error = used.typical_error(count)
    except ValueError:  # this mechanism has no closed form
        return math.nan
    # Behind a trusted aggregator a sum is divided by the clients that its noise was made for, however many answered.
    made_for = getattr(used, "clients", count)
    share = count / made_for
    if share < 1:
        log(WARNING, "SstqStrategy: %s of %s clients count, so their mean is shrunk by as much", count, made_for)
    bias = (1 - share) * used.clip + share * math.sqrt(error.bias2)
    return math.hypot(bias, share * math.sqrt(error.variance))


def _restored(arrays: ArrayRecord | None, this: _Round) -> ArrayRecord | None:
    """The inner strategy's model, with the arrays that are not trained exactly as they were.

    Averaging turns integers into floats even where there is nothing to average.
    """
    if arrays is None:
        return None
    kept = {name: array for name, array in this.model.items() if name not in this.arrays.names}
    return ArrayRecord({**arrays, **kept})
