"""Tight frames: N vectors of R^d that spread any vector over N coordinates of about the same size.

A frame is an N×d matrix U with UᵀU = (N/d)·I, so that x = (d/N)·Uᵀy for y = U x. `HadamardFrame` is the fast
default, `FourierFrame` takes any N, and `OrthogonalFrame` is the Haar frame of the theory. All three are
functions of a public seed through `sstq.randomness.streams`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sstq import kernels
from sstq.array_types import Floats, Floats32, Ints, Reals
from sstq.checks import ArgumentError
from sstq.kernels.threads import row_chunks
from sstq.randomness import streams

_LARGEST_SIZE = 1 << 32
# A dense frame above this many entries (half a gigabyte) is a mistake: the structured frames exist for that.
_DENSE_LIMIT = 1 << 26


def default_frame_size(dim: int) -> int:
    """N = 2^⌈log₂ 2.5d⌉, the frame size of the paper's experiments: 65,536 for d = 25,450."""
    return 1 << (-(-5 * dim // 2) - 1).bit_length()


@dataclass(frozen=True)
class Frame(ABC):
    """The base class of frames. `dim` is d, `size` is N, and `seed` is public.

    Arrays go in as (n, d) or (n, N) and come out as (n, N) or (n, d), in the precision they came in.
    """

    name: ClassVar[str]

    dim: int
    size: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.dim <= self.size <= _LARGEST_SIZE:
            raise ArgumentError(
                "frame_size",
                f"must be from dim = {self.dim} ≥ 1 to 2^32, got {self.size}",
            )

    @property
    def redundancy(self) -> float:
        """ρ = N/d."""
        return self.size / self.dim

    @cached_property
    def signs(self) -> Floats32:
        """The signs of the d coordinates before the first transform."""
        return streams.signs(self.seed, "signs1", self.dim)

    @abstractmethod
    def analyze(self, x: Reals) -> Reals:
        """Return the least-norm coefficients y = U x of each row."""

    @abstractmethod
    def synthesize(self, y: Reals) -> Reals:
        """Return the vectors x = (d/N)·Uᵀy of each row."""

    def rows(self, indices: Ints) -> Floats:
        """Return the frame vectors u_j at the given indices, (n, d)."""
        spikes = np.zeros((len(indices), self.size))
        spikes[np.arange(len(indices)), indices] = self.redundancy
        return np.asarray(self.synthesize(spikes), dtype=np.float64)

    def ends(self) -> Floats:
        """The first and the last frame vector, (2, d)."""
        return self.rows(np.array([0, self.size - 1]))

    def squared_row_norms(self) -> Floats:
        """‖u_j‖² for every j, (N,): exactly 1 in an equal-norm frame, and 1 on average in any."""
        return np.ones(self.size)

    def longest_row(self) -> float:
        """The largest norm of a row."""
        return math.sqrt(float(np.max(self.squared_row_norms())))

    def column_power(self, weights: Floats) -> Floats:
        """Return Σ_j weights_j·U_ji² for every column i, (d,), from which standard errors are computed."""
        power = np.zeros(self.dim)
        chosen = np.flatnonzero(weights)
        for part in row_chunks(len(chosen), self.size):
            power += weights[chosen[part]] @ self.rows(chosen[part]) ** 2
        return power


def transform_rounds(work: Reals, signs_between: Iterable[Floats32]) -> Reals:
    """H·D·…·D'·H of each row, unnormalised and in place; the signs are one row for all or one row each."""
    kernels.hadamard_transform(work)
    for signs in signs_between:
        work *= signs
        kernels.hadamard_transform(work)
    return work


@dataclass(frozen=True)
class HadamardFrame(Frame):
    """d columns of the N×N Walsh–Hadamard matrix behind random signs; N a power of two.

    With `rounds` = 1 the columns are chosen at random, and the frame is exactly tight and exactly equal-norm. (The
    first d columns would not do: their rows repeat whenever d ≤ N/2.) With two or three rounds, signs and transform are
    applied again, which also flattens spikes; it is still exactly tight, but its rows have equal norms only on average.

    Examples:
        >>> frame = HadamardFrame(dim=3, size=8, seed=1)
        >>> x = np.array([[3.0, 4.0, 0.0]])
        >>> np.allclose(frame.synthesize(frame.analyze(x)), x)
        True
    """

    name: ClassVar[str] = "hadamard"

    rounds: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size & (self.size - 1):
            raise ValueError(
                f"frame_size must be a power of two for a Hadamard frame, got {self.size}"
            )
        if self.rounds not in (1, 2, 3):
            raise ValueError(f"rounds must be 1, 2 or 3, got {self.rounds}")

    @property
    def columns(self) -> Ints:
        """With one round, the places of the d coordinates among the N inputs of the transform, ascending."""
        return np.asarray(self.mixing[0])

    @cached_property
    def mixing(self) -> tuple[Any, Floats32, list[Floats32]]:
        """The places of the d coordinates, their signs, and those of all inputs in later rounds.

        With one round the places are chosen; with more the coordinates come first.
        """
        later = [
            streams.signs(self.seed, f"signs{k}", self.size)
            for k in range(2, self.rounds + 1)
        ]
        signs = self.signs
        if later:
            return slice(self.dim), signs, later
        return streams.choose(self.seed, "columns", self.dim, self.size), signs, later

    @property
    def _analysis_scale(self) -> float:
        """√(N/d) over the √N of each unnormalised transform."""
        return float(self.dim**-0.5 * self.size ** (-(self.rounds - 1) / 2))

    @property
    def synthesis_scale(self) -> float:
        """What unnormalised transforms there and back are short of x = (d/N)·Uᵀy."""
        return self._analysis_scale / self.redundancy

    def analyze(self, x: Reals) -> Reals:
        """Return the least-norm coefficients y = U x of each row."""
        y = np.zeros((len(x), self.size), dtype=x.dtype)
        scale = self._analysis_scale
        places, signs, later = self.mixing
        y[:, places] = x * signs
        transform_rounds(y, later)
        y *= scale
        return y

    def synthesize(self, y: Reals) -> Reals:
        """Return the vectors x = (d/N)·Uᵀy of each row."""
        places, signs, later = self.mixing
        scale = self.synthesis_scale
        x = transform_rounds(np.array(y, order="C"), later[::-1])[:, places] * signs
        x *= scale
        return x

    def squared_row_norms(self) -> Floats:
        """‖u_j‖² for every j: exactly 1 with one round or as many rows as columns, and on average otherwise."""
        if self.rounds == 1 or self.dim == self.size:
            return super().squared_row_norms()
        if self.rounds == 2:
            return self._convolve((np.arange(self.size) < self.dim).astype(np.float64))
        indices = np.arange(self.size)
        parts = row_chunks(self.size, self.size)
        return np.concatenate(
            [np.sum(self.rows(indices[part]) ** 2, axis=1) for part in parts]
        )

    def column_power(self, weights: Floats) -> Floats:
        """Σ_j weights_j·U_ji² for every column i; U_ji² = 1/d with one round."""
        if self.rounds == 1:
            return np.full(self.dim, float(np.sum(weights)) / self.dim)
        if self.rounds == 2:
            return self._convolve(weights.astype(np.float64))[: self.dim]
        return super().column_power(weights)

    @cached_property
    def _spectrum(self) -> Floats:
        """With two rounds, the transform of the squares U_ji² as a function of j ⊕ i, over N.

        (H·D₂·H)_ji = Σ_k D₂_k·H_k,(j⊕i) depends on j ⊕ i alone, so that sums of squares over rows or over columns are
        dyadic convolutions, products under the transform.
        """
        entries = self.mixing[2][0].astype(np.float64)
        kernels.hadamard_transform(entries)
        squares = (entries * self._analysis_scale) ** 2
        kernels.hadamard_transform(squares)
        return squares / self.size

    def _convolve(self, weights: Floats) -> Floats:
        """Σ_i weights_i·U_ji² for every j, all N columns being there; `weights` is overwritten."""
        kernels.hadamard_transform(weights)
        weights *= self._spectrum
        kernels.hadamard_transform(weights)
        # A sum of squares; rounding may leave a zero a hair below.
        return np.maximum(weights, 0.0, out=weights)


@dataclass(frozen=True)
class FourierFrame(Frame):
    """Cosines and sines at distinct random frequencies, behind random signs, through the FFT; any N ≥ d.

    The columns are √(2/d)·cos(2πfj/N) and √(2/d)·sin(2πfj/N) in pairs, with the constant 1/√d when d is odd, and the
    constant and the alternating column when N = d is even. Since cos² + sin² = 1 the frame is exactly tight and exactly
    equal-norm.

    Examples:
        >>> frame = FourierFrame(dim=3, size=7, seed=1)
        >>> x = np.array([[3.0, 4.0, 0.0]])
        >>> np.allclose(frame.synthesize(frame.analyze(x)), x)
        True
    """

    name: ClassVar[str] = "fourier"

    @property
    def _pairs(self) -> int:
        return min(self.dim // 2, (self.size - 1) // 2)

    @cached_property
    def frequencies(self) -> Ints:
        """The frequencies of the cosine–sine pairs, 1 ≤ f < N/2, ascending."""
        return 1 + streams.choose(self.seed, "freqs", self._pairs, (self.size - 1) // 2)

    @cached_property
    def _single_frequencies(self) -> Ints:
        """Frequencies of the columns without a partner: of the constant and of the alternating one, where needed."""
        return np.array(
            [0, self.size // 2][: self.dim - 2 * self._pairs], dtype=np.int64
        )

    def analyze(self, x: Reals) -> Reals:
        """Return the least-norm coefficients y = U x of each row."""
        pairs = self._pairs
        signed = x * self.signs
        spectrum = np.zeros(
            (len(x), self.size // 2 + 1), dtype=np.result_type(x.dtype, np.complex64)
        )
        # The inverse real FFT counts every frequency but 0 and N/2 twice, and divides by N.
        cosines = signed[:, :pairs]
        sines = signed[:, pairs : 2 * pairs]
        singles = signed[:, 2 * pairs :]
        spectrum[:, self.frequencies] = (cosines - 1j * sines) * (
            self.size * (2 * self.dim) ** -0.5
        )
        spectrum[:, self._single_frequencies] = singles * (self.size * self.dim**-0.5)
        return np.fft.irfft(spectrum, n=self.size, axis=1).astype(x.dtype, copy=False)

    def synthesize(self, y: Reals) -> Reals:
        """Return the vectors x = (d/N)·Uᵀy of each row."""
        spectrum = np.fft.rfft(y, axis=1)
        paired = spectrum[:, self.frequencies] * ((2 * self.dim) ** 0.5 / self.size)
        single = spectrum[:, self._single_frequencies].real * (
            self.dim**0.5 / self.size
        )
        x = np.concatenate([paired.real, -paired.imag, single], axis=1) * self.signs
        return x.astype(y.dtype, copy=False)

    def column_power(self, weights: Floats) -> Floats:
        """Σ_j weights_j·U_ji², from cos² = (1 + cos 2θ)/2 and one FFT of the weights."""
        spectrum = np.fft.fft(weights).real
        total = spectrum[0]
        doubled = spectrum[2 * self.frequencies % self.size]
        single = np.full(len(self._single_frequencies), total)
        return np.asarray(
            np.concatenate([total + doubled, total - doubled, single]) / self.dim
        )


@dataclass(frozen=True)
class OrthogonalFrame(Frame):
    """d orthonormal columns of R^N, uniform (Haar) among all of them, times √(N/d). Dense: for small d only.

    Tight to rounding; row norms vary, so the exact error of a mechanism takes them into account. The last digits of the
    QR decomposition, and of estimates, may differ between machines.

    Examples:
        >>> OrthogonalFrame(dim=3, size=8, seed=1).matrix.shape
        (8, 3)
    """

    name: ClassVar[str] = "orthogonal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim * self.size > _DENSE_LIMIT:
            got = f"got {self.dim * self.size}; use frame='hadamard' or 'fourier'"
            raise ValueError(
                f"an orthogonal frame is dense and must have at most 2^26 entries, {got}"
            )

    @cached_property
    def matrix(self) -> Floats:
        """U itself, (N, d)."""
        count = self.dim * self.size
        gaussians = kernels.box_muller(
            streams.words(self.seed, "gauss", count + count % 2)[None]
        )[0, :count]
        orthonormal, triangular = np.linalg.qr(gaussians.reshape(self.size, self.dim))
        # Without this the distribution depends on the sign convention of the QR routine and is not Haar.
        orthonormal *= np.where(np.diag(triangular) < 0, -1.0, 1.0)
        matrix: Floats = orthonormal * self.redundancy**0.5
        matrix.setflags(write=False)
        return matrix

    def analyze(self, x: Reals) -> Reals:
        """Return the least-norm coefficients y = U x of each row."""
        return (x @ self.matrix.T).astype(x.dtype, copy=False)

    def synthesize(self, y: Reals) -> Reals:
        """Return the vectors x = (d/N)·Uᵀy of each row."""
        return (y @ self.matrix / self.redundancy).astype(y.dtype, copy=False)

    def rows(self, indices: Ints) -> Floats:
        """Return the frame vectors u_j at the given indices, (n, d)."""
        return self.matrix[indices]

    def squared_row_norms(self) -> Floats:
        """‖u_j‖² for every j."""
        return np.asarray(np.einsum("jd,jd->j", self.matrix, self.matrix))


@dataclass(frozen=True)
class IdentityFrame(Frame):
    """The standard basis of R^d as a tight frame: U = I, N = d."""

    name = "identity"

    def analyze(self, x: Reals) -> Reals:
        """The vectors themselves."""
        return x.copy()

    def synthesize(self, y: Reals) -> Reals:
        """The coefficients themselves."""
        return y.copy()

    def column_power(self, weights: Floats) -> Floats:
        """The weights themselves."""
        return weights.copy()


FRAMES: dict[str, type[Frame]] = {
    frame.name: frame for frame in (HadamardFrame, OrthogonalFrame, FourierFrame)
}
"""The frames by their names."""
