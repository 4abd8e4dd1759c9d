"""What frames leave beside the noise: the one rule that plans, specs, notes, warnings and error bars of FrameUnit ask.

One frame leaves the squared bias b² of `alignment.frame_bias2`, and G frames leave b²/G, however many clients
there are. One client's estimate has the mean squared error e² over frames, so that the variance of a mean of n clients
on G given frames is (e² − b²/G)/n. The bias matters when it exceeds a fifth of the error of the mean.
"""

import math
import warnings
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from sstq.aggregation import Estimate, FamilyAggregator, FrameAggregator
from sstq.aggregation.estimates import with_bias
from sstq.mechanisms.base import ExpectedError, Ints
from sstq.mechanisms.closest import KClosest
from sstq.mechanisms.frameunit.alignment import alignment, frame_bias2, second_moment

BIAS_SHARE = 0.2
"""The frames' bias matters when it is more than this share of the error of the mean."""

FRAMES_MAX, CLIENTS_MAX = 1 << 30, 1 << 62


def frame_error(draw: KClosest, dim: int, size: int, frames: int, clients: int) -> ExpectedError:
    """The error of the mean of clients that all hold one unit vector, on average over frame seeds: a closed form."""
    of_frame, of_client = _one_frame_bias2(draw, dim, size), client_error(draw, dim, size)
    return ExpectedError(of_frame / frames, max(of_client - of_frame / frames, 0.0) / clients)


def bias_matters(error: ExpectedError, share: float = BIAS_SHARE) -> bool:
    """Whether the bias exceeds that share of the error."""
    return error.bias2 > share**2 * error.total


def frames_needed(draw: KClosest, dim: int, size: int, clients: int, share: float = BIAS_SHARE) -> int:
    """The least power of two of frames with which the bias does not matter; `FRAMES_MAX` where that is not enough."""
    of_frame, of_client = _one_frame_bias2(draw, dim, size), client_error(draw, dim, size)
    # From b²/G = share²·(b²/G + (e² − b²/G)/n).
    needed = of_frame / of_client * (1 + clients * (1 / share**2 - 1))
    frames = 1 << math.ceil(math.log2(max(needed, 1.0)))
    while frames < FRAMES_MAX and bias_matters(frame_error(draw, dim, size, frames, clients), share):
        frames *= 2
    return min(frames, FRAMES_MAX)


def clients_allowed(draw: KClosest, dim: int, size: int, frames: int) -> int:
    """The most clients for which so many frames are enough; none where not even for one."""
    of_frame, of_client = _one_frame_bias2(draw, dim, size), client_error(draw, dim, size)
    if not of_frame:
        return CLIENTS_MAX
    allowed = max(0, int((of_client * frames / of_frame - 1) / (1 / BIAS_SHARE**2 - 1)))
    while allowed and bias_matters(frame_error(draw, dim, size, frames, allowed)):
        allowed -= 1
    return min(allowed, CLIENTS_MAX)


@lru_cache(maxsize=4096)
def client_error(draw: KClosest, dim: int, size: int) -> float:
    """The e² of one client's estimate of a unit vector: E‖u‖²/m² − 1 of the row u that is sent."""
    return max(second_moment(draw, dim, size) / alignment(draw, dim, size) ** 2 - 1, 1e-12)


@lru_cache(maxsize=4096)
def _one_frame_bias2(draw: KClosest, dim: int, size: int) -> float:
    """The b² of one frame; with few public rows it takes seconds for ten million dimensions."""
    return max(frame_bias2(draw, dim, size), 0.0)


class FrameBiasWarning(UserWarning):
    """A mean over so many clients that the bias of the frames is more than a fifth of its error."""


class FrameUnitAggregator(FrameAggregator):
    """The sums of one frame; the `note` of its mean, also a warning, says when the frame's bias matters."""

    def mean(self) -> Estimate:
        """The mean so far and its standard error."""
        return _with_frames(super().mean(), self._mechanism, self._state[:, 0])


class FrameUnitFamilyAggregator(FamilyAggregator):
    """The sums of many frames, likewise."""

    def mean(self) -> Estimate:
        """The mean so far and its standard error."""
        return _with_frames(super().mean(), self._mechanism, self._state[:, 1] + self._state[:, 2])


def _with_frames(estimate: Estimate, mechanism: Any, sent: Ints) -> Estimate:
    """The estimate with the bias that the frames leave, from the noise alone and how often each row was sent.

    One message has covariance Σ = gain²·Σ p_j·u_j·u_jᵀ less the square of its mean, so tr Σ² is about gain⁴ times the
    mean of ⟨u_i, u_j⟩² over pairs of messages. That is 1 for one and the same row, whose share the pairs of messages
    tell; (N/d − 1)/(N − 1) for two rows of a frame, as the frame is tight; and 1/d for rows of different frames.
    """
    count, dim, frames, size = estimate.count, mechanism.dim, mechanism.frames, mechanism.frame.size
    note = mechanism.note(count)
    if note:
        warnings.warn(note, FrameBiasWarning, stacklevel=3)
    if count == 1:
        return replace(estimate, note=note)
    bias2 = mechanism.typical_error(count).bias2
    # The scatter of frames' means, where the standard errors come from that, has their bias in it.
    shown = estimate.terms > 0
    total = float(np.sum(estimate.stderr**2))
    noise2 = max(total - bias2, 0.0) if shown else total
    same_row = (float(np.sum(sent.astype(np.float64) ** 2)) - count) / (count * (count - 1))
    same_frame = (size / dim - 1) / max(size - 1, 1)
    product2 = same_row + (1 - same_row) * (same_frame / frames + (1 - 1 / frames) / dim)
    directions = max(1.0, (count * noise2 / mechanism.gain**2) ** 2 / product2)
    if shown:
        return replace(estimate, note=note, directions=with_bias(dim, noise2, directions, min(bias2, total)))
    stderr = np.sqrt(estimate.stderr**2 + bias2 / dim)
    return replace(estimate, stderr=stderr, note=note, frame_bias=math.sqrt(bias2), directions=directions)
