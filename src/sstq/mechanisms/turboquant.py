"""TurboQuant: a random rotation and the best scalar quantizer of its coordinates, b bits each. No privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.bounded_sums import BoundedAggregator
from sstq.checks import check_argument, check_option
from sstq.frames.tight import HadamardFrame
from sstq.mechanisms.base import LocalReport, Trust, Unbiased
from sstq.mechanisms.framed import FramedMechanism
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column, Field, FloatField, Layout
from sstq.randomness.secret import BitSource

__all__ = ["TurboQuant", "lloyd_max_distortion", "lloyd_max_levels"]

_MOST_BITS = 8
# Lloyd's iteration is slow but always converges; Newton's doubles the digits once it is near.
_LLOYD_STEPS, _NEWTON_STEPS = 500, 8
# A clipped vector's norm, rounded to single precision, exceeds 1 by less than this.
_ROUNDING = 1e-6
_DECODERS = ("identity", "unbiased")
# Two rounds of signs and transform leave the coordinates of a spike on a lattice of step 2/√N, which moves the
# shrinkage by 0.4·D at N = 4096 and four bits.
_ROUNDS = 3


class TurboQuant(FramedMechanism):
    """The direction of a vector, rotated at random and quantized to b bits a coordinate, and its norm.

    The rotation pads to N, the next power of two, and is three rounds of random signs and a Walsh–Hadamard transform. A
    coordinate of the rotated direction times √N is close to a standard normal number, whatever the vector, and is sent
    as the nearest level of the Lloyd–Max quantizer of that distribution. A message holds N codes of b bits and the norm
    as float32: b·N + 32 bits.

    With D the distortion of the quantizer (0.3634, 0.1175, 0.03454, 0.009497 for b = 1 … 4), over random rotations,

        E‖x̂ − x‖² = ‖x‖²·(D² + (d/N)·D·(1 − D)),    E⟨x̂, x⟩ = (1 − D)·‖x‖²,

    which is D·‖x‖² when d = N; the part of the quantization error outside the padded space is projected away. The
    "unbiased" decoder divides by 1 − D, so that E[x̂] = x over random rotations, for

        E‖x̂ − x‖² = ‖x‖²·(d/N)·D/(1 − D),

    0.571·‖x‖² at one bit and d = N: more for a single vector, and less for the mean of two or more clients that differ.
    These are large-d values: for d below about 100 the coordinates of a rotated unit vector are not yet normal.

    Reference: A. Zandieh, M. Daliri, M. Hadian, V. Mirrokni, *TurboQuant: online vector quantization with near-optimal
    distortion rate*, 2025 (the MSE-optimal quantizer). The codebook there is for the Beta distribution of a coordinate
    on the sphere, which is normal for large d; this one is the normal one at every d. The unbiased decoder has the
    error of EDEN: S. Vargaftik, R. Ben Basat, A. Portnoy, G. Mendelson, Y. Ben-Itzhak, M. Mitzenmacher, *EDEN:
    communication-efficient and robust distributed mean estimation for federated learning*, ICML 2022.

    Warning:
        Biased with the paper's decoder: the estimate is shrunk by 1 − D on average, and more clients do not help. With
        either decoder it is a deterministic function of the vector and the public frame seed, so `unbiased` is False,
        `expected_mse` has no variance, and its bias is the actual error under this frame. Nothing is private (`trust`
        is "none", ε infinite), and so `exact` is False.

    Args:
        dim: d, the length of the vectors.
        bits: b, the bits of a coordinate, 1 to 8.
        clip: vectors longer than this are scaled down to it.
        decoder: "identity" (default), the paper's: the levels themselves, of least error for one vector; or "unbiased",
            the levels over 1 − D, for the mean of many.
        frame_seed: the public seed of the rotation.

    Examples:
        >>> mechanism = TurboQuant(dim=1000, bits=2)
        >>> mechanism.message_bits == 2 * 1024 + 32
        True
        >>> round(mechanism.distortion, 4)
        0.1175
        >>> TurboQuant(dim=1000, bits=1, decoder="unbiased").decoding_values.round(4)
        array([-1.2533,  1.2533])
    """

    name: ClassVar[str] = "turboquant"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"TurboQuant, 4 bits per number": {"bits": 4}}
    exact: ClassVar[bool] = False
    trust: ClassVar[Trust] = "none"

    unbiased = Unbiased.NEVER
    epsilon = math.inf

    bits: int
    decoder: str
    frame: HadamardFrame
    levels: NDArray[np.float64]

    def __init__(
        self,
        dim: int,
        *,
        bits: int = 4,
        clip: float = 1.0,
        decoder: Literal["identity", "unbiased"] = "identity",
        frame_seed: int = 0,
    ) -> None:
        dim, bits = check_argument("dim", dim), check_argument("bits", bits, high=_MOST_BITS)
        levels = lloyd_max_levels(bits) if self._stated is None else np.array(self._stated["levels"], dtype=np.float64)
        if levels.shape != (1 << bits,) or not np.all(np.abs(levels) < 100) or not np.all(np.diff(levels) > 0):
            raise ValueError(f"levels must be 2^bits = {1 << bits} increasing numbers in (-100, 100)")
        levels.setflags(write=False)
        seed, size = check_argument("frame_seed", frame_seed), 1 << (dim - 1).bit_length()
        self._set(
            dim=dim,
            bits=bits,
            clip=check_argument("clip", clip),
            decoder=check_option("decoder", decoder, ("identity", "unbiased")),
            frame=HadamardFrame(dim, size, seed, rounds=_ROUNDS),
            levels=levels,
        )

    @property
    def distortion(self) -> float:
        """D, the mean squared error of the quantizer for standard normal input."""
        return lloyd_max_distortion(self.levels)

    @property
    def layout(self) -> Layout:
        """The N codes, and the norm in units of clip."""
        return Layout((Field("code", self.bits, 1 << self.bits, count=self.frame.size), FloatField("norm")))

    @property
    def decoding_values(self) -> NDArray[np.float64]:
        """What the codes stand for, in units of ‖x‖/√d: the levels, over 1 − D for the unbiased decoder."""
        return self.levels if self.decoder == "identity" else self.levels / (1 - self.distortion)

    @property
    def decoding_bound(self) -> float:
        """What no decoded coordinate exceeds: the norm of x̂ is at most that of the decoding values."""
        return self.clip * (1 + _ROUNDING) * max(1.0, float(np.max(np.abs(self.decoding_values))))

    def _encode_rows(
        self,
        rows: NDArray[Any],
        clients: NDArray[np.uint64] | None,  # noqa: ARG002 (the coin is private)
        source: BitSource,  # noqa: ARG002 (nothing is random)
        report: LocalReport | None,
    ) -> tuple[Column, ...]:
        return self._quantize(self._unit_ball(rows, report))

    def _quantize(self, unit: NDArray[np.float32]) -> tuple[Column, Column]:
        norms = np.linalg.norm(unit.astype(np.float64), axis=1)
        directions = (unit / np.where(norms > 0, norms, 1.0)[:, None]).astype(np.float32)
        # U has rows of norm 1 on average, so that y·√d has root mean square 1.
        coordinates = self.frame.analyze(directions) * np.float32(math.sqrt(self.dim))
        thresholds = ((self.levels[1:] + self.levels[:-1]) / 2).astype(np.float32)
        codes = np.searchsorted(thresholds, coordinates)
        return codes[:, 0] if self.frame.size == 1 else codes, norms.astype(np.float32)

    def _check_columns(self, columns: tuple[Column, ...]) -> None:
        wrong = np.flatnonzero(~((columns[1] >= 0) & (columns[1] <= 1 + _ROUNDING)))
        if len(wrong):
            raise ValueError(f"message {wrong[0]}: norm must be in [0, 1] in units of clip, got {columns[1][wrong[0]]}")

    def decode(self, messages: Messages) -> NDArray[np.float64]:
        """The estimate of each message alone, (n, d)."""
        self._check_own(messages)
        return self._estimates(messages.column("code"), messages.column("norm"))

    def _estimates(self, codes: Column, norms: Column) -> NDArray[np.float64]:
        coordinates = self.decoding_values[codes.reshape(-1, self.frame.size)] / math.sqrt(self.dim)
        estimates = np.asarray(self.frame.synthesize(coordinates), dtype=np.float64)
        estimates *= (norms.astype(np.float64) * self.clip)[:, None]
        return estimates

    def aggregator(self) -> BoundedAggregator:
        """An empty aggregator for this mechanism's messages."""
        return BoundedAggregator(self)

    def largest_message(self) -> float:
        """The norm of x̂ is at most that of the levels."""
        return (1 + _ROUNDING) * self.clip * float(np.max(np.abs(self.levels)))

    def privacy_loss(self) -> float:
        """Infinite: the vector can be read from the message."""
        return math.inf

    def _row_error(self, rows: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Exact: what this frame makes of each row, without variance."""
        unit = self._unit_ball(rows)
        return self._estimates(*self._quantize(unit)), np.zeros(len(rows))

    def to_dict(self) -> dict[str, Any]:
        """The options and the levels. ε is infinite, which JSON cannot say: it is left out."""
        names = ("dim", "bits", "clip", "decoder")
        frame_seed, levels = str(self.frame.seed), self.levels.tolist()
        return {name: getattr(self, name) for name in names} | {"frame_seed": frame_seed, "levels": levels}


@cache
def lloyd_max_levels(bits: int) -> NDArray[np.float64]:
    """The 2^bits levels of least mean squared error for a standard normal number, by Lloyd's and Newton's methods.

    The levels are symmetric. With thresholds t_i halfway between neighbours, t_0 = 0 and t_m = ∞, the m = 2^(bits − 1)
    positive ones satisfy c_i·(Φ(t_i) − Φ(t_{i−1})) = φ(t_{i−1}) − φ(t_i): each is the mean of its cell (S. Lloyd 1957,
    J. Max 1960). The start is the Panter–Dite spacing, density ∝ φ^(1/3).

    Examples:
        >>> lloyd_max_levels(2).round(4)
        array([-1.5104, -0.4528,  0.4528,  1.5104])
    """
    from scipy.special import ndtr, ndtri

    half = 1 << (bits - 1)
    levels: NDArray[np.float64] = math.sqrt(3) * ndtri((half + np.arange(half) + 0.5) / (2 * half))
    for iteration in range(_LLOYD_STEPS + _NEWTON_STEPS):
        inner = (levels[1:] + levels[:-1]) / 2
        thresholds = np.concatenate([[0.0], inner, [np.inf]])
        # Masses as differences of upper tails keep their digits far out.
        masses = -np.diff(ndtr(-thresholds))
        heights = np.exp(-(thresholds**2) / 2) / math.sqrt(2 * math.pi)
        if iteration < _LLOYD_STEPS:
            levels = -np.diff(heights) / masses
            continue
        # d/dt_i of the equations of the cells on both sides of t_i; t_i moves by half of what either level moves.
        below = heights[1:-1] * (levels[:-1] - inner) / 2
        above = heights[1:-1] * (inner - levels[1:]) / 2
        jacobian = np.diag(masses + np.append(below, 0.0) + np.insert(above, 0, 0.0))
        jacobian += np.diag(below, 1) + np.diag(above, -1)
        levels = levels - np.linalg.solve(jacobian, levels * masses + np.diff(heights))
    symmetric = np.concatenate([-levels[::-1], levels])
    symmetric.setflags(write=False)
    return symmetric


def lloyd_max_distortion(levels: NDArray[np.float64]) -> float:
    """The mean squared error of a standard normal number rounded to the nearest of the levels.

    Examples:
        >>> round(lloyd_max_distortion(lloyd_max_levels(1)), 6) == round(1 - 2 / math.pi, 6)
        True
    """
    from scipy.special import ndtr

    thresholds = np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]])
    heights = np.exp(-(thresholds**2) / 2) / math.sqrt(2 * math.pi)
    masses = np.diff(ndtr(thresholds))
    # E(g − c)² over a cell is E g² − 2c·E g + c²·mass, and E g over a cell is the difference of the heights.
    return float(1 + np.sum(2 * levels * np.diff(heights) + levels**2 * masses))
