"""Public random projections W of R^d to R^k, one per client: Gaussian matrices, and fast structured ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from sstq.checks import check_number, check_option
from sstq.frames.tight import transform_rounds
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.base import Floats, Floats32, Ints, Words
from sstq.mechanisms.sphere import gaussians, mean_chi
from sstq.randomness import streams

_DEFAULT_PROJECTED = 512
# Two rounds of signs and Hadamard transforms mix well from this size on.
_SMALLEST_MIXED = 256
# Gaussian matrices are made of blocks of whole rows with about this many entries. The blocks are part of the definition
# of the matrix (each has a stream of its own), so this number cannot change.
_BLOCK_ENTRIES = 1 << 20


@dataclass(frozen=True)
class _Projection:
    """A public matrix W of R^`dim` to R^`projected` for each client, whose seed comes from its number."""

    dim: int
    projected: int
    seed: int = 0

    def _seeds(self, clients: Words) -> list[int]:
        return [int(seed) for seed in streams.words_of(self.seed, "project", clients)]


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


def projected_directions(projection: "Projection", directions: Floats, clients: Words) -> Floats:
    """Wx/‖Wx‖ of each row."""
    projected = projection.project(directions.astype(np.float32), clients).astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", projected, projected))
    # A fast projection may miss a sparse vector. Any unit vector will do then: changing all signs of the matrix
    # leaves Wx = 0 and turns Wᵀv round, so that it adds nothing on average.
    projected[norms == 0, 0] = 1.0
    projected /= np.where(norms > 0, norms, 1.0)[:, None]
    return projected


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
