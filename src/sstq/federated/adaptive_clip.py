"""Adaptive clipping: each answer carries one private bit that says whether its vector was within the clip."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sstq.accounting import price
from sstq.accounting.bounds import round_down
from sstq.checks import check_argument, check_number
from sstq.exactness import round_up
from sstq.mechanisms import Mechanism
from sstq.mechanisms.flat_response import gain
from sstq.randomness.secret import RngLike, bit_source, channel_words
from sstq.scalar.channels import FlatChannel, flat_channel_of_size

__all__ = ["AdaptiveClip", "answer_price"]

_CLIP_MIN, _CLIP_MAX = 1e-100, 1e100


@dataclass(frozen=True)
class AdaptiveClip:
    """Move the clip towards a quantile of the norms, by one bit per answer through exact randomized response.

    After a round in which a share b of the norms was at most the clip C, the clip becomes C·exp(−rate·(b − quantile)).
    The server learns b from randomized bits: b̂ = (ones/n − q)/(p − q), with standard error at most 1/(2√n·tanh(ε/2)),
    and clamps it to [0, 1], so a step is bounded whatever the noise.

    Args:
        quantile: the share of norms that should be within the clip, 0 to 1.
        epsilon: the ε of the bit, in addition to that of the vector's message.
        rate: the rate of the steps.

    Examples:
        >>> adaptive = AdaptiveClip(quantile=0.5, epsilon=1.0)
        >>> bits = adaptive.bits(np.full(10_000, 3.0), clip=1.0, rng=0)  # all norms are above the clip
        >>> adaptive.next_clip(1.0, int(bits.sum()), len(bits)) > 1.09
        True

    References:
        Andrew, Thakkar, McMahan, Ramaswamy: Differentially Private Learning with Adaptive Clipping. NeurIPS 2021,
        Section 2.1, with its rate 0.2 and the median as defaults; there the bits are summed by a trusted server.
    """

    quantile: float = 0.5
    epsilon: float = 0.5
    rate: float = 0.2
    channel: FlatChannel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_number("quantile", self.quantile, 0, 1)
        check_argument("clip_epsilon", self.epsilon, of="epsilon")
        check_number("rate", self.rate, 0, 10)
        object.__setattr__(self, "channel", flat_channel_of_size(2, self.epsilon))

    @property
    def price(self) -> float:
        """The ε that a bit is charged: the nominal ε, or the exact privacy loss if that is larger."""
        return max(self.epsilon, self.channel.privacy_loss())

    def left_for_vectors(self, epsilon: float) -> float:
        """Return the part of an answer's ε that the bit leaves, rounded down.

        Examples:
            >>> AdaptiveClip(epsilon=0.5).left_for_vectors(8.0)
            7.5
        """
        if epsilon <= self.price:
            raise ValueError(
                f"clip_epsilon must be less than epsilon = {epsilon:g} of the answer, got {self.epsilon:g}"
            )
        return round_down(Fraction(epsilon) - Fraction(self.price))

    def bits(self, norms: NDArray[np.floating], clip: float, rng: RngLike = None) -> NDArray[np.int64]:
        """Encode one private bit per norm, (n,): whether it is at most the clip, through the channel.

        Args:
            norms: the norms, (n,).
            clip: the clip of this round.
            rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.
        """
        words = bit_source(rng).words(len(norms))
        return self.channel.sample((norms <= clip).astype(np.int64), channel_words(words))

    def next_clip(self, clip: float, ones: int, count: int, private: bool = True) -> float:
        """Return the clip of the next round, given the number of bits and of ones; unchanged without any bits.

        Args:
            clip: the clip of this round.
            ones: the number of bits that say that the norm was within it.
            count: the number of bits.
            private: whether the bits went through the channel; otherwise they are exact.
        """
        if not count:
            return clip
        share = 0.5 + (ones / count - 0.5) / (gain(self.channel) if private else 1.0)
        step = math.exp(-self.rate * (min(max(share, 0.0), 1.0) - self.quantile))
        return min(max(clip * step, _CLIP_MIN), _CLIP_MAX)


def answer_price(mechanism: Mechanism, adaptive: AdaptiveClip | None) -> float:
    """Return the ε of one answer: of the vector's message and, with an adaptive clip, of the bit; rounded up.

    Examples:
        >>> import sstq
        >>> answer_price(sstq.FrameUnit(10, 2.5), AdaptiveClip(epsilon=0.5))
        3.0
    """
    own = price(mechanism)
    return own if adaptive is None or math.isinf(own) else round_up(Fraction(own) + Fraction(adaptive.price))
