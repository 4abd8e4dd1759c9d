"""Sparse counts: how often each message occurred, for mechanisms whose messages are numbers below a large limit."""

import math

import numpy as np

from sstq.aggregation.counts import COUNT, MOST_MESSAGES
from sstq.aggregation.estimator import Estimator, Sums
from sstq.array_types import Ints
from sstq.messages.batch import Messages

# New messages are sorted into the state when there are this many of them, or as many as the state has rows.
_PENDING = 1 << 20
_COLUMNS = 3


class SparseState:
    """A state that has rows only for the messages that were sent."""

    def __init__(self, estimator: "SparseEstimator") -> None:
        self._estimator = estimator
        self._rows = np.zeros((0, _COLUMNS), dtype=np.int64)
        # New messages as codes, and other aggregators' rows.
        self._pending: list[Ints] = []
        self._merged: list[Ints] = []

    @property
    def nbytes(self) -> int:
        """How much memory it takes, without new messages."""
        return self._rows.nbytes

    def add(self, messages: Messages, times: Ints | None) -> None:
        """Keep checked messages as codes, until there are enough of them to be sorted into the table."""
        sent = self._estimator.codes(messages)
        if times is not None:
            self._merged.append(condensed(_rows(sent[times > 0], times[times > 0])))
        else:
            # Batches double from the last to the first, so that there are few of them, however small they come.
            while self._pending and len(self._pending[-1]) <= 2 * len(sent):
                sent = np.concatenate([self._pending.pop(), sent])
            self._pending.append(sent)
        self._settle_if_many()

    def _settle_if_many(self) -> None:
        if sum(map(len, self._pending + self._merged)) >= max(
            _PENDING, len(self._rows)
        ):
            self._settle()

    @property
    def rows(self) -> Ints:
        """The sums of all messages so far."""
        self._settle()
        return self._rows

    def _settle(self) -> None:
        """Sort new messages into the state."""
        if self._pending:
            codes = np.concatenate(self._pending)
            self._merged.append(_rows(*tallied(codes, self._estimator.limit)))
        if self._merged:
            self._rows = condensed(np.concatenate([self._rows, *self._merged]))
            self._pending = []
            self._merged = []

    def merge(self, sums: Ints) -> None:
        """Add the sums of another state."""
        self._merged.append(sums)
        self._settle_if_many()


class SparseEstimator(Estimator):
    """An estimator from how often each message occurred.

    A state has one row per pair of messages 2i and 2i + 1 of which one was sent: i, and how often each of the two was.
    Memory grows with the distinct messages, not with their number.
    """

    sparse = True

    def state(self) -> SparseState:
        """A state without messages."""
        return SparseState(self)

    @property
    def _limits(self) -> tuple[int, ...]:
        return tuple(field.limit for field in self.source.layout.fields)

    @property
    def limit(self) -> int:
        """The number of messages that there can be."""
        return math.prod(self._limits)

    def codes(self, messages: Messages) -> Ints:
        """Each message as one number below `limit`, in which the first field counts fastest."""
        *columns, last = messages.columns
        codes = last.astype(np.int64)
        for column, limit in zip(columns[::-1], self._limits[-2::-1], strict=True):
            codes *= limit
            codes += column.astype(np.int64)
        return codes

    def columns(self, codes: Ints) -> tuple[Ints, ...]:
        """The fields of the messages with these numbers, in the order of the layout."""
        return np.unravel_index(codes, self._limits, order="F")

    def table(self, sums: Sums) -> dict[str, Ints]:
        """A table of counts: the fields of the messages that were sent, and how often each was."""
        codes, counts = sent_codes(sums)
        names = self.source.counted_layout.names
        return {**dict(zip(names, self.columns(codes), strict=True)), COUNT: counts}

    @property
    def numbers(self) -> int:
        """The number of pairs of messages that there can be."""
        return -(-self.limit // 2)

    def sent(self, sums: Sums) -> tuple[Ints, int]:
        """How often each message that was sent occurred, and the number of messages that there can be."""
        return sent_codes(sums)[1], self.limit

    def check(self, sums: Sums) -> None:
        """Raise ValueError for rows that cannot be the counts of so many messages."""
        state = sums.state
        if state.shape[1] != _COLUMNS:
            raise ValueError(
                f"it has sums of shape {state.shape}, expected three columns"
            )
        keys = state[:, 0]
        times = state[:, 1:]
        # As Python's integers, which do not wrap around.
        last = 2 * int(keys.max(initial=0)) + bool(
            len(keys) and times[keys.argmax(), 1]
        )
        if len(keys) and not (keys.min() >= 0 and last < self.limit):
            raise ValueError("its sums name messages that this mechanism does not have")
        # Each number at most 2^32 first, so that no sum can wrap around.
        bounded = np.all(times >= 0) and np.all(times <= MOST_MESSAGES)
        if not bounded or np.any(times.sum(axis=1) < 1) or np.any(np.diff(keys) <= 0):
            raise ValueError("its sums are not those of a sparse aggregator")
        if sum(map(int, times.sum(axis=1))) != sums.count:
            raise ValueError(
                f"its sums must be those of {sums.count} messages, got another number"
            )


def sent_codes(sums: Sums) -> tuple[Ints, Ints]:
    """The messages that were sent, ascending, and how often each."""
    codes = (2 * sums.state[:, :1] + np.arange(2)).ravel()
    counts = sums.state[:, 1:].ravel()
    return codes[counts > 0], counts[counts > 0]


def tallied(codes: Ints, limit: int) -> tuple[Ints, Ints]:
    """The different codes, which are below the limit, ascending, and how often each occurs."""
    if limit > len(codes):
        return np.unique(codes, return_counts=True)
    # An array with a place per code is no larger than the codes, and needs no sorting.
    counts = np.bincount(codes)
    sent = np.flatnonzero(counts)
    return sent, counts[sent]


def _rows(sent: Ints, times: Ints) -> Ints:
    """One row per message that was sent this many times."""
    rows = np.zeros((len(sent), _COLUMNS), dtype=np.int64)
    rows[:, 0] = sent >> 1
    rows[np.arange(len(sent)), 1 + (sent & 1)] = times
    return rows


def condensed(rows: Ints) -> Ints:
    """Return rows with ascending distinct keys; rows with equal keys are added up."""
    if not len(rows):
        return rows
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    starts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))
    return np.concatenate(
        [rows[starts, :1], np.add.reduceat(rows[:, 1:], starts, axis=0)], axis=1
    )
