"""SQKR, subsampled: a few one-bit coefficients as one token of randomized response."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sstq.frames.kashin import pick
from sstq.mechanisms.flat_response import gain
from sstq.mechanisms.sqkr.signs import BitCoder
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column, Field
from sstq.randomness import streams
from sstq.randomness.secret import BitSource, channel_words, unit_interval

__all__ = ["K_MAX", "SubsampledCoder", "best_k", "paper_k"]

K_MAX = 32
"""More bits than any ε up to 20 can use."""

_PAPER_BITS = 4


def best_k(dim: int, epsilon: float, beta: float) -> int:
    """The k of least error on the sphere, E‖x̂‖² = d·β²/(k·g²) + (1 − 1/k)/g with g = (e^ε − 1)/(e^ε − 1 + 2^k).

    Examples:
        >>> [best_k(1000, epsilon, 1.8) for epsilon in (0.5, 1.0, 2.0, 3.0, 6.0, 10.0)]
        [1, 1, 2, 3, 6, 11]
    """

    def power(k: int) -> float:
        inverse_gain = 1 + (1 << k) / math.expm1(epsilon)
        return dim * (beta * inverse_gain) ** 2 / k + (1 - 1 / k) * inverse_gain

    return min(range(1, K_MAX + 1), key=power)


def paper_k(epsilon: float) -> int:
    """The k of the SSTQ paper's experiments, min(⌈2ε⌉, b₀) with b₀ = 4 bits.

    Examples:
        >>> paper_k(3.0), paper_k(0.5)
        (4, 1)
    """
    return min(math.ceil(2 * epsilon), _PAPER_BITS)


@dataclass(frozen=True)
class SubsampledCoder(BitCoder):
    """k coordinates, their bits together as one of 2^k tokens of randomized response.

    The coordinates are drawn uniformly with replacement, each with a rounding of its own: then the terms of x̂ are
    alike and independent but for the channel, the error has a closed form in every tight frame, and k may exceed N.
    Distinct coordinates would lower E‖x̂‖² by about ‖x‖²/(ρ·g), a 1/d-th of it.

    All other tokens being equally likely, E[z_l | v] = g·v_l and E[z_l·z_l' | v] = g·v_l·v_l' with g = p − q, and
    κ = (k − 1)/(k·g).
    """

    k: int
    public_coin: bool

    @property
    def sent(self) -> int:
        """The number of signs of a message, k."""
        return self.k

    @property
    def gain(self) -> float:
        """The gap p − q of the channel."""
        return gain(self.channel)

    @property
    def cross(self) -> float:
        """The factor κ = (k − 1)/(k·g)."""
        return (self.k - 1) / (self.k * self.gain)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The bits of the k signs (1 is +1) and, with a private coin, the k indices above them."""
        bits = Field("bits", self.k, 1 << self.k)
        if self.public_coin:
            return (bits,)
        return bits, Field("index", (self.frame.size - 1).bit_length(), self.frame.size, self.k)

    def encode(
        self, unit: NDArray[np.float32], clients: NDArray[np.uint64] | None, source: BitSource
    ) -> tuple[tuple[Column, ...], NDArray[np.float64]]:
        """Always 2k + 1 words a message, whatever the data and the coin."""
        words = source.words((2 * self.k + 1) * len(unit)).reshape(len(unit), -1)
        if clients is None:
            index = streams.multiply_shift(words[:, : self.k], self.frame.size)
        else:
            index = self._public_indices(clients)
        y, residuals = pick(self.frame, self.kashin, unit, index)
        bits = unit_interval(words[:, self.k : -1]) < (1 + y.astype(np.float64)) / 2
        token = np.sum(bits.astype(np.int64) << np.arange(self.k), axis=1)
        sent = self.channel.sample(token, channel_words(words[:, -1]))
        if clients is not None:
            return (sent,), residuals
        return (sent, index[:, 0] if self.k == 1 else index), residuals

    def signed_sums(self, messages: Messages) -> NDArray[np.float64]:
        """Σ_l z_l·u_j of each message, (n, d)."""
        index, bits = self._pairs(messages)
        sums = np.zeros((len(messages), self.frame.dim))
        for draw in range(self.k):
            sums += self.frame.rows(index[:, draw]) * (2.0 * bits[:, draw, None] - 1)
        return sums

    def tally(self, messages: Messages, counts: NDArray[np.int64]) -> None:
        """O(k) a message."""
        index, bits = self._pairs(messages)
        np.add.at(counts, (index, bits), 1)

    def _pairs(self, messages: Messages) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The coordinate and the bit of each draw, both (n, k)."""
        if messages.clients is None:
            index = messages.column("index").reshape(len(messages), self.k).astype(np.int64)
        else:
            index = self._public_indices(messages.clients)
        return index, messages.column("bits").astype(np.int64)[:, None] >> np.arange(self.k) & 1

    def _public_indices(self, clients: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Draw l of a client is its index in the stream of purpose "sqkr" followed by l in decimal."""
        draws = [streams.indices_of(self.frame.seed, f"sqkr{draw}", clients, self.frame.size) for draw in range(self.k)]
        return np.stack(draws, axis=1)
