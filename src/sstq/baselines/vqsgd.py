"""vqSGD: one of the 2d vertices of a cross-polytope, in ⌈log₂ 2d⌉ bits."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from sstq.extending import (
    SIGNS,
    Batch,
    Columns,
    Field,
    FlatChannel,
    Floats,
    Floats32,
    FrameEstimator,
    IdentityFrame,
    Ints,
    Layout,
    Mechanism,
    Rows,
    Solved,
    Word,
    Words,
    channel_words,
    count_passed,
    flat_channel_of_size,
    streams,
    unit_interval,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class VqSGDSolved(Solved):
    """The values of vqSGD: the two weights of randomized response."""

    dim: int
    epsilon: float
    clip: float
    own: Word
    other: Word
    messages: int = 1


class VqSGD(Mechanism):
    """vqSGD on the cross-polytope {±√d·e_i}, which contains the unit ball, with flat randomized response.

    With g = p − q = (e^ε − 1)/(e^ε + 2d − 1) a message's estimate is ±clip·√d·e_i/g. It is unbiased for every vector of
    the ball, and its squared norm is always the same, so the error is known exactly:
    E‖x̂ − x‖² = clip²·d/g² − ‖x‖², on the sphere of radius clip clip²·(d·((e^ε + 2d − 1)/(e^ε − 1))² − 1).

    Reference: V. Gandikota, D. Kane, R. K. Maity, A. Mazumdar, *vqSGD: vector quantized stochastic gradient descent*,
    AISTATS 2021 (cross-polytope scheme with randomized response). The error is in Appendix A of the SSTQ paper.

    Warning:
        The vqSGD paper states an error of O(d²/ε²); it treats p − q as if it did not depend on d. It is Θ(d³/ε²).

    Args:
        messages: m, the messages per client, for a shuffler, as in `sstq.Mechanism`.

    Examples:
        >>> mechanism = VqSGD(dim=100, epsilon=3.0, clip=0.2)
        >>> mechanism.message_bits, round(mechanism.expected_mse(np.full(100, 0.02)).total)
        (8, 527)
    """

    name = "vqsgd"
    exact = True
    solved_class = VqSGDSolved
    variants: ClassVar = {"vqSGD": {}}
    # With more tokens the gap between two integer weights would have too few digits at a small ε.
    narrowed: ClassVar = {"dim": (1, 1 << 24)}

    solved: VqSGDSolved

    def __init__(
        self, dim: int, epsilon: float, *, clip: float = 1.0, messages: int = 1
    ) -> None:
        given = dict(locals())
        common = self.checked(dim=dim, epsilon=epsilon, clip=clip, messages=messages)
        channel = flat_channel_of_size(2 * common["dim"], common["epsilon"])
        self.settle(given, VqSGDSolved(**common, own=channel.own, other=channel.other))

    @cached_property
    def channel(self) -> FlatChannel:
        """Randomized response on the 2d vertices."""
        return FlatChannel(
            self.epsilon, 2 * self.dim, self.solved.own, self.solved.other
        )

    @property
    def draw(self) -> FlatChannel:
        """The secret draw of a corner: the channel."""
        return self.channel

    @cached_property
    def frame(self) -> IdentityFrame:
        """The basis of R^d."""
        return IdentityFrame(self.dim, self.dim)

    @cached_property
    def layout(self) -> Layout:
        """Vertex 2i is √d·e_i, vertex 2i + 1 its opposite."""
        return Layout((Field("vertex", 2 * self.dim),))

    @cached_property
    def estimator(self) -> FrameEstimator:
        """Sums of the signs of every coordinate."""
        return FrameEstimator(self, self.frame, SIGNS, self.decoding_scale)

    @property
    def decoding_scale(self) -> float:
        """The w > 0 with x̂ = ±d·w·e_i, which is clip/(√d·(p − q))."""
        return self.clip / (math.sqrt(self.dim) * self.channel.gain)

    def encode_batch(self, batch: Batch) -> Columns:
        """Draw a corner of the cross-polytope whose mean is the vector, and send it through the channel."""
        unit = self.unit_ball(batch.rows, batch.report)
        words = batch.words
        vertex = _round_to_vertices(unit, words[:, 0], words[:, 1])
        return (self.channel.sample(vertex, channel_words(words[:, 2])),)

    def largest_message(self) -> float:
        """The norm of every message."""
        return self.dim * self.decoding_scale

    def row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """Exact: ‖x̂‖² is the same for all messages."""
        return self.unbiased_error(
            rows, self.dim * (self.clip / self.channel.gain) ** 2
        )


def _round_to_vertices(unit: Floats32, which: Words, spread: Words) -> Ints:
    """A random vertex for each vector of the unit ball, with the vector as its mean.

    sign(x_i)·√d·e_i has probability |x_i|/√d; the rest (‖x‖₁ ≤ √d in the ball) is spread over all 2d vertices, which
    cancel out. The work is the same for every vector.
    """
    dim = unit.shape[1]
    coordinate = count_passed(unit, unit_interval(which), dim**-0.5)
    axis = np.minimum(coordinate, dim - 1)
    vertex = 2 * axis + (unit[np.arange(len(unit)), axis] < 0)
    return np.where(coordinate < dim, vertex, streams.multiply_shift(spread, 2 * dim))
