"""ProjUnit: PrivUnit of a public random projection, in 32·k bits and nearly the least error that ε-LDP allows."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, cast

import numpy as np

from sstq.baselines.caps import SphereCap
from sstq.baselines.privunit import CapMechanism, CapParameters
from sstq.checks import check_number, check_option
from sstq.frames.tight import transform_rounds
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.base import Floats, Floats32, Ints, Unbiased, Words
from sstq.mechanisms.parameters import Word
from sstq.mechanisms.sphere import GAUSSIAN_EXCESS, gaussians, mean_chi
from sstq.randomness import streams

# A mean length that was computed by another library of special functions may differ in the last digits.
_ALIGNMENT_TOLERANCE = 1e-9
_DEFAULT_PROJECTED = 512
# Two rounds of signs and Hadamard transforms mix well from this size on.
_SMALLEST_MIXED = 256
# Gaussian matrices are made of blocks of whole rows with about this many entries. The blocks are part of the definition
# of the matrix (each has a stream of its own), so this number cannot change.
_BLOCK_ENTRIES = 1 << 20


@dataclass(frozen=True)
class _Projection(ABC):
    """A public matrix W of R^`dim` to R^`projected` for each client, whose seed comes from its number."""

    dim: int
    projected: int
    seed: int = 0

    def _seeds(self, clients: Words) -> list[int]:
        return [int(seed) for seed in streams.words_of(self.seed, "project", clients)]

    @abstractmethod
    def project(self, x: Floats32, clients: Words) -> Floats32:
        """W x for each row."""

    @abstractmethod
    def lift(self, v: Floats32, clients: Words) -> Floats32:
        """Wᵀ v for each row."""

    def directions(self, x: Floats, clients: Words) -> Floats:
        """Wx/‖Wx‖ for each row."""
        projected = self.project(x.astype(np.float32), clients).astype(np.float64)
        norms = np.sqrt(np.einsum("ij,ij->i", projected, projected))
        # A fast projection may miss a sparse vector. Any unit vector will do then: changing all signs of the matrix
        # leaves Wx = 0 and turns Wᵀv round, so that it adds nothing on average.
        projected[norms == 0, 0] = 1.0
        projected /= np.where(norms > 0, norms, 1.0)[:, None]
        return projected


class GaussianProjection(_Projection):
    """W with independent N(0, 1) entries: k·d of them per client, of which about a million are held at a time.

    Rotate x to e₁: Wx is the first column w; WᵀWx/‖Wx‖ has ‖w‖ as its first coordinate, and the others, products of
    w/‖w‖ with independent columns, are zero on average. So its expectation is E[χ_k]·x exactly. For a unit vector v
    with ⟨v, w⟩ = t·‖w‖ that is the first coordinate of Wᵀv, the others are standard normal: E‖Wᵀv‖² = k·E[t²] + d − 1.
    """

    name: ClassVar[Literal["gaussian"]] = "gaussian"
    unbiased: ClassVar[bool] = True

    @property
    def mean_length(self) -> float:
        """E‖Wx‖ = E[χ_k] for a unit vector x."""
        return mean_chi(self.projected)

    def lifted_power(self, along: float) -> float:
        """E‖Wᵀv‖² = k·E⟨v, u⟩² + d − 1, given E⟨v, u⟩² for u = Wx/‖Wx‖."""
        return self.projected * along + self.dim - 1

    def project(self, x: Floats32, clients: Words) -> Floats32:
        """W x for each row."""
        projected = np.empty((len(x), self.projected), dtype=np.float32)
        for group, rows, matrix in self._blocks(clients):
            projected[group, rows] = (matrix @ x[group, :, None])[:, :, 0]
        return projected

    def lift(self, v: Floats32, clients: Words) -> Floats32:
        """Wᵀ v for each row."""
        lifted = np.zeros((len(v), self.dim), dtype=np.float32)
        for group, rows, matrix in self._blocks(clients):
            lifted[group] += (v[group, None, rows] @ matrix)[:, 0]
        return lifted

    def _blocks(self, clients: Words) -> Iterator[tuple[slice, slice, Floats32]]:
        """Parts of the matrices: which clients, which rows of their matrices, and these rows, (n, r, d).

        Block b of a client's matrix is the stream of purpose "g" + b under the client's seed, row by row.
        """
        seeds, k, d = self._seeds(clients), self.projected, self.dim
        height = max(1, _BLOCK_ENTRIES // d)
        for group in row_chunks(len(seeds), 2 * min(k, height) * d):
            for block, start in enumerate(range(0, k, height)):
                rows = slice(start, min(start + height, k))
                entries = (rows.stop - rows.start) * d
                words = np.stack([streams.words(seed, f"g{block}", -(-entries // 2)) for seed in seeds[group]])
                yield group, rows, gaussians(words)[:, :entries].reshape(len(words), -1, d)


class FastProjection(_Projection):
    """W = k rows, chosen at random, of random signs and a Hadamard transform of size N ≥ d, both applied twice.

    The constants are those of k random orthonormal rows of R^N: ‖Wx‖² ~ Beta(k/2, (N − k)/2); Wᵀv, of length 1 in R^N,
    is ⟨v, u⟩·‖Wx‖ along x and spread evenly over the N − 1 other directions, of which d coordinates keep d − 1. With
    k = N the matrix is orthogonal, and all of this is exact. With fewer rows the transform only resembles a random
    rotation (then N ≥ 256, because small ones do so badly: on N = 4 a spike is 9 % off).
    """

    name: ClassVar[Literal["fast"]] = "fast"

    @property
    def size(self) -> int:
        """N, the power of two from d on; at least 256 unless all its rows are taken."""
        power = _power_of_two(self.dim)
        return power if self.projected == power else max(power, _SMALLEST_MIXED)

    @property
    def unbiased(self) -> bool:
        """Whether E[WᵀWx/‖Wx‖] is exactly `mean_length`·x for every unit vector x: if all rows are taken."""
        return self.projected == self.size

    @property
    def mean_length(self) -> float:
        """E‖Wx‖ = Γ((k + 1)/2)·Γ(N/2)/(Γ(k/2)·Γ((N + 1)/2))."""
        return mean_chi(self.projected) / mean_chi(self.size)

    def lifted_power(self, along: float) -> float:
        """E‖Wᵀv‖² = a + (1 − a)(d − 1)/(N − 1) with a = E⟨v, u⟩²·k/N."""
        share = along * self.projected / self.size
        return share + (1 - share) * (self.dim - 1) / (self.size - 1)

    def project(self, x: Floats32, clients: Words) -> Floats32:
        """W x for each row."""
        projected = np.empty((len(x), self.projected), dtype=np.float32)
        for group, first, second, rows in self._draws(clients):
            mixed = np.zeros(second.shape, dtype=np.float32)
            mixed[:, : self.dim] = x[group] * first
            transform_rounds(mixed, [second])
            projected[group] = np.take_along_axis(mixed, rows, axis=1)
        projected /= np.float32(self.size)
        return projected

    def lift(self, v: Floats32, clients: Words) -> Floats32:
        """Wᵀ v for each row."""
        lifted = np.empty((len(v), self.dim), dtype=np.float32)
        for group, first, second, rows in self._draws(clients):
            mixed = np.zeros(second.shape, dtype=np.float32)
            np.put_along_axis(mixed, rows, v[group], axis=1)
            transform_rounds(mixed, [second])
            lifted[group] = mixed[:, : self.dim] * first
        lifted /= np.float32(self.size)
        return lifted

    def _draws(self, clients: Words) -> Iterator[tuple[slice, Floats32, Floats32, Ints]]:
        """Which clients, the signs of their first and second round, (n, d) and (n, N), and their rows, (n, k).

        The stream of purpose "fast" under a client's seed holds the bits of the first signs, of which d count, from the
        next whole word on those of the second, and then a word for each row: the k smallest are taken, rows ascending.
        """
        seeds, size = self._seeds(clients), self.size
        signs = -(-size // 64)
        count = 2 * signs + (0 if self.unbiased else size)
        for group in row_chunks(len(seeds), 8 * size):
            words = np.stack([streams.words(seed, "fast", count) for seed in seeds[group]])
            first = streams.signs_of_words(words[:, :signs], self.dim)
            second = streams.signs_of_words(words[:, signs : 2 * signs], size)
            if self.unbiased:
                rows = np.broadcast_to(np.arange(size), (len(words), size))
            else:
                rows = np.sort(np.argpartition(words[:, 2 * signs :], self.projected - 1, axis=1)[:, : self.projected])
            yield group, first, second, rows


Projection = GaussianProjection | FastProjection


def make_projection(name: str, dim: int, projected: int | None, seed: int) -> Projection:
    """Return the projection with this name; `projected` is 512 by default, or the largest useful value if less."""
    kind = FastProjection if check_option("projection", name, ("gaussian", "fast")) == "fast" else GaussianProjection
    most = _power_of_two(dim) if name == "fast" else dim
    chosen = min(most, _DEFAULT_PROJECTED) if projected is None else projected
    return kind(dim, check_number("projected", chosen, 2, most, integer=True), seed)


def _power_of_two(dim: int) -> int:
    """The power of two from d on."""
    return 1 << (dim - 1).bit_length()


@dataclass(frozen=True, eq=False, kw_only=True)
class ProjUnitParameters(CapParameters):
    """The parameters of ProjUnit: the cap is that of k = `projected` dimensions, and `alignment` is E‖Wx‖."""

    projected: int
    projection: Literal["gaussian", "fast"]
    seed: Word
    alignment: float


class ProjUnit(CapMechanism):
    """Each client has a public random k×d matrix W and sends PrivUnit of u = Wx/‖Wx‖; the server decodes Wᵀv.

    With m the gain of PrivUnit in R^k the estimate is x̂ = clip·Wᵀv/(m·E‖Wx‖).

    "gaussian": independent normal entries. x̂ is exactly unbiased, over messages and matrices, on every vector, and for
    ‖x‖ = clip

        E‖x̂ − x‖² = clip²·((d + (k − 1)·γ·m)/(m·E[χ_k])² − 1).

    Client and server each make k·d Gaussian numbers per message.

    "fast": random signs and a Hadamard transform of size N, twice, then k of the N rows; O(N log N) work per message.
    With k = N, the default up to d = 512, x̂ is exactly unbiased too. With fewer rows no bias was measured on structured
    and Gaussian vectors (to 0.1 % of ‖x‖ for k ≥ 32, 0.2 % for k = 2). That is not a proof, so `unbiased` is False
    then; the stated error takes the bias as zero.

    The paper runs PrivUnitG in R^k; PrivUnit has less error: 0.27 % above the optimum for k = 256, ε = 3, not 0.72 %.

    Reference: Asi, Feldman, Nelson, Nguyen, Talwar, *Fast optimal locally private mean estimation via random
    projections*, 2023.

    Args:
        projected: k, from 2 to d ("gaussian") or to the power of two from d on ("fast"); 512 by default, or the most
            allowed. For large d the error is then 0.1 % above the optimum at ε = 3, 2.1 % at ε = 16, in proportion to
            1/k.
        projection: "gaussian" (default) or "fast".
        seed: the public seed of the matrices; each client has its own by its number.

    Examples:
        >>> mechanism = ProjUnit(dim=100_000, epsilon=3.0, projection="fast")
        >>> x = np.full(100_000, 100_000**-0.5)
        >>> mechanism.message_bits == 32 * 512, round(mechanism.expected_mse(x).total / 100_000, 3)
        (True, 0.744)
    """

    name = "projunit"
    variants: ClassVar = {"ProjUnit": {}, "ProjUnit, fast": {"projection": "fast"}}

    seed_option = "seed"
    coin = "public"

    parameters_class = ProjUnitParameters
    parameters: ProjUnitParameters
    alignment: float

    def __init__(
        self,
        dim: int,
        epsilon: float,
        *,
        clip: float = 1.0,
        projected: int | None = None,
        projection: Literal["gaussian", "fast"] = "gaussian",
        seed: int = 0,
    ) -> None:
        common = self._checked(dim=dim, epsilon=epsilon, clip=clip, seed=seed)
        chosen = make_projection(projection, common["dim"], projected, common["seed"])
        cap = SphereCap.optimal(chosen.projected, common["epsilon"])
        solved = ProjUnitParameters(
            **common,
            mass=cap.mass,
            inside=cap.inside,
            gain=cap.gain,
            projected=chosen.projected,
            projection=chosen.name,
            alignment=chosen.mean_length,
        )
        self._hold(solved)

    def _check_solved(self) -> None:
        low, high = (self.projection.mean_length * (1 + way * _ALIGNMENT_TOLERANCE) for way in (-1, 1))
        check_number("alignment", self.alignment, low, high)

    @cached_property
    def projection(self) -> Projection:
        """The public matrix of each client."""
        solved = self.parameters
        return make_projection(solved.projection, self.dim, solved.projected, solved.seed)

    @property
    def _cap_dim(self) -> int:
        return self.projection.projected

    @property
    def unbiased(self) -> Unbiased:
        """Always if the projection is Gaussian or complete, else never."""
        return Unbiased.ALWAYS if self.projection.unbiased else Unbiased.NEVER

    @property
    def _row_cost(self) -> int:
        return 2 * self.dim + 4 * self.projection.projected

    @property
    def _decoding_factor(self) -> float:
        return self.clip / (self.cap.gain * self.alignment)

    @property
    def decoding_scale(self) -> float:
        """The root mean square of a decoded coordinate."""
        return self._decoding_factor * math.sqrt(
            self.projection.lifted_power(cast("SphereCap", self.cap).power_along) / self.dim
        )

    @property
    def _largest_stretch(self) -> float:
        """Wᵀ does not stretch unless it is Gaussian."""
        gaussian = math.sqrt(self.dim) + math.sqrt(self.projection.projected) + GAUSSIAN_EXCESS
        return gaussian if self.projection.name == "gaussian" else 1.0

    def _largest_biased_mean(self) -> float:
        """E[x̂ | W] = clip·Wᵀu/E‖Wx‖ for a unit vector u."""
        return self.clip / self.alignment
