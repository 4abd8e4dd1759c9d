"""Dense states: a row of integers for every number."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from sstq.aggregation.aggregator import Aggregator
from sstq.aggregation.estimates import Estimate
from sstq.aggregation.estimator import Estimator, Ints, Sums
from sstq.messages.batch import Messages


class DenseAggregator(Aggregator[Estimate]):
    """An aggregator whose state has all rows."""

    estimator: "DenseEstimator"

    def __init__(self, estimator: "DenseEstimator") -> None:
        super().__init__(estimator)
        self._state = np.zeros(estimator.shape, dtype=np.int64)

    def _add(self, messages: Messages, times: Ints | None) -> None:
        self.estimator.add(self._state, messages, times)

    def _merge_state(self, other: Aggregator[Estimate]) -> None:
        self._state += other.sums()

    def sums(self) -> Ints:
        """The integers of the state (read-only)."""
        return self._state

    def _bytes_of_state(self) -> int:
        return self._state.nbytes

    def _restore(self, state: Ints) -> None:
        self._state = state


class DenseEstimator(Estimator):
    """An estimator whose state has all rows."""

    aggregator_class: ClassVar[type[Aggregator[Estimate]]] = DenseAggregator

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """The rows and columns of a state."""

    @abstractmethod
    def add(self, state: Ints, messages: Messages, times: Ints | None) -> None:
        """Add checked messages to the state, each this many times, or once; a refused message changes nothing.

        Only messages that are estimated from counts are added several times.
        """

    @property
    def numbers(self) -> int:
        """The number of rows of a state."""
        return self.shape[0]

    def check(self, sums: Sums) -> None:
        """Raise ValueError for sums of another shape."""
        if sums.state.shape != self.shape:
            raise ValueError(f"it has sums of shape {sums.state.shape}, expected {self.shape}")
