"""Mechanisms whose message names one of the client's public candidate vectors: RRSC, compressed PrivUnitG, and MMRC.

Client and server know M = 2^bits Gaussian vectors that belong to the client's identifier alone. The client sends the
index of one of them, drawn so that the well aligned ones are likelier, by at most e^ε.

The client's seed is the word of its identifier in the stream (seed, "cand") of `sstq.randomness.streams`. Candidate m
takes words m·w, …, (m+1)·w − 1 of the stream (client's seed, "normals"), w = 4·⌈d/8⌉, so that it is made without the
others. A word gives two coordinates by the Box–Muller formula (`sstq.mechanisms.sphere.gaussians`, offset 1).
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np

from sstq.aggregation import VectorAggregator
from sstq.checks import RANGES, check_argument, check_number
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.base import Columns, EncoderInput, Floats, Ints, Mechanism, Rows, Words
from sstq.mechanisms.parameters import Parameters, Word
from sstq.mechanisms.sphere import GAUSSIAN_EXCESS, gaussians, mean_chi, random_directions
from sstq.mechanisms.two_level_draw import KClosest, k_closest
from sstq.messages.batch import Messages
from sstq.messages.layouts import Field, Layout
from sstq.randomness import streams

# A Philox block is four words, hence eight coordinates.
_BLOCK = 8
# Other versions of a library may integrate to other last digits.
_ALIGNMENT_TOLERANCE = 1e-6
_NORMALS_KEY = int.from_bytes(b"normals", "little")
# Added to the Gram matrix relative to its diagonal: keeps it positive definite where d = M and the Gaussian vectors are
# all but dependent. It turns with the candidates, so nothing becomes biased by it.
_JITTER = 1e-13


@dataclass(frozen=True, eq=False, kw_only=True)
class CandidateParameters(Parameters):
    """What all candidate mechanisms have; `alignment` is μ."""

    dim: int
    epsilon: float
    bits: int
    clip: float
    seed: Word
    alignment: float


@dataclass(frozen=True, eq=False, kw_only=True)
class ClosestParameters(CandidateParameters):
    """The parameters of a draw with exactly k = `inside` candidates inside, T of 2^62."""

    inside: int
    threshold: Word


class CandidateMechanism(Mechanism):
    """A mechanism whose message is the index of one of the client's 2^bits public candidates.

    The estimate is clip·z/μ, z being the named candidate and μ = E⟨z, u⟩ its expected alignment with the direction u.
    The candidates are rotation-invariant, so E[z] points along u and the estimate is unbiased over the public coin. A
    client makes M·d numbers at a time.

    Attributes:
        bits: b, the bits of a message, 1 to 12 (8 by default); a client has M = 2^b candidates.
        seed: the public seed of all candidates.
        alignment: μ.
    """

    exact = True
    aggregator_class = VectorAggregator
    parameters_class: ClassVar[type[Parameters]] = ClosestParameters
    _draws_by = "choice"
    seed_option = "seed"
    coin = "public"

    parameters: Any
    bits: int
    seed: int
    alignment: float

    def _hold_closest(self, loss: Callable[[Floats, Floats], Floats], common: dict[str, Any]) -> None:
        """Solve for the k of least loss, a function of the first two moments of the score drawn."""
        choice = k_closest(common["epsilon"], 1 << common["bits"], loss)
        alignment = self._alignment(choice, common["dim"])
        self._hold(ClosestParameters(**common, inside=choice.inside, threshold=choice.threshold, alignment=alignment))

    def _check_solved(self) -> None:
        computed = self._alignment(self.choice, self.dim)
        low, high = (max(computed * (1 + way * _ALIGNMENT_TOLERANCE), 1e-30) for way in (-1, 1))
        check_number("alignment", self.alignment, low, high)

    @cached_property
    def layout(self) -> Layout:
        """The number of the candidate."""
        return Layout((Field("code", self.size),))

    @property
    def size(self) -> int:
        """M, the number of candidates of a client."""
        return 1 << self.bits

    @cached_property
    def choice(self) -> Any:
        """The draw: `draw(scores, words)` takes scores, (n, M), and two secret words per row."""
        return KClosest(self.size, self.parameters.inside, self.parameters.threshold)

    @staticmethod
    @abstractmethod
    def _alignment(choice: Any, dim: int) -> float:
        """μ of a draw among candidates in R^`dim`, from its integers."""

    @abstractmethod
    def _scores(self, candidates: Floats, directions: Floats) -> Floats:
        """The scores by which Gaussian candidates, (n, M, d), are well aligned with the client's direction, (n, M)."""

    @abstractmethod
    def _vectors(self, seeds: Words, codes: Ints) -> Floats:
        """The named candidates z, (n, d)."""

    @property
    def _power(self) -> float:
        """E‖z‖² of the candidate that is sent."""
        return 1.0

    def _encode(self, batch: EncoderInput) -> Columns:
        directions = random_directions(self._unit_ball(batch.rows, batch.report), batch.words[:, 0])
        # Scores only sort or classify the candidates; no rounding error here can cost privacy.
        scores = self._scores(self._gaussians(self._seeds(batch.clients)), directions)
        return (self.choice.draw(scores, batch.words[:, 1:]),)

    def _decode(self, messages: Messages) -> Floats:
        seeds, codes = self._seeds(messages.clients), messages.column("code").astype(np.int64)
        estimates = np.empty((len(codes), self.dim))
        for part in row_chunks(len(codes), self._vector_cost):
            estimates[part] = self._vectors(seeds[part], codes[part])
        estimates *= self.clip / self.alignment
        return estimates

    @property
    def decoding_scale(self) -> float:
        """The root mean square of a decoded coordinate."""
        return self.clip / (self.alignment * math.sqrt(self.dim))

    @property
    def _largest_norm(self) -> float:
        """Candidates are unit vectors, to the rounding of a decomposition."""
        return 1 + 1e-6

    def largest_message(self) -> float:
        """The longest candidate; a bound if they are Gaussian."""
        return self._largest_norm * self.clip / self.alignment

    @property
    def _row_cost(self) -> int:
        return 2 * self.size * self.dim

    @property
    def _vector_cost(self) -> int:
        """How many numbers the decoding of one message keeps at a time."""
        return 2 * self.dim

    def _row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """Exact: E[x̂] = x, and E‖x̂‖² = clip²·E‖z‖²/μ² whatever x is."""
        return self._unbiased_error(rows, (self.clip / self.alignment) ** 2 * self._power)

    def _seeds(self, clients: Words | None) -> Words:
        # Behind a public coin the contract has already refused messages without clients.
        return streams.words_of(self.seed, "cand", cast("Words", clients))

    def _gaussians(self, seeds: Words, codes: Ints | None = None) -> Floats:
        """All Gaussian candidates of each client, (n, M, d), or the one with the given code, (n, 1, d)."""
        blocks, count = -(-self.dim // _BLOCK), self.size if codes is None else 1
        starts = np.zeros(len(seeds), dtype=np.int64) if codes is None else codes * blocks
        words = np.empty((len(seeds), 4 * blocks * count), dtype=np.uint64)
        # Setting the state of one generator is several times cheaper than making one per row.
        generator = np.random.Philox(key=0)
        state: Any = generator.state
        for row, seed, start in zip(words, seeds.tolist(), starts.tolist(), strict=True):
            state["state"]["key"][:] = (seed, _NORMALS_KEY)
            state["state"]["counter"][:] = (start, 0, 0, 0)
            generator.state = state
            row[:] = generator.random_raw(len(row))
        numbers = gaussians(words, offset=1.0).reshape(len(seeds), count, -1)
        return numbers[:, :, : self.dim].astype(np.float64)


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
        candidates = self._gaussians(seeds)
        centred = (np.arange(self.size) == codes[:, None]) - 1 / self.size
        # s_m = √(M/(M−1))·(e_m − 1/M)ᵀ·L⁻¹·G.
        weights = np.linalg.solve(_factor(candidates).transpose(0, 2, 1), centred[:, :, None]).transpose(0, 2, 1)
        return np.asarray((weights * math.sqrt(self.size / (self.size - 1)) @ candidates)[:, 0])

    @property
    def _vector_cost(self) -> int:
        return self._row_cost


def _factor(candidates: Floats) -> Floats:
    """The Cholesky factors L of G·Gᵀ."""
    gram = candidates @ candidates.transpose(0, 2, 1)
    diagonal = np.einsum("nii->ni", gram)
    diagonal += _JITTER * diagonal.mean(axis=1, keepdims=True)
    return np.asarray(np.linalg.cholesky(gram), dtype=np.float64)


def _most_bits(dim: int) -> int:
    """2^bits orthonormal vectors need as many dimensions."""
    return min(int(RANGES["bits"][1]), dim.bit_length() - 1)
