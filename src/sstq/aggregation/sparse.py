"""A table of counts as the state of an aggregator, which takes no more memory than the messages in it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.base import Aggregator
from sstq.aggregation.counts import MOST_MESSAGES
from sstq.aggregation.estimates import Estimate
from sstq.messages.batch import Messages

# New rows are sorted into the state when there are this many of them, or as many as the state has.
_PENDING = 1 << 16


class CountsAggregator(Aggregator[Any]):
    """One row of integers per message that occurred: the values of its fields, and how often.

    For mechanisms that are estimated from counts. The mean is that of the mechanism's own aggregator.
    """

    sparse = True

    def _empty_state(self) -> NDArray[np.int64]:
        self._pending: list[NDArray[np.int64]] = []
        fields = self._mechanism.counted_layout.fields
        return np.zeros((0, sum(field.count for field in fields) + 1), dtype=np.int64)

    def _add(self, messages: Messages) -> None:
        self._add_counts(self._mechanism.counted(messages), np.ones(len(messages), dtype=np.int64))

    def _add_counts(self, messages: Messages, times: NDArray[np.int64]) -> None:
        fields = zip(messages.layout.fields, messages.columns, strict=True)
        values = [column.reshape(-1, field.count).astype(np.int64) for field, column in fields]
        self._take(np.concatenate([*values, times[:, None]], axis=1)[times > 0])

    def _merge_state(self, other: Aggregator[Any]) -> None:
        self._take(other._state)

    def _take(self, rows: NDArray[np.int64]) -> None:
        self._pending.append(rows)
        if sum(map(len, self._pending)) >= max(_PENDING, len(self._state)):
            self._settle()

    def _settle(self) -> None:
        if not self._pending:
            return
        rows = np.concatenate([self._state, *self._pending])
        rows = rows[np.lexsort(rows[:, -2::-1].T)]
        starts = np.flatnonzero(np.r_[True, np.any(np.diff(rows[:, :-1], axis=0), axis=1)][: len(rows)])
        times = np.add.reduceat(rows[:, -1], starts) if len(starts) else rows[:, -1]
        self._state, self._pending = np.concatenate([rows[starts, :-1], times[:, None]], axis=1), []

    def _table(self, state: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        fields = self._mechanism.counted_layout.fields
        parts = np.split(state[:, :-1], np.cumsum([field.count for field in fields])[:-1], axis=1)
        named = zip(fields, parts, strict=True)
        return {field.name: np.ascontiguousarray(part).reshape(field.shape(len(part))) for field, part in named}

    def _whole(self, state: NDArray[np.int64]) -> Aggregator[Any]:
        """The mechanism's own aggregator with these messages; ValueError for rows that cannot be."""
        whole: Aggregator[Any] = self._mechanism.aggregator()
        whole.update_counts(self._table(state), state[:, -1], simulated=self._simulated)
        return whole

    def _check_state(self, state: NDArray[np.int64], count: int) -> None:
        if state.shape[1] != self._state.shape[1]:
            raise ValueError(f"it has sums of shape {state.shape}, expected {self._state.shape[1]} columns")
        if np.any(state[:, -1] < 1) or np.any(state[:, -1] > MOST_MESSAGES):
            raise ValueError("its sums are not counts")
        if self._whole(state).count != count:
            raise ValueError(f"its sums must be those of {count} messages, got another number")

    def mean(self) -> Estimate:
        """Return the mean so far with its standard error, in the units of the vectors."""
        self._settle()
        return self._whole(self._state).mean()

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        raise NotImplementedError("the mechanism's own aggregator has the mean")
