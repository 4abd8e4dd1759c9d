"""Sums that are private only once they are released: exact while a round is open, noisy for ever once it is closed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.base import Aggregator, Estimate
from sstq.frames import Frame
from sstq.message_files import MessageReader
from sstq.messages import Messages
from sstq.randomness import RngLike, bit_source, normals

__all__ = ["NoisyAggregator", "NoisyDecoding"]

# Noisy sums are kept to 2^-16 of the unit of the contributions, which leaves room for 2^32 messages of 12 bits.
_FRACTION_BITS = 16


class NoisyDecoding(MessageReader, Protocol):
    """What the aggregator needs of the mechanism."""

    @property
    def clients(self) -> int:
        """The public number of clients of a round."""
        ...

    @property
    def frame(self) -> Frame:
        """The frame whose coordinates are summed."""
        ...

    @property
    def noise_scale(self) -> float:
        """σ, the standard deviation of the noise of a sum, in units of a contribution."""
        ...

    @property
    def sum_scale(self) -> float:
        """What a sum is multiplied by to estimate the mean coordinate of `clients` clients."""
        ...

    def coordinate_variance(self, count: int) -> float:
        """A public bound of the variance of a coordinate of the mean when there are `count` messages."""
        ...

    def contributions(self, messages: Messages) -> Iterator[tuple[Any, NDArray[np.int64]]]:
        """The kept coordinates of each message and its integer contributions to them."""
        ...


class NoisyAggregator(Aggregator[NoisyDecoding]):
    """A round of one trusted aggregator: integer sums, and Gaussian noise that is drawn once, when the round is closed.

    `close`, or the first `mean`, draws the noise and forgets the sums without it. From then on every mean is the same,
    a saved state holds the noisy sums only, and more messages are refused: asking twice does not average the noise
    away. The mean divides by the public number of clients, not by the number of messages.

    The state has a row for each frame coordinate and one more, which says whether the round is closed.

    Warning:
        Until the round is closed the state is not private, in memory or saved. Closing two copies of one open state
        releases it twice and spends the budget twice: keep one, and delete the file of an open round that is done.

    Examples:
        >>> from sstq.schemes.csgm import CSGM
        >>> mechanism = CSGM(dim=4, epsilon=1.0, clients=1000)
        >>> round_ = mechanism.aggregator()
        >>> round_.update(mechanism.encode(np.full((1000, 4), 0.5)))
        >>> first, second = round_.mean(), round_.mean()
        >>> bool(np.all(first.value == second.value)), round_.closed
        (True, True)
    """

    def _empty_state(self) -> NDArray[np.int64]:
        return np.zeros((self._mechanism.frame.size + 1, 1), dtype=np.int64)

    @property
    def closed(self) -> bool:
        """Whether the noise has been drawn."""
        return bool(self._state[-1, 0])

    def close(self, rng: RngLike = None) -> None:
        """Draw the noise and keep the noisy sums only. Closing again changes nothing.

        Args:
            rng: None for the operating system's randomness (the private choice); a seed or Generator for simulation,
                which the estimate is then marked as.
        """
        if self.closed:
            return
        source = bit_source(rng)
        noise = normals(source, (len(self._state) - 1,)) * self._mechanism.noise_scale
        # Rounding real noise to the grid of the sums rounds the noisy sum itself: nothing but post-processing.
        self._state[:-1, 0] <<= _FRACTION_BITS
        self._state[:-1, 0] += np.rint(np.ldexp(noise, _FRACTION_BITS)).astype(np.int64)
        self._state[-1, 0] = 1
        self._simulated |= source.simulated

    def mean(self) -> Estimate:
        """The private mean and its standard error; closes the round.

        The standard error comes from public numbers alone (the noise, and a bound of what sampling and rounding may
        add), because one made from the messages would tell about them.
        """
        if self._count:
            self.close()
        estimate = super().mean()
        deviation = math.sqrt(self._mechanism.coordinate_variance(self._count)) if self._count > 1 else math.nan
        return replace(estimate, stderr=np.full(len(estimate.value), deviation))

    def merge(self, other: Aggregator[NoisyDecoding]) -> None:
        """Add what another open aggregator of the same round holds."""
        if isinstance(other, NoisyAggregator) and other.closed:
            raise ValueError("the other aggregator's round is closed: its sums hold noise and cannot be added")
        super().merge(other)

    def _refuse_overflow(self, added: int) -> None:
        if self.closed:
            raise ValueError("the round is closed: its noise has been drawn, and nothing can be added any more")
        if self._count + added > self._mechanism.clients:
            raise ValueError(
                f"the round is for clients = {self._mechanism.clients}, got {self._count} messages and {added} more"
            )
        super()._refuse_overflow(added)

    def _add(self, messages: Messages) -> None:
        for kept, values in self._mechanism.contributions(messages):
            self._state[:-1, 0][kept] += values

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        sums = np.ldexp(self._state[:-1, 0].astype(np.float64), -_FRACTION_BITS)
        frame = self._mechanism.frame
        value = np.asarray(frame.synthesize((sums * self._mechanism.sum_scale)[None])[0], dtype=np.float64)
        # Squares of the messages are not kept: `mean` has the standard error from elsewhere.
        return value, value**2
