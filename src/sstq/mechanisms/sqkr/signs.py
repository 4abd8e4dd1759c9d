"""Signs of frame coordinates as estimates: what both variants of SQKR have in common, and the sums of their messages.

A message stands for signs z_l = ±1 of frame coordinates j_l, and its estimate is x̂ = (d/m)·(B/g)·Σ_l z_l·u_j over the m
signs of a message. The coefficients are rounded at random to bits v = ±1 with E[v] = y/B; then two numbers say it all:

* the gain g, with E[z_l | v] = g·v_l, which makes x̂ unbiased;
* the cross factor κ, with (d·B/(m·g))²·Σ E[z_l·z_l'·u_j·u_j'ᵀ] = κ·x·xᵀ, the sum being over all pairs l ≠ l'.

The terms with l = l' do not depend on the data, for z_l² = 1, and the mean of ‖u_j‖² is 1 in every tight frame. Hence
E‖x̂‖² = d²·B²/(m·g²) + κ·‖x‖² exactly, for the vector x that the representation stands for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation import Aggregator
from sstq.frames.kashin import Kashin
from sstq.frames.tight import Frame
from sstq.messages.batch import MessageReader, Messages
from sstq.messages.layouts import Column, Field
from sstq.randomness.secret import BitSource
from sstq.scalar.channels import FlatChannel

__all__ = ["BitCoder", "SignAggregator", "SignDecoding"]


@dataclass(frozen=True)
class BitCoder(ABC):
    """How the bits of a representation become a message, and what a message says of them."""

    frame: Frame
    kashin: Kashin
    channel: FlatChannel

    @property
    @abstractmethod
    def sent(self) -> int:
        """The number of signs of a message, m."""

    @property
    @abstractmethod
    def gain(self) -> float:
        """The factor g with E[z | v] = g·v, from the channel's integers."""

    @property
    @abstractmethod
    def cross(self) -> float:
        """The factor κ of x·xᵀ in E[x̂·x̂ᵀ]."""

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """The fields of a message."""

    @abstractmethod
    def encode(
        self, unit: NDArray[np.float32], clients: NDArray[np.uint64] | None, source: BitSource
    ) -> tuple[tuple[Column, ...], NDArray[np.float64]]:
        """The columns of the messages for rows of the unit ball, and the residuals of their representations."""

    @abstractmethod
    def signed_sums(self, messages: Messages) -> NDArray[np.float64]:
        """Σ_l z_l·u_j of each message, (n, d)."""

    @abstractmethod
    def tally(self, messages: Messages, counts: NDArray[np.int64]) -> None:
        """Add to counts, (N, 2), how often each coordinate was sent as −1 (column 0) and as +1 (column 1)."""


class SignDecoding(MessageReader, Protocol):
    """What the aggregator needs of the mechanism."""

    @property
    def coder(self) -> BitCoder:
        """What the bits of a message stand for."""
        ...

    @property
    def decoding_scale(self) -> float:
        """The w with x̂ = d·w·Σ_l z_l·u_j."""
        ...


class SignAggregator(Aggregator[SignDecoding]):
    """Two integers a frame coordinate: how often it was sent as −1 and as +1. One synthesis gives the mean.

    The second moment of coordinate i of x̂ is (d·w)²·Σ_l u_ji², which the counts give, plus the cross terms, κ·x_i² in
    expectation, where the mean's own square stands for the mean of x_i². Where clients differ that is too little by the
    spread of their x_i, so the variance is off by (κ − 1) times the spread: too large if κ < 1, too small if κ > 1. At
    the k of least error κ is near 1 (at most 1.19, and 0 at k = 1 and dense), and summed over the coordinates the
    shortfall is at most a (κ − 1)·k·g²/(d·β²)-th of the variance.
    """

    def _empty_state(self) -> NDArray[np.int64]:
        return np.zeros((self._mechanism.coder.frame.size, 2), dtype=np.int64)

    def _add(self, messages: Messages) -> None:
        self._mechanism.coder.tally(messages, self._state)

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        coder, scale = self._mechanism.coder, self._mechanism.decoding_scale
        frame = coder.frame
        total = (self._state[:, 1] - self._state[:, 0]) * scale
        value = np.asarray(frame.synthesize(total[None] * (frame.size / self._count))[0], dtype=np.float64)
        sent = self._state.sum(axis=1).astype(np.float64)
        diagonal = frame.column_power(sent) * ((frame.dim * scale) ** 2 / self._count)
        return value, diagonal + coder.cross * value**2
