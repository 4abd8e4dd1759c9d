"""Estimates from signed rows of many frames: only the rows that were sent are kept."""

from dataclasses import dataclass

import numpy as np

from sstq.aggregation import Estimate, SparseEstimator, Sums
from sstq.aggregation.sums import largest_of_row
from sstq.array_types import Floats, Ints
from sstq.frames.family import FrameFamily
from sstq.frames.tight import HadamardFrame
from sstq.inputs.vectors import placed
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.base import SIGNS
from sstq.mechanisms.frameunit.alignment import RowDraw
from sstq.messages.batch import Messages

# The coordinates of rows are squared in frames of at most so many rows, and for rows of so many numbers in all.
_MOST_ROWS = 1 << 14
_NUMBERS_MADE = 1 << 24


@dataclass(frozen=True, eq=False)
class RowEstimator(SparseEstimator):
    """The mean of ±gain·u_j, from how often each signed row of each frame was sent.

    A frame has B blocks of N rows each, so that row j of block b of a frame has the number (frame·B + b)·N + j. One
    synthesis per frame and block gives the mean. Memory grows with the distinct rows that were sent, not with the
    frames. Messages on frames from `vector_frames` on estimate nothing.

    Attributes:
        family: the frames of a block.
        draw: the draw among the rows, with the number of blocks.
        gain: the factor of the estimate ±gain·u_j.
        vector_frames: the number of frames for people who send a row.
        dim: the length of the estimate; the last block may have coordinates that no vector has.
    """

    family: FrameFamily
    draw: RowDraw
    gain: float
    vector_frames: int
    dim: int

    @property
    def frame(self) -> HadamardFrame:
        """The first frame."""
        return self.family.base

    def decode(self, messages: Messages) -> Floats:
        """The estimates ±gain·u_j of single messages, in the block of each."""
        signed = self.codes(messages)
        place, row = np.divmod(signed >> 1, self.frame.size)
        frame, block = np.divmod(place, self.draw.blocks)
        factor = SIGNS[signed & 1] * np.where(
            frame < self.vector_frames, self.gain, 0.0
        )
        estimates = np.empty((len(messages), self.dim))
        for part in row_chunks(len(messages), max(self.frame.size, self.dim)):
            vectors = self._rows(frame[part], row[part]) * factor[part, None]
            estimates[part] = placed(vectors, block[part], self.draw.blocks)[
                :, : self.dim
            ]
        return estimates

    def _rows(self, frame: Ints, row: Ints) -> Floats:
        """The rows u_j of these frames, (n, d)."""
        spikes = np.zeros((len(row), self.frame.size))
        spikes[np.arange(len(row)), row] = self.frame.redundancy
        return np.asarray(self.family.synthesize(spikes, frame))

    def largest(self) -> tuple[float, float]:
        """The largest coordinate and the norm of a row, times the gain."""
        return largest_of_row(self.frame, self.gain)

    def estimate(self, sums: Sums) -> Estimate:
        """The mean, by one synthesis per frame and block."""
        rows = self._vector_rows(sums)
        size = self.frame.size
        value = np.zeros((self.draw.blocks, self.frame.dim))
        place, index = np.divmod(rows[:, 0], size)
        places, starts, which = np.unique(place, return_index=True, return_inverse=True)
        starts = np.append(starts, len(rows))
        # Σ ±u_j of each frame's block that has messages, a few at a time.
        for part in row_chunks(len(places), size):
            here = slice(starts[part.start], starts[part.stop])
            frame, block = np.divmod(places[part], self.draw.blocks)
            net = np.zeros((len(frame), size))
            net[which[here] - part.start, index[here]] = rows[here, 1] - rows[here, 2]
            np.add.at(value, block, self.family.synthesize(net, frame))
        value *= self.gain * self.frame.redundancy / sums.count
        sent = self._sent_in_blocks(rows) * (self.gain**2 / sums.count)
        squares = np.broadcast_to(sent[:, None] * self._mean_squares(rows), value.shape)
        return self.averaged(
            sums, value.ravel()[: self.dim], squares.ravel()[: self.dim].copy()
        )

    def _vector_rows(self, sums: Sums) -> Ints:
        """The rows of the state, which come first, that are of frames for vectors."""
        rows_per_frame = self.draw.blocks * self.frame.size
        return sums.state[
            : np.searchsorted(sums.state[:, 0], self.vector_frames * rows_per_frame)
        ]

    def _sent_in_blocks(self, rows: Ints) -> Floats:
        """How many rows of each block were sent."""
        blocks = self.draw.blocks
        sent = np.bincount(
            rows[:, 0] // self.frame.size % blocks, rows[:, 1:].sum(axis=1), blocks
        )
        return np.asarray(sent, dtype=np.float64)

    def _mean_squares(self, rows: Ints) -> Floats:
        """The mean squares of the coordinates of the rows that were sent, (blocks, d) or the same for all.

        Of many rows some are made, at equal distances in the order of frames, which tells nothing of the data. In many
        dimensions squares are taken as even.
        """
        size = self.frame.size
        blocks = self.draw.blocks
        even = self.draw.second_moment * blocks / self.dim
        if size > _MOST_ROWS:
            return np.array(even)
        rows = rows[:: max(1, -(-len(rows) * size // _NUMBERS_MADE))]
        place, index = np.divmod(rows[:, 0], size)
        frame, block = np.divmod(place, blocks)
        totals = np.zeros((blocks, self.frame.dim))
        counts = np.zeros(blocks)
        for part in row_chunks(len(rows), size):
            sent = rows[part, 1:].sum(axis=1)
            np.add.at(
                totals,
                block[part],
                self._rows(frame[part], index[part]) ** 2 * sent[:, None],
            )
            np.add.at(counts, block[part], sent)
        return np.where(
            counts[:, None] > 0, totals / np.maximum(counts, 1)[:, None], even
        )

    def directions(self, sums: Sums, value: Floats, stderr: Floats) -> float:  # noqa: ARG002
        """(tr Σ)²/tr Σ² of the covariance Σ of a message ±gain·u.

        tr Σ² is the mean of ⟨u, u'⟩² over pairs of messages, their mean aside: 1 for one and the same row;
        (N/d − 1)/(N − 1) for two rows of a frame, as the frame is tight; 1/d for rows of different frames; and 0 for
        different blocks. How often each kind of pair occurs, the messages tell.
        """
        size = self.frame.size
        dim = self.frame.dim
        frames = self.vector_frames
        rows = self._vector_rows(sums)
        same_row = _pairs(rows[:, 1:].sum(axis=1).astype(np.float64), sums.count)
        same_block = _pairs(self._sent_in_blocks(rows), sums.count)
        product2 = (size / dim - 1) / max(size - 1, 1) / frames + (1 - 1 / frames) / dim
        square = same_row + (same_block - same_row) * product2
        power = sums.count * float(np.sum(stderr**2)) / self.gain**2
        return max(1.0, power**2 / square) if square else 1.0


def _pairs(times: Floats, count: int) -> float:
    """The share of pairs of messages that are of one kind, each of which occurred so many times."""
    return float(np.sum(times**2) - np.sum(times)) / (count * (count - 1))
