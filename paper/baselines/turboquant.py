"""TurboQuant: a random rotation and the best scalar quantizer of its coordinates, b bits each. No privacy."""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar, Literal

import numpy as np

from paper.baselines.not_private import ROUNDING, NotPrivate
from sstq.extending import (
    Batch,
    Column,
    Columns,
    Field,
    FloatField,
    Floats,
    Floats32,
    HadamardFrame,
    Layout,
    Messages,
    Rows,
    Solved,
    Unbiased,
    Values,
    Word,
)

# Lloyd's iteration is slow but always converges; Newton's doubles the digits once it is near.
_LLOYD_STEPS = 500
_NEWTON_STEPS = 8
# Two rounds of signs and transform leave the coordinates of a spike on a lattice of step 2/√N, which moves the
# shrinkage by 0.4·D at N = 4096 and four bits.
_ROUNDS = 3


@dataclass(frozen=True, eq=False, kw_only=True)
class TurboQuantSolved(Solved):
    """The values of TurboQuant. ε is infinite, which JSON cannot express."""

    dim: int
    bits: int
    clip: float
    decoder: Literal["identity"]
    frame_seed: Word
    levels: Values


class TurboQuant(NotPrivate):
    """The direction of a vector, rotated at random and quantized to b bits per coordinate, and its norm.

    The rotation pads to N, the next power of two, and is three rounds of random signs and a Walsh–Hadamard transform. A
    coordinate of the rotated direction times √N is close to a standard normal number and is sent as the nearest level
    of its Lloyd–Max quantizer. A message holds N codes of b bits and the norm as float32: b·N + 32 bits.

    With D the distortion of the quantizer (0.3634, 0.1175, 0.03454, 0.009497 for b = 1 … 4), over random rotations,
    E‖x̂ − x‖² = ‖x‖²·(D² + (d/N)·D·(1 − D)) and E⟨x̂, x⟩ = (1 − D)·‖x‖²; the part of the quantization error outside the
    padded space is projected away. Below about d = 100 the coordinates of a rotated unit vector are not yet normal, and
    these are approximate.

    Reference: A. Zandieh, M. Daliri, M. Hadian, V. Mirrokni, *TurboQuant: online vector quantization with near-optimal
    distortion rate*, 2025 (the MSE-optimal quantizer; its codebook is for the Beta distribution of a coordinate on the
    sphere, this one for the normal limit).

    Warning:
        Biased: the estimate is shrunk by 1 − D on average, and more clients do not help. It is a deterministic function
        of the vector and the public frame seed, so `expected_mse` is the actual error under this frame, all bias.
        Nothing is private: `epsilon` and `privacy_loss` are infinite.

    Args:
        bits: b, the bits per coordinate, 1 to 8.

    Examples:
        >>> mechanism = TurboQuant(dim=1000, bits=2)
        >>> mechanism.message_bits == 2 * 1024 + 32, round(mechanism.distortion, 4)
        (True, 0.1175)
    """

    name = "turboquant"
    variants: ClassVar = {"TurboQuant, 4 bits per number": {"bits": 4}}
    solved_class = TurboQuantSolved
    seed_option = "frame_seed"
    narrowed: ClassVar = {"bits": (1, 8)}

    unbiased = Unbiased.NEVER

    solved: TurboQuantSolved
    bits: int
    levels: Floats

    def __init__(
        self, dim: int, *, bits: int = 4, clip: float = 1.0, frame_seed: int = 0
    ) -> None:
        given = dict(locals())
        common = self.checked(dim=dim, bits=bits, clip=clip, frame_seed=frame_seed)
        self.settle(
            given,
            TurboQuantSolved(
                **common, decoder="identity", levels=lloyd_max_levels(common["bits"])
            ),
        )

    def check_solved(self) -> None:
        """Refuse solved values that do not belong together."""
        levels = self.levels
        codes = 1 << self.bits
        if (
            levels.shape != (codes,)
            or not np.all(np.abs(levels) < 100)
            or not np.all(np.diff(levels) > 0)
        ):
            raise ValueError(
                f"levels must be 2^bits = {codes} increasing numbers in (-100, 100)"
            )

    @cached_property
    def frame(self) -> HadamardFrame:
        """The rotation, padded to a power of two."""
        size = 1 << (self.dim - 1).bit_length()
        return HadamardFrame(self.dim, size, self.solved.frame_seed, rounds=_ROUNDS)

    @cached_property
    def layout(self) -> Layout:
        """The codes of all coordinates, and the norm in units of clip."""
        return Layout(
            (Field("code", 1 << self.bits, count=self.frame.size), FloatField("norm"))
        )

    @property
    def row_cost(self) -> int:
        """About how many numbers encoding one row takes."""
        return self.frame.size

    @property
    def distortion(self) -> float:
        """D, the mean squared error of the quantizer for standard normal input."""
        from scipy.special import ndtr

        thresholds = np.concatenate(
            [[-np.inf], (self.levels[1:] + self.levels[:-1]) / 2, [np.inf]]
        )
        heights = np.exp(-(thresholds**2) / 2) / math.sqrt(2 * math.pi)
        # E(g − c)² over a cell is E g² − 2c·E g + c²·mass, and E g over a cell is the difference of the heights.
        return float(
            1
            + np.sum(
                2 * self.levels * np.diff(heights)
                + self.levels**2 * np.diff(ndtr(thresholds))
            )
        )

    @property
    def decoding_bound(self) -> float:
        """The largest decoded coordinate: the norm of x̂ is at most that of the levels."""
        return self.clip * (1 + ROUNDING) * max(1.0, float(np.max(np.abs(self.levels))))

    def encode_batch(self, batch: Batch) -> Columns:
        """Encode checked rows."""
        return self._quantize(self.unit_ball(batch.rows, batch.report))

    def _quantize(self, unit: Floats32) -> tuple[Column, Column]:
        norms = np.linalg.norm(unit.astype(np.float64), axis=1)
        directions = (unit / np.where(norms > 0, norms, 1.0)[:, None]).astype(
            np.float32
        )
        # U has rows of norm 1 on average, so that y·√d has root mean square 1.
        coordinates = self.frame.analyze(directions) * np.float32(math.sqrt(self.dim))
        thresholds = ((self.levels[1:] + self.levels[:-1]) / 2).astype(np.float32)
        codes = np.searchsorted(thresholds, coordinates)
        return codes[:, 0] if self.frame.size == 1 else codes, norms.astype(np.float32)

    def check_messages(self, messages: Messages) -> None:
        """Refuse messages that no client sends."""
        norms = messages.column("norm")
        for row in np.flatnonzero(~((norms >= 0) & (norms <= 1 + ROUNDING))):
            raise ValueError(
                f"message {row}: norm must be in [0, 1] in units of clip, got {norms[row]}"
            )

    def _decoded(self, messages: Messages) -> Floats:
        return self._estimates(messages.column("code"), messages.column("norm"))

    def _estimates(self, codes: Column, norms: Column) -> Floats:
        coordinates = self.levels[codes.reshape(-1, self.frame.size)] / math.sqrt(
            self.dim
        )
        estimates = np.asarray(self.frame.synthesize(coordinates), dtype=np.float64)
        estimates *= (norms.astype(np.float64) * self.clip)[:, None]
        return estimates

    def largest_message(self) -> float:
        """The norm of x̂ is at most that of the levels."""
        return (1 + ROUNDING) * self.clip * float(np.max(np.abs(self.levels)))

    def row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """Exact: what this frame makes of each row, without variance."""
        return self._estimates(*self._quantize(self.unit_ball(rows))), np.zeros(
            len(rows)
        )


@cache
def lloyd_max_levels(bits: int) -> Floats:
    """The 2^bits levels of least mean squared error for a standard normal number, by Lloyd's and Newton's methods.

    The levels are symmetric. With thresholds t_i halfway between neighbours, t_0 = 0 and t_m = ∞, the m = 2^(bits − 1)
    positive ones satisfy c_i·(Φ(t_i) − Φ(t_{i−1})) = φ(t_{i−1}) − φ(t_i): each is the mean of its cell (S. Lloyd 1957,
    J. Max 1960). The start is the Panter–Dite spacing, density ∝ φ^(1/3).
    """
    from scipy.special import ndtr, ndtri

    half = 1 << (bits - 1)
    levels: Floats = math.sqrt(3) * ndtri((half + np.arange(half) + 0.5) / (2 * half))
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
