"""A Hadamard frame mixed two or three times, with its row norms and column powers exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sstq import kernels
from sstq.frames import HadamardFrame
from sstq.schemes.base import row_chunks

__all__ = ["MixedFrame"]


@dataclass(frozen=True)
class MixedFrame(HadamardFrame):
    """A `HadamardFrame` that knows U_ji² for all of its rounds, at the cost of a few transforms.

    With two rounds (H·D₂·H)_ji = Σ_k D₂_k·H_k,(j⊕i) depends on j ⊕ i alone, so that sums of squares over rows or over
    columns are dyadic convolutions, products under the transform. With three rounds there is no such rule, and the
    d columns are made one by one: for small d only.

    Examples:
        >>> frame = MixedFrame(dim=5, size=16, seed=1, rounds=2)
        >>> np.allclose(frame.squared_row_norms(), np.sum(frame.rows(np.arange(16)) ** 2, axis=1))
        True
    """

    def squared_row_norms(self) -> NDArray[np.float64]:
        """‖u_j‖² for every j: 1 on average."""
        if self.rounds == 1:
            return super().squared_row_norms()
        if self.rounds == 2:
            return self._convolve((np.arange(self.size) < self.dim).astype(np.float64))
        norms = np.zeros(self.size)
        for part in row_chunks(self.dim, self.size):
            norms += np.sum(self._squared_columns(part), axis=0)
        return norms

    def column_power(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Σ_j weights_j·U_ji² for every column i."""
        if self.rounds == 1:
            return super().column_power(weights)
        if self.rounds == 2:
            return self._convolve(weights.astype(np.float64))[: self.dim]
        power = np.empty(self.dim)
        for part in row_chunks(self.dim, self.size):
            power[part] = self._squared_columns(part) @ weights
        return power

    def _squared_columns(self, part: slice) -> NDArray[np.float64]:
        spikes = np.zeros((part.stop - part.start, self.dim))
        spikes[np.arange(len(spikes)), np.arange(part.start, part.stop)] = 1.0
        return np.asarray(self.analyze(spikes), dtype=np.float64) ** 2

    @cached_property
    def _spectrum(self) -> NDArray[np.float64]:
        """The transform of the squares U_ji² as a function of j ⊕ i, over N."""
        squares = self._later_signs[0].astype(np.float64)
        kernels.hadamard_transform(squares)
        squares *= self._analysis_scale
        squares *= squares
        kernels.hadamard_transform(squares)
        squares /= self.size
        return squares

    def _convolve(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Σ_i weights_i·U_ji² for every j, all N columns being there; `weights` is overwritten."""
        kernels.hadamard_transform(weights)
        weights *= self._spectrum
        kernels.hadamard_transform(weights)
        # A sum of squares; rounding may leave a zero a hair below.
        return np.maximum(weights, 0.0, out=weights)
