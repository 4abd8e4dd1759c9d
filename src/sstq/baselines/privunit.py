"""PrivUnit and PrivUnitG: a dense random vector, more likely near x; the least error under ε-LDP, in 32·d bits."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from sstq.baselines.caps import Cap
from sstq.baselines.projections import MATRICES, Projection
from sstq.extending import (
    RANGES,
    TOTAL,
    Batch,
    Columns,
    FloatField,
    Floats,
    Layout,
    Mechanism,
    Messages,
    Rows,
    Solved,
    VectorEstimator,
    Word,
    check_option,
    random_directions,
    streams,
)

Split = Literal["optimal", "hemisphere"]
UNIT_NORMS = (1 - 1e-3, 1 + 1e-3)
"""The norms that a unit vector of single-precision numbers may have on the wire."""

# How much longer than 1 v ~ N(0, I/d) may be on the wire, in units of 1/√d. The coordinates beside x are longer than
# √d + 13 with a probability below e^(-13²/2) < 2e-37, that along x, from a word of 62 bits, is below 12.
_GAUSSIAN_EXCESS = 18.0


@dataclass(frozen=True, eq=False, kw_only=True)
class CapSolved(Solved):
    """The values of a cap: A and p of 2^62, and the gain m."""

    dim: int
    epsilon: float
    clip: float
    mass: Word
    inside: Word
    gain: float


class CapMechanism(Mechanism):
    """The base of PrivUnit, PrivUnitG and ProjUnit: draw v from a cap, send all of it, decode it as clip·v/m.

    Vectors shorter than `clip` are sent as ±x/‖x‖, unbiased. Vectors that no honest client sends, because they are
    longer than `largest_norm` or not on the sphere, are refused, so that no message counts like many.
    """

    exact = False
    solved_class: ClassVar[type[CapSolved]] = CapSolved
    narrowed: ClassVar = {"dim": (2, RANGES["dim"][1])}
    _on_sphere: ClassVar[bool] = True

    solved: CapSolved
    gain: float

    def settle_cap(self, given: Mapping[str, Any], cap: Cap, **others: Any) -> None:
        """Keep the cap, and check it."""
        self.settle(
            given,
            self.solved_class(
                **others, mass=cap.mass, inside=cap.inside, gain=cap.gain
            ),
        )

    @cached_property
    def projection(self) -> Projection | None:
        """To the dimension of the cap, if it is not that of the vectors."""
        return None

    @cached_property
    def cap(self) -> Cap:
        """The cap, whose gain is checked when it is made."""
        solved = self.solved
        return Cap(
            self._cap_dim, solved.mass, solved.inside, solved.gain, self._on_sphere
        )

    @property
    def draw(self) -> Cap:
        """The secret draw of a vector: the cap."""
        return self.cap

    @property
    def _cap_dim(self) -> int:
        """The dimensions of the vectors that are sent."""
        return self.dim

    @property
    def largest_norm(self) -> float:
        """The largest norm of an honest v."""
        return (
            UNIT_NORMS[1]
            if self._on_sphere
            else 1 + _GAUSSIAN_EXCESS / math.sqrt(self.dim)
        )

    @cached_property
    def layout(self) -> Layout:
        """A message is v, in single precision."""
        return Layout((FloatField("vector", count=self.cap.dim),))

    @cached_property
    def estimator(self) -> VectorEstimator:
        """Sums of the decoded vectors."""
        return VectorEstimator(self, self.dim, self.decoding_scale, self._decoded)

    @property
    def words_each(self) -> int:
        """One secret word is for the sign, the others are for the cap."""
        return 1 + self.cap.words

    def check_messages(self, messages: Messages) -> None:
        """Refuse messages that no client sends."""
        vectors = messages.column("vector")
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
        low = UNIT_NORMS[0] if self._on_sphere else 0.0
        high = self.largest_norm
        for row in np.flatnonzero(~((norms >= low) & (norms <= high))):
            raise ValueError(
                f"message {row}: vector must have a norm in [{low:g}, {high:g}], got {norms[row]:g}"
            )

    @property
    def row_cost(self) -> int:
        """About how many numbers encoding one row takes."""
        return 4 * self.dim

    def encode_batch(self, batch: Batch) -> Columns:
        """Draw a vector from the cap around each direction, or from the rest."""
        directions = random_directions(
            self.unit_ball(batch.rows, batch.report), batch.words[:, 0]
        )
        if self.projection is None:
            return (self.cap.draw(directions, batch.words),)
        matrices = streams.multiply_shift(batch.words[:, 1], MATRICES)
        return self.cap.draw(
            self.projection.directions(directions, matrices), batch.words
        ), matrices

    def _decoded(self, messages: Messages) -> Floats:
        vectors = messages.column("vector")
        if self.projection is not None:
            vectors = self.projection.lift(vectors, messages.column("matrix"))
        return vectors.astype(np.float64) * self._decoding_factor

    @property
    def _decoding_factor(self) -> float:
        """What a vector is multiplied by."""
        return self.clip / self.gain

    def largest_message(self) -> float:
        """The norm of the longest vector that is not refused; a bound with a projection."""
        stretch = 1.0 if self.projection is None else self.projection.stretch
        return self.largest_norm * self._decoding_factor * stretch

    @property
    def decoding_scale(self) -> float:
        """The root mean square of a decoded coordinate."""
        return self.clip * math.sqrt(self.cap.power / self.dim) / self.gain

    def row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """Exact: E‖x̂‖² = clip²·E‖v‖²/m² whatever x is."""
        return self.unbiased_error(rows, self.dim * self.decoding_scale**2)


@dataclass(frozen=True, eq=False, kw_only=True)
class PrivUnitSolved(CapSolved):
    """The values of PrivUnit."""

    split: Split


class PrivUnit(CapMechanism):
    """A unit vector, from the cap around x with probability p and from the rest of the sphere otherwise.

    The density is p/A on the cap {v: ⟨v, x⟩ ≥ γ} of mass A and (1 − p)/(1 − A) on the rest, with a ratio of e^ε. The
    estimate clip·v/m is unbiased, with squared error clip²·(1/m² − 1) for ‖x‖ = clip (`sstq.baselines.caps`):
    with the best cap the least of all unbiased ε-LDP mechanisms (Asi et al. 2022), about 0.7425·d·clip² at ε = 3.

    Reference: Bhowmick, Duchi, Freudiger, Kapoor, Rogers, *Protection against reconstruction and its applications in
    private federated learning*, 2018, Algorithm 1.

    Warning:
        Bhowmick et al. choose γ from inequalities (their equations 16a and 16b), which waste budget: with half of ε for
        each part the error is 0.910·d at ε = 3 instead of 0.787·d. Here the mass of the cap is exact. Outputs are
        continuous, so privacy holds up to floating point (`exact` is False).

    Args:
        split: "optimal" (default) finds the best cap; "hemisphere" is γ = 0, a weak variant with the squared error
            (π/2)·((e^ε + 1)/(e^ε − 1))²·d, kept because the paper's figures show it.

    Examples:
        >>> mechanism = PrivUnit(dim=10_000, epsilon=3.0)
        >>> x = np.ones(10_000) / 100
        >>> round(mechanism.expected_mse(x).total / 10_000, 4)
        0.7425
    """

    name = "privunit"
    variants: ClassVar = {
        "PrivUnit": {},
        "PrivUnit, bare hemisphere": {"split": "hemisphere"},
    }

    solved_class = PrivUnitSolved

    def __init__(
        self, dim: int, epsilon: float, *, clip: float = 1.0, split: Split = "optimal"
    ) -> None:
        given = dict(locals())
        common = self.checked(dim=dim, epsilon=epsilon, clip=clip)
        if check_option("split", split, ("optimal", "hemisphere")) == "optimal":
            cap = Cap.optimal(common["dim"], common["epsilon"])
        else:
            cap = Cap.of_mass(common["dim"], common["epsilon"], TOTAL // 2)
        self.settle_cap(given, cap, **common, split=split)


class PrivUnitG(CapMechanism):
    """PrivUnit with Gaussian vectors: v ~ N(0, I/d), drawn from ⟨v, x⟩ ≥ γ with probability p, otherwise from the rest.

    With q = Φ(γ√d) the gain is m = φ(γ√d)·(p/(1 − q) − (1 − p)/q)/√d, and the squared error for ‖x‖ = clip is
    clip²·(E‖v‖²/m² − 1), E‖v‖² = 1 + γ·m; see `sstq.baselines.caps`. In high dimension it is PrivUnit; in
    low dimension PrivUnit is better, because its vectors do not waste error on their length.

    Reference: Asi, Feldman, Talwar, *Optimal algorithms for mean estimation under local differential privacy*, 2022.

    Examples:
        >>> mechanism = PrivUnitG(dim=10_000, epsilon=3.0)
        >>> round(mechanism.expected_mse(np.ones(10_000) / 100).total / 10_000, 4)
        0.7425
    """

    name = "privunitg"
    variants: ClassVar = {"PrivUnitG": {}}

    _on_sphere = False

    def __init__(self, dim: int, epsilon: float, *, clip: float = 1.0) -> None:
        given = dict(locals())
        common = self.checked(dim=dim, epsilon=epsilon, clip=clip)
        self.settle_cap(
            given,
            Cap.optimal(common["dim"], common["epsilon"], on_sphere=False),
            **common,
        )
