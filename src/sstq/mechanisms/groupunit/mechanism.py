"""GroupUnit: a private group and a vector in one message, by FrameUnit's draw over blocks of groups."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sstq.checks import check_argument, check_number
from sstq.chunks import row_chunks
from sstq.frames.tight import HadamardFrame
from sstq.mechanisms import base
from sstq.mechanisms.base import SIGNS, Batch, Coin, Columns, ExpectedError, Floats, Ints, Rows, Words
from sstq.mechanisms.frameunit.alignment import RowDraw
from sstq.mechanisms.frameunit.rows import RowMechanism, resolved_coin
from sstq.mechanisms.groupunit.blocks import alignments, best_blocks, inside_share
from sstq.mechanisms.groupunit.estimates import GroupUnitAggregator
from sstq.mechanisms.groupunit.shares import ShareCodes, best_share_draw, hit_rates
from sstq.mechanisms.laws import EitherLaw, Law
from sstq.mechanisms.two_level_draw import KClosest
from sstq.messages.batch import Messages

# Fewer rows are not like the coordinates of a uniform direction.
_LEAST_ROWS = 256
# So many rows inside make the best share of them an integer to 2 %, as far as frames of up to so many rows have them.
_ROWS_INSIDE, _USUAL_ROWS = 24, 1 << 16
_BLOCK_DIM_MAX, _CANDIDATES_MAX = 1 << 22, 1 << 31
# Two mixings leave two spikes 7 % off where one row is inside.
_MIXINGS = 3
# Of fewer frames one is more than an eighth, which is too much for shares.
_FRAMES_WITH_SHARES = 16


class GroupUnit(RowMechanism):
    """FrameUnit for people with a private group: both the group and the vector are secret, in one message.

    A person holds (g, x), which is the vector e_g ⊗ x of groups·dim dimensions. Such vectors are a small part of the
    ball, and candidates made for them have less error. There are B blocks of s = ⌈groups/B⌉ groups; the last one may
    have fewer. The candidates are the 2N signed rows of a frame of s·dim dimensions in every block, 2N·B in all. Inside
    are the k rows of the own block that are best aligned with x; everything else is outside. The draw is FrameUnit's,
    exactly ε-LDP by the same integers. The signed rows of a block sum to zero, so that other blocks cancel out, and the
    estimate of e_g ⊗ x is ±clip·u_j/m in the block that is sent. `blocks=1` is FrameUnit on the ball.

    B and k have the least error. The second moment of an estimate is s·dim·clip²/z² with φ(z)/z − Q(z) = B/(e^ε − 1):
    with 10 groups 1.4 times less than on the ball at ε = 3, and 6 times less at ε = 8.

    Shares come from how often a block occurs where B = groups. Otherwise a share of the frames, a tenth unless given,
    is for people who send their group only (`sstq.mechanisms.groupunit.shares`): a person draws the frame without
    looking at the data, and so who that is. `aggregator().mean()` has `shares`, `sums` and `means` of every group.

    Warning:
        Like FrameUnit, unbiased over messages and frame seeds together, not for one frame. ``clients=n`` takes enough
        frames to keep the bias below a fifth of the error, even if all people hold the same vector.

    Args:
        groups: the number of groups, 2 to 2^24; a person's group is an integer from 0 to groups − 1.
        blocks: B, the number of blocks; by default the one of least error.
        frames: G, the number of frames that clients spread over, up to 2^30; unless given 1, or 16 if some are for
            shares.
        clients: n, the clients per round, which gives G = ``frames_for(clients)``; instead of `frames`.
        messages: m, the messages per client, each on its own frame, for a shuffler that mixes every slot
            separately. `epsilon` is that of one message; without a shuffler a client spends `bundle_epsilon`, m·ε.
        coin: who chooses a client's frame: "private", the client, which sends its number in log₂ G more bits; or
            "public", a shared generator, and then both sides name the clients.
        frame_size: N, a power of two from s·dim to 2^30; unless given at least 256 with 24 rows inside, if 2^16 rows
            are enough for that.
        inside: k, the number of rows of the own block inside; by default the k of least error at ε.
        share_people: the share of people who send their group only, if B < groups; 0 for sums without shares.

    Examples:
        >>> mechanism = GroupUnit(dim=40, epsilon=3.0, groups=10)
        >>> mechanism.blocks, mechanism.message_bits
        (10, 13)
        >>> rng = np.random.default_rng(1)
        >>> labels, x = rng.integers(10, size=20_000), np.full(40, 0.1)
        >>> aggregator = mechanism.replace(clients=20_000).aggregator()
        >>> aggregator.update(mechanism.replace(clients=20_000).encode(np.outer(labels < 5, x), rng=1, groups=labels))
        >>> estimate = aggregator.mean()
        >>> estimate
        <GroupEstimate of 400 numbers from 20,000 messages: norm 0... ± 0.1..., 10 groups>
        >>> estimate.shares.shape, estimate.means.shape, estimate.sums_stderr.shape
        ((10,), (10, 40), (10, 40))
    """

    name = "groupunit"
    variants: ClassVar = {"GroupUnit, 10 groups of d/10": {"groups": 10, "share_people": 0.0}}
    sweeps: ClassVar = {label: [options] for label, options in variants.items()}

    decoding_values = SIGNS  # of a row, by its lowest bit
    groups: int
    blocks: int
    share_people: float
    share_codes: ShareCodes | None

    def __init__(
        self,
        dim: int,
        epsilon: float,
        *,
        groups: int,
        clip: float = 1.0,
        blocks: int | None = None,
        frames: int | None = None,
        clients: int | None = None,
        messages: int = 1,
        coin: Coin | None = None,
        frame_size: int | None = None,
        inside: int | None = None,
        share_people: float = 0.1,
        frame_seed: int = 0,
    ) -> None:
        self._take(dim=dim, epsilon=epsilon, clip=clip, messages=messages)
        groups = check_argument("groups", groups)
        share_people = float(check_number("share_people", share_people, 0, 0.5))
        if blocks is None:
            blocks = best_blocks(self.epsilon, groups, share_people)
        # Blocks of as many groups each: 7 blocks of 10 groups would be 5 blocks of 2.
        own_groups = -(-groups // check_number("blocks", blocks, 1, groups, integer=True))
        blocks = -(-groups // own_groups)
        self._refuse_large(groups, blocks)
        if own_groups == 1:
            share_people = 0.0
        self._set(groups=groups, blocks=blocks, share_people=share_people)
        size = self._usual_size() if frame_size is None else frame_size
        size = check_number("frame_size", size, self._block_dim, _CANDIDATES_MAX // (2 * blocks), integer=True)
        self._take_rows(RowDraw(self._choice_of(size, inside), self._block_dim, size, blocks, self.estimate_dim))
        frames = self._frames_of(frames, clients)
        if share_people and frames < 2:
            raise ValueError(
                f"frames must be at least 2, got {frames}: if blocks have {own_groups} groups, some frames are for "
                "people who send their group only; or pass share_people=0 for sums without shares"
            )
        seed = check_argument("frame_seed", frame_seed)
        frame = HadamardFrame(self._block_dim, size, seed, rounds=_MIXINGS)
        self._take_coin(resolved_coin(coin, frames))
        self._set(frame=frame, frames=frames, share_codes=self._share_codes(seed))
        # Row 2N·b + 2j is u_j of block b, the next one its opposite.
        self._take_fields()

    @property
    def _own_groups(self) -> int:
        """s, the groups of a block."""
        return -(-self.groups // self.blocks)

    @property
    def _block_dim(self) -> int:
        return self._own_groups * self.dim

    @property
    def estimate_dim(self) -> int:
        """The length of an estimate, groups·dim."""
        return self.groups * self.dim

    @property
    def _fewest_frames(self) -> int:
        return _FRAMES_WITH_SHARES if self.share_people else 1

    def _refuse_large(self, groups: int, blocks: int) -> None:
        """ValueError for a block of too many dimensions, with what would be possible."""
        block_dim = -(-groups // blocks) * self.dim
        if block_dim <= _BLOCK_DIM_MAX:
            return
        most = max(1, _BLOCK_DIM_MAX // self.dim)
        possible = -(-groups // most)
        remedy = f"dim must be at most {_BLOCK_DIM_MAX}"
        if self.dim <= _BLOCK_DIM_MAX:
            best, other = (
                -(-groups // b) / alignments(self.epsilon, np.array([b]))[0] ** 2 for b in (blocks, possible)
            )
            remedy = f"pass blocks={possible}, which has {other / best:.3g} times the variance, or a larger epsilon"
        raise ValueError(
            f"groups·dim/blocks must be at most 2^22, got {groups}·{self.dim}/{blocks}, which needs a frame of "
            f"2^{(block_dim - 1).bit_length()} rows per message; {remedy}, or merge groups"
        )

    def _usual_size(self) -> int:
        size = 1 << (max(self._block_dim, _LEAST_ROWS) - 1).bit_length()
        share = inside_share(self.epsilon, self.blocks)
        while 2 * size * share < _ROWS_INSIDE and 2 * size <= _USUAL_ROWS and 4 * size * self.blocks <= _CANDIDATES_MAX:
            size *= 2
        return size

    @classmethod
    def _usual_frame_size(cls, data: Any) -> int:
        groups, blocks = (check_argument(name, data.get(name), of="groups", low=1) for name in ("groups", "blocks"))
        return max(
            super()._usual_frame_size({"dim": -(-groups // blocks) * check_argument("dim", data.get("dim"))}),
            _USUAL_ROWS,
        )

    def _share_codes(self, seed: int) -> ShareCodes | None:
        """The messages of people who send their group only, if any; solved, or read from JSON."""
        if not self.share_people:
            return None
        draw = best_share_draw(self.epsilon, self.groups)
        if self._stated is not None:
            stated = {name: self._stated[f"share_{name}"] for name in ("inside", "threshold")}
            draw = KClosest.stated(self.epsilon, draw.size, stated)
        return ShareCodes(draw, self.groups, self.choice.size, seed)

    def _reseeded(self, seed: int) -> dict[str, Any]:
        codes = None if self.share_codes is None else replace(self.share_codes, seed=seed)
        return {**super()._reseeded(seed), "share_codes": codes}

    def _vector_frames(self, frames: int) -> int:
        """The frames of people who send a vector: all but the last ones, a share `share_people` and at least one."""
        return frames - max(1, round(frames * self.share_people)) if self.share_people else frames

    @property
    def vector_frames(self) -> int:
        """The frames below this number are for people who send a vector, the others for those who send their group."""
        return self._vector_frames(self.frames)

    @property
    def gain(self) -> float:
        """The factor of the estimate ±gain·u_j: clip/m over the share of people who send a vector."""
        return super().gain * self.frames / self.vector_frames

    @property
    def block_rates(self) -> tuple[float, float]:
        """How often the own block is sent, and any other one."""
        other = 2 * self.frame.size * self.choice.probabilities[1]
        return 1 - (self.blocks - 1) * other, other

    def law(self) -> Law:
        """The draw of people who send a vector, and that of those who send their group."""
        if self.share_codes is None:
            return self.choice.law()
        vectors = Fraction(self.vector_frames, self.frames)
        return EitherLaw([self.choice.law(), self.share_codes.draw.law()], [vectors, 1 - vectors])

    def privacy_loss(self) -> float:
        """The largest log-ratio of both draws, rounded up to a double."""
        draws = [self.choice] if self.share_codes is None else [self.choice, self.share_codes.draw]
        return max(draw.privacy_loss() for draw in draws)

    def _held(self, rows: Rows, groups: ArrayLike | None) -> Rows:
        """The group before the vector: floats hold all groups exactly."""
        if groups is None:
            raise ValueError(f"groups must be one integer from 0 to {self.groups - 1} per row of X, got None")
        labels = np.atleast_1d(np.asarray(groups))
        if labels.ndim != 1 or len(labels) != len(rows):
            raise ValueError(f"groups must be {len(rows)} integers, got an array of shape {labels.shape}")
        if labels.dtype.kind not in "iu" and len(labels):
            raise ValueError(f"groups must be integers, got dtype {labels.dtype}")
        wrong = np.flatnonzero((labels < 0) | (labels >= self.groups))
        if len(wrong):
            raise ValueError(f"groups must be from 0 to {self.groups - 1}, got {labels[wrong[0]]} at row {wrong[0]}")
        return np.concatenate([labels[:, None].astype(rows.dtype), rows], axis=1)

    def _in_block(self, rows: Rows) -> tuple[Ints, Rows]:
        """The block of each held row, and the vector at its group's place there, (n, s·dim)."""
        block, place = np.divmod(rows[:, 0].astype(np.int64), self._own_groups)
        padded = np.zeros((len(rows), self._own_groups, self.dim), dtype=rows.dtype)
        padded[np.arange(len(rows)), place] = rows[:, 1:]
        return block, padded.reshape(len(rows), -1)

    def _in_all(self, block: Ints, vectors: Rows) -> Floats:
        """Vectors of a block each as estimates of e_g ⊗ x, (n, groups·dim)."""
        flat = np.zeros((len(block), self.blocks, self._block_dim))
        flat[np.arange(len(block)), block] = vectors
        return flat.reshape(len(block), -1)[:, : self.estimate_dim]

    def _estimated(self, rows: Rows) -> Rows:
        return self._in_all(*self._in_block(rows))

    @property
    def _row_memory(self) -> int:
        return base.NUMBERS_OF_A_DRAW + self.frame.size

    @property
    def _row_cost(self) -> int:
        return max(self.frame.size, self.estimate_dim)

    def _encode(self, batch: Batch) -> Columns:
        frame, (block, rows) = self._frame_numbers(batch), self._in_block(batch.rows)
        places, own = self.choice.places(batch.words[:, 1:3]), 2 * self.frame.size
        everything = np.empty((len(rows), 0), dtype=np.int64)
        # The places of the own block come first. The work is the same for those of others.
        row = self._pick(batch, rows, frame, everything, np.where(places < own, places, 0))
        other, other_row = np.divmod(places - own, own)
        other += other >= block
        sent = np.where(places < own, block * own + row, other * own + other_row)
        if self.share_codes is not None:
            only = self.share_codes.encode(batch.rows[:, 0].astype(np.int64), frame, batch.words)
            sent = np.where(frame < self.vector_frames, sent, only)
        return (sent, frame) if self._sends_frame else (sent,)

    def frames_indices_and_codes(self, messages: Messages) -> tuple[Rows, Rows, Rows]:
        """The frame's number, the row N·b + j of its blocks and the sign's code of every message."""
        row = messages.column("row")
        frame = messages.column("frame") if self._sends_frame else self._public_frames(messages.clients, len(messages))
        return frame, row >> 1, row & 1

    def messages_from_columns(self, columns: Columns, clients: Words | None, simulated: bool) -> Messages:
        """Checked messages from the values of their fields."""
        messages = super().messages_from_columns(columns, clients, simulated)
        if not self._sends_frame:
            self._refuse_beyond_shares(columns[0], self._public_frames(messages.clients, len(messages)))
        return messages

    def _check_columns(self, columns: Columns) -> None:
        if self._sends_frame:
            self._refuse_beyond_shares(*columns)

    def _refuse_beyond_shares(self, row: Rows, frame: Rows) -> None:
        """ValueError for a code that no client sends on a frame for shares."""
        if self.share_codes is None:
            return
        wrong = (frame >= self.vector_frames) & (row >= self.share_codes.codes)
        if np.any(wrong):
            most = self.share_codes.codes - 1
            raise ValueError(f"the row of a message on a frame for shares must be at most {most}, got {row[wrong][0]}")

    def _decode(self, messages: Messages) -> Floats:
        frame, index, code = (column.astype(np.int64) for column in self.frames_indices_and_codes(messages))
        estimates = np.empty((len(messages), self.estimate_dim))
        for part in row_chunks(len(messages), self._row_cost):
            block, row = np.divmod(index[part], self.frame.size)
            spikes = np.zeros((len(row), self.frame.size))
            spikes[np.arange(len(row)), row] = SIGNS[code[part]] * (self.gain * self.frame.redundancy)
            spikes[frame[part] >= self.vector_frames] = 0
            estimates[part] = self._in_all(block, self.family.synthesize(spikes, frame[part]))
        return estimates

    def aggregator(self) -> GroupUnitAggregator:
        """Create an empty aggregator for this mechanism's messages, O(1) per message."""
        return GroupUnitAggregator(self)

    def largest_message(self) -> float:
        """No row of any frame is longer than √(N/d), because (d/N)·U·Uᵀ is a projection."""
        return self.gain * math.sqrt(self.frame.redundancy)

    def largest_honest_mean(self) -> float:
        """At most clip/m·(p_in − p_out)·√(k·N/d), as for FrameUnit: other blocks cancel out."""
        own, other = self.choice.probabilities
        reach = math.sqrt(self.choice.inside * self.frame.redundancy)
        return self.clip / self.alignment * (own - other) * reach

    def _error(self, frames: int, messages: int) -> ExpectedError:
        own = self._vector_frames(frames)
        return self.row_draw.error(own, messages, own / frames)

    def _row_error(self, rows: Rows) -> tuple[Floats, Floats]:
        """Exact over these frames, up to 64 of them, and over who sends the group only."""
        block, padded = self._in_block(rows)
        mean, power = np.zeros(padded.shape), np.zeros(len(rows))
        # The last block may have coordinates that no estimate has.
        last = self.estimate_dim - (self.blocks - 1) * self._block_dim
        for own, kept in ((block < self.blocks - 1, self._block_dim), (block == self.blocks - 1, last)):
            if np.any(own):
                mean[own], power[own] = self._moments(self._unit_ball(padded[own]), self.vector_frames, kept)
        mean = self._in_all(block, mean)
        return mean, power * (self.frames / self.vector_frames) - np.einsum("ij,ij->i", mean, mean)

    def share_variance(self) -> float:
        """The variance of the share of a small group from one message, on average over all people."""
        rates = self.block_rates if self.share_codes is None else hit_rates(self.share_codes.draw)
        people = 1.0 if self.share_codes is None else 1 - self.vector_frames / self.frames
        return rates[1] * (1 - rates[1]) / (rates[0] - rates[1]) ** 2 / people

    def to_dict(self) -> dict[str, Any]:
        """The options, the integers of both draws and the alignment, as JSON values."""
        own = self._named("groups", "blocks", "frames", "coin", "share_people", "alignment")
        options = self._common() | own | self._frame_options() | self.choice.to_dict()
        if self.share_codes is None:
            return options
        draw = self.share_codes.draw
        return options | {f"share_{name}": value for name, value in ({"size": draw.size} | draw.to_dict()).items()}
