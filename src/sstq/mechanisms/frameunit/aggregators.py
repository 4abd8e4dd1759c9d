"""Sums of signed rows of many frames: only the rows that were sent are kept."""

import numpy as np

from sstq.aggregation import SparseAggregator
from sstq.aggregation.sums import largest_of_row
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.base import Floats, Ints
from sstq.messages.batch import Messages

# The coordinates of rows are squared in frames of at most so many rows, and for rows of so many numbers in all.
_MOST_ROWS, _NUMBERS_MADE = 1 << 14, 1 << 24


class FamilyAggregator(SparseAggregator):
    """One row of integers per row of a frame that was sent: its number and how often with + and −.

    A frame has B blocks of N rows each, so that row j of block b of a frame has the number (frame·B + b)·N + j. One
    synthesis per frame and block gives the mean. Memory grows with the distinct rows that were sent, not with the
    frames. Messages on frames from `vector_frames` on estimate nothing.
    """

    def _codes(self, messages: Messages) -> Ints:
        frame, (index, code) = self._mechanism.frame_numbers(messages), self._mechanism.indices_and_codes(messages)
        return np.asarray(2 * (frame * self._rows_of_frame + index.astype(np.int64)) + code)

    @property
    def limit(self) -> int:
        """The total number of signed rows of all frames."""
        return 2 * int(self._mechanism.frames) * self._rows_of_frame

    @property
    def _rows_of_frame(self) -> int:
        return int(self._mechanism.blocks * self._mechanism.frame.size)

    def _largest(self) -> tuple[float, float]:
        return largest_of_row(self._mechanism.frame, float(self._mechanism.gain))

    def _vector_rows(self) -> Ints:
        """The rows of the state, which come first, that are of frames for vectors."""
        state = self.sums()
        return state[: np.searchsorted(state[:, 0], self._mechanism.vector_frames * self._rows_of_frame)]

    def _sent_in_blocks(self) -> Floats:
        """How many rows of each block were sent."""
        rows, blocks = self._vector_rows(), self._mechanism.blocks
        sent = np.bincount(rows[:, 0] // self._mechanism.frame.size % blocks, rows[:, 1:].sum(axis=1), blocks)
        return np.asarray(sent, dtype=np.float64)

    def _mean_and_second_moment(self) -> tuple[Floats, Floats]:
        mechanism, rows = self._mechanism, self._vector_rows()
        size, used = mechanism.frame.size, mechanism.estimate_dim
        value, squares = np.zeros((2, mechanism.blocks, mechanism.frame.dim))
        place, index = np.divmod(rows[:, 0], size)
        places, starts, which = np.unique(place, return_index=True, return_inverse=True)
        starts = np.append(starts, len(rows))
        # Σ ±u_j of each frame's block that has messages, a few at a time.
        for part in row_chunks(len(places), size):
            here = slice(starts[part.start], starts[part.stop])
            frame, block = np.divmod(places[part], mechanism.blocks)
            net = np.zeros((len(frame), size))
            net[which[here] - part.start, index[here]] = rows[here, 1] - rows[here, 2]
            np.add.at(value, block, mechanism.family.synthesize(net, frame))
        value *= mechanism.gain * mechanism.frame.redundancy / self._count
        sent = self._sent_in_blocks() * (mechanism.gain**2 / self._count)
        squares[:] = sent[:, None] * self._mean_squares()
        # The last block may have coordinates that no vector has.
        return value.ravel()[:used], squares.ravel()[:used]

    def _mean_squares(self) -> Floats:
        """The mean squares of the coordinates of the rows that were sent, (blocks, d) or the same for all.

        Of many rows some are made, at equal distances in the order of frames, which tells nothing of the data. In many
        dimensions squares are taken as even.
        """
        mechanism, rows = self._mechanism, self._vector_rows()
        size, dim, blocks = mechanism.frame.size, mechanism.frame.dim, mechanism.blocks
        even = mechanism.row_draw.second_moment * blocks / mechanism.estimate_dim
        if size > _MOST_ROWS:
            return np.array(even)
        rows = rows[:: max(1, -(-len(rows) * size // _NUMBERS_MADE))]
        place, index = np.divmod(rows[:, 0], size)
        frame, block = np.divmod(place, blocks)
        totals, counts = np.zeros((blocks, dim)), np.zeros(blocks)
        for part in row_chunks(len(rows), size):
            spikes = np.zeros((part.stop - part.start, size))
            spikes[np.arange(len(spikes)), index[part]] = mechanism.frame.redundancy
            sent = rows[part, 1:].sum(axis=1)
            made = mechanism.family.synthesize(spikes, frame[part])
            np.add.at(totals, block[part], made**2 * sent[:, None])
            np.add.at(counts, block[part], sent)
        return np.where(counts[:, None] > 0, totals / np.maximum(counts, 1)[:, None], even)

    def _directions(self, value: Floats, stderr: Floats) -> float:  # noqa: ARG002
        """(tr Σ)²/tr Σ² of the covariance Σ of a message ±gain·u.

        tr Σ² is the mean of ⟨u, u'⟩² over pairs of messages, their mean aside: 1 for one and the same row;
        (N/d − 1)/(N − 1) for two rows of a frame, as the frame is tight; 1/d for rows of different frames; and 0 for
        different blocks. How often each kind of pair occurs, the messages tell.
        """
        mechanism, count = self._mechanism, self._count
        size, dim, frames = mechanism.frame.size, mechanism.frame.dim, mechanism.vector_frames
        sent = self._vector_rows()[:, 1:].sum(axis=1).astype(np.float64)
        pairs = count * (count - 1)
        same_row, same_block = (float(np.sum(n**2) - np.sum(n)) / pairs for n in (sent, self._sent_in_blocks()))
        product2 = (size / dim - 1) / max(size - 1, 1) / frames + (1 - 1 / frames) / dim
        square = same_row + (same_block - same_row) * product2
        power = count * float(np.sum(stderr**2)) / mechanism.gain**2
        return max(1.0, power**2 / square) if square else 1.0
