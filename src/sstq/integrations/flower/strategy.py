"""The server's strategy, which wraps another one: it asks for private messages and passes on their mean."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from logging import INFO, WARNING
from math import nan, sqrt
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    Metadata,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid, PrivacySpent
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log

from sstq.accounting import price
from sstq.accounting.bounds import Participation
from sstq.aggregation import Estimate
from sstq.checks import check_argument, check_number
from sstq.exactness import round_up
from sstq.integrations.flower.turns import CohortGrid, ServerState, Turns
from sstq.integrations.flower.vectors import PrivateArrays, private_names, sole_arrays
from sstq.integrations.flower.wire import (
    RECORD,
    MessageRequest,
    SortedReplies,
    check_usable,
    sort_replies,
)
from sstq.mechanisms import Mechanism, mechanism, mechanism_class
from sstq.mechanisms.registry import options_of
from sstq.messages.batch import Messages
from sstq.randomness.streams import mix_seed


@dataclass(frozen=True)
class _Round:
    """The messages sent in a round. The grid writes their ids into the metadata when it sends them."""

    request: MessageRequest
    model: ArrayRecord
    arrays: PrivateArrays
    sent: tuple[Metadata, ...]


class SstqStrategy(Strategy):
    """Wrap a strategy so that it sees nothing but the private mean of all clients' updates.

    The clients' updates are differences from the model that was sent. Each client with `SstqMod` answers with one
    message; the messages are added up in the frame domain, and the inner strategy gets a single reply: the model that
    was sent plus the mean update, with weight 1. FedAvg then returns that model, and FedAvgM, FedAdam, FedYogi and
    others take their step towards it. The mean is *unweighted*: how many examples a client has is private, so each
    client counts the same.

    Arrays of real numbers make up the private vector, of any shape. Arrays of integers and booleans, empty ones and
    those named in `frozen` are not part of it and keep the server's values.

    Each round has a fresh public frame, if the mechanism has one. Invalid replies are dropped and counted. A round with
    fewer valid replies than `min_replies` leaves model and inner strategy as they were, and so does one after which the
    model would not be finite in its own dtype (float16, say); both are logged. Evaluation is the inner strategy's own,
    and not private: a warning at the start says so.

    With `participation` nodes take turns in cohorts, and none is asked more often than that; so ε times `participation`
    is the total of a person. The inner strategy samples among the cohort of the round (all of it with
    ``fraction_train=1.0``). When too few nodes are left, nothing more is asked: the rounds that remain pass without a
    message, so that `start` returns the model as it is.

    Metrics of a round: ``sstq-replies`` and ``sstq-bytes`` (of the messages that counted, without Flower's envelope);
    ``sstq-refused``, ``sstq-invalid`` and ``sstq-missing``; ``sstq-predicted-error``, the expected distance (root of
    the mean square) of the mean update from the true one if all clients held the same update of norm `clip`, and
    ``sstq-measured-error``, the same from the scatter of the messages, both nan if they cannot be known;
    ``sstq-epsilon``, of one answer; ``sstq-epsilon-answered`` and ``sstq-epsilon-asked``, over all rounds so far, of
    the client that answered or was asked most often. What a client has spent, in its ledger, is between the two.

    Args:
        strategy: a strategy that averages arrays. Strategies that compare clients see only the mean.
        mechanism: the name of a locally private mechanism for vectors.
        epsilon: the ε of one answer.
        clip: updates longer than this are scaled down to it; `sstq clip` finds one.
        frame_seed: the seed of the frames of all rounds, to repeat a run; by default drawn at random.
        frozen: names of arrays, or patterns such as ``"backbone.*"``, that are not trained. Clients may leave them out
            of what they return.
        min_replies: with fewer valid replies a round is not applied, because the noise would spoil the model;
            by default half of the nodes that were asked.
        participation: how often each node is asked, "once" or a number; by default as the inner strategy samples.
        cohort: the number of nodes per round; required with `participation`.
        state: a file that remembers who was asked, the number of rounds and the seed, written before messages leave. A
            restarted server continues with it; the app must save the model itself.
        arguments: further arguments of the mechanism, except `dim`, which is the model's.

    Examples:
        >>> from flwr.serverapp.strategy import FedAvg
        >>> strategy = SstqStrategy(FedAvg(), epsilon=4.0, clip=0.5)
    """

    def __init__(
        self,
        strategy: Strategy,
        mechanism: str = "frameunit",
        *,
        epsilon: float,
        clip: float,
        frame_seed: int | None = None,
        frozen: Sequence[str] = (),
        min_replies: int | None = None,
        participation: Participation | None = None,
        cohort: int | None = None,
        state: str | Path | None = None,
        **arguments: Any,
    ) -> None:
        if "dim" in arguments:
            raise ValueError(
                "dim must be left out: it is the number of the model's private parameters"
            )
        if isinstance(frozen, str):
            raise ValueError(f"frozen must be a sequence of names, got {frozen!r}")
        self.strategy = strategy
        if participation is None and cohort is not None:
            raise ValueError(
                f"participation must be given with cohort, got cohort = {cohort}"
            )
        self._turns = (
            None if participation is None else Turns(participation, cohort, strategy)
        )
        seed = None if frame_seed is None else check_argument("frame_seed", frame_seed)
        path = None if state is None else Path(state)
        self._state = ServerState.open(path, seed, secrets.randbits(64))
        self._name = mechanism
        # refuses an unknown name now, not in the first round
        mechanism_class(mechanism)
        self._arguments = arguments | {
            "clip": check_argument("clip", clip),
            "epsilon": epsilon,
        }
        self._frozen = tuple(frozen)
        if min_replies is not None:
            check_number("min_replies", min_replies, 1, 10**9, integer=True)
        self._min_replies = min_replies
        self._mechanism: Mechanism | None = None
        self._round: _Round | None = None
        self._halted = False

    @property
    def frame_seed(self) -> int:
        """The seed of the frames and cohorts of all rounds."""
        return self._state.frame_seed

    def privacy_spent(self) -> PrivacySpent:
        """Return what the client with the most received answers has spent; lost answers are only in its ledger.

        Examples:
            >>> from flwr.serverapp.strategy import FedAvg
            >>> SstqStrategy(FedAvg(), epsilon=4.0, clip=0.5).privacy_spent().epsilon
            0.0
        """
        answers = max(self._state.answered.values(), default=0)
        return PrivacySpent(
            self._epsilon(self._state.answered), 0.0, answers, "local-basic-composition"
        )

    def summary(self) -> None:
        """Log the request to the clients, a warning if they also evaluate, and the inner strategy's summary."""
        if getattr(self.strategy, "fraction_evaluate", 0.0) > 0:
            remedy = "pass fraction_evaluate=0.0 to the inner strategy"
            log(
                WARNING,
                "SstqStrategy: what clients return from evaluations is not private; %s to prevent it",
                remedy,
            )
        settings = ", ".join(
            f"{name}={value}" for name, value in self._arguments.items()
        )
        log(INFO, "\t├──> SstqStrategy: %s(%s), unweighted mean", self._name, settings)
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the inner strategy's requests, each with this round's mechanism; none if too few nodes are left."""
        over = self._turns is not None and self._turns.are_over(
            grid.get_node_ids(), self._state
        )
        if over and not self._halted:
            log(
                WARNING,
                "SstqStrategy: too few nodes are left that have not been asked: no more requests are sent",
            )
        self._halted = over
        if over:
            return []
        names = private_names(arrays, self._frozen)
        private = PrivateArrays.of(arrays, names)
        self._state.rounds += 1
        if self._turns is not None:
            grid = cast(Grid, CohortGrid(grid, self._turns, self._state))
        messages = list(
            self.strategy.configure_train(server_round, arrays, config, grid)
        )
        used = self._mechanism_of_round(private.dim, len(messages))
        request = MessageRequest(used, self._state.rounds, names)
        record = request.to_record()
        for message in messages:
            sent = sole_arrays(message.content, "a request of the inner strategy")
            if sent is not arrays and PrivateArrays.of(sent, names) != private:
                raise ValueError(
                    "the inner strategy must send the arrays of the model, got others"
                )
            message.content[RECORD] = record
        asked = [message.metadata.dst_node_id for message in messages]
        if 0 < len(asked) < self._needed(len(asked)):
            raise ValueError(
                f"min_replies must be at most the nodes per round, {len(asked)}, got {self._min_replies}"
            )
        if asked and not self._state.asked:
            error = sqrt(used.typical_error(len(asked)).total) / used.clip
            log(
                INFO,
                "SstqStrategy: %s",
                f"n = {len(asked):,}, d = {used.dim:,}: error {error:.2g} × clip",
            )
        self._state.asked.update(asked)
        self._state.save()
        self._round = _Round(
            request, arrays, private, tuple(message.metadata for message in messages)
        )
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the inner strategy's model after the private mean, and the metrics of the round."""
        if self._halted:
            return None, None
        if self._round is None:
            raise ValueError("aggregate_train must be called after configure_train")
        this = self._round
        self._round = None
        result = sort_replies(
            replies,
            this.request,
            {sent.message_id: sent.dst_node_id for sent in this.sent},
        )
        self._state.answered += result.answered
        count = len(result.messages)
        needed = self._needed(len(this.sent))
        self._state.save()
        if count < needed:
            few = f"{count} valid replies in round {server_round}, fewer than min_replies = {needed}"
            log(WARNING, "SstqStrategy: %s; the model is unchanged", few)
            return this.model, MetricRecord(
                self._metrics(this.request.mechanism, result, None)
            )
        estimate = (
            this.request.mechanism.aggregator()
            .update(Messages.concatenate(result.messages))
            .mean()
        )
        ours = self._metrics(this.request.mechanism, result, estimate)
        try:
            model = this.arrays.add(this.model, estimate.value)
        except OverflowError as error:
            log(
                WARNING,
                "SstqStrategy: %s after round %s; the model is unchanged",
                error,
                server_round,
            )
            return this.model, MetricRecord(ours)
        arrays, metrics = self.strategy.aggregate_train(
            server_round, [self._synthetic_reply(model)]
        )
        return _restored(arrays, this), MetricRecord({**(metrics or {}), **ours})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Do as the inner strategy does, except in rounds without requests."""
        return (
            []
            if self._halted
            else self.strategy.configure_evaluate(server_round, arrays, config, grid)
        )

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Do as the inner strategy does."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def _needed(self, asked: int) -> int:
        """The valid replies that a round takes."""
        return (
            max(1, (asked + 1) // 2) if self._min_replies is None else self._min_replies
        )

    def _epsilon(self, messages: Counter[int]) -> float:
        """The ε of the messages to or from each node, for the node with the most."""
        if self._mechanism is None or not messages:
            return 0.0
        return round_up(max(messages.values()) * Fraction(price(self._mechanism)))

    def _mechanism_of_round(self, dim: int, nodes: int) -> Mechanism:
        arguments = dict(self._arguments)
        if "clients" in options_of(self._name) and not {"clients", "frames"} & set(
            arguments
        ):
            # As many frames as keep their bias below the noise of one round.
            arguments["clients"] = max(nodes, 1)
        used = check_usable(mechanism(self._name, dim=dim, **arguments))
        # A new seed for its frame, so that its bias averages out over rounds.
        self._mechanism = used.with_seed(mix_seed(self.frame_seed, self._state.rounds))
        return self._mechanism

    def _synthetic_reply(self, model: ArrayRecord) -> Message:
        """Return one reply with the mean, of weight 1, as if a single client had sent it."""
        weight = getattr(self.strategy, "weighted_by_key", "num-examples")
        content = RecordDict(
            {getattr(self.strategy, "arrayrecord_key", "arrays"): model}
        )
        content["metrics"] = MetricRecord({weight: 1.0})
        return Message(content, dst_node_id=0, message_type=MessageType.TRAIN)

    def _metrics(
        self, used: Mechanism, result: SortedReplies, estimate: Estimate | None
    ) -> dict[str, Any]:
        count = len(result.messages)
        return {
            "sstq-replies": count,
            "sstq-bytes": count * -(-used.messages * used.message_bits // 8),
            "sstq-refused": result.refused,
            "sstq-invalid": result.invalid,
            "sstq-missing": result.missing,
            "sstq-predicted-error": nan
            if estimate is None
            else sqrt(used.typical_error(count).total),
            "sstq-measured-error": nan
            if estimate is None
            else float(np.linalg.norm(estimate.stderr)),
            "sstq-epsilon": price(used),
            "sstq-epsilon-asked": self._epsilon(self._state.asked),
            "sstq-epsilon-answered": self._epsilon(self._state.answered),
        }


def _restored(arrays: ArrayRecord | None, this: _Round) -> ArrayRecord | None:
    """Return the inner strategy's model, with the arrays that are not trained unchanged.

    Averaging turns integers into floats even where there is nothing to average.
    """
    if arrays is None:
        return None
    kept = {
        name: array
        for name, array in this.model.items()
        if name not in this.arrays.names
    }
    return ArrayRecord({**arrays, **kept})
