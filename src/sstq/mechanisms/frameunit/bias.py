"""The bias of frames: the one rule that plans, specs, notes and error bars share.

The bias of the frames matters when it exceeds a fifth of the error of the mean (`alignment.RowDraw.error`).
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from sstq.aggregation import Estimate, FamilyAggregator, FrameAggregator
from sstq.aggregation.estimates import with_bias
from sstq.mechanisms.base import ExpectedError, Ints
from sstq.mechanisms.frameunit.alignment import RowDraw

BIAS_SHARE = 0.2
"""The frames' bias matters if it exceeds this share of the error of the mean."""

FRAMES_MAX, CLIENTS_MAX = 1 << 30, 1 << 62
FRAMES_WITH_SHARES = 16
"""Of fewer frames one is more than an eighth, which is too much for shares."""


def bias_matters(error: ExpectedError) -> bool:
    """Whether the bias exceeds that share of the error."""
    return error.bias2 > BIAS_SHARE**2 * error.total


def vector_frames(frames: int, share_people: float) -> int:
    """How many of the frames are for people who send a row: all but a share, at least one of them."""
    return frames - max(1, round(frames * share_people)) if share_people else frames


def row_error(draw: RowDraw, frames: int, messages: int, share_people: float = 0.0) -> ExpectedError:
    """The error on so many frames of the mean of messages that are all of one unit vector."""
    used = vector_frames(frames, share_people)
    return draw.error(used, messages, used / frames)


class FrameUnitAggregator(FrameAggregator):
    """The sums of one frame; the `note` of its mean says when the frame's bias matters."""

    def _mean(self) -> Estimate:
        """Return the mean so far with its standard error."""
        return _with_frames(super()._mean(), self._mechanism)


class FrameUnitFamilyAggregator(FamilyAggregator):
    """The sums of many frames; the `note` of their mean says when the frames' bias matters."""

    def _mean(self) -> Estimate:
        """Return the mean so far with its standard error."""
        estimate, mechanism, sent = super()._mean(), self._mechanism, self._state[:, 1] + self._state[:, 2]
        if estimate.count == 1:
            return _with_frames(estimate, mechanism)
        # Standard errors from the scatter of the frames' means already contain their bias.
        total = float(np.sum(estimate.stderr**2))
        bias2 = min(mechanism.typical_error().bias2, total) if estimate.terms else 0.0
        product2 = _squared_product(mechanism, self._state[:, 0], sent, estimate.count)
        power = estimate.count * (total - bias2) / mechanism.gain**2
        noise = max(1.0, power**2 / product2) if product2 else 1.0
        directions = with_bias(len(estimate.value), total - bias2, noise, bias2, max(mechanism.frame.dim - 1, 1))
        return _with_frames(replace(estimate, directions=directions), mechanism)


def _with_frames(estimate: Estimate, mechanism: Any) -> Estimate:
    """Add the bias of the frames to the estimate, unless the standard errors already contain it."""
    note = mechanism.note(-(-estimate.count // mechanism.messages))
    bias2, frame = mechanism.typical_error().bias2, mechanism.frame
    # Families of one seed have their first frames in common, but not the single frame of that seed.
    frames = f"{frame.size} rows, {frame.rounds} mixings, seed {frame.seed}{', alone' * (mechanism.frames == 1)}"
    estimate = replace(
        estimate,
        note=note,
        # The worst case is that of people who are all alike: the bias is in one frame, orthogonal to their vector.
        bias_directions=max(frame.dim - 1, 1),
        frames=frames,
        whole_bias=math.sqrt(bias2),
    )
    if estimate.count == 1 or estimate.terms:
        return estimate
    stderr = np.sqrt(estimate.stderr**2 + bias2 / len(estimate.stderr))
    return replace(estimate, stderr=stderr, frame_bias=math.sqrt(bias2))


def _squared_product(mechanism: Any, rows: Ints, sent: Ints, count: int) -> float:
    """The mean of ⟨u, u'⟩² over pairs of messages ±gain·u: tr Σ²/gain⁴ of the covariance Σ of one, its mean aside.

    It is 1 for one and the same row; (N/d − 1)/(N − 1) for two rows of a frame, as the frame is tight; 1/d for rows of
    different frames; and 0 for different blocks. How often each kind of pair occurs, the messages tell.
    """
    size, dim, frames = mechanism.frame.size, mechanism.frame.dim, mechanism.vector_frames
    last = np.searchsorted(rows, frames * mechanism.blocks * size)
    block = rows[:last] // size % mechanism.blocks
    numbers = sent[:last].astype(np.float64)
    in_block = np.bincount(block, weights=numbers, minlength=mechanism.blocks)
    pairs = count * (count - 1)
    same_row = (float(np.sum(numbers**2)) - float(np.sum(numbers))) / pairs
    same_block = (float(np.sum(in_block**2)) - float(np.sum(in_block))) / pairs
    product2 = (size / dim - 1) / max(size - 1, 1) / frames + (1 - 1 / frames) / dim
    return float(same_row + (same_block - same_row) * product2)
