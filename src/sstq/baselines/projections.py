"""Random projections: Gaussian matrices by their numbers, which clients draw and send."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sstq.extending import Floats, Floats32, Ints, Words, row_chunks, streams

MATRICES = 1 << 32
"""How many matrices there are."""

# By how much the norm of a Gaussian matrix may exceed its typical one. It does so by more with probability e^(−13²/2):
# for any of 2^32 matrices with less than 1e-26.
_EXCESS = 13.0

# Matrices are made of blocks of whole rows with about this many entries. The blocks are part of the definition of the
# matrix (each has a stream of its own), so this number cannot change.
_BLOCK_ENTRIES = 1 << 20


@dataclass(frozen=True)
class Projection:
    """Matrices W from R^`dim` to R^`projected`; the seed of each comes from its number."""

    dim: int
    projected: int
    seed: int

    @property
    def stretch(self) -> float:
        """Hardly any Wᵀ stretches a vector by more."""
        return math.sqrt(self.dim) + math.sqrt(self.projected) + _EXCESS

    def directions(self, x: Floats, matrices: Ints) -> Floats:
        """Wx/‖Wx‖ for each row."""
        single = x.astype(np.float32)
        projected = np.empty((len(x), self.projected), dtype=np.float32)
        for group, rows, matrix in self._blocks(matrices):
            projected[group, rows] = (matrix @ single[group, :, None])[:, :, 0]
        unit = projected.astype(np.float64)
        norms = np.sqrt(np.einsum("ij,ij->i", unit, unit))
        # Hardly ever, and then any unit vector will do: changing all signs of W leaves Wx = 0 and turns Wᵀv round.
        unit[norms == 0, 0] = 1.0
        unit /= np.where(norms > 0, norms, 1.0)[:, None]
        return unit

    def lift(self, v: Floats32, matrices: Ints) -> Floats32:
        """Wᵀv for each row."""
        lifted = np.zeros((len(v), self.dim), dtype=np.float32)
        for group, rows, matrix in self._blocks(matrices):
            lifted[group] += (v[group, None, rows] @ matrix)[:, 0]
        return lifted

    def _blocks(self, matrices: Ints) -> Iterator[tuple[slice, slice, Floats32]]:
        """Parts of the matrices: which messages, which rows of their matrices, and these rows, (n, r, d).

        Block b of a matrix is the stream of purpose "g" + b under the matrix's seed, row by row.
        """
        k = self.projected
        d = self.dim
        seeds = streams.words_of(
            self.seed, "project", matrices.astype(np.uint64)
        ).tolist()
        height = max(1, _BLOCK_ENTRIES // d)
        for group in row_chunks(len(seeds), 2 * min(k, height) * d):
            for block, start in enumerate(range(0, k, height)):
                rows = slice(start, min(start + height, k))
                entries = (rows.stop - rows.start) * d
                words = np.stack(
                    [
                        streams.words(seed, f"g{block}", -(-entries // 2))
                        for seed in seeds[group]
                    ]
                )
                yield (
                    group,
                    rows,
                    gaussians(words)[:, :entries].reshape(len(words), -1, d),
                )


def gaussians(words: Words) -> Floats32:
    """Two public standard normal numbers per word, in single precision: (…, w) words to (…, 2w) numbers.

    The Box–Muller formula: the high half h of the word gives the radius √(−2·ln((h + 1/2)/2^32)), the low half l the
    angle 2π·l/2^32; cosine, then sine.
    """
    # The sum may round up to 2^32, and the radius is then a harmless 0; it is never infinite.
    uniform = (
        (words >> np.uint64(32)).astype(np.float32) + np.float32(0.5)
    ) * np.float32(2.0**-32)
    angle = (words & np.uint64(0xFFFFFFFF)).astype(np.float32) * np.float32(
        2 * math.pi / 2**32
    )
    radius = np.sqrt(np.float32(-2) * np.log(uniform))
    numbers = np.empty((*words.shape, 2), dtype=np.float32)
    np.multiply(radius, np.cos(angle), out=numbers[..., 0])
    np.multiply(radius, np.sin(angle), out=numbers[..., 1])
    return numbers.reshape(*words.shape[:-1], -1)
