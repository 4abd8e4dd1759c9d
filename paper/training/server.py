"""The server's step: cap the norm of the mean, and update the parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_number

__all__ = ["Server"]


@dataclass(frozen=True)
class Server:
    """A step of stochastic gradient descent with a norm cap, heavy-ball momentum and a rate that may fall.

    Args:
        rate: the learning rate of the first round.
        norm_cap: a mean longer than this is scaled down to it, which biases it; by default no cap.
        momentum: the share of the last step that is repeated, from 0 to below 1.
        decay: the rate of round t is rate/(1 + decay·t).

    Examples:
        >>> server = Server(rate=0.5, norm_cap=1.0)
        >>> server.step(np.zeros(2), np.array([3.0, 4.0]), np.zeros(2), round_number=0)[0]
        array([-0.3, -0.4], dtype=float32)
    """

    rate: float = 0.2
    norm_cap: float | None = 10.0
    momentum: float = 0.0
    decay: float = 0.0

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 1e-12, 1e12)
        if self.norm_cap is not None:
            check_number("norm_cap", self.norm_cap, 1e-12, 1e12)
        check_number("momentum", self.momentum, 0.0, 0.999)
        check_number("decay", self.decay, 0.0, 1e6)

    def step(
        self,
        parameters: NDArray[np.floating],
        mean: NDArray[np.float64],
        velocity: NDArray[np.float64],
        round_number: int,
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return the parameters and the velocity after a round with this estimated mean gradient."""
        norm = float(np.linalg.norm(mean))
        if self.norm_cap is not None and norm > self.norm_cap:
            mean = mean * (self.norm_cap / norm)
        velocity = self.momentum * velocity + mean
        rate = self.rate / (1 + self.decay * round_number)
        return (parameters - rate * velocity).astype(np.float32), velocity
