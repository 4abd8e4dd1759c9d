"""SQKR, dense: all one-bit coefficients through the half-space mechanism on the hypercube."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sstq.chunks import row_chunks
from sstq.frames.kashin import represent
from sstq.mechanisms.flat_response import gain
from sstq.mechanisms.sqkr.signs import BitCoder
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column, Field
from sstq.randomness.secret import BitSource, channel_words

__all__ = ["DenseCoder", "central_binomial", "turn_to_side"]


@dataclass(frozen=True)
class DenseCoder(BitCoder):
    """All N coefficients, one bit each, through the half-space mechanism on the hypercube.

    z is drawn uniformly from {±1}^N and then turned to −z, or not, so that ⟨z, v⟩ > 0 with probability
    p = e^ε/(1 + e^ε), an integer of 2^62; where ⟨z, v⟩ = 0 it stays. So the probability of z is 2p, 2(1 − p) or once
    2^-N, and for two inputs it differs by p/(1 − p) at most. E[z | v] = (2p − 1)·m_N·v with m_N = E|⟨z, v⟩|/N over
    uniform z, which is C(2h, h)/4^h at h = ⌊N/2⌋. And z·zᵀ is even in z, so E[z·zᵀ] = I whatever v is: κ = 0.
    """

    @property
    def sent(self) -> int:
        """The number of signs of a message, N."""
        return self.frame.size

    @property
    def gain(self) -> float:
        """The factor (2p − 1)·m_N."""
        return gain(self.channel) * central_binomial(self.frame.size // 2)

    @property
    def cross(self) -> float:
        """None: E[z·zᵀ] = I."""
        return 0.0

    @property
    def fields(self) -> tuple[Field, ...]:
        """One bit a coefficient; 1 is +1."""
        return (Field("bits", 1, 2, self.frame.size),)

    def encode(
        self,
        unit: NDArray[np.float32],
        clients: NDArray[np.uint64] | None,  # noqa: ARG002 (there is nothing for a public coin to draw)
        source: BitSource,
    ) -> tuple[tuple[Column, ...], NDArray[np.float64]]:
        """Always ⌈N/2⌉ + ⌈N/64⌉ + 1 words a message: to round (32 bits a coefficient), for z, and for the side."""
        size = self.frame.size
        rounding, uniform = -(-size // 2), -(-size // 64)
        words = source.words((rounding + uniform + 1) * len(unit)).reshape(len(unit), -1).astype("<u8", copy=False)
        y, residuals = represent(self.frame, self.kashin, unit)
        halves = np.ascontiguousarray(words[:, :rounding]).view("<u4")[:, :size]
        v = halves * 2.0**-31 - 1 < y
        raw = np.ascontiguousarray(words[:, rounding:-1]).view(np.uint8)
        z = np.unpackbits(raw, axis=1, count=size, bitorder="little")
        outside = self.channel.sample(np.zeros(len(unit), dtype=np.int64), channel_words(words[:, -1])) == 1
        turn_to_side(z, v, outside)
        return (z[:, 0] if size == 1 else z,), residuals

    def signed_sums(self, messages: Messages) -> NDArray[np.float64]:
        """Uᵀz of each message, (n, d)."""
        bits = self._bits(messages)
        sums = np.empty((len(bits), self.frame.dim))
        for part in row_chunks(len(bits), self.frame.size):
            sums[part] = self.frame.synthesize((2.0 * bits[part] - 1) * self.frame.redundancy)
        return sums

    def tally(self, messages: Messages, counts: NDArray[np.int64]) -> None:
        """O(N) a message."""
        ones = self._bits(messages).sum(axis=0, dtype=np.int64)
        counts[:, 1] += ones
        counts[:, 0] += len(messages) - ones

    def _bits(self, messages: Messages) -> NDArray[np.uint8]:
        bits: NDArray[np.uint8] = messages.column("bits").reshape(len(messages), self.frame.size)
        return bits


def turn_to_side(z: NDArray[np.uint8], v: NDArray[np.bool_], outside: NDArray[np.bool_]) -> None:
    """Turn rows of z to their opposites, in place, so that ⟨z, v⟩ < 0 where outside and > 0 elsewhere; zero stays."""
    excess = 2 * np.count_nonzero(z != v, axis=1) - z.shape[1]
    z ^= ((excess != 0) & ((excess > 0) != outside)).astype(np.uint8)[:, None]


def central_binomial(half: int) -> float:
    """C(2h, h)/4^h, the probability that 2h fair coins fall half and half: exactly rounded, or by its series.

    The difference of log-gammas would lose eight digits at h = 10⁶.

    Examples:
        >>> central_binomial(0), central_binomial(1), central_binomial(2)
        (1.0, 0.5, 0.375)
    """
    if half < 512:
        return math.comb(2 * half, half) / (1 << 2 * half)
    t = 1 / half
    series = 1 + t * (-1 / 8 + t * (1 / 128 + t * (5 / 1024 + t * (-21 / 32768 + t * (-399 / 262144)))))
    return series / math.sqrt(math.pi * half)
