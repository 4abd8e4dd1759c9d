"""The signed row that a client of FrameUnit sends, on average: exact for the frame at hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sstq.frames.tight import HadamardFrame
from sstq.mechanisms.closest import KClosest
from sstq.mechanisms.frameunit.alignment import second_moment
from sstq.mechanisms.sphere import random_directions

__all__ = ["moments_of_frame"]

_NEVER_FLIPPED = np.uint64(2**64 - 1)
# The rows inside of a frame of three rounds are made one by one, for their lengths, if they have no more numbers in
# all. Of more rows the mean squared length is known to 0.2 % without.
_NUMBERS_MADE = 1 << 20


def moments_of_frame(
    unit: NDArray[np.float32], frame: HadamardFrame, draw: KClosest, inside_by_rank: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """E[±u_j] and E‖u_j‖² over the draw, the public choice of rows and the client's flip, u_j being rows of the frame.

    All signed rows sum to zero, those inside do not. Where a frame of three rounds has many rows inside, the second
    moment is that of `second_moment`, an average over frames.

    Args:
        unit: rows of the unit ball, (n, d).
        frame: what is drawn from.
        draw: of one of the 2R signed rows that take part.
        inside_by_rank: for the row of each rank by |⟨u_j, x⟩| the probability of being inside, if it takes part; see
            `sstq.mechanisms.frameunit.alignment.inside_by_rank`.

    Returns:
        The means, (n, d), and the second moments, (n,).

    Examples:
        >>> from sstq.mechanisms.closest import whole_budget
        >>> frame, draw = HadamardFrame(2, 2, rounds=2), whole_budget(20.0, 4, 1)
        >>> mean, power = moments_of_frame(np.float32([[0.6, 0.8]]), frame, draw, np.array([1.0, 0.0]))
        >>> bool(mean[0] @ [0.6, 0.8] > 0.7), round(float(power[0]), 6)
        (True, 1.0)
    """
    norms = np.minimum(np.linalg.norm(unit.astype(np.float64), axis=1, keepdims=True), 1.0)
    directions = random_directions(unit, np.full(len(unit), _NEVER_FLIPPED))
    scores = frame.analyze(directions.astype(np.float32))
    inside = np.empty(scores.shape)
    order = np.argsort(-np.abs(scores), axis=1, kind="stable")
    np.put_along_axis(inside, order, inside_by_rank[None], axis=1)
    # A flip, of probability (1 − ‖x‖)/2, turns every sign but those of scores that are zero.
    signs: NDArray[np.float64] = np.where(scores == 0, 1.0, norms * np.sign(scores)) * inside
    own, other = draw.probabilities
    taking_part = draw.size / 2 / frame.size
    mean = np.asarray(frame.synthesize(signs), dtype=np.float64)
    mean *= taking_part * (own - other) * frame.redundancy
    norms = _squared_norms(frame, np.flatnonzero(inside.any(axis=0)))
    if norms is None:
        return mean, np.full(len(unit), second_moment(draw, frame.dim, frame.size))
    return mean, taking_part * (2 * other * frame.size + (own - other) * (inside @ norms))


def _squared_norms(frame: HadamardFrame, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """‖u_j‖² of the given rows at least, (N,), where that is cheap."""
    if frame.rounds < 3 or frame.dim == frame.size:
        return frame.squared_row_norms()
    if len(rows) * frame.size > _NUMBERS_MADE:
        return None
    norms = np.zeros(frame.size)
    norms[rows] = np.sum(frame.rows(rows) ** 2, axis=1)
    return norms
