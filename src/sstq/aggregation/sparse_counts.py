"""Sparse counts: how often each message occurred, for mechanisms whose messages are numbers below a large limit."""

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.base import Aggregator
from sstq.aggregation.counts import MOST_MESSAGES
from sstq.messages.batch import Messages

# New messages are sorted into the state when there are this many of them, or as many as the state has rows.
_PENDING = 1 << 20


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

    def _add(self, messages: Messages, times: NDArray[np.int64] | None) -> None:
        sent = self._codes(messages)
        if times is not None:
            self._merged.append(condensed(_rows(sent[times > 0], times[times > 0])))
        else:
            # Batches double from the last to the first, so that there are few of them, however small they come.
            while self._pending and len(self._pending[-1]) <= 2 * len(sent):
                sent = np.concatenate([self._pending.pop(), sent])
            self._pending.append(sent)
        self._settle_if_many()

    def _settle_if_many(self) -> None:
        if sum(map(len, self._pending + self._merged)) >= max(_PENDING, len(self._state)):
            self.sums()

    def sums(self) -> NDArray[np.int64]:
        """Sort new messages into the state, and return it."""
        if self._pending:
            self._merged.append(_rows(*np.unique(np.concatenate(self._pending), return_counts=True)))
        if self._merged:
            self._state = condensed(np.concatenate([self._state, *self._merged]))
            self._pending, self._merged = [], []
        return self._state

    def _sent(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The messages that were sent, ascending, and how often each."""
        state = self.sums()
        codes, counts = (2 * state[:, :1] + np.arange(2)).ravel(), state[:, 1:].ravel()
        return codes[counts > 0], counts[counts > 0]

    def _merge_state(self, other: Aggregator) -> None:
        self._merged.append(other.sums())
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
