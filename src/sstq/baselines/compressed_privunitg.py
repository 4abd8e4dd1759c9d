"""Compressed PrivUnitG: the optimal Gaussian randomizer with a shared seed, in a few bits."""

import math
from typing import ClassVar

import numpy as np

from sstq.baselines.candidates import ClosestCandidates
from sstq.mechanisms.base import Floats, Ints, Words
from sstq.mechanisms.sphere import GAUSSIAN_EXCESS
from sstq.mechanisms.two_level_draw import KClosest


class CompressedPrivUnitG(ClosestCandidates):
    """PrivUnitG by index into M = 2^bits public Gaussian vectors, exactly ε-LDP.

    The candidates z_1, …, z_M are independent N(0, I/d), public and the client's own. With u = x/‖x‖ the k of largest
    ⟨z_m, u⟩ are inside; one of them is sent with probability T/2^62, else one of the others, uniformly on either side.
    μ = E⟨z, u⟩ comes from normal order statistics, and x̂ = clip·z/μ is unbiased over the candidates, with error
    clip²·E‖z‖²/μ² − ‖x‖², E‖z‖² = (d − 1 + E[t²])/d, t being the score drawn. As M grows this is PrivUnitG.

    Warning:
        Feldman and Talwar send the first seed that rejection sampling accepts, from an endless list. On a short public
        list that is only approximately ε-LDP: an index drawn by acceptance probabilities has a normaliser that depends
        on x. Here the number of candidates inside is fixed, so that ε is exact; 8 bits cost 1 % in error.

    Args:
        bits: b, the bits of a message, 1 to 12.

    Examples:
        >>> mechanism = CompressedPrivUnitG(dim=10_000, epsilon=3.0, bits=8)
        >>> mechanism.message_bits, round(mechanism.expected_mse(np.full(10_000, 0.01)).total / 10_000, 3)
        (8, 0.75)

    References:
        V. Feldman and K. Talwar, *Lossless compression of efficient private local randomizers*, ICML 2021;
        H. Asi, V. Feldman and K. Talwar, *Optimal algorithms for mean estimation under local differential privacy*,
        ICML 2022 (PrivUnitG).
    """

    name = "compressed-privunitg"
    variants: ClassVar = {"compressed PrivUnitG, 8 bits": {"bits": 8}}

    def __init__(self, dim: int, epsilon: float, *, bits: int = 8, clip: float = 1.0, seed: int = 0) -> None:
        common = self._checked(dim=dim, epsilon=epsilon, bits=bits, clip=clip, seed=seed)
        self._hold_closest(lambda first, second: (common["dim"] - 1 + second) / first**2, common)

    @staticmethod
    def _alignment(choice: KClosest, dim: int) -> float:
        return choice.moments()[0] / math.sqrt(dim)

    def _scores(self, seeds: Words, directions: Floats) -> Floats:
        return np.asarray(sum(products for _, products in self._pieces(seeds, directions)))

    def _vectors(self, seeds: Words, codes: Ints) -> Floats:
        return self._chosen_gaussians(seeds, codes) / math.sqrt(self.dim)

    @property
    def _largest_norm(self) -> float:
        return 1 + GAUSSIAN_EXCESS / math.sqrt(self.dim)

    @property
    def _power(self) -> float:
        return (self.dim - 1 + self.choice.moments()[1]) / self.dim
