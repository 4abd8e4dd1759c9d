"""The base of mechanisms that send one signed row of a frame: the frames, their bias, and advice about it."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from sstq import kernels
from sstq.array_types import Floats, Floats32, Ints
from sstq.checks import check_near, check_number
from sstq.frames.family import FrameFamily
from sstq.frames.tight import HadamardFrame
from sstq.inputs.vectors import placed
from sstq.mechanisms.agreement import FEW_ROWS, MOST_ROWS_PER_DIM, Solved, Word
from sstq.mechanisms.base import (
    Batch,
    Columns,
    Draw,
    ExpectedError,
    Mechanism,
    Rows,
    Unbiased,
)
from sstq.mechanisms.frameunit.alignment import (
    BIAS_SHARE,
    FRAMES_MAX,
    RowDraw,
    best_draw,
    moments_of_frame,
    row_draw,
)
from sstq.mechanisms.subsets import AffineSets
from sstq.mechanisms.two_level_draw import KClosest, whole_budget
from sstq.messages.layouts import Field, Layout
from sstq.randomness import streams
from sstq.randomness.secret import unit_interval

CANDIDATES_MAX = 1 << 31
CLIENTS_MAX = 1 << 62
# The error is exact over all frames up to this many, and an average over this many of them above.
_FRAMES_TRIED = 64
# Two machines compute the alignment alike to about 1e-12; the JSON's is what both use.
_ALIGNMENT_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class RowSolved(Solved):
    """The values of a mechanism that sends signed rows: k inside, T of 2^62, and the alignment m."""

    dim: int
    epsilon: float
    clip: float
    frames: int
    coin: Literal["private"]
    frame_size: int
    frame_seed: Word
    inside: int
    threshold: Word
    alignment: float
    messages: int = 1

    def limits(self) -> Mapping[str, int]:
        """40 rows per dimension of a block, or 2048."""
        return {"frame_size": max(MOST_ROWS_PER_DIM * self.block_dim, FEW_ROWS)}

    @property
    def groups_per_block(self) -> int:
        """The groups of a block; without groups the vector is a block of its own."""
        return 1

    @property
    def block_dim(self) -> int:
        """The dimensions of a block."""
        return self.groups_per_block * self.dim


class RowMechanism(Mechanism):
    """A mechanism that draws one of the signed rows of B blocks of a frame, the well aligned ones likelier.

    Candidate 2N·b + 2j is row u_j of block b, and the next one its opposite. A client's vector is in one block.

    Attributes:
        frames: G, the number of frames that clients spread over.
        blocks: B, the number of copies of a frame among which the client's one is chosen.
        share_people: the share of people, and of frames, that send no row but a set that holds their group.
        share_sets: these sets, if there are such people.
        alignment: m, the mean of ⟨±u_j, x⟩/‖x‖.
    """

    exact = True
    seed_option = "frame_seed"
    unbiased = Unbiased.OVER_FRAMES

    solved: RowSolved
    frames: int
    blocks: int = 1
    share_people: float = 0.0
    alignment: float

    @property
    @abstractmethod
    def _mixings(self) -> int:
        """How often signs and transform are applied in a frame."""

    @cached_property
    def frame(self) -> HadamardFrame:
        """The first frame of a block."""
        solved = self.solved
        return HadamardFrame(
            self.solved.block_dim,
            solved.frame_size,
            solved.frame_seed,
            rounds=self._mixings,
        )

    @property
    def share_sets(self) -> AffineSets | None:
        """The messages of people who send their group only, if any."""
        return None

    @cached_property
    def choice(self) -> KClosest:
        """The draw among all candidates."""
        solved = self.solved
        return KClosest(
            2 * solved.frame_size * self.blocks, solved.inside, solved.threshold
        )

    @property
    def draw(self) -> Draw:
        """The draw among all candidates."""
        return self.choice

    @cached_property
    def row_draw(self) -> RowDraw:
        """The draw with the shape of the frame, which knows how well it is aligned on average over frames."""
        size = self.solved.frame_size
        return row_draw(
            self.choice,
            self.solved.block_dim,
            size,
            self.blocks,
            self.estimate_dim,
            self.share_people,
        )

    def _check_rows(self) -> None:
        """Refuse a draw that is not ε-LDP, or that has another alignment."""
        check_frame_size(self.solved.frame_size, self.solved.block_dim, self.blocks)
        _ = self.frame
        check_number("frames", self.frames, 1, FRAMES_MAX, integer=True)
        # With more inside some rows would be inside with both signs.
        check_number(
            "inside", self.choice.inside, 1, self.solved.frame_size, integer=True
        )
        wanted = max(self.row_draw.alignment, 1e-30)
        check_near("alignment", self.alignment, wanted, _ALIGNMENT_TOLERANCE)

    @cached_property
    def layout(self) -> Layout:
        """The signed row, and with several frames the number of the client's one."""
        row = Field("row", self.choice.size)
        return Layout((row, Field("frame", self.frames)) if self.frames > 1 else (row,))

    @property
    def words_each(self) -> int:
        """Secret words are for the flip, two for the draw, and for a frame."""
        return 4 if self.frames > 1 else 3

    @property
    def row_cost(self) -> int:
        """About how many numbers encoding one row takes."""
        return max(self.frame.size, self.estimate_dim)

    @cached_property
    def family(self) -> FrameFamily:
        """The frames that clients spread over."""
        return FrameFamily(self.frame, self.frames)

    @property
    def vector_frames(self) -> int:
        """The messages on frames below this number are rows; those on the others are of people who send no row."""
        return self.row_draw.vector_frames(self.frames)

    @property
    def gain(self) -> float:
        """The factor of the estimate ±gain·u_j: clip/m over the share of people who send a row."""
        return self.clip / self.alignment * (self.frames / self.vector_frames)

    @abstractmethod
    def _in_block(self, rows: Rows) -> tuple[Ints, Rows]:
        """The block of each held row, and its vector there, (n, block_dim)."""

    @property
    def worst_directions(self) -> Rows:
        """The first and the last row of the frame, if a vector fills it."""
        return (
            self.frame.ends()
            if self.frame.dim == self.dim
            else super().worst_directions
        )

    def encode_batch(self, batch: Batch) -> Columns:
        """Draw a frame and a place among the candidates, and find the signed row at that place."""
        block, rows = self._in_block(batch.rows)
        if self.frames == 1:
            frame = np.zeros(len(rows), dtype=np.int64)
            which = frame
            signs = self._signs_of_one
        else:
            frame = streams.multiply_shift(batch.words[:, 3], self.frames)
            used, which = np.unique(frame, return_inverse=True)
            signs = self.family.signs(used)
        # The places of the client's block come first. The work is the same for those of others.
        places = self.choice.places(batch.words[:, 1:3])
        of_block = self.choice.size // self.blocks
        of_client = places < of_block
        uniforms = unit_interval(batch.words[:, 0])
        # Scores only tell the inside from the outside; no rounding error in the kernel can cost privacy.
        row, longer = kernels.pick_signed_rows(
            rows,
            self.clip,
            uniforms,
            signs,
            which,
            self.choice.inside,
            np.where(of_client, places, 0),
        )
        if batch.report is not None:
            batch.report.clipped += int(longer.sum())
        other, other_row = np.divmod(places - of_block, of_block)
        other += other >= block
        sent = np.where(of_client, block * of_block + row, other * of_block + other_row)
        if self.share_sets is not None:
            only = self.share_sets.encode(
                batch.rows[:, 0].astype(np.int64), batch.words, frame
            )
            sent = np.where(frame < self.vector_frames, sent, only)
        return (sent, frame) if self.frames > 1 else (sent,)

    @cached_property
    def _signs_of_one(self) -> tuple[Floats32, Floats32]:
        return self.family.signs(np.zeros(1, dtype=np.int64))

    def _moments(self, unit: Floats32, frames: int, kept: int) -> tuple[Floats, Floats]:
        """E[x̂] in the client's block and E‖x̂‖² of rows of the unit ball, (n, d), over the first so many frames.

        Estimates have the first `kept` coordinates of the block. Of more than 64 frames, 64 stand for all: the biases
        of independent frames add up in squares, so √(64/G) of what 64 frames leave has the length of what G leave.
        """
        mean = np.zeros(unit.shape)
        power = np.zeros(len(unit))
        tried = min(frames, _FRAMES_TRIED)
        gain = self.clip / self.alignment
        for number in range(tried):
            of_frame = moments_of_frame(
                unit, self.family.frame(number), self.row_draw, kept
            )
            mean += of_frame[0] * (gain / tried)
            power += of_frame[1] * (gain**2 / tried)
        clipped = self.clip * unit.astype(np.float64)
        return clipped + (mean - clipped) * (tried / frames) ** 0.5, power

    def row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """Exact over these frames, up to 64 of them, and over who sends no row."""
        block, padded = self._in_block(rows)
        mean = np.zeros(padded.shape)
        power = np.zeros(len(rows))
        # The last block may have coordinates that no estimate has.
        last = self.estimate_dim - (self.blocks - 1) * self.solved.block_dim
        for which, kept in (
            (block < self.blocks - 1, self.solved.block_dim),
            (block == self.blocks - 1, last),
        ):
            if np.any(which):
                mean[which], power[which] = self._moments(
                    self.unit_ball(padded[which]), self.vector_frames, kept
                )
        mean = placed(mean, block, self.blocks)[:, : self.estimate_dim]
        return mean, power * (self.frames / self.vector_frames) - np.einsum(
            "ij,ij->i", mean, mean
        )

    def largest_message(self) -> float:
        """Attained on one frame; (d/N)·U·Uᵀ is a projection, so no row of any frame is longer than √(N/d)."""
        return self.gain * (
            self.frame.longest_row()
            if self.frames == 1
            else math.sqrt(self.frame.redundancy)
        )

    def largest_biased_mean(self) -> float:
        """At most clip/m·(p_in − p_out)·√(k·N/d).

        Signed rows come in pairs that cancel out, so E[x̂] = clip/m·(p_in − p_out)·Σ_j ±u_j over the k rows inside, and
        the squared norm of the sum is at most N/d times k, as the frame is tight.
        """
        inside, outside = self.choice.probabilities
        reach = math.sqrt(self.choice.inside * self.frame.size / self.solved.block_dim)
        return self.clip / self.alignment * (inside - outside) * reach

    def typical_error(self, clients: int = 1) -> ExpectedError:
        """The error of a mean of clients that all hold one vector of norm clip, on average over frame seeds."""
        clients = _checked_clients(clients)
        unit = self.row_draw.error(self.frames, clients * self.messages)
        return ExpectedError(self.clip**2 * unit.bias2, self.clip**2 * unit.variance)

    def frames_for(self, clients: int) -> int:
        """Return the least power of two G, up to 2^30, with a frame bias of at most a fifth of the error of the mean.

        This assumes clients who all hold one vector of norm clip; if vectors differ, the bias is smaller.
        """
        return self.row_draw.frames_for(_checked_clients(clients) * self.messages)

    @property
    def clients_allowed(self) -> int:
        """The largest number of clients per round for which the frames' bias is at most a fifth of the error."""
        return math.floor(
            min(
                self.row_draw.messages_allowed(self.frames) / self.messages, CLIENTS_MAX
            )
        )

    def bias_of_mean(self, count: int) -> tuple[float, int, str]:
        """The worst case is that of people who are all alike: in one frame it is orthogonal to their vector."""
        return (
            math.sqrt(self.typical_error().bias2),
            max(self.frame.dim - 1, 1),
            self.note(-(-count // self.messages)),
        )

    def note(self, clients: int) -> str:
        """Advice on a mean of this many clients: whether the bias of the frames matters, and what to do about it."""
        if clients <= self.clients_allowed:
            return ""
        error = self.typical_error(clients)
        needed = self.frames_for(clients)
        enough = clients * self.messages <= self.row_draw.messages_allowed(needed)
        frames = "1 frame" if self.frames == 1 else f"{self.frames} frames"
        return (
            f"frame bias exceeds {100 * BIAS_SHARE:.0f} % of the error ({clients} clients on {frames}: bias "
            f"{error.bias2**0.5 / self.clip:.2g} of clip, noise {error.variance**0.5 / self.clip:.2g}); pass "
            + (
                f"frames={needed}"
                if enough
                else "fewer clients, or use an unbiased mechanism such as sstq"
            )
        )


def usual_size(dim: int) -> int:
    """The rows of a block: a power of two. Fewer than 256 are not like the coordinates of a uniform direction."""
    return 1 << (max(dim, 256) - 1).bit_length()


def check_frame_size(size: Any, block_dim: int, blocks: int) -> int:
    """The number of rows of a block: from its dimensions to 2^31 candidates in all blocks."""
    return int(
        check_number(
            "frame_size", size, block_dim, CANDIDATES_MAX // (2 * blocks), integer=True
        )
    )


def _checked_clients(clients: Any) -> int:
    return int(check_number("clients", clients, 1, CLIENTS_MAX, integer=True))


def solve_rows(
    common: Mapping[str, Any],
    *shape: Any,
    inside: Any,
    frames: Any,
    clients: Any,
) -> dict[str, Any]:
    """Solve the draw and the number of frames, and return them as `RowSolved` names them.

    `common` are the checked options, and `shape` is that of `RowDraw`. Options that are None are solved: the `inside`
    of the largest alignment, and as many `frames` as the clients need.
    """
    _, size, blocks, *_ = shape
    epsilon = common["epsilon"]
    if inside is None:
        choice = best_draw(epsilon, size, blocks)
    else:
        inside = check_number("inside", inside, 1, size, integer=True)
        choice = whole_budget(epsilon, 2 * size * blocks, inside)
    draw = row_draw(choice, *shape)
    if clients is None:
        frames = check_number(
            "frames",
            draw.fewest_frames if frames is None else frames,
            1,
            FRAMES_MAX,
            integer=True,
        )
    elif frames is not None:
        raise ValueError(
            f"frames must be left out if clients is given, which determines it, got {frames!r}"
        )
    else:
        frames = draw.frames_for(_checked_clients(clients) * common["messages"])
    solved = {
        "inside": choice.inside,
        "threshold": choice.threshold,
        "alignment": draw.alignment,
    }
    return {"frames": frames, "frame_size": size} | solved
