"""RRSC and compressed PrivUnitG: a draw that prefers exactly k public candidates, those closest to the vector."""

import math
from typing import ClassVar

import numpy as np

from sstq.baselines.candidates import CandidateMechanism
from sstq.checks import RANGES, check_argument
from sstq.mechanisms.base import Floats, Ints, Words
from sstq.mechanisms.sphere import GAUSSIAN_EXCESS, mean_chi
from sstq.mechanisms.two_level_draw import KClosest

# Added to the Gram matrix relative to its diagonal: keeps it positive definite where d = M and the Gaussian vectors are
# all but dependent. It turns with the candidates, so nothing becomes biased by it.
_JITTER = 1e-13


class CompressedPrivUnitG(CandidateMechanism):
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

    def _scores(self, candidates: Floats, directions: Floats) -> Floats:
        return np.asarray((candidates @ directions[:, :, None])[:, :, 0])

    def _vectors(self, seeds: Words, codes: Ints) -> Floats:
        return self._gaussians(seeds, codes)[:, 0] / math.sqrt(self.dim)

    @property
    def _largest_norm(self) -> float:
        return 1 + GAUSSIAN_EXCESS / math.sqrt(self.dim)

    @property
    def _power(self) -> float:
        return float(self.dim - 1 + self.choice.moments()[1]) / self.dim


class RRSC(CandidateMechanism):
    """Random rotating simplex coding: k-closest encoding on a regular simplex, exactly ε-LDP.

    The candidates are s_m = √(M/(M−1))·(q_m − q̄), m = 1, …, M = 2^bits ≤ d, the vertices of a regular simplex of unit
    vectors: q_1, …, q_M are orthonormal, from M public Gaussian vectors (rows of G) of the client's own by G = L·Q with
    the Cholesky factor L of G·Gᵀ, hence uniformly rotated. The k of largest ⟨s_m, x⟩ are inside; one of them is sent
    with probability T/2^62, else one of the others, uniformly on either side.

    (⟨q_m, u⟩) for a unit vector u is (g_1, …, g_M)/‖g‖ for a normal vector g in R^d, whose norm is independent of its
    direction, and centring keeps the order; so μ = E⟨s, u⟩ = √(M/(M−1))·E[t]/E[χ_d], t being the score drawn from M
    independent normal ones. x̂ = clip·s/μ is unbiased over the rotation, with error clip²/μ² − ‖x‖². For every number of
    bits that is the least error of all unbiased ε-LDP mechanisms whose codebook is rotated at random (Isik et al.).

    Client and server each work O(d·M²) per message (the Gram matrix).

    Args:
        bits: b, the bits of a message, 1 to 12, with 2^b ≤ d; the default is 8, or as many as d allows.

    Examples:
        >>> mechanism = RRSC(dim=10_000, epsilon=3.0, bits=3)
        >>> mechanism.message_bits, round(mechanism.expected_mse(np.full(10_000, 0.01)).total / 10_000, 3)
        (3, 0.869)

    References:
        B. Isik, W.-N. Chen, A. Özgür, T. Weissman and A. No, *Exact optimality of communication-privacy-utility
        tradeoffs in distributed mean estimation*, NeurIPS 2023.
    """

    name = "rrsc"
    variants: ClassVar = {"RRSC, 3 bits": {"bits": 3}, "RRSC, 8 bits": {"bits": 8}}
    narrowed: ClassVar = {"dim": (2, RANGES["dim"][1])}

    def __init__(self, dim: int, epsilon: float, *, bits: int | None = None, clip: float = 1.0, seed: int = 0) -> None:
        common = self._checked(dim=dim, epsilon=epsilon, clip=clip, seed=seed)
        most = _most_bits(common["dim"])
        bits = check_argument("bits", min(8, most) if bits is None else bits, high=most)
        self._hold_closest(lambda first, _: -first, common | {"bits": bits})

    @staticmethod
    def _alignment(choice: KClosest, dim: int) -> float:
        check_argument("bits", choice.size.bit_length() - 1, high=_most_bits(dim))
        return math.sqrt(choice.size / (choice.size - 1)) * choice.moments()[0] / mean_chi(dim)

    def _scores(self, candidates: Floats, directions: Floats) -> Floats:
        # ⟨q_m, u⟩, which has the order of ⟨s_m, u⟩.
        return np.asarray(np.linalg.solve(_factor(candidates), candidates @ directions[:, :, None])[:, :, 0])

    def _vectors(self, seeds: Words, codes: Ints) -> Floats:
        gaussians = self._gaussians(seeds)
        centred = (np.arange(self.size) == codes[:, None]) - 1 / self.size
        # s_m = √(M/(M−1))·(e_m − 1/M)ᵀ·L⁻¹·G.
        weights = np.linalg.solve(_factor(gaussians).transpose(0, 2, 1), centred[:, :, None]).transpose(0, 2, 1)
        return np.asarray((weights * math.sqrt(self.size / (self.size - 1)) @ gaussians)[:, 0])

    @property
    def _vector_cost(self) -> int:
        return self._row_cost


def _factor(gaussians: Floats) -> Floats:
    """The Cholesky factors L of G·Gᵀ."""
    gram = gaussians @ gaussians.transpose(0, 2, 1)
    diagonal = np.einsum("nii->ni", gram)
    diagonal += _JITTER * diagonal.mean(axis=1, keepdims=True)
    return np.asarray(np.linalg.cholesky(gram), dtype=np.float64)


def _most_bits(dim: int) -> int:
    """2^bits orthonormal vectors need as many dimensions."""
    return min(int(RANGES["bits"][1]), dim.bit_length() - 1)
