"""Estimators: all that an aggregator needs of a mechanism."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from sstq.aggregation.estimates import Estimate
from sstq.array_types import Floats, Ints
from sstq.messages.batch import MessageReader, Messages
from sstq.messages.layouts import Layout


@dataclass(frozen=True)
class Sums:
    """The sums of `count` messages: the rows of integers of a state."""

    state: Ints
    count: int
    simulated: bool = False


class State(Protocol):
    """The integers of an aggregator, a table with a row per number; those of several batches add up."""

    @property
    def rows(self) -> Ints:
        """The sums of all messages so far, which callers must not change."""

    @property
    def nbytes(self) -> int:
        """How much memory it takes, without new messages."""

    def add(self, messages: Messages, times: Ints | None) -> None:
        """Add checked messages, each this many times, or once; a refused message changes nothing."""

    def merge(self, sums: Ints) -> None:
        """Add the sums of another state."""


class Source(MessageReader, Protocol):
    """The mechanism whose messages are estimated: it reads messages, and finishes an estimate."""

    @property
    def messages(self) -> int:
        """The messages per person."""

    @property
    def counted_layout(self) -> Layout:
        """The fields of a table of counts; ValueError, with the reason, if there can be none."""

    def finished(self, estimate: Estimate) -> Estimate:
        """The estimate with what messages cannot tell, such as a public bias, and in the units of the vectors."""


@dataclass(frozen=True, eq=False)
class Estimator(ABC):
    """How messages are added up, and what is estimated from the sums.

    A state is a table of integers, and the state of several batches is the sum of theirs; so an aggregator adds, merges
    and saves it in any order and partition.

    Attributes:
        source: the mechanism.
        averages: whether the estimate is the mean of the estimates of single messages.
        sparse: whether a state has rows only for the numbers that occur, which are its first column.
        adds_vectors: whether messages are whole vectors, which are added up.
        estimate_class: the class of its estimates.
    """

    averages: ClassVar[bool] = True
    sparse: ClassVar[bool] = False
    adds_vectors: ClassVar[bool] = False
    estimate_class: ClassVar[type[Estimate]] = Estimate

    source: Source

    @abstractmethod
    def state(self) -> State:
        """A state without messages."""

    @property
    @abstractmethod
    def numbers(self) -> int:
        """The maximum number of rows of a state."""

    @abstractmethod
    def check(self, sums: Sums) -> None:
        """Raise ValueError for sums that cannot be those of so many messages."""

    @abstractmethod
    def decode(self, messages: Messages) -> Floats:
        """The estimates of single messages, (n, d)."""

    @abstractmethod
    def estimate(self, sums: Sums) -> Estimate:
        """The estimate from the sums of at least one message, of vectors as they are encoded."""

    def table(self, sums: Sums) -> dict[str, Ints]:  # noqa: ARG002 (a hook)
        """A table of counts: the fields of the messages that were sent, and how often each was."""
        raise ValueError(
            "this mechanism keeps no counts of its messages; export the state (.npz)"
        )

    def sent(self, sums: Sums) -> tuple[Ints, int] | None:  # noqa: ARG002 (a hook)
        """How often each message occurred, and how many different ones there are; None if sums do not tell.

        Messages that did not occur may be left out.
        """
        return None

    def directions(self, sums: Sums, value: Floats, stderr: Floats) -> float | None:  # noqa: ARG002 (a hook)
        """The effective number of directions of the noise; None for independent coordinates."""
        return None

    def largest(self) -> tuple[float, float]:
        """The largest coordinate and the norm of the longest message; 0 if scatter can be trusted as it is."""
        return 0.0, 0.0

    def averaged(self, sums: Sums, value: Floats, second_moment: Floats) -> Estimate:
        """The estimate with the mean of the single estimates, and that of their squares, which is overwritten."""
        # In place: in ten million dimensions every further array takes a large part of the memory.
        second_moment -= value**2
        stderr = np.sqrt(
            np.maximum(second_moment, 0.0, out=second_moment), out=second_moment
        )
        stderr /= (sums.count - 1) ** 0.5 or np.nan
        largest, longest = self.largest()
        return Estimate(
            value,
            stderr,
            sums.count,
            sums.simulated,
            directions=None
            if sums.count == 1
            else self.directions(sums, value, stderr),
            messages=self.source.messages,
            largest=largest / sums.count,
            longest=longest / sums.count,
        )
