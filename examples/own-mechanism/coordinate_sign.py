"""A mechanism of one's own: the sign of one random coordinate, through randomized response.

A client draws a coordinate i, rounds x_i/clip at random and without bias to ±1, and sends i and the sign through
randomized response. x̂ = ±d·clip·e_i/(p − q) is unbiased. Everything else (files, exact aggregation, audits, the
contract suite) comes from the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import sstq
from sstq.baselines.vqsgd import IdentityFrame
from sstq.extending import (
    Batch,
    Columns,
    Field,
    FlatChannel,
    FrameEstimator,
    Layout,
    Messages,
    Solved,
    Word,
    channel_words,
    flat_channel,
    streams,
    unit_interval,
)

SIGNS = np.array([-1.0, 1.0])


@dataclass(frozen=True, eq=False, kw_only=True)
class CoordinateSignSolved(Solved):
    """What clients and server agree on, and what the JSON form holds: the options and the channel's two weights."""

    dim: int
    epsilon: float
    clip: float
    own: Word
    other: Word


@sstq.register
class CoordinateSign(sstq.Mechanism):
    """The randomized sign of one random coordinate, in ⌈log₂ d⌉ + 1 bits.

    Examples:
        >>> mechanism = sstq.mechanism("coordinate-sign", dim=10, epsilon=2.0)
        >>> mechanism.message_bits, mechanism.privacy_loss() <= 2.0
        (5, True)
        >>> sstq.from_json(mechanism.to_json()) == mechanism
        True
    """

    name: ClassVar[str] = "coordinate-sign"
    exact: ClassVar[bool] = True
    solved_class = CoordinateSignSolved
    narrowed: ClassVar[Mapping[str, tuple[float, float]]] = {"dim": (1, 2**24)}

    solved: CoordinateSignSolved

    def __init__(self, dim: int, epsilon: float, *, clip: float = 1.0) -> None:
        given = dict(locals())
        common = self.checked(dim=dim, epsilon=epsilon, clip=clip)
        channel = flat_channel(1, common["epsilon"])
        self.settle(given, CoordinateSignSolved(**common, own=channel.own, other=channel.other))

    @cached_property
    def channel(self) -> FlatChannel:
        """Randomized response on the two signs; its weights are checked exactly when it is made."""
        return FlatChannel(self.epsilon, 2, self.solved.own, self.solved.other)

    @property
    def draw(self) -> FlatChannel:
        """The channel."""
        return self.channel

    @cached_property
    def frame(self) -> IdentityFrame:
        """The basis in which the aggregator adds."""
        return IdentityFrame(self.dim, self.dim)

    @cached_property
    def layout(self) -> Layout:
        """The sign in the lowest bit, and the coordinate above it."""
        return Layout((Field("sign", 2), Field("coordinate", self.dim)))

    @cached_property
    def estimator(self) -> FrameEstimator:
        """Exact sums in a frame, O(1) per message."""
        return FrameEstimator(self, self.frame, SIGNS, self.decoding_scale, self.indices_and_codes)

    @property
    def decoding_scale(self) -> float:
        """The w with x̂ = ±d·w·e_i."""
        return self.clip / self.channel.gain

    def indices_and_codes(self, messages: Messages) -> tuple[NDArray[Any], NDArray[Any]]:
        """The coordinate and the sign of every message, for the aggregator."""
        return messages.column("coordinate"), messages.column("sign")

    def encode_batch(self, batch: Batch) -> Columns:
        """Encode checked rows."""
        unit, words = self.unit_ball(batch.rows, batch.report), batch.words
        coordinate = streams.multiply_shift(words[:, 0], self.dim)
        value = unit[np.arange(len(unit)), coordinate].astype(np.float64)
        token = (unit_interval(words[:, 1]) < (1 + value) / 2).astype(np.int64)
        return self.channel.sample(token, channel_words(words[:, 2])), coordinate

    def decode_batch(self, messages: Messages) -> NDArray[np.float64]:
        """The estimates of single messages."""
        estimates = np.zeros((len(messages), self.dim))
        index, code = self.indices_and_codes(messages)
        estimates[np.arange(len(messages)), index] = self.dim * self.decoding_scale * SIGNS[code]
        return estimates

    def row_error(self, rows: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Exact: ‖x̂‖ is the same for all messages."""
        return self.unbiased_error(rows, (self.dim * self.decoding_scale) ** 2)

    def largest_message(self) -> float:
        """The norm of every message."""
        return self.dim * self.decoding_scale
