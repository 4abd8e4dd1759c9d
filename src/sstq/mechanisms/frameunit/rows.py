"""The base of mechanisms that send one signed row of a frame: the frames, their bias, and advice about it."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sstq import kernels
from sstq.checks import check_number
from sstq.frames.family import FrameFamily
from sstq.frames.tight import HadamardFrame
from sstq.mechanisms.base import (
    Coin,
    EncoderInput,
    ExpectedError,
    Floats,
    Floats32,
    Ints,
    Mechanism,
    Rows,
    Unbiased,
    Words,
)
from sstq.mechanisms.frameunit import bias
from sstq.mechanisms.frameunit.alignment import RowDraw, best_draw, moments_of_frame
from sstq.mechanisms.parameters import Parameters, Word
from sstq.mechanisms.two_level_draw import KClosest, whole_budget
from sstq.messages.layouts import Field, Layout
from sstq.randomness import streams
from sstq.randomness.secret import unit_interval

SIZE_MAX = 1 << 30
# The error is exact over all frames up to this many, and an average over this many of them above.
_FRAMES_TRIED = 64
# Two machines compute the alignment alike to about 1e-12; the JSON's is what both use.
_ALIGNMENT_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class RowParameters(Parameters):
    """The parameters of a mechanism that sends signed rows: k inside, T of 2^62, and the alignment m."""

    dim: int
    epsilon: float
    clip: float
    frames: int
    coin: Coin
    frame_size: int
    frame_seed: Word
    inside: int
    threshold: Word
    alignment: float
    messages: int = 1


class RowMechanism(Mechanism):
    """A mechanism that draws one of the signed rows of a frame, the well aligned ones likelier.

    Attributes:
        frames: G, the number of frames that clients spread over.
        blocks: B, the number of copies of a frame among which the client's own one is chosen.
        share_people: the share of people, and of frames, that send no row.
        alignment: m, the mean of ⟨±u_j, x⟩/‖x‖.
    """

    exact = True
    seed_option = "frame_seed"
    unbiased = Unbiased.OVER_FRAMES

    _draws_by = "choice"

    parameters: Any
    frames: int
    blocks: int = 1
    share_people: float = 0.0
    alignment: float

    @property
    @abstractmethod
    def frame(self) -> HadamardFrame:
        """The first frame."""

    @property
    @abstractmethod
    def choice(self) -> KClosest:
        """The draw among all candidates."""

    @property
    @abstractmethod
    def row_draw(self) -> RowDraw:
        """The draw with the shape of the frame, which knows how well it is aligned on average over frames."""

    def _check_rows(self) -> None:
        """Refuse a draw that is not ε-LDP, or that has another alignment."""
        _ = self.frame
        check_number("frames", self.frames, 1, bias.FRAMES_MAX, integer=True)
        # With more inside some rows would be inside with both signs.
        check_number("inside", self.choice.inside, 1, self.row_draw.rows, integer=True)
        low, high = (max(self.row_draw.alignment * (1 + way * _ALIGNMENT_TOLERANCE), 1e-30) for way in (-1, 1))
        check_number("alignment", self.alignment, low, high)

    @cached_property
    def layout(self) -> Layout:
        """The signed row, and with a private coin the frame's number."""
        limits = {"row": self.choice.size} | ({"frame": self.frames} if self._sends_frame else {})
        return Layout(tuple(Field(name, (limit - 1).bit_length(), limit) for name, limit in limits.items()))

    @property
    def words_each(self) -> int:
        """Secret words are for the flip, two for the draw, and for a frame sent."""
        return 3 + self._sends_frame

    @property
    def _row_cost(self) -> int:
        return max(self.frame.size, self.estimate_dim)

    @property
    def _sends_frame(self) -> bool:
        return self.frames > 1 and self.coin == "private"

    @cached_property
    def family(self) -> FrameFamily:
        """The frames that clients spread over."""
        return FrameFamily(self.frame, self.frames)

    @property
    def vector_frames(self) -> int:
        """The messages on frames below this number are rows; those on the others are of people who send no row."""
        return bias.vector_frames(self.frames, self.share_people)

    @property
    def gain(self) -> float:
        """The factor of the estimate ±gain·u_j: clip/m over the share of people who send a row."""
        gain = self.clip / self.alignment
        return gain * self.frames / self.vector_frames if self.share_people else gain

    @property
    def decoding_scale(self) -> float:
        """The w with x̂ = ±d·w·u_j, which is gain/d."""
        return self.gain / self.frame.dim

    def _frame_numbers(self, batch: EncoderInput) -> Ints:
        """The frame of each client of a batch: drawn from its last word, or by the public coin."""
        if self._sends_frame:
            return streams.multiply_shift(batch.words[:, 3], self.frames)
        return self._public_frames(batch.clients, len(batch.rows))

    def _public_frames(self, clients: Words | None, count: int) -> Ints:
        if clients is None:
            return np.zeros(count, dtype=np.int64)
        return streams.indices_of(self.frame.seed, "group", clients, self.frames)

    def _pick(self, batch: EncoderInput, rows: Rows, frame: Ints, subsets: Ints, places: Ints) -> Ints:
        """The signed row at each client's place among the best aligned of its frame."""
        used, which = (frame[:1], frame) if self.frames == 1 else np.unique(frame, return_inverse=True)
        signs = self._own_signs if self.frames == 1 else self.family.signs(used)
        uniforms = unit_interval(batch.words[:, 0])
        # Scores only tell the inside from the outside; no rounding error in the kernel can cost privacy.
        row, longer = kernels.pick_signed_rows(
            rows, self.clip, uniforms, signs, which, subsets, self.choice.inside, places
        )
        if batch.report is not None:
            batch.report.clipped += int(longer.sum())
        return row

    @cached_property
    def _own_signs(self) -> tuple[Floats32, Floats32]:
        return self.family.signs(np.zeros(1, dtype=np.int64))

    def _moments(self, unit: Floats32, frames: int, kept: int) -> tuple[Floats, Floats]:
        """E[x̂] in the own block and E‖x̂‖² of rows of the unit ball, (n, d), over the first so many frames.

        Estimates have the first `kept` coordinates of the block. Of more than 64 frames, 64 stand for all: the biases
        of independent frames add up in squares, so √(64/G) of what 64 frames leave has the length of what G leave.
        """
        mean, power = np.zeros(unit.shape), np.zeros(len(unit))
        tried, gain = min(frames, _FRAMES_TRIED), self.clip / self.alignment
        for number in range(tried):
            of_frame = moments_of_frame(unit, self.family.frame(number), self.row_draw, kept)
            mean += of_frame[0] * (gain / tried)
            power += of_frame[1] * (gain**2 / tried)
        clipped = self.clip * unit.astype(np.float64)
        return clipped + (mean - clipped) * (tried / frames) ** 0.5, power

    def _error(self, frames: int, messages: int) -> ExpectedError:
        """The error on so many frames of the mean of messages that are all of one unit vector; a closed form."""
        return bias.row_error(self.row_draw, frames, messages, self.share_people)

    def _typical_error(self, clients: int) -> ExpectedError:
        """The error of a mean of clients that all hold one vector of norm clip, on average over frame seeds."""
        clients = check_number("clients", clients, 1, bias.CLIENTS_MAX, integer=True)
        unit = self._error(self.frames, clients * self.messages)
        return ExpectedError(self.clip**2 * unit.bias2, self.clip**2 * unit.variance)

    def frames_for(self, clients: int) -> int:
        """Return the least power of two G, up to 2^30, with a frame bias of at most a fifth of the error of the mean.

        This assumes clients who all hold one vector of norm clip; if vectors differ, the bias is smaller.
        """
        return solve_frames(None, clients, self.row_draw, self.messages, self.share_people)

    @property
    def clients_allowed(self) -> int:
        """The largest number of clients per round for which the frames' bias is at most a fifth of the error."""
        return bias.clients_allowed(lambda clients: self._error(self.frames, clients * self.messages))

    def note(self, clients: int) -> str:
        """Advice on a mean of this many clients: whether the bias of the frames matters, and what to do about it."""
        error = self.typical_error(clients)
        if not bias.bias_matters(error):
            return ""
        needed = self.frames_for(clients)
        enough = not bias.bias_matters(self._error(needed, clients * self.messages))
        frames = "1 frame" if self.frames == 1 else f"{self.frames} frames"
        return (
            f"frame bias exceeds {100 * bias.BIAS_SHARE:.0f} % of the error ({clients} clients on {frames}: bias "
            f"{error.bias2**0.5 / self.clip:.2g} of clip, noise {error.variance**0.5 / self.clip:.2g}); pass "
            + (f"frames={needed}" if enough else "fewer clients, or use an unbiased mechanism such as sstq")
        )


def solve_choice(epsilon: float, rows: int, blocks: int, inside: Any) -> KClosest:
    """The draw from so many rows of every block, with k of them inside, or of the largest alignment."""
    if inside is None:
        return best_draw(epsilon, rows, blocks)
    return whole_budget(epsilon, 2 * rows * blocks, check_number("inside", inside, 1, rows, integer=True))


def solve_frames(frames: Any, clients: Any, draw: RowDraw, messages: int, share_people: float = 0.0) -> int:
    """The number of frames: as given, or as many as the clients need, or the fewest."""
    fewest = bias.FRAMES_WITH_SHARES if share_people else 1
    if clients is None:
        return int(check_number("frames", fewest if frames is None else frames, 1, bias.FRAMES_MAX, integer=True))
    if frames is not None:
        raise ValueError(f"frames must be left out if clients is given, which determines it, got {frames!r}")
    total = check_number("clients", clients, 1, bias.CLIENTS_MAX, integer=True) * messages
    return bias.frames_needed(lambda tried: bias.row_error(draw, tried, total, share_people), least=fewest)
