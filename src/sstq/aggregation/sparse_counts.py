"""Sparse counts: how often each message occurred, for mechanisms whose messages are numbers below a large limit.

Among them are the signed rows of many frames, ±gain·u_j of one of G frames (`FamilyAggregator`).
"""

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.base import Aggregator
from sstq.aggregation.counts import MOST_MESSAGES
from sstq.aggregation.estimates import Estimate
from sstq.aggregation.sums import largest_of_row
from sstq.kernels.threads import row_chunks
from sstq.messages.batch import Messages

# New messages are sorted into the state when there are this many of them, or as many as the state has rows.
_PENDING = 1 << 20
# From this many frames on, the standard error comes from the scatter of the frames' means.
_FEW_FRAMES = 32


class SparseAggregator(Aggregator):
    """One row of integers per pair of messages that was sent, 2i and 2i + 1: i, and how often each of the two was.

    Memory grows with the distinct messages, not with their number.
    """

    sparse = True

    @abstractmethod
    def _codes(self, messages: Messages) -> NDArray[np.int64]:
        """Each message as one number below `limit`."""

    @property
    @abstractmethod
    def limit(self) -> int:
        """The number of messages that there can be."""

    @property
    def numbers(self) -> int:
        """The number of pairs of messages that there can be."""
        return -(-self.limit // 2)

    def _empty_state(self) -> NDArray[np.int64]:
        # New messages as 2·number + sign, and other aggregators' rows.
        self._pending: list[NDArray[np.int64]] = []
        self._merged: list[NDArray[np.int64]] = []
        return np.zeros((0, 3), dtype=np.int64)

    def _add(self, messages: Messages) -> None:
        sent = self._codes(messages)
        # Batches double from the last to the first, so that there are few of them, however small they come.
        while self._pending and len(self._pending[-1]) <= 2 * len(sent):
            sent = np.concatenate([self._pending.pop(), sent])
        self._pending.append(sent)
        self._settle_if_many()

    def _add_counts(self, messages: Messages, times: NDArray[np.int64]) -> None:
        """Add each of these messages this many times."""
        some = times > 0
        self._merged.append(condensed(_rows(self._codes(messages)[some], times[some])))
        self._settle_if_many()

    def _settle_if_many(self) -> None:
        if sum(map(len, self._pending + self._merged)) >= max(_PENDING, len(self._state)):
            self._settle()

    def _settle(self) -> NDArray[np.int64]:
        """Sort new messages into the state."""
        if self._pending:
            self._merged.append(_rows(*np.unique(np.concatenate(self._pending), return_counts=True)))
        if self._merged:
            self._state = condensed(np.concatenate([self._state, *self._merged]))
            self._pending, self._merged = [], []
        return self._state

    def _merge_state(self, other: Aggregator) -> None:
        self._merged.append(other._state)
        self._settle_if_many()

    def _check_state(self, state: NDArray[np.int64], count: int) -> None:
        if state.shape[1] != 3:
            raise ValueError(f"it has sums of shape {state.shape}, expected three columns")
        keys, signs = state[:, 0], state[:, 1:]
        # As Python's integers, which do not wrap around.
        last = 2 * int(keys.max(initial=0)) + bool(len(keys) and signs[keys.argmax(), 1])
        if len(keys) and not (keys.min() >= 0 and last < self.limit):
            raise ValueError("its sums name messages that this mechanism does not have")
        # Each sign at most 2^32 first, so that no sum can wrap around.
        bounded = np.all(signs >= 0) and np.all(signs <= MOST_MESSAGES)
        if not bounded or np.any(signs.sum(axis=1) < 1) or np.any(np.diff(keys) <= 0):
            raise ValueError("its sums are not those of a sparse aggregator")
        if sum(map(int, signs.sum(axis=1))) != count:
            raise ValueError(f"its sums must be those of {count} messages, got another number")


class FamilyAggregator(SparseAggregator):
    """One row of integers per row of a frame that was sent: its number and how often with + and −.

    A frame has B blocks of N rows each, so that row j of block b of a frame has the number (frame·B + b)·N + j. One
    synthesis per frame and block gives the mean. Memory grows with the distinct rows that were sent, not with the
    frames. The mechanism has `family`, the frames, of which those from `vector_frames` on estimate nothing; `blocks`,
    `estimate_dim` and `gain`; and `frames_indices_and_codes(messages)`, with code 0 for + and 1 for −.
    """

    def _codes(self, messages: Messages) -> NDArray[np.int64]:
        frame, index, code = self._mechanism.frames_indices_and_codes(messages)
        key = frame.astype(np.int64) * self._rows_of_frame + index.astype(np.int64)
        return np.asarray(2 * key + code)

    @property
    def limit(self) -> int:
        """The total number of signed rows of all frames."""
        return 2 * int(self._mechanism.family.count) * self._rows_of_frame

    @property
    def _rows_of_frame(self) -> int:
        return int(self._mechanism.blocks * self._mechanism.family.base.size)

    def _mean(self) -> Estimate:
        """Return the mean so far with its standard error.

        From 32 frames on the error comes from the scatter of the frames' sums T_f of n_f messages, as in a survey by
        clusters: Σ(T_f − n_f·x̄)²/n²·F/(F − 1) for F frames with messages. So the bias of single frames is in it.
        """
        self._settle()
        if self._mechanism.family.count < _FEW_FRAMES or self._count < 2:
            return super()._mean()
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
        sent = self._mechanism.messages
        return Estimate(*known, terms=len(frames), messages=sent, largest=largest, longest=longest)

    def _largest(self) -> tuple[float, float]:
        return largest_of_row(self._mechanism.family.base, float(self._mechanism.gain))

    def _no_sums(self) -> NDArray[np.float64]:
        return np.zeros((self._mechanism.blocks, self._mechanism.family.base.dim))

    def _flat(self, blocks: NDArray[np.float64]) -> NDArray[np.float64]:
        """The coordinates of all blocks; the last one may have some that no vector has."""
        return blocks.reshape(-1)[: self._mechanism.estimate_dim]

    def _block_sums(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]:
        """The frame, the block and the sum Σ ±gain·u_j of each block that has messages; a few at a time."""
        family, gain, blocks = self._mechanism.family, self._mechanism.gain, self._mechanism.blocks
        size = family.base.size
        place, index = np.divmod(self._state[:, 0], size)
        last = np.searchsorted(place, self._mechanism.vector_frames * blocks)
        starts = np.flatnonzero(np.diff(place[:last], prepend=-1))
        stops = np.append(starts[1:], last)
        for part in row_chunks(len(starts), size):
            rows = slice(starts[part.start], stops[part.stop - 1])
            frame, block = np.divmod(place[starts[part]], blocks)
            net = np.zeros((len(frame), size))
            of_block = np.repeat(np.arange(len(frame)), stops[part] - starts[part])
            net[of_block, index[rows]] = self._state[rows, 1] - self._state[rows, 2]
            sums = family.synthesize(net, frame) * (gain * family.base.redundancy)
            yield frame, block, np.asarray(sums, dtype=np.float64)

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        family, gain, blocks = self._mechanism.family, self._mechanism.gain, self._mechanism.blocks
        value, power = self._no_sums(), self._no_sums()
        for _, block, sums in self._block_sums():
            _add_rows_at(value, block, sums)
        place, index = np.divmod(self._state[:, 0], family.base.size)
        for number in np.unique(place[place < self._mechanism.vector_frames * blocks]):
            here = place == number
            sent = np.bincount(index[here], weights=self._state[here, 1:].sum(axis=1), minlength=family.base.size)
            frame, block = divmod(int(number), blocks)
            power[block] += family.frame(frame).column_power(sent.astype(np.float64))
        return self._flat(value / self._count), self._flat(power * (gain**2 / self._count))


def _add_rows_at(target: NDArray[np.float64], places: NDArray[np.int64], rows: NDArray[np.float64]) -> None:
    """Do the same as `np.add.at`, several times faster."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    target[ordered[starts]] += np.add.reduceat(rows[order], starts, axis=0)


def _rows(sent: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """One row per message that was sent this many times."""
    rows = np.zeros((len(sent), 3), dtype=np.int64)
    rows[:, 0] = sent >> 1
    rows[np.arange(len(sent)), 1 + (sent & 1)] = times
    return rows


def condensed(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return rows with ascending distinct keys; rows with equal keys are added up."""
    if not len(rows):
        return rows
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    starts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))
    return np.concatenate([rows[starts, :1], np.add.reduceat(rows[:, 1:], starts, axis=0)], axis=1)
