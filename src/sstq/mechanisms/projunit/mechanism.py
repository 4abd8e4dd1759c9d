"""ProjUnit: PrivUnit of a random projection, in 32·k bits and nearly the least error that ε-LDP allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sstq.mechanisms.base import LocalReport, check_number
from sstq.mechanisms.privunit.caps import SphereCap
from sstq.mechanisms.privunit.mechanism import CapMechanism, check_unit_norms
from sstq.mechanisms.projunit.projections import Projection, make_projection
from sstq.mechanisms.sphere import random_directions
from sstq.messages.batch import Messages, client_ids
from sstq.messages.layouts import Column, FloatField, Layout
from sstq.randomness.secret import BitSource

__all__ = ["ProjUnit"]

# A mean length that was computed by another library of special functions may differ in the last digits.
_ALIGNMENT_TOLERANCE = 1e-9


@dataclass(frozen=True, init=False, eq=False)
class ProjUnit(CapMechanism):
    """Each client has a public random k×d matrix W and sends PrivUnit of u = Wx/‖Wx‖; the server decodes Wᵀv.

    With m the gain of PrivUnit in R^k the estimate is x̂ = clip·Wᵀv/(m·E‖Wx‖).

    "gaussian": independent normal entries. x̂ is exactly unbiased, over messages and matrices, on every vector, and for
    ‖x‖ = clip

        E‖x̂ − x‖² = clip²·((d + (k − 1)·γ·m)/(m·E[χ_k])² − 1).

    Client and server each make k·d Gaussian numbers a message.

    "fast": random signs and a Hadamard transform of size N, twice, then k of the N rows; O(N log N) work a message.
    With k = N, the default up to d = 512, x̂ is exactly unbiased too. With fewer rows E[x̂] is within 0.5 % of ‖x‖ of x:
    measured on spikes, constant, alternating, sparse, Hadamard and Gaussian vectors, on which no deviation was seen
    above the measurement noise (0.1 % for k ≥ 32, 0.2 % for k = 2). That is not a proof, so `unbiased` is False then;
    the stated error takes the bias as zero and the matrix as a random rotation.

    The paper runs PrivUnitG in R^k; PrivUnit is as private and has less error there: with k = 256 at ε = 3 0.27 % above
    the optimum in R^d instead of 0.72 %.

    Reference: Asi, Feldman, Nelson, Nguyen, Talwar, *Fast optimal locally private mean estimation via random
    projections*, 2023.

    Args:
        dim: d, the length of the vectors, at least 2.
        epsilon: ε of the local differential privacy of one message, 0.01 to 20.
        clip: vectors longer than this are scaled down to it; shorter ones are sent as ±x/‖x‖, unbiased.
        projected: k, from 2 to d ("gaussian") or to the power of two from d on ("fast"). The default is 512, or the
            most that is allowed: for large d the error is then 0.1 % above the optimum at ε = 3, 0.8 % at ε = 8 and
            2.1 % at ε = 16. The excess is proportional to 1/k.
        projection: "gaussian" (default) or "fast".
        frame_seed: the public seed of the matrices; each client has its own by its number.

    Examples:
        >>> mechanism = ProjUnit(dim=100_000, epsilon=3.0, projection="fast")
        >>> mechanism.message_bits == 32 * 512
        True
        >>> x = np.full(100_000, 100_000**-0.5)
        >>> round(mechanism.expected_mse(x).total / 100_000, 3)
        0.744
        >>> mechanism.decode(mechanism.encode(x, rng=1, clients=[7])).shape
        (1, 100000)
    """

    name: ClassVar[str] = "projunit"

    dim: int
    epsilon: float
    clip: float
    projection: Projection
    alignment: float
    cap: SphereCap

    def __init__(
        self,
        dim: int,
        epsilon: float,
        clip: float = 1.0,
        *,
        projected: int | None = None,
        projection: str = "gaussian",
        frame_seed: int = 0,
    ) -> None:
        dim = check_number("dim", dim, 2, 2**30, integer=True)
        epsilon = check_number("epsilon", epsilon, 0.01, 20)
        chosen = make_projection(projection, dim, projected, frame_seed)
        cap = SphereCap.optimal(chosen.projected, epsilon)
        self._set(dim=dim, epsilon=epsilon, clip=clip, projection=chosen, alignment=chosen.mean_length, cap=cap)

    def with_frame_seed(self, frame_seed: int) -> ProjUnit:
        """The same mechanism with other matrices, for the next round.

        Examples:
            >>> ProjUnit(dim=10, epsilon=1.0).with_frame_seed(5) == ProjUnit(dim=10, epsilon=1.0, frame_seed=5)
            True
        """
        seed = check_number("frame_seed", frame_seed, 0, 2**64 - 1, integer=True)
        other = object.__new__(ProjUnit)
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        other._set(**parts | {"projection": replace(self.projection, seed=seed)})
        return other

    @property
    def unbiased(self) -> bool:
        """Whether it is exactly so; a fast projection to fewer than N dimensions is so within 0.5 % of ‖x‖."""
        return self.projection.unbiased

    @property
    def coin(self) -> str:
        """The matrices come from a shared generator."""
        return "public"

    @property
    def layout(self) -> Layout:
        """One field: the unit vector v of R^k, in single precision."""
        return Layout((FloatField("vector", count=self.projection.projected),))

    @property
    def _row_cost(self) -> int:
        return 2 * self.dim + 4 * self.projection.projected

    def _encode_rows(
        self,
        rows: NDArray[Any],
        clients: NDArray[np.uint64] | None,
        source: BitSource,
        report: LocalReport | None,
    ) -> tuple[Column, ...]:
        unit = self._unit_ball(rows, report)
        words = source.words(len(unit) * (1 + self.cap.words)).reshape(len(unit), -1)
        directions = random_directions(unit, words[:, 0]).astype(np.float32)
        projected = self.projection.project(directions, client_ids(clients, len(unit))).astype(np.float64)
        norms = np.sqrt(np.einsum("ij,ij->i", projected, projected))
        # A fast projection may miss a sparse vector altogether. Any unit vector will do then: changing all signs of the
        # matrix leaves Wx = 0 and turns Wᵀv round, so that it adds nothing on average.
        projected[norms == 0, 0] = 1.0
        projected /= np.where(norms > 0, norms, 1.0)[:, None]
        return (self.cap.draw(projected, words),)

    def decode(self, messages: Messages) -> NDArray[np.float64]:
        """The estimate clip·Wᵀv/(m·E‖Wx‖) of each message alone, (n, d)."""
        self._check_own(messages)
        lifted = self.projection.lift(messages.column("vector"), client_ids(messages.clients, len(messages)))
        return lifted.astype(np.float64) * self._decoding_factor

    def _check_columns(self, columns: tuple[Column, ...]) -> None:
        check_unit_norms(columns[0])

    @property
    def _decoding_factor(self) -> float:
        return self.clip / (self.cap.gain * self.alignment)

    @property
    def decoding_scale(self) -> float:
        """The root mean square of a decoded coordinate."""
        return self._decoding_factor * math.sqrt(self.projection.lifted_power(self.cap.power_along) / self.dim)

    def to_dict(self) -> dict[str, Any]:
        """Everything public, integers and decoding values included, as JSON values."""
        return {
            "dim": self.dim,
            "epsilon": self.epsilon,
            "clip": self.clip,
            "projection": {
                "name": self.projection.name,
                "projected": self.projection.projected,
                "seed": self.projection.seed,
            },
            "alignment": self.alignment,
            "cap": self.cap.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ProjUnit:
        """The mechanism whose `to_dict` this is; its integers are checked again, not solved again."""
        dim = check_number("dim", data["dim"], 2, 2**30, integer=True)
        epsilon = check_number("epsilon", data["epsilon"], 0.01, 20)
        stored = data["projection"]
        projected = check_number("projected", stored["projected"], 2, 2**30, integer=True)
        projection = make_projection(stored["name"], dim, projected, stored["seed"])
        low, high = (projection.mean_length * (1 + sign * _ALIGNMENT_TOLERANCE) for sign in (-1, 1))
        alignment = check_number("alignment", data["alignment"], low, high)
        cap = SphereCap.from_dict(projection.projected, epsilon, data["cap"])
        mechanism = object.__new__(cls)
        mechanism._set(dim=dim, epsilon=epsilon, clip=data["clip"], projection=projection, alignment=alignment, cap=cap)
        return mechanism
