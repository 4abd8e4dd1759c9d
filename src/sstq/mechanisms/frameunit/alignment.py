"""How well the k best aligned rows of a frame are aligned: on average over frames, the best k, and for one frame.

A frame that mixes well takes a unit vector of R^d to √(N/d) times a uniform direction of R^N, g/‖g‖ for a normal vector
g. Its norm is independent of its direction, so E[Σ of the k largest |g_i|/‖g‖] = S_k/E[χ_N] with S_k = E[Σ of the k
largest |g_i|]; no asymptotics are involved.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from sstq.array_types import Floats, Floats32, Ints
from sstq.frames.tight import HadamardFrame
from sstq.mechanisms.base import ExpectedError
from sstq.mechanisms.sphere import mean_chi, random_directions
from sstq.mechanisms.two_level_draw import KClosest, whole_budget

BIAS_SHARE = 0.2
"""The frames' bias matters if it exceeds this share of the error of the mean."""

FRAMES_MAX = 1 << 30
# Of fewer frames one is more than an eighth, which is too much for shares.
_FRAMES_WITH_SHARES = 16
# Places of the trapezoidal rule in standard deviations of a logit. With one member the density falls off as e^t only.
_STEPS = np.arange(-400, 401) / 10
# The search for k narrows to the neighbours of the best among so many, until these are all.
_TRIED_AT_A_TIME = 33
_NEVER_FLIPPED = np.uint64(2**64 - 1)
# Rows of a frame of three rounds are made one by one, for their lengths, if they have no more numbers in all. Of more
# rows the mean squared length is known to 0.2 % without.
_NUMBERS_MADE = 1 << 20


def top_half_normals(size: int, counts: Ints) -> Floats:
    """S_k, the expected sum of the k largest of N absolute values of standard normal numbers, for each k.

    A value y counts when fewer than k of the other N − 1 exceed it, so S_k = N·∫ y·f(y)·P(Bin(N−1, Q(y)) < k) dy with
    the density f and the tail Q of |g|: by parts N·E[2φ(Q⁻¹(q))] with q ~ Beta(k, N − k). In the logit of q the density
    is analytic and falls off exponentially; the trapezoidal rule has relative errors below 1e-9 for N up to 2^30.
    """
    return (
        size
        * math.sqrt(2 / math.pi)
        * np.where(counts == size, 1.0, _mean_height(size, counts, 0))
    )


def _mean_height(size: int, counts: Ints, power: int, height: int = 1) -> Floats:
    """E[y^power·e^(−height·y²/2)] at y = Q⁻¹(q) over q ~ Beta(k, N − k), for each k (at most N − 1)."""
    from scipy.special import ndtri

    within = np.minimum(counts, size - 1).astype(np.float64)[:, None]
    share = within / size
    logits = np.sqrt(1 / np.maximum(within, 1) + 1 / (size - within)) * _STEPS
    # Everything relative to the logit of k/N: large terms would cancel otherwise.
    growth = share * np.expm1(logits)
    weights = np.exp(within * logits - size * np.log1p(growth))
    y = -ndtri(share * np.exp(logits) / (1 + growth) / 2)
    return np.asarray(
        np.sum(weights * y**power * np.exp(-height * y**2 / 2), axis=1)
        / np.sum(weights, axis=1)
    )


def _top_half_normal_squares(size: int, count: int) -> float:
    """The expected sum of the squares of the k largest of N absolute values of standard normal numbers.

    As in `top_half_normals`, with ∫_y^∞ t²·f(t) dt = 2y·φ(y) + Q(y): k + N·E[2y·φ(y)] at y = Q⁻¹(q).
    """
    if count == size:
        return float(size)
    return count + size * math.sqrt(2 / math.pi) * float(
        _mean_height(size, np.array([count]), 1)[0]
    )


def _length_scatter(size: int, inside: int) -> float:
    """Var[A]/E[A]² of the sum A of the k largest coordinates, in absolute value, of a uniform direction of R^N.

    With S the sum of the k largest |g_i|, E[S²] has the squares of single terms and the products of
    pairs: N·(N − 1)·E[4φ(Q⁻¹(q))²] with q ~ Beta(k − 1, N − k), as in `top_half_normals`.
    """
    total = float(top_half_normals(size, np.array([inside]))[0])
    pairs = 0.0 if inside == 1 else 1.0
    if 1 < inside < size:
        pairs = float(_mean_height(size - 1, np.array([inside - 1]), 0, height=2)[0])
    second = (
        _top_half_normal_squares(size, inside) + size * (size - 1) * 2 / math.pi * pairs
    )
    return max(second / size * (mean_chi(size) / total) ** 2 - 1, 0.0)


@dataclass(frozen=True)
class RowDraw:
    """A draw among the signed rows of B = `blocks` frames, each N×d: one of them is the client's, all others outside.

    One frame leaves the squared bias b² of `frame_bias2`, and G frames leave b²/G, however many clients there are. One
    client's estimate has the mean squared error e² over frames, so that the variance of a mean of n clients on G given
    frames is (e² − b²/G)/n. Estimates have `coordinates` in all, B·d unless the last block has fewer. A share
    `share_people` of clients, and of frames, send no row.
    """

    choice: KClosest
    dim: int
    size: int
    blocks: int = 1
    coordinates: int | None = None
    share_people: float = 0.0

    @cached_property
    def alignment(self) -> float:
        """The mean m = E⟨u, x⟩ of the signed row u drawn for a unit vector x, over messages and frames.

        The signed rows of a block sum to zero, so that only the excess probability of those inside counts:
        m = √(N/d)·(p_in − p_out)·S_k/E[χ_N].
        """
        p_in, p_out = self.choice.probabilities
        return (
            math.sqrt(self.size / self.dim)
            * (p_in - p_out)
            * self._top
            / mean_chi(self.size)
        )

    @cached_property
    def _top(self) -> float:
        return float(top_half_normals(self.size, np.array([self.choice.inside]))[0])

    @cached_property
    def second_moment(self) -> float:
        """E‖u‖² of the signed row u drawn for a unit vector, over messages and frames: 1 but for 1/d."""
        return self.power(self.dim)

    def power(self, kept: int) -> float:
        """The same where estimates have so many coordinates of the client's own block.

        Rows that are well aligned are a little longer than the others. With v = E[Σ of the k largest g_i²]/N the part
        of the rows inside along c is v; of the rest, k − v, the frame keeps d − 1 of N − 1 dimensions.
        """
        p_in, p_out = self.choice.probabilities
        along = _top_half_normal_squares(self.size, self.choice.inside) / self.size
        across = (
            (kept - 1) * (self.choice.inside - along) / (self.size - 1)
            if self.size > 1
            else 0.0
        )
        return self.choice.size * p_out * self._kept + (
            p_in - p_out
        ) * self.size / self.dim * (along + across)

    @property
    def _kept(self) -> float:
        """The share of the coordinates of all blocks that estimates have; all columns of a frame are equally long."""
        return (
            1.0
            if self.coordinates is None
            else self.coordinates / (self.blocks * self.dim)
        )

    @cached_property
    def frame_bias2(self) -> float:
        """The squared bias b² of one frame for a unit vector, on average over frames.

        For one frame the mean is Uᵀv over a constant, v_j being the sign of c_j for the k rows inside and zero for
        others. Its part along c, of length A = ⟨v, c⟩/‖c‖, reconstructs x, too long or too short by A/E[A] − 1. The
        rest, of squared norm k − A², is a random direction of the N − 1 others, of which the frame keeps d − 1:

            bias² = E[k − A²]/E[A]²·(d − 1)/(N − 1) + Var[A]/E[A]²,

        about 0.49·d/N at ε = 3. The second term is at most a sixth of one of the d − 1 coordinates of the first.
        """
        if self.size == 1:
            return 0.0
        along = self._top / mean_chi(self.size)
        scatter = _length_scatter(self.size, self.choice.inside)
        return (
            max(
                (self.choice.inside / along**2 - 1 - scatter)
                * (self.dim - 1)
                / (self.size - 1),
                0.0,
            )
            + scatter
        )

    def client_error(self, people: float = 1.0) -> float:
        """The e² of one client's estimate of a unit vector: E‖u‖²/m² − 1, where a share `people` of clients count."""
        return max(self.second_moment / self.alignment**2 / people - 1, 1e-12)

    def vector_frames(self, frames: int) -> int:
        """How many of the frames are for people who send a row: all but a share, at least one of them."""
        return (
            frames - max(1, round(frames * self.share_people))
            if self.share_people
            else frames
        )

    def error(self, frames: int, messages: int) -> ExpectedError:
        """The error of the mean of messages that are all of one unit vector, on average over frame seeds."""
        bias2, variance = self._error_of_one(frames)
        return ExpectedError(bias2, variance / messages)

    def _error_of_one(self, frames: int) -> tuple[float, float]:
        """The squared bias that frames leave, and the variance of one message."""
        used = self.vector_frames(frames)
        bias2 = self.frame_bias2 / used
        return bias2, max(self.client_error(used / frames) - bias2, 0.0)

    def messages_allowed(self, frames: int) -> float:
        """The most messages in a mean whose error is not mainly the bias of the frames, by `BIAS_SHARE`."""
        bias2, variance = self._error_of_one(frames)
        return (
            variance * BIAS_SHARE**2 / (bias2 * (1 - BIAS_SHARE**2))
            if bias2
            else math.inf
        )

    @property
    def fewest_frames(self) -> int:
        """One, or with people who send no row so many that one frame is not too much for them."""
        return _FRAMES_WITH_SHARES if self.share_people else 1

    def frames_for(self, messages: int) -> int:
        """The least power of two, up to 2^30, of frames whose bias does not matter in a mean of so many messages."""
        frames = self.fewest_frames
        while frames < FRAMES_MAX and messages > self.messages_allowed(frames):
            frames *= 2
        return frames


@lru_cache(maxsize=64)
def row_draw(choice: KClosest, *shape: Any) -> RowDraw:
    """The draw with this shape, cached because its moments take long in many dimensions."""
    return RowDraw(choice, *shape)


def best_draw(epsilon: float, size: int, blocks: int = 1) -> KClosest:
    """Of the draws from the signed ones of N = `size` rows in every block, the one of the largest alignment.

    S_k is concave in k and the alignment is S_k over an affine function of k, so it has one hill, to which the search
    narrows. Below the equator, k > N, it only falls.
    """
    low = 1
    high = size
    while True:
        tried = np.unique(np.linspace(low, high, _TRIED_AT_A_TIME).astype(np.int64))
        best = int(
            np.argmax(
                top_half_normals(size, tried)
                / (2 * size * blocks + tried * math.expm1(epsilon))
            )
        )
        if len(tried) > high - low:
            return whole_budget(epsilon, 2 * size * blocks, int(tried[best]))
        low = int(tried[max(best - 1, 0)])
        high = int(tried[min(best + 1, len(tried) - 1)])


def moments_of_frame(
    unit: Floats32, frame: HadamardFrame, draw: RowDraw, kept: int
) -> tuple[Floats, Floats]:
    """E[±u_j] of the client's block and E‖u_j‖² over the draw and the client's flip.

    Where a frame of three rounds has many rows inside, the second moment is an average over frames. `unit` are rows of
    the unit ball, (n, d), u_j rows of the frame, and estimates have the first `kept` coordinates of the client's block.
    """
    norms = np.minimum(
        np.linalg.norm(unit.astype(np.float64), axis=1, keepdims=True), 1.0
    )
    directions = random_directions(unit, np.full(len(unit), _NEVER_FLIPPED))
    scores = frame.analyze(directions.astype(np.float32))
    inside = np.zeros(scores.shape)
    order = np.argsort(-np.abs(scores), axis=1, kind="stable")
    np.put_along_axis(inside, order[:, : draw.choice.inside], 1.0, axis=1)
    # A flip, of probability (1 − ‖x‖)/2, turns every sign but those of scores that are zero.
    signs: Floats = np.where(scores == 0, 1.0, norms * np.sign(scores)) * inside
    p_in, p_out = draw.choice.probabilities
    mean = np.asarray(frame.synthesize(signs), dtype=np.float64)
    mean *= (p_in - p_out) * frame.redundancy
    norms = _squared_norms(frame, np.flatnonzero(inside.any(axis=0)), kept)
    if norms is None:
        return mean, np.full(len(unit), draw.power(kept))
    return mean, 2 * p_out * frame.size * draw.blocks * draw._kept + (p_in - p_out) * (
        inside @ norms
    )


def _squared_norms(frame: HadamardFrame, rows: Ints, kept: int) -> Floats | None:
    """‖u_j‖² of the given rows at least, (N,), over the first coordinates, where that is cheap."""
    if (frame.rounds < 3 or frame.dim == frame.size) and kept == frame.dim:
        return frame.squared_row_norms()
    if len(rows) * frame.size > _NUMBERS_MADE:
        return None
    norms = np.zeros(frame.size)
    norms[rows] = np.sum(frame.rows(rows)[:, :kept] ** 2, axis=1)
    return norms
