"""The base of mechanisms for people who hold something else than a vector: a category, or a row of a table."""

from abc import abstractmethod
from typing import Any

import numpy as np

from sstq.mechanisms.base import ExpectedError, Mechanism, Rows
from sstq.randomness.secret import BitSource


class RecordMechanism(Mechanism):
    """A mechanism whose rows are records. Nothing is clipped, and estimates are of `estimate_dim` numbers.

    `_check_vectors` reads what the owner of the data gives to `encode`, and raises an error for bad data.
    """

    clip = 1.0
    _clips = False

    @abstractmethod
    def some_people(self, count: int, rng: np.random.Generator) -> Any:
        """Return random input of `encode` for so many people, for trials."""

    @abstractmethod
    def _trials(self) -> dict[str, Rows]:
        """Records that differ as much as they can, one row each, by name."""

    @abstractmethod
    def _mended(self, X: Any, source: BitSource) -> Rows:
        """Read what a device holds, with something harmless in the place of data that cannot be encoded."""

    def _typical_error(self, clients: int) -> ExpectedError:
        return self._mean_error(next(iter(self._trials().values())), clients)
