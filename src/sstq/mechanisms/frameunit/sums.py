"""FrameUnit's aggregators: sums in one frame or over many, and what the frames leave in the estimate's error bars."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation import Estimate, FrameAggregator, GroupAggregator

__all__ = ["FrameBiasWarning", "FrameUnitAggregator", "FrameUnitGroupAggregator"]


class FrameBiasWarning(UserWarning):
    """A mean over so many clients that the bias of the frames is more than a fifth of its error."""


class FrameUnitAggregator(FrameAggregator):
    """The sums of one frame."""

    def mean(self) -> Estimate:
        """The mean so far and its standard error; its `note`, also a warning, says when the frame's bias matters."""
        return _with_frames(super().mean(), self._mechanism, self._state[:, 0])


class FrameUnitGroupAggregator(GroupAggregator):
    """The sums of many frames."""

    def mean(self) -> Estimate:
        """The mean so far and its standard error; its `note`, also a warning, says when the frames' bias matters."""
        estimate = super().mean()
        return _with_frames(estimate, self._mechanism, self._state[:, 1] + self._state[:, 2])


def _with_frames(estimate: Estimate, mechanism: Any, sent: NDArray[np.int64]) -> Estimate:
    """The estimate with the bias that the frames leave, from the noise alone and how often each row was sent.

    One message has covariance gain²·Σ p_j·u_j·u_jᵀ less the square of its mean. Rows of different numbers have a
    squared product of 1/d, so that the trace of its square is at most gain⁴·(Σ p_j² + 1/d), and pairs of messages with
    the same row are an estimate of Σ p_j².
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
