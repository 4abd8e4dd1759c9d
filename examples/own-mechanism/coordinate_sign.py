"""A mechanism of one's own: the sign of one random coordinate, through randomized response.

A client draws a coordinate i, rounds x_i/clip at random and without bias to ±1, and sends i and the sign through
randomized response. x̂ = ±d·clip·e_i/(p − q) is unbiased. Everything else (files, exact aggregation, audits, the
contract suite) comes from the library.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import sstq
from sstq.aggregation import FrameAggregator
from sstq.checks import check_argument
from sstq.mechanisms.base import LocalReport
from sstq.mechanisms.flat_response import flat_response, gain, weights_of
from sstq.mechanisms.laws import Law, channel_law
from sstq.mechanisms.vqsgd import IdentityFrame
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column, Field, Layout
from sstq.randomness.secret import BitSource, channel_words, unit_interval
from sstq.randomness.streams import multiply_shift
from sstq.scalar.channels import FlatChannel


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

    channel: FlatChannel
    decoding_values = np.array([-1.0, 1.0])

    def __init__(self, dim: int, epsilon: float, *, clip: float = 1.0) -> None:
        epsilon = check_argument("epsilon", epsilon)
        channel = flat_response(2, epsilon, self._stated)
        self._set(
            dim=check_argument("dim", dim, high=2**24),
            epsilon=epsilon,
            clip=check_argument("clip", clip),
            channel=channel,
        )

    @property
    def layout(self) -> Layout:
        """The sign in the lowest bit, and the coordinate above it."""
        return Layout((Field("sign", 1, 2), Field("coordinate", max(1, (self.dim - 1).bit_length()), self.dim)))

    @property
    def frame(self) -> IdentityFrame:
        """The standard basis."""
        return IdentityFrame(self.dim, self.dim)

    @property
    def decoding_scale(self) -> float:
        """The w with x̂ = ±d·w·e_i."""
        return self.clip / gain(self.channel)

    def indices_and_codes(self, messages: Messages) -> tuple[NDArray[Any], NDArray[Any]]:
        """The coordinate and the sign of every message, for the aggregator."""
        return messages.column("coordinate"), messages.column("sign")

    def _encode_rows(
        self,
        rows: NDArray[Any],
        clients: NDArray[np.uint64] | None,  # noqa: ARG002 (the coin is private)
        source: BitSource,
        report: LocalReport | None,
    ) -> tuple[Column, ...]:
        unit = self._unit_ball(rows, report)
        words = source.words(3 * len(unit)).reshape(-1, 3)  # always three, whatever the data are
        coordinate = multiply_shift(words[:, 0], self.dim)
        value = unit[np.arange(len(unit)), coordinate].astype(np.float64)
        token = (unit_interval(words[:, 1]) < (1 + value) / 2).astype(np.int64)
        return self.channel.sample(token, channel_words(words[:, 2])), coordinate

    def decode(self, messages: Messages) -> NDArray[np.float64]:
        """The estimate of each message alone, (n, d)."""
        self._check_own(messages)
        estimates = np.zeros((len(messages), self.dim))
        index, code = self.indices_and_codes(messages)
        estimates[np.arange(len(messages)), index] = self.dim * self.decoding_scale * self.decoding_values[code]
        return estimates

    def aggregator(self) -> FrameAggregator:
        """The library's exact sums in a frame, O(1) per message."""
        return FrameAggregator(self)

    def law(self) -> Law:
        """The channel's: the coordinate is drawn without looking at the data."""
        return channel_law(self.channel)

    def privacy_loss(self) -> float:
        """The exact log-ratio of the channel's two integers, rounded up to a double."""
        return self.channel.privacy_loss()

    def _row_error(self, rows: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Exact: ‖x̂‖ is the same for all messages."""
        mean = self._unit_ball(rows).astype(np.float64) * self.clip
        return mean, (self.dim * self.decoding_scale) ** 2 - np.sum(mean**2, axis=1)

    def largest_message(self) -> float:
        """The norm of every message."""
        return self.dim * self.decoding_scale

    def to_dict(self) -> dict[str, Any]:
        """The options and the channel's integers, as JSON values."""
        return {"dim": self.dim, "epsilon": self.epsilon, "clip": self.clip} | weights_of(self.channel)
