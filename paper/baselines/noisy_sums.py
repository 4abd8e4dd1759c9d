"""Sums of a trusted aggregator: exact while a round is open; closing it adds the noise once and for all."""

import hashlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sstq.extending import (
    Aggregator,
    DenseEstimator,
    Estimate,
    Messages,
    RngLike,
    Sums,
    bit_source,
    normals,
)

# Noisy sums are kept to 2^-16 of the unit of the contributions, which leaves room for 2^32 messages of 12 bits.
_FRACTION_BITS = 16


@dataclass
class _KeyedBits:
    """Random words derived from a secret key and the sums: closing two copies of one round draws the same noise."""

    secret: bytes
    simulated = False

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(
            hashlib.shake_256(self.secret).digest(8 * count), dtype="<u8"
        ).astype(np.uint64)


class NoisyAggregator(Aggregator[Estimate]):
    """A round of one trusted aggregator: integer sums, and Gaussian noise that is drawn once, when the round is closed.

    `close`, or the first `mean`, adds the noise and erases the exact sums, and more messages are refused, so that
    asking twice does not average the noise away. It comes from the sums and a secret key of the round, which is saved
    with an open state: two copies of it close alike. Merging takes the other aggregator's sums over and closes it.

    The state has a row for each frame coordinate, one that says whether the round is closed, and two for the key.

    Warning:
        Until the round is closed the state is not private, in memory or saved (only the file's owner can read it). A
        client must be in a round once: its messages added twice spend twice the budget.

    Examples:
        >>> from paper.baselines import CSGM
        >>> mechanism = CSGM(dim=4, epsilon=1.0, clients=1000)
        >>> round_ = mechanism.aggregator().update(mechanism.encode(np.full((1000, 4), 0.5)))
        >>> first, second = round_.mean(), round_.mean()
        >>> bool(np.all(first.value == second.value)), round_.closed
        (True, True)
    """

    estimator: "NoisyEstimator"

    def __init__(self, estimator: "NoisyEstimator") -> None:
        super().__init__(estimator)
        self.sums()[-2:, 0] = np.frombuffer(os.urandom(16), dtype=np.int64)

    @classmethod
    def from_sums(
        cls,
        estimator: Any,
        sums: NDArray[np.int64],
        count: int,
        simulated: bool = False,
    ) -> Self:
        """Create an aggregator from saved sums, and with their key."""
        made = super().from_sums(estimator, sums, count, simulated)
        made.sums()[:] = sums
        return made

    @property
    def closed(self) -> bool:
        """Whether the noise has been drawn."""
        return bool(self.sums()[-3, 0])

    def close(self, rng: RngLike = None) -> None:
        """Add the noise and keep only the noisy sums. Closing again changes nothing.

        The noise comes from the round's secret key; a seed or Generator is for simulations, and marks the estimate.
        """
        if self.closed:
            return
        sums = self.sums()[:-3, 0]
        secret = self.sums()[-2:, 0].tobytes() + sums.tobytes()
        source = _KeyedBits(secret) if rng is None else bit_source(rng)
        noise = np.ldexp(
            normals(source, (len(sums),)) * self.estimator.noise_scale, _FRACTION_BITS
        )
        # Rounding real noise to the grid of the sums rounds the noisy sum itself: nothing but post-processing.
        self._keep_only((sums << _FRACTION_BITS) + np.rint(noise).astype(np.int64))
        self._simulated |= source.simulated

    def _keep_only(self, sums: NDArray[np.int64] | int) -> None:
        """Be closed, with these sums and without the key."""
        self.sums()[-2:] = 0
        self.sums()[:-3, 0] = sums
        self.sums()[-3, 0] = 1

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the state to a file that only its owner can read: an open round has exact sums."""
        others = os.umask(0o077)
        try:
            super().save(path)
        finally:
            os.umask(others)

    def mean(self) -> Estimate:
        """Close the round and return the private mean with its standard error."""
        if self._count:
            self.close()
        return super().mean()

    def merge(self, other: Aggregator[Estimate]) -> None:
        """Take over the sums of another open aggregator of the same round, which is then closed and empty."""
        if not isinstance(other, NoisyAggregator):
            raise ValueError("the other aggregator is of another mechanism")
        if other.closed:
            raise ValueError(
                "the other aggregator's round is closed: its sums contain noise and cannot be added"
            )
        key = self.sums()[-2:].copy()
        super().merge(other)
        self.sums()[-2:] = key
        other._keep_only(0)
        other._count = 0

    def _refuse_overflow(self, added: int) -> None:
        if self.closed:
            raise ValueError(
                "the round is closed: its noise has been drawn, and no more messages can be added"
            )
        clients = self.estimator.clients
        if self._count + added > clients:
            raise ValueError(
                f"the round must have at most clients = {clients} messages, got {self._count} and {added} more"
            )
        super()._refuse_overflow(added)


@dataclass(frozen=True, eq=False)
class NoisyEstimator(DenseEstimator):
    """The mean of a closed round, with a standard error from public numbers alone: messages would be revealed by it.

    Attributes:
        size: the number of coordinates that are summed.
        clients: the most messages of a round.
        noise_scale: the standard deviation of the noise, in units of the contributions.
        contributions: the coordinates of every message, and what it adds to their sums.
        mean_of_sums: the mean from the sums.
        variance: the variance of a coordinate of a mean of so many messages.
        single_estimates: the estimates of single messages, without noise.
    """

    size: int
    clients: int
    noise_scale: float
    contributions: Callable[[Messages], Iterator[tuple[Any, NDArray[np.int64]]]]
    mean_of_sums: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    variance: Callable[[int], float]
    single_estimates: Callable[[Messages], NDArray[np.float64]]

    @property
    def shape(self) -> tuple[int, int]:
        """The sums, whether they are closed, and the key."""
        return self.size + 3, 1

    def add(
        self,
        state: NDArray[np.int64],
        messages: Messages,
        times: NDArray[np.int64] | None,  # noqa: ARG002
    ) -> None:
        """Add the contributions."""
        sums = state[:-3, 0]
        for kept, values in self.contributions(messages):
            sums[kept] += values

    def decode(self, messages: Messages) -> NDArray[np.float64]:
        """The estimates of single messages."""
        return self.single_estimates(messages)

    def estimate(self, sums: Sums) -> Estimate:
        """The mean of a closed round."""
        value = self.mean_of_sums(
            np.ldexp(sums.state[:-3, 0].astype(np.float64), -_FRACTION_BITS)
        )
        deviation = math.sqrt(self.variance(sums.count)) if sums.count > 1 else math.nan
        stderr = np.full(len(value), deviation)
        return Estimate(
            value, stderr, sums.count, sums.simulated, messages=self.source.messages
        )
