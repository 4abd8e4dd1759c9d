"""The sign of one random coordinate, through randomized response.

A client draws a coordinate i, rounds x_i/clip at random and without bias to ±1, and sends i and the sign through
randomized response. x̂ = ±d·clip·e_i/(p − q) is unbiased.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sstq import extending as sx

SIGNS = np.array([-1.0, 1.0])


@dataclass(frozen=True, eq=False, kw_only=True)
class CoordinateSignSolved(sx.Solved):
    """What clients and server agree on, and what the JSON form holds: the options and the channel's two weights."""

    dim: int
    epsilon: float
    clip: float
    own: sx.Word
    other: sx.Word


class CoordinateSign(sx.Mechanism):
    """The randomized sign of one random coordinate, in ⌈log₂ d⌉ + 1 bits.

    Examples:
        >>> mechanism = CoordinateSign(dim=10, epsilon=2.0)
        >>> mechanism.message_bits, mechanism.privacy_loss() <= 2.0
        (5, True)
    """

    name = "coordinate-sign"
    exact = True
    narrowed = {"dim": (1, 2**24)}  # noqa: RUF012
    solved_class = CoordinateSignSolved
    solved: CoordinateSignSolved

    def __init__(self, dim: int, epsilon: float, *, clip: float = 1.0) -> None:
        given = dict(locals())
        common = self.checked(dim=dim, epsilon=epsilon, clip=clip)
        channel = sx.flat_channel(1, common["epsilon"])
        self.settle(
            given, CoordinateSignSolved(**common, own=channel.own, other=channel.other)
        )

    @cached_property
    def draw(self) -> sx.FlatChannel:
        """Randomized response on the two signs; its weights are checked exactly when it is made."""
        return sx.FlatChannel(self.epsilon, 2, self.solved.own, self.solved.other)

    @cached_property
    def layout(self) -> sx.Layout:
        """The sign in the lowest bit, and the coordinate above it."""
        return sx.Layout((sx.Field("sign", 2), sx.Field("coordinate", self.dim)))

    @cached_property
    def estimator(self) -> sx.FrameEstimator:
        """Sums of the signs of every coordinate."""
        frame = sx.IdentityFrame(self.dim, self.dim)
        return sx.FrameEstimator(self, frame, SIGNS, self.largest_message() / self.dim)

    def encode_batch(self, batch: sx.Batch) -> sx.Columns:
        """Draw a coordinate from the first word, round with the second, and flip with the last."""
        coordinate = sx.streams.multiply_shift(batch.words[:, 0], self.dim)
        value = self.unit_ball(batch.rows, batch.report)[
            np.arange(len(coordinate)), coordinate
        ]
        token = (
            sx.unit_interval(batch.words[:, 1]) < (1 + value.astype(np.float64)) / 2
        ).astype(np.int64)
        return self.draw.sample(token, sx.channel_words(batch.words[:, 2])), coordinate

    def row_error(self, rows: sx.Rows) -> tuple[sx.Floats, sx.Floats]:
        """Exact: the norm is the same for all messages."""
        return self.unbiased_error(rows, self.largest_message() ** 2)

    def largest_message(self) -> float:
        """The norm of every message, d·clip/(p − q)."""
        return self.dim * self.clip / self.draw.gain
