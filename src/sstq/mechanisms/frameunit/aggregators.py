"""Sums of signed rows: of one frame, or of those of many frames that were sent; means with the bias of the frames."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from sstq.aggregation import Estimate, FrameAggregator, SparseAggregator
from sstq.aggregation.estimates import with_bias
from sstq.aggregation.sums import largest_of_row
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.base import Floats, Ints
from sstq.messages.batch import Messages

# From this many frames on, the standard error comes from the scatter of the frames' means.
_FEW_FRAMES = 32


class SingleFrameAggregator(FrameAggregator):
    """The sums of one frame; the `note` of its mean says when the frame's bias matters."""

    def _mean(self) -> Estimate:
        return _with_frames(super()._mean(), self._mechanism)


class FamilyAggregator(SparseAggregator):
    """One row of integers per row of a frame that was sent: its number and how often with + and −.

    A frame has B blocks of N rows each, so that row j of block b of a frame has the number (frame·B + b)·N + j. One
    synthesis per frame and block gives the mean. Memory grows with the distinct rows that were sent, not with the
    frames. Messages on frames from `vector_frames` on estimate nothing.
    """

    def _codes(self, messages: Messages) -> Ints:
        frame, index, code = self._mechanism.frames_indices_and_codes(messages)
        key = frame.astype(np.int64) * self._rows_of_frame + index.astype(np.int64)
        return np.asarray(2 * key + code)

    @property
    def limit(self) -> int:
        """The total number of signed rows of all frames."""
        return 2 * int(self._mechanism.frames) * self._rows_of_frame

    @property
    def _rows_of_frame(self) -> int:
        return int(self._mechanism.blocks * self._mechanism.frame.size)

    def _mean(self) -> Estimate:
        self._settle()
        mechanism = self._mechanism
        if self._count < 2:
            return _with_frames(super()._mean(), mechanism)
        estimate = super()._mean() if mechanism.frames < _FEW_FRAMES else self._mean_by_frames()
        total = float(np.sum(estimate.stderr**2))
        # Standard errors from the scatter of the frames' means already contain their bias.
        bias2 = min(mechanism.typical_error().bias2, total) if estimate.terms else 0.0
        product2 = self._squared_product()
        power = self._count * (total - bias2) / mechanism.gain**2
        noise = max(1.0, power**2 / product2) if product2 else 1.0
        directions = with_bias(len(estimate.value), total - bias2, noise, bias2, max(mechanism.frame.dim - 1, 1))
        return _with_frames(replace(estimate, directions=directions), mechanism)

    def _mean_by_frames(self) -> Estimate:
        """The mean with the error from the scatter of the frames' sums T_f of n_f messages, as in a survey by clusters.

        It is Σ(T_f − n_f·x̄)²/n²·F/(F − 1) for F frames with messages. So the bias of single frames is in it.
        """
        total, squares, weighted = self._no_sums(), self._no_sums(), self._no_sums()
        frames, which = np.unique(self._state[:, 0] // self._rows_of_frame, return_inverse=True)
        sent = np.bincount(which, weights=self._state[:, 1:].sum(axis=1))
        for frame, block, sums in self._block_sums():
            _add_rows_at(total, block, sums)
            _add_rows_at(squares, block, sums**2)
            _add_rows_at(weighted, block, sums * sent[np.searchsorted(frames, frame)][:, None])
        value = total / self._count
        scatter = np.maximum(squares - 2 * value * weighted + value**2 * (sent @ sent), 0.0)
        stderr = np.sqrt(scatter * (len(frames) / (len(frames) - 1) if len(frames) > 1 else np.nan)) / self._count
        known = (self._flat(value), self._flat(stderr), self._count, self._simulated)
        largest, longest = (size / self._count for size in self._largest())
        messages = self._mechanism.messages
        return Estimate(*known, terms=len(frames), messages=messages, largest=largest, longest=longest)

    def _largest(self) -> tuple[float, float]:
        return largest_of_row(self._mechanism.frame, float(self._mechanism.gain))

    def _no_sums(self) -> Floats:
        return np.zeros((self._mechanism.blocks, self._mechanism.frame.dim))

    def _flat(self, blocks: Floats) -> Floats:
        """The coordinates of all blocks; the last one may have some that no vector has."""
        return blocks.reshape(-1)[: self._mechanism.estimate_dim]

    def _vector_rows(self) -> int:
        """How many rows of the state, which come first, are of frames for vectors."""
        return int(np.searchsorted(self._state[:, 0], self._mechanism.vector_frames * self._rows_of_frame))

    def _block_sums(self) -> Iterator[tuple[Ints, Ints, Floats]]:
        """The frame, the block and the sum Σ ±gain·u_j of each block that has messages; a few at a time."""
        mechanism, size, last = self._mechanism, self._mechanism.frame.size, self._vector_rows()
        place, index = np.divmod(self._state[:last, 0], size)
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        stops = np.append(starts[1:], last)
        for part in row_chunks(len(starts), size):
            rows = slice(starts[part.start], stops[part.stop - 1])
            frame, block = np.divmod(place[starts[part]], mechanism.blocks)
            net = np.zeros((len(frame), size))
            of_block = np.repeat(np.arange(len(frame)), stops[part] - starts[part])
            net[of_block, index[rows]] = self._state[rows, 1] - self._state[rows, 2]
            sums = mechanism.family.synthesize(net, frame) * (mechanism.gain * mechanism.frame.redundancy)
            yield frame, block, np.asarray(sums, dtype=np.float64)

    def _mean_and_second_moment(self) -> tuple[Floats, Floats]:
        mechanism, value, power = self._mechanism, self._no_sums(), self._no_sums()
        for _, block, sums in self._block_sums():
            _add_rows_at(value, block, sums)
        vectors = self._state[: self._vector_rows()]
        place, index = np.divmod(vectors[:, 0], mechanism.frame.size)
        for number in np.unique(place):
            here = place == number
            sent = np.bincount(index[here], weights=vectors[here, 1:].sum(axis=1), minlength=mechanism.frame.size)
            frame, block = divmod(int(number), mechanism.blocks)
            power[block] += mechanism.family.frame(frame).column_power(sent.astype(np.float64))
        return self._flat(value / self._count), self._flat(power * (mechanism.gain**2 / self._count))

    def _squared_product(self) -> float:
        """The mean of ⟨u, u'⟩² over pairs of messages ±gain·u: tr Σ²/gain⁴ of the covariance Σ of one, its mean aside.

        It is 1 for one and the same row; (N/d − 1)/(N − 1) for two rows of a frame, as the frame is tight; 1/d for rows
        of different frames; and 0 for different blocks. How often each kind of pair occurs, the messages tell.
        """
        mechanism, vectors = self._mechanism, self._state[: self._vector_rows()]
        size, dim, frames = mechanism.frame.size, mechanism.frame.dim, mechanism.vector_frames
        sent = vectors[:, 1:].sum(axis=1).astype(np.float64)
        in_block = np.bincount(vectors[:, 0] // size % mechanism.blocks, weights=sent, minlength=mechanism.blocks)
        pairs = self._count * (self._count - 1)
        same_row, same_block = (float(np.sum(times**2) - np.sum(times)) / pairs for times in (sent, in_block))
        product2 = (size / dim - 1) / max(size - 1, 1) / frames + (1 - 1 / frames) / dim
        return float(same_row + (same_block - same_row) * product2)


def _with_frames(estimate: Estimate, mechanism: Any) -> Estimate:
    """Add the bias of the frames to the estimate, unless the standard errors already contain it."""
    bias2 = mechanism.typical_error().bias2
    estimate = replace(
        estimate,
        note=mechanism.note(-(-estimate.count // mechanism.messages)),
        # The worst case is that of people who are all alike: the bias is in one frame, orthogonal to their vector.
        bias_directions=max(mechanism.frame.dim - 1, 1),
    )
    if estimate.count == 1 or estimate.terms:
        return estimate
    stderr = np.sqrt(estimate.stderr**2 + bias2 / len(estimate.stderr))
    return replace(estimate, stderr=stderr, frame_bias=math.sqrt(bias2))


def _add_rows_at(target: Floats, places: Ints, rows: Floats) -> None:
    """Do the same as `np.add.at`, several times faster."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    target[ordered[starts]] += np.add.reduceat(rows[order], starts, axis=0)
