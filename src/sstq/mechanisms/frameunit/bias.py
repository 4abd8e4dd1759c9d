"""What frames leave beside the noise: the one rule that plans, specs, notes, warnings and error bars ask.

The bias of the frames matters when it exceeds a fifth of the error of the mean (`alignment.RowDraw.error`).
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sstq.aggregation import Estimate, FamilyAggregator, FrameAggregator
from sstq.mechanisms.base import ExpectedError, Ints

BIAS_SHARE = 0.2
"""The frames' bias matters when it is more than this share of the error of the mean."""

FRAMES_MAX, CLIENTS_MAX = 1 << 30, 1 << 62


def bias_matters(error: ExpectedError, share: float = BIAS_SHARE) -> bool:
    """Whether the bias exceeds that share of the error."""
    return error.bias2 > share**2 * error.total


def frames_needed(error: Callable[[int], ExpectedError], share: float = BIAS_SHARE, least: int = 1) -> int:
    """The least power of two of frames with which the bias does not matter; `FRAMES_MAX` where that is not enough."""
    frames = least
    while frames < FRAMES_MAX and bias_matters(error(frames), share):
        frames *= 2
    return frames


def clients_allowed(error: Callable[[int], ExpectedError]) -> int:
    """The most clients for whom the bias does not matter; none where not even for one."""
    allowed, refused = 0, CLIENTS_MAX + 1
    while refused - allowed > 1:
        tried = (allowed + refused) // 2
        if bias_matters(error(tried)):
            refused = tried
        else:
            allowed = tried
    return allowed


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

    One message has covariance gain²·Σ p_j·u_j·u_jᵀ less the square of its mean. Two rows have a squared product of
    1/d, so the trace of its square is at most gain⁴·(Σ p_j² + 1/d); pairs of messages with one row estimate Σ p_j².
    """
    count, dim = estimate.count, len(estimate.value)
    note = mechanism.note(count)
    if note:
        warnings.warn(note, FrameBiasWarning, stacklevel=3)
    if count == 1:
        return replace(estimate, note=note)
    power = count * float(np.sum(estimate.stderr**2)) / mechanism.gain**2
    same_row = (float(np.sum(sent.astype(np.float64) ** 2)) - count) / (count * (count - 1))
    # The scatter of frames' means, where the standard errors come from that, has their bias in it.
    bias2 = 0.0 if estimate.terms else mechanism.typical_error(count).bias2
    return replace(
        estimate,
        stderr=np.sqrt(estimate.stderr**2 + bias2 / dim),
        note=note,
        frame_bias=math.sqrt(bias2),
        directions=max(1.0, power**2 / (same_row + 1 / dim)),
    )
