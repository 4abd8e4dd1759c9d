"""Signs of frame coordinates as estimates: the two ways in which SQKR turns bits into messages.

A message stands for signs z_l = ±1 of frame coordinates j_l, and its estimate is x̂ = (d/m)·(B/g)·Σ_l z_l·u_j over the m
signs of a message. The coefficients are rounded at random to bits v = ±1 with E[v] = y/B; then two numbers say it all:

* the gain g, with E[z_l | v] = g·v_l, which makes x̂ unbiased;
* the cross factor κ, with (d·B/(m·g))²·Σ E[z_l·z_l'·u_j·u_j'ᵀ] = κ·x·xᵀ, the sum being over all pairs l ≠ l'.

The terms with l = l' do not depend on the data, for z_l² = 1, and the mean of ‖u_j‖² is 1 in every tight frame. Hence
E‖x̂‖² = d²·B²/(m·g²) + κ·‖x‖² exactly, for the vector x that the representation stands for.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sstq.frames.kashin import Kashin, pick, represent
from sstq.frames.tight import Frame
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.base import Columns, Floats, Floats32, Ints, Words
from sstq.mechanisms.laws import HalfSpaceLaw, Law, channel_law
from sstq.messages.batch import Messages
from sstq.messages.layouts import Field
from sstq.randomness import streams
from sstq.randomness.secret import channel_words, unit_interval
from sstq.scalar.channels import FlatChannel

K_MAX = 32
"""More bits than any ε up to 20 can use."""


@dataclass(frozen=True)
class _Coder:
    """Turns bits into a message: `sent` is m, the number of signs, `gain` is g and `cross` is κ."""

    frame: Frame
    kashin: Kashin
    channel: FlatChannel
    sent: int
    gain: float
    cross: float
    fields: tuple[Field, ...]
    words_each: int


@dataclass(frozen=True)
class SubsampledCoder(_Coder):
    """k coordinates, their bits together as one of 2^k tokens of randomized response.

    The coordinates are drawn uniformly with replacement, each with a rounding of its own: then the terms of x̂ are
    alike and independent but for the channel, the error has a closed form in every tight frame, and k may exceed N.
    Distinct coordinates would lower E‖x̂‖² by about ‖x‖²/(ρ·g), a 1/d-th of it.

    All other tokens being equally likely, E[z_l | v] = g·v_l and E[z_l·z_l' | v] = g·v_l·v_l' with g = p − q, and
    κ = (k − 1)/(k·g).
    """

    @classmethod
    def of(cls, frame: Frame, kashin: Kashin, channel: FlatChannel, k: int, coin: str) -> Self:
        """The number of words: for the indices (also with a public coin), for rounding, and for the channel."""
        bits, index = Field("bits", k, 1 << k), Field("index", (frame.size - 1).bit_length(), frame.size, k)
        g, fields = channel.gain, (bits, index) if coin == "private" else (bits,)
        return cls(frame, kashin, channel, k, g, (k - 1) / (k * g), fields, words_each=2 * k + 1)

    def encode(self, unit: Floats32, words: Words, clients: Words | None) -> tuple[Columns, Floats]:
        """Return the columns for rows of the unit ball, and the residuals of their representations."""
        if clients is None:
            index = streams.multiply_shift(words[:, : self.sent], self.frame.size)
        else:
            index = self.public_indices(clients)
        y, residuals = pick(self.frame, self.kashin, unit, index)
        bits = unit_interval(words[:, self.sent : -1]) < (1 + y.astype(np.float64)) / 2
        token = np.sum(bits.astype(np.int64) << np.arange(self.sent), axis=1)
        sent = self.channel.sample(token, channel_words(words[:, -1]))
        if clients is not None:
            return (sent,), residuals
        return (sent, index[:, 0] if self.sent == 1 else index), residuals

    def law(self) -> Law:
        """The channel's, on the 2^k tokens."""
        return channel_law(self.channel)

    def signed_sums(self, messages: Messages) -> Floats:
        """Σ_l z_l·u_j of each message, (n, d)."""
        index, bits = self._pairs(messages)
        sums = np.zeros((len(messages), self.frame.dim))
        for draw in range(self.sent):
            sums += self.frame.rows(index[:, draw]) * (2.0 * bits[:, draw, None] - 1)
        return sums

    def tally(self, messages: Messages, counts: Ints, times: Ints | int = 1) -> None:
        """Add to counts, (N, 2), how often each coordinate was sent as −1 (column 0) and as +1 (column 1)."""
        np.add.at(counts, self._pairs(messages), times)

    def _pairs(self, messages: Messages) -> tuple[Ints, Ints]:
        """The coordinate and the bit of each draw, both (n, k)."""
        if messages.clients is None:
            index = messages.column("index").reshape(len(messages), self.sent).astype(np.int64)
        else:
            index = self.public_indices(messages.clients)
        return index, messages.column("bits").astype(np.int64)[:, None] >> np.arange(self.sent) & 1

    def public_indices(self, clients: Words) -> Ints:
        """Draw l of a client is its index in the stream of purpose "sqkr" followed by l in decimal."""
        seed, size = self.frame.seed, self.frame.size
        return np.stack([streams.indices_of(seed, f"sqkr{draw}", clients, size) for draw in range(self.sent)], axis=1)


@dataclass(frozen=True)
class DenseCoder(_Coder):
    """All N coefficients, one bit each, through the half-space mechanism on the hypercube.

    z is drawn uniformly from {±1}^N and then turned to −z, or not, so that ⟨z, v⟩ > 0 with probability
    p = e^ε/(1 + e^ε), an integer of 2^62; where ⟨z, v⟩ = 0 it stays. So the probability of z is 2p, 2(1 − p) or once
    2^-N, and for two inputs it differs by p/(1 − p) at most. E[z | v] = (2p − 1)·m_N·v with m_N = E|⟨z, v⟩|/N over
    uniform z, which is C(2h, h)/4^h at h = ⌊N/2⌋. And z·zᵀ is even in z, so E[z·zᵀ] = I whatever v is: κ = 0.
    """

    @classmethod
    def of(cls, frame: Frame, kashin: Kashin, channel: FlatChannel) -> Self:
        """The number of words: for rounding (32 bits per coefficient), for z, and for the side."""
        size, fields = frame.size, (Field("bits", 1, 2, frame.size),)
        g = channel.gain * central_binomial(size // 2)
        return cls(frame, kashin, channel, size, g, 0.0, fields, words_each=-(-size // 2) + -(-size // 64) + 1)

    def encode(self, unit: Floats32, words: Words, clients: Words | None) -> tuple[Columns, Floats]:  # noqa: ARG002
        """Return the columns for rows of the unit ball, and the residuals of their representations."""
        size, rounding = self.frame.size, -(-self.frame.size // 2)
        words = words.astype("<u8", copy=False)
        y, residuals = represent(self.frame, self.kashin, unit)
        halves = np.ascontiguousarray(words[:, :rounding]).view("<u4")[:, :size]
        v = halves * 2.0**-31 - 1 < y
        raw = np.ascontiguousarray(words[:, rounding:-1]).view(np.uint8)
        z = np.unpackbits(raw, axis=1, count=size, bitorder="little")
        outside = self.channel.sample(np.zeros(len(unit), dtype=np.int64), channel_words(words[:, -1])) == 1
        turn_to_side(z, v, outside)
        return (z[:, 0] if size == 1 else z,), residuals

    def law(self) -> Law:
        """The half-space mechanism's, whose side the channel draws."""
        return HalfSpaceLaw(self.frame.size, self.channel.own, self.channel.other)

    def signed_sums(self, messages: Messages) -> Floats:
        """Uᵀz of each message, (n, d)."""
        bits = self._bits(messages)
        sums = np.empty((len(bits), self.frame.dim))
        for part in row_chunks(len(bits), self.frame.size):
            sums[part] = self.frame.synthesize((2.0 * bits[part] - 1) * self.frame.redundancy)
        return sums

    def tally(self, messages: Messages, counts: Ints, times: Ints | int = 1) -> None:  # noqa: ARG002 (one each)
        """Add to counts as for subsampled messages; O(N) per message."""
        ones = self._bits(messages).sum(axis=0, dtype=np.int64)
        counts[:, 1] += ones
        counts[:, 0] += len(messages) - ones

    def _bits(self, messages: Messages) -> NDArray[np.uint8]:
        bits: NDArray[np.uint8] = messages.column("bits").reshape(len(messages), self.frame.size)
        return bits


BitCoder = SubsampledCoder | DenseCoder


def turn_to_side(z: NDArray[np.uint8], v: NDArray[np.bool_], outside: NDArray[np.bool_]) -> None:
    """Turn rows of z to their opposites, in place, so that ⟨z, v⟩ < 0 where outside and > 0 elsewhere; zero stays."""
    excess = 2 * np.count_nonzero(z != v, axis=1) - z.shape[1]
    z ^= ((excess != 0) & ((excess > 0) != outside)).astype(np.uint8)[:, None]


def central_binomial(half: int) -> float:
    """C(2h, h)/4^h, exactly rounded or by its series: log-gammas would lose eight digits at h = 10⁶."""
    if half < 512:
        return math.comb(2 * half, half) / (1 << 2 * half)
    t = 1 / half
    series = 1 + t * (-1 / 8 + t * (1 / 128 + t * (5 / 1024 + t * (-21 / 32768 + t * (-399 / 262144)))))
    return series / math.sqrt(math.pi * half)


def best_k(dim: int, epsilon: float, beta: float) -> int:
    """The k of least error on the sphere, E‖x̂‖² = d·β²/(k·g²) + (1 − 1/k)/g with g = (e^ε − 1)/(e^ε − 1 + 2^k)."""

    def power(k: int) -> float:
        inverse_gain = 1 + (1 << k) / math.expm1(epsilon)
        return dim * (beta * inverse_gain) ** 2 / k + (1 - 1 / k) * inverse_gain

    return min(range(1, K_MAX + 1), key=power)
