"""A learning problem for which every assumption of the convergence theorem holds with known constants."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sstq


@dataclass(frozen=True)
class Regression:
    """Robust linear regression, f_i(w) = log(1 + (⟨a_i, w⟩ − t_i)²/2) with ‖a_i‖ = 1: not convex, inf F = 0.

    |f'| ≤ 1/√2, so every gradient has norm at most G = 1/√2, and |f''| ≤ 1, so L is at most that of the least squares.
    """

    rows: NDArray[np.float64]
    targets: NDArray[np.float64]

    gradient_bound = 2**-0.5

    @classmethod
    def draw(cls, dim: int, clients: int, rng: np.random.Generator) -> "Regression":
        """Like-minded clients, and a start w = 0 at which all of them pull hard the same way."""
        direction = np.full(dim, dim**-0.5)
        rows = direction + 0.3 * rng.standard_normal((clients, dim)) / dim**0.5
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return cls(rows, rows @ (2**0.5 * direction))

    def gradients(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """One row per client."""
        residuals = self.rows @ w - self.targets
        return self.rows * (residuals / (1 + residuals**2 / 2))[:, None]

    @property
    def constants(self) -> dict[str, Any]:
        """What Assumption 6.1 asks for, exactly."""
        return {
            "smoothness": float(np.linalg.eigvalsh(self.rows.T @ self.rows / len(self.rows))[-1]),
            "initial_gap": float(np.mean(np.log1p(self.targets**2 / 2))),
            "clients": len(self.rows),
            "gradient_bound": self.gradient_bound,
        }

    def descend(
        self, mechanism: sstq.Mechanism, step_size: float, rounds: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """‖∇F(w_t)‖² for t = 0, …, rounds − 1, each gradient sent through the mechanism."""
        w = np.zeros(self.rows.shape[1])
        squares = np.empty(rounds)
        for t in range(rounds):
            gradients = self.gradients(w)
            squares[t] = np.sum(gradients.mean(axis=0) ** 2)
            aggregator = mechanism.aggregator()
            aggregator.update(mechanism.encode(gradients, rng=rng))
            w -= step_size * aggregator.mean().value
        return squares
