"""Dense states: a row of integers for every number."""

from abc import abstractmethod

import numpy as np

from sstq.aggregation.aggregator import Sums
from sstq.aggregation.estimator import Estimator, Ints
from sstq.messages.batch import Messages


class DenseState:
    """A state that has all rows."""

    def __init__(self, estimator: "DenseEstimator") -> None:
        self._estimator = estimator
        self._rows = np.zeros(estimator.shape, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self._rows.nbytes

    def add(self, messages: Messages, times: Ints | None) -> None:
        """Add checked messages."""
        self._estimator.add(self._rows, messages, times)

    def merge(self, sums: Ints) -> None:
        """Add the sums of another state."""
        self._rows += sums

    def sums(self) -> Ints:
        """The table."""
        return self._rows


class DenseEstimator(Estimator):
    """An estimator whose state has all rows."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """The rows and columns of a state."""

    @abstractmethod
    def add(self, state: Ints, messages: Messages, times: Ints | None) -> None:
        """Add checked messages to the state, each this many times, or once; a refused message changes nothing.

        Only messages that are estimated from counts are added several times.
        """

    def state(self) -> DenseState:
        """A state without messages."""
        return DenseState(self)

    @property
    def numbers(self) -> int:
        """The number of rows of a state."""
        return self.shape[0]

    def check(self, sums: Sums) -> None:
        """Raise ValueError for sums of another shape."""
        if sums.state.shape != self.shape:
            raise ValueError(f"it has sums of shape {sums.state.shape}, expected {self.shape}")
