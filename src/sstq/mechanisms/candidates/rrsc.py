"""RRSC: the vertices of a randomly rotated simplex as candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sstq.mechanisms.base import check_number
from sstq.mechanisms.candidates.base import ClosestMechanism
from sstq.mechanisms.closest import KClosest, k_closest, mean_chi

__all__ = ["RRSC"]

# Added to the Gram matrix relative to its diagonal: rounding leaves it positive definite even where d = M and the
# Gaussian vectors happen to be all but dependent. It turns with the candidates, so nothing becomes biased by it.
_JITTER = 1e-13
_DEFAULT_BITS = 8


@dataclass(frozen=True, init=False, eq=False)
class RRSC(ClosestMechanism):
    """Random rotating simplex coding: k-closest encoding on a regular simplex, exactly ε-LDP.

    The candidates are s_m = √(M/(M−1))·(q_m − q̄), m = 1, …, M = 2^bits ≤ d, the vertices of a regular simplex of unit
    vectors: q_1, …, q_M are orthonormal, from M public Gaussian vectors (rows of G) of the client's own by G = L·Q with
    the Cholesky factor L of G·Gᵀ, hence uniformly rotated. The k of largest ⟨s_m, x⟩ are inside; one of them is sent
    with probability T/2^62, else one of the others, uniformly on either side.

    (⟨q_m, u⟩) for a unit vector u is (g_1, …, g_M)/‖g‖ for a normal vector g in R^d, whose norm is independent of its
    direction, and centring keeps the order; so μ = E⟨s, u⟩ = √(M/(M−1))·E[t]/E[χ_d], t being the score drawn from M
    independent normal ones. x̂ = clip·s/μ is unbiased over the rotation, with error clip²/μ² − ‖x‖². For every number of
    bits that is the least error of all unbiased ε-LDP mechanisms whose codebook is rotated at random (Isik et al.).

    A client works O(d·M²) (the Gram matrix) and the server O(d·M²) a message.

    Args:
        dim: d, the length of the vectors.
        epsilon: ε of the local differential privacy of one message, 0.01 to 20.
        bits: b, the bits of a message, 1 to 12, with 2^b ≤ d; the default is 8, or as many as d allows.
        clip: vectors longer than this are scaled down to it.
        frame_seed: the public seed of the rotations.

    Examples:
        >>> mechanism = RRSC(dim=10_000, epsilon=3.0, bits=3)
        >>> mechanism.message_bits
        3
        >>> round(mechanism.expected_mse(np.full(10_000, 0.01)).total / 10_000, 3)
        0.869

    References:
        B. Isik, W.-N. Chen, A. Özgür, T. Weissman and A. No, *Exact optimality of communication-privacy-utility
        tradeoffs in distributed mean estimation*, NeurIPS 2023.
    """

    name: ClassVar[str] = "rrsc"
    _least_dim: ClassVar[int] = 2

    dim: int
    epsilon: float
    bits: int
    clip: float
    frame_seed: int
    choice: KClosest
    alignment: float

    def __init__(
        self, dim: int, epsilon: float, bits: int | None = None, clip: float = 1.0, *, frame_seed: int = 0
    ) -> None:
        if bits is None:
            dim = check_number("dim", dim, self._least_dim, 2**30, integer=True)
            bits = min(_DEFAULT_BITS, dim.bit_length() - 1)
        common = self._checked(dim, epsilon, bits, clip, frame_seed)
        choice = k_closest(common["epsilon"], 1 << common["bits"], lambda first, _: -first)
        self._set_parts(**common, choice=choice, alignment=_alignment(choice, common["dim"]))

    def _expected_alignment(self) -> float:
        return _alignment(self.choice, self.dim)

    @classmethod
    def _checked(cls, dim: int, epsilon: float, bits: int, clip: float, frame_seed: int) -> dict[str, Any]:
        common = super()._checked(dim, epsilon, bits, clip, frame_seed)
        if 1 << common["bits"] > common["dim"]:
            most = common["dim"].bit_length() - 1
            raise ValueError(
                f"bits must be an integer in [1, {most}] for dim={common['dim']}, got {bits}: 2^bits orthonormal "
                "vectors need as many dimensions"
            )
        return common

    def _scores(self, seeds: NDArray[np.uint64], directions: NDArray[np.float64]) -> NDArray[np.float64]:
        gram = np.zeros((len(seeds), self.size, self.size))
        products = np.zeros((len(seeds), self.size))
        for gaussians, inner in self._parts(seeds, directions):
            gram += gaussians @ gaussians.transpose(0, 2, 1)
            products += inner
        # ⟨q_m, u⟩, which has the order of ⟨s_m, u⟩.
        aligned = np.linalg.solve(self._factor(gram), products[:, :, None])[:, :, 0]
        return np.asarray(aligned, dtype=np.float64)

    def _vectors(self, seeds: NDArray[np.uint64], codes: NDArray[np.int64]) -> NDArray[np.float64]:
        ranges = self._columns(len(seeds))
        gram = np.zeros((len(seeds), self.size, self.size))
        for columns in ranges:
            gaussians = self._gaussians(seeds, columns)
            gram += gaussians @ gaussians.transpose(0, 2, 1)
        centred = (np.arange(self.size) == codes[:, None]) - 1 / self.size
        # s_m = √(M/(M−1))·(e_m − 1/M)ᵀ·L⁻¹·G.
        weights = np.linalg.solve(self._factor(gram).transpose(0, 2, 1), centred[:, :, None]).transpose(0, 2, 1)
        weights *= math.sqrt(self.size / (self.size - 1))
        vectors = np.empty((len(seeds), self.dim))
        for columns in ranges:
            if len(ranges) > 1:
                gaussians = self._gaussians(seeds, columns)
            vectors[:, columns] = (weights @ gaussians)[:, 0]
        return vectors

    @property
    def _vector_cost(self) -> int:
        return self._row_cost

    def _factor(self, gram: NDArray[np.float64]) -> NDArray[np.float64]:
        """The Cholesky factors L of G·Gᵀ; the argument is changed."""
        diagonal = np.einsum("nii->ni", gram)
        diagonal += _JITTER * diagonal.mean(axis=1, keepdims=True)
        return np.asarray(np.linalg.cholesky(gram), dtype=np.float64)


def _alignment(choice: KClosest, dim: int) -> float:
    """E⟨s, u⟩ of the drawn vertex: normal order statistics over E χ_d, stretched by the centring."""
    return math.sqrt(choice.size / (choice.size - 1)) * choice.moments()[0] / mean_chi(dim)
