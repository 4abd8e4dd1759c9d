"""GroupUnit: a private group and a vector in one message, by FrameUnit's draw over blocks of groups."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sstq.aggregation import Aggregator
from sstq.array_types import Floats, Ints
from sstq.checks import check_number
from sstq.inputs import GroupedVectors, Input
from sstq.inputs.vectors import placed
from sstq.mechanisms.agreement import MOST_ROWS_PER_DIM, Word
from sstq.mechanisms.base import Rows
from sstq.mechanisms.frameunit.rows import (
    CANDIDATES_MAX,
    RowMechanism,
    RowSolved,
    check_frame_size,
    solve_rows,
    usual_size,
)
from sstq.mechanisms.groupunit.group_estimates import GroupEstimate, GroupUnitEstimator
from sstq.mechanisms.subsets import AffineSets, HitRates, affine_draw, prime_at_least
from sstq.mechanisms.two_level_draw import KClosest
from sstq.messages.batch import Messages
from sstq.scalar.laws import EitherLaw, Law

# With 24 rows inside, rounding their best number to an integer costs at most 2 %. Frames grow to 2^16 rows for that.
_ROWS_INSIDE = 24
_USUAL_ROWS = 1 << 16
_BLOCK_DIM_MAX = 1 << 22
_STEPS = 60  # of bisection, which leave the last digit of a double


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupUnitSolved(RowSolved):
    """The values of GroupUnit; the last three are of the draw of people who send their group only."""

    groups: int
    blocks: int
    share_people: float
    share_size: int | None = None
    share_inside: int | None = None
    share_threshold: Word | None = None

    def limits(self) -> Mapping[str, int]:
        """40 rows per dimension of a block, or 2^16, which are usual with private groups."""
        return {"frame_size": max(MOST_ROWS_PER_DIM * self.block_dim, _USUAL_ROWS)}

    @property
    def groups_per_block(self) -> int:
        """The groups of a block; the last one may have fewer."""
        return -(-self.groups // max(self.blocks, 1))


class GroupUnit(RowMechanism):
    """FrameUnit for people with a private group: both the group and the vector are secret, in one message.

    A person holds (g, x), which is the vector e_g ⊗ x of groups·dim dimensions. Such vectors are a small part of the
    ball, and candidates made for them have less error. There are B blocks of s = ⌈groups/B⌉ groups; the last one may
    have fewer. The candidates are the 2N signed rows of a frame of s·dim dimensions in every block, 2N·B in all. Inside
    are the k rows of the person's block that are best aligned with x; everything else is outside. The draw is
    FrameUnit's, exactly ε-LDP by the same integers. The signed rows of a block sum to zero, so that other blocks cancel
    out, and the estimate of e_g ⊗ x is ±clip·u_j/m in the block that is sent. `blocks=1` is FrameUnit on the ball.

    B and k have the least error. The second moment of an estimate is s·dim·clip²/z² with φ(z)/z − Q(z) = B/(e^ε − 1):
    with 10 groups 1.4 times less than on the ball at ε = 3, and 6 times less at ε = 8.

    Shares come from how often a block occurs where B = groups. Otherwise a share of the frames, a tenth unless given,
    is for people who send their group only (`sstq.mechanisms.subsets`): a person draws the frame without
    looking at the data, and so who that is. `aggregator().mean()` has `shares`, `sums` and `means` of every group.

    Warning:
        Like FrameUnit, unbiased on average over random frames; one frame is slightly biased. ``clients=n`` takes enough
        frames to keep the bias below a fifth of the error, even if all people hold the same vector.

    Args:
        groups: the number of groups, 2 to 2^24; a person's group is an integer from 0 to groups − 1.
        blocks: B, the number of blocks; by default the one of least error.
        frames, clients, messages: as in `FrameUnit`; there are 16 frames by default if some are for shares.
        frame_size: N, a power of two from s·dim to 2^30; unless given at least 256 with 24 rows inside, if 2^16 rows
            are enough for that.
        inside: k, the number of rows of the person's block inside; by default the k of least error at ε.
        share_people: the share of people who send their group only, if B < groups; 0 for sums without shares.

    Examples:
        >>> mechanism = GroupUnit(dim=40, epsilon=3.0, groups=10)
        >>> mechanism.blocks, mechanism.message_bits
        (10, 13)
        >>> rng = np.random.default_rng(1)
        >>> labels, x = rng.integers(10, size=20_000), np.full(40, 0.1)
        >>> mechanism = mechanism.replace(clients=20_000)
        >>> messages = mechanism.encode(np.outer(labels < 5, x), rng=1, groups=labels)
        >>> estimate = mechanism.aggregator().update(messages).mean()
        >>> estimate
        <GroupEstimate of 400 numbers from 20,000 messages: norm 0... ± 0.1..., 10 groups>
        >>> estimate.shares.shape, estimate.means.shape, estimate.sums_stderr.shape
        ((10,), (10, 40), (10, 40))
    """

    name = "groupunit"
    variants: ClassVar = {
        "GroupUnit, 10 groups of d/10": {"groups": 10, "share_people": 0.0}
    }

    solved_class = GroupUnitSolved
    _mixings = 3  # two leave two spikes 7 % off where one row is inside

    solved: GroupUnitSolved
    groups: int

    @cached_property
    def input(self) -> Input:
        """A vector and a private group."""
        return GroupedVectors(self.dim, self.clip, self.groups)

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
        frame_size: int | None = None,
        inside: int | None = None,
        share_people: float = 0.1,
        frame_seed: int = 0,
    ) -> None:
        given = dict(locals())
        common = self.checked(
            dim=dim,
            epsilon=epsilon,
            clip=clip,
            messages=messages,
            groups=groups,
            frame_seed=frame_seed,
        )
        dim = common["dim"]
        epsilon = common["epsilon"]
        groups = common["groups"]
        share_people = float(check_number("share_people", share_people, 0, 0.5))
        if blocks is None:
            blocks = best_blocks(epsilon, groups, share_people)
        # Blocks of as many groups each: 7 blocks of 10 groups would be 5 blocks of 2.
        groups_per_block = -(
            -groups // check_number("blocks", blocks, 1, groups, integer=True)
        )
        blocks = -(-groups // groups_per_block)
        _refuse_large(dim, groups, blocks)
        if groups_per_block == 1:
            share_people = 0.0
        block_dim = groups_per_block * dim
        size = (
            _usual_size(block_dim, epsilon, blocks)
            if frame_size is None
            else frame_size
        )
        size = check_frame_size(size, block_dim, blocks)
        shape = block_dim, size, blocks, groups * dim, share_people
        solved = solve_rows(
            common, *shape, inside=inside, frames=frames, clients=clients
        )
        shares: dict[str, Any] = {
            "blocks": blocks,
            "share_people": share_people,
            "coin": "private",
        }
        if share_people:
            draw = affine_draw(epsilon, groups)
            shares |= {
                "share_size": draw.size,
                "share_inside": draw.inside,
                "share_threshold": draw.threshold,
            }
        self.settle(given, GroupUnitSolved(**common, **solved, **shares))

    def check_solved(self) -> None:
        """Refuse solved values that do not belong together."""
        blocks = check_number("blocks", self.blocks, 1, self.groups, integer=True)
        if blocks != -(-self.groups // self.solved.groups_per_block):
            raise ValueError(
                f"blocks must have equally many groups, but the last one, got {blocks} of {self.groups}"
            )
        _refuse_large(self.dim, self.groups, blocks)
        most = 0.0 if self.solved.groups_per_block == 1 else 0.5
        share_people = check_number("share_people", self.share_people, 0, most)
        if share_people and self.frames < 2:
            raise ValueError(
                f"frames must be at least 2, got {self.frames}: if blocks have {self.solved.groups_per_block} groups, "
                "some frames are for people who send their group only; or pass share_people=0 for sums without shares"
            )
        solved = self.solved
        given = solved.share_size, solved.share_inside, solved.share_threshold
        prime = prime_at_least(self.groups) if share_people else None
        if given[0] != prime or any(
            (each is None) != (prime is None) for each in given
        ):
            raise ValueError(
                f"share_size must be {prime} with share_people = {share_people}, got {given}"
            )
        self._check_rows()

    @cached_property
    def share_sets(self) -> AffineSets | None:
        """The messages of people who send their group only, if any."""
        solved = self.solved
        if (
            solved.share_size is None
            or solved.share_inside is None
            or solved.share_threshold is None
        ):
            return None
        draw = KClosest(solved.share_size, solved.share_inside, solved.share_threshold)
        return AffineSets(
            self.groups,
            draw,
            draw.size,
            draw.inside,
            self.choice.size,
            solved.frame_seed,
        )

    def aggregator(self) -> Aggregator[GroupEstimate]:
        """Create an empty aggregator."""
        return Aggregator(self.estimator)

    def load_aggregator(
        self, path: str | os.PathLike[str]
    ) -> Aggregator[GroupEstimate]:
        """Load an aggregator that was saved to a file."""
        return Aggregator.load(path, self.estimator)

    @cached_property
    def estimator(self) -> GroupUnitEstimator:
        """Shares, sums and means of every group."""
        shape = (
            self.family,
            self.row_draw,
            self.gain,
            self.vector_frames,
            self.estimate_dim,
        )
        return GroupUnitEstimator(
            self, *shape, self.groups, self.share_rates[0], self.share_sets
        )

    @property
    def share_rates(self) -> tuple[HitRates, float]:
        """How often messages hit the person's group and another one, and the share of the people whose messages tell.

        Blocks of one group tell by how often each is sent; otherwise those people do who send their group only.
        """
        if self.share_sets is not None:
            return self.share_sets.rates, 1 - self.vector_frames / self.frames
        other = 2 * self.frame.size * self.choice.probabilities[1]
        return HitRates(1 - (self.blocks - 1) * other, other), 1.0

    def _in_block(self, rows: Rows) -> tuple[Ints, Rows]:
        """The block of each person's group, and the vector at the group's place there, (n, s·dim)."""
        block, place = np.divmod(
            rows[:, 0].astype(np.int64), self.solved.groups_per_block
        )
        return block, placed(rows[:, 1:], place, self.solved.groups_per_block)

    @property
    def draw(self) -> Law | EitherLaw:
        """The draw of people who send a vector, and that of those who send their group."""
        if self.share_sets is None:
            return self.choice.law()
        share = Fraction(self.vector_frames, self.frames)
        return EitherLaw(
            [self.choice.law(), self.share_sets.draw.law()], [share, 1 - share]
        )

    def check_messages(self, messages: Messages) -> None:
        """ValueError for a code that no client sends on a frame for shares."""
        if self.share_sets is None:
            return
        row = messages.column("row")
        wrong = (messages.column("frame") >= self.vector_frames) & (
            row >= self.share_sets.codes
        )
        if np.any(wrong):
            most = self.share_sets.codes - 1
            raise ValueError(
                f"the row of a message on a frame for shares must be at most {most}, got {row[wrong][0]}"
            )


def _usual_size(block_dim: int, epsilon: float, blocks: int) -> int:
    from scipy.special import ndtr

    size = usual_size(block_dim)
    # of the signed rows of a block, inside
    share = float(ndtr(-alignments(epsilon, np.array([blocks]))[0]))
    while (
        2 * size * share < _ROWS_INSIDE
        and 2 * size <= _USUAL_ROWS
        and 4 * size * blocks <= CANDIDATES_MAX
    ):
        size *= 2
    return size


def _refuse_large(dim: int, groups: int, blocks: int) -> None:
    """ValueError for a block of too many dimensions, with what would be possible."""
    block_dim = -(-groups // blocks) * dim
    if block_dim <= _BLOCK_DIM_MAX:
        return
    remedy = f"dim must be at most {_BLOCK_DIM_MAX}"
    if dim <= _BLOCK_DIM_MAX:
        remedy = (
            f"pass blocks={-(-groups // (_BLOCK_DIM_MAX // dim))} or a larger epsilon"
        )
    raise ValueError(
        f"groups·dim/blocks must be at most 2^22, got {groups}·{dim}/{blocks}, which needs a frame of "
        f"2^{(block_dim - 1).bit_length()} rows per message; {remedy}, or merge groups"
    )


def block_numbers(groups: int) -> Ints:
    """All numbers of blocks B = ⌈groups/s⌉ that blocks of s groups come in, ascending."""
    few = np.arange(1, min(math.isqrt(groups) + 1, groups) + 1)
    return np.unique(
        np.concatenate([-(-groups // few), -(-groups // -(-groups // few))])
    )


def alignments(epsilon: float, blocks: Ints) -> Floats:
    """z, the largest alignment of one message in units of 1/√d, for each number of blocks; for many dimensions.

    With a share f of the signed rows of the person's block inside, and z their normal quantile, f = Q(z), the alignment
    of a block of d dimensions is m = (e^ε − 1)·φ(z)/(B + f·(e^ε − 1)), in units of 1/√d. It is largest where its
    derivative by f vanishes, at φ(z)/z − Q(z) = B/(e^ε − 1), and is z itself there. So a message has the second moment
    d/z².
    """
    from scipy.special import ndtr

    wanted = blocks / math.expm1(epsilon)
    low = np.full(len(blocks), 1e-9)
    high = np.full(len(blocks), 10.0)
    for _ in range(_STEPS):
        z = (low + high) / 2
        above = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) / z - ndtr(-z) > wanted
        low = np.where(above, z, low)
        high = np.where(above, high, z)
    return np.asarray((low + high) / 2)


def best_blocks(epsilon: float, groups: int, share_people: float) -> int:
    """The number of blocks of least error; where a block has several groups, some people send their group only."""
    blocks = block_numbers(groups)
    per_block = -(-groups // blocks)
    loss = (
        per_block
        / alignments(epsilon, blocks) ** 2
        / np.where(per_block > 1, 1 - share_people, 1.0)
    )
    return int(blocks[np.argmin(loss)])
