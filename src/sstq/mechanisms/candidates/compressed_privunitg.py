"""Compressed PrivUnitG: the optimal Gaussian randomizer with a shared seed, in a few bits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_argument
from sstq.mechanisms.candidates.base import ClosestMechanism
from sstq.mechanisms.closest import KClosest, k_closest
from sstq.mechanisms.sphere import GAUSSIAN_EXCESS

__all__ = ["CompressedPrivUnitG"]


class CompressedPrivUnitG(ClosestMechanism):
    """PrivUnitG by index into M = 2^bits public Gaussian vectors, exactly ε-LDP.

    The candidates z_1, …, z_M are independent N(0, I/d), public and the client's own. With u = x/‖x‖ the k of largest
    ⟨z_m, u⟩ are inside; one of them is sent with probability T/2^62, else one of the others, uniformly on either side.
    The numbers ⟨z_m, u⟩·√d are independent standard normal, so that μ = E⟨z, u⟩ comes from their order statistics and
    x̂ = clip·z/μ is unbiased over the candidates. Its error is clip²·E‖z‖²/μ² − ‖x‖², with
    E‖z‖² = (d − 1 + E[t²])/d, t being the score drawn. As M grows this is PrivUnitG, the optimum.

    Warning:
        Feldman and Talwar compress a randomizer by rejection sampling: seeds of a pseudorandom generator are tried
        until one is accepted, and that seed is sent. There the list of candidates is as good as endless. On a short
        public list the index of the first accepted candidate is not private (the rejected ones before it tell), and an
        index drawn in proportion to the acceptance probabilities has a normaliser that depends on x, so that ε-LDP
        holds only approximately. Here the number of candidates inside is fixed instead, which makes the
        normaliser constant and ε exact; 8 bits cost 1 % in error.

    Args:
        dim: d, the length of the vectors.
        epsilon: ε of the local differential privacy of one message, 0.01 to 20.
        bits: b, the bits of a message, 1 to 12.
        clip: vectors longer than this are scaled down to it.
        seed: the public seed of the candidates.

    Examples:
        >>> mechanism = CompressedPrivUnitG(dim=10_000, epsilon=3.0, bits=8)
        >>> mechanism.message_bits
        8
        >>> round(mechanism.expected_mse(np.full(10_000, 0.01)).total / 10_000, 3)
        0.75

    References:
        V. Feldman and K. Talwar, *Lossless compression of efficient private local randomizers*, ICML 2021;
        H. Asi, V. Feldman and K. Talwar, *Optimal algorithms for mean estimation under local differential privacy*,
        ICML 2022 (PrivUnitG).
    """

    name: ClassVar[str] = "compressed-privunitg"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"compressed PrivUnitG, 8 bits": {"bits": 8}}
    sweeps: ClassVar[Mapping[str, Sequence[Mapping[str, Any]]]] = {
        "compressed PrivUnitG": [{"bits": bits} for bits in (1, 2, 3, 4, 6, 8)],
    }

    def __init__(self, dim: int, epsilon: float, *, bits: int = 8, clip: float = 1.0, seed: int = 0) -> None:
        dim, epsilon, bits = (check_argument(*pair) for pair in (("dim", dim), ("epsilon", epsilon), ("bits", bits)))
        if self._stated is None:
            choice = k_closest(epsilon, 1 << bits, lambda first, second: (dim - 1 + second) / first**2)
        else:
            choice = KClosest.stated(epsilon, 1 << bits, self._stated)
        self._set_draw(dim=dim, epsilon=epsilon, bits=bits, clip=clip, seed=seed, choice=choice)

    def _expected_alignment(self) -> float:
        return self.choice.moments()[0] / math.sqrt(self.dim)

    def _scores(self, seeds: NDArray[np.uint64], directions: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = np.zeros((len(seeds), self.size))
        for _, products in self._pieces(seeds, directions):
            scores += products
        return scores

    def _vectors(self, seeds: NDArray[np.uint64], codes: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._chosen_gaussians(seeds, codes) / math.sqrt(self.dim)

    def largest_message(self) -> float:
        """A bound: candidates are Gaussian vectors."""
        return (1 + GAUSSIAN_EXCESS / math.sqrt(self.dim)) * self.clip / self.alignment

    @property
    def _power(self) -> float:
        return (self.dim - 1 + self.choice.moments()[1]) / self.dim
