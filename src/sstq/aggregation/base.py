"""The base class of aggregators: adds, merges, saves and resumes sums of messages, and gives the mean with its error.

The state is an array of integers, so the result is the same bit for bit in any order and any partition.
"""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.aggregation.counts import COUNT, MOST_MESSAGES, known_simulated, read_counts
from sstq.aggregation.estimates import Estimate
from sstq.files.atomic import atomic_file
from sstq.files.npy import DAMAGED_ARCHIVE, read_archive
from sstq.messages.batch import Messages
from sstq.messages.files import open_messages

_STATE_FORMAT, _STATE_VERSION = "sstq-aggregate", 1
# What is counted already: identifiers of files, and names of tables.
_LONGEST_SOURCE = 64
_STATE_KEYS = {"format", "version", "digest", "count", "simulated", "sources", "state"}


@dataclass(frozen=True)
class StateInfo:
    """The description in the file of a saved aggregator."""

    version: int
    digest: str
    count: int
    rows: int
    files: int
    simulated: bool | None


class Aggregator(ABC):
    """An exact sum of the messages of one mechanism.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.SSTQ(dim=4, epsilon=4.0, bits=2)
        >>> aggregator = mechanism.aggregator().update(mechanism.encode(np.full((1000, 4), 0.5), rng=1))
        >>> aggregator
        <FrameAggregator of SSTQ(dim=4, epsilon=4.0, bits=2): 1,000 messages>
        >>> estimate = aggregator.mean()
        >>> estimate.count, bool(np.all(np.abs(estimate.value - 0.5) < 6 * estimate.stderr))
        (1000, True)
    """

    private_file: ClassVar[bool] = False
    """Whether a saved state must be readable only by its owner; the sums of local mechanisms may be public."""

    averages: ClassVar[bool] = True
    """Whether the mean is that of the estimates of single messages."""

    sparse: ClassVar[bool] = False
    """Whether the state has rows only for numbers that occur (the first column); other states have all rows."""

    def __init__(self, mechanism: Any) -> None:
        self._mechanism = mechanism
        self.digest: str = mechanism.digest()
        """The fingerprint of the mechanism whose messages are added."""
        self._state = self._empty_state()
        self._count = 0
        self._simulated = False
        self._sources: set[str] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._mechanism!r}: {self._count:,} messages>"

    @abstractmethod
    def _empty_state(self) -> NDArray[np.int64]:
        """The sums of no message, a 2-dimensional array of zeros."""

    @abstractmethod
    def _add(self, messages: Messages, times: NDArray[np.int64] | None) -> None:
        """Add checked messages to the state, each this many times, or once; a refused message changes nothing.

        Only those that are estimated from counts (`Mechanism.counted_layout`) get any.
        """

    def _mean_and_second_moment(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean of the single estimates and of their squares, each (d,)."""
        raise NotImplementedError(f"{type(self).__name__} has a mean of its own")

    @property
    def count(self) -> int:
        """The number of messages so far."""
        return self._count

    def update(self, messages: Messages) -> Self:
        """Add a batch of messages, and return this aggregator. A refused batch (ValueError) changes nothing."""
        if not isinstance(messages, Messages):
            raise TypeError(
                f"messages must be Messages, got {type(messages).__name__}; bytes become messages with "
                "mechanism.messages_from_bytes(raw, count)"
            )
        self._refuse_foreign(messages.digest, "messages are")
        self._add_checked(messages, None, len(messages))
        return self

    def _add_checked(self, messages: Messages, times: NDArray[np.int64] | None, added: int) -> None:
        self._refuse_overflow(added)
        if added:
            self._add(messages, times)
            self._count += added
            self._simulated |= messages.simulated

    def update_counts(
        self, columns: Any, counts: ArrayLike | str = COUNT, *, source: str | None = None, simulated: bool = False
    ) -> Self:
        """Add a table of counts: how often each message occurred. A refused table (ValueError) changes nothing.

        This is the same, bit for bit, as `update` with all these messages. GROUP BY in a SQL engine makes such a
        table (`sstq sql` prints the query), so the engine aggregates where the messages are. Returns this aggregator.

        Args:
            columns: a table with the fields of a message by name, such as a dict of arrays, an Arrow table, a pandas or
                Polars data frame.
            counts: how often each row's message occurred, or the name of the table's column that says so. They are
                messages, not people: a person may send several.
            source: a name of this table, 1 to 64 characters; it is refused if this aggregator has counted it already.
            simulated: whether a seed replaced the operating system's randomness.

        Examples:
            >>> import sstq
            >>> mechanism = sstq.FrameUnit(dim=4, epsilon=4.0)
            >>> sent = mechanism.encode(np.full((1000, 4), 0.5))
            >>> row, times = np.unique(sent.column("row"), return_counts=True)
            >>> counted = mechanism.aggregator().update_counts({"row": row}, times).mean()
            >>> bool(np.all(counted.value == mechanism.aggregator().update(sent).mean().value))
            True
        """
        layout = self._mechanism.counted_layout
        if source is not None and (not isinstance(source, str) or not 1 <= len(source) <= _LONGEST_SOURCE):
            raise ValueError(f"source must be a text of 1 to {_LONGEST_SOURCE} characters, got {source!r}")
        if source in self._sources:
            raise ValueError(f"source {source!r} is counted already: its messages would count twice")
        table, times = read_counts(columns, counts, layout)
        self._add_checked(self._mechanism.messages_from_columns(table, simulated), times, int(times.sum()))
        if source is not None:
            self._sources.add(source)
        return self

    def update_from_file(self, path: str | os.PathLike[str]) -> bool:
        """Add all messages of a file, or none if it is refused (ValueError); returns whether it was added.

        Files already counted are skipped, whatever their names: each carries a random identifier. So an interrupted
        run can simply be repeated. Parquet files may be in an object store (s3://, gs://, https://).
        """
        with open_messages(path) as opened:
            info = opened.info
            if info.file_id in self._sources:
                return False
            batches = opened.read(self._mechanism)
            # So few messages take less memory than sums of their own.
            few = list(batches) if info.count * info.message_bits < self._state.nbytes else None
            part = None if few is not None else type(self)(self._mechanism)
            if part is not None:
                for batch in batches:
                    part.update(batch)
        if part is not None:
            self.merge(part)
        elif few:
            self.update(Messages.concatenate(few))
        self._sources.add(info.file_id)
        return True

    def merge(self, other: "Aggregator") -> None:
        """Add another aggregator of the same mechanism, as if all its messages had been added here.

        Aggregators that contain the same file are refused: its messages would count twice.
        """
        if other is self:
            raise ValueError("an aggregator cannot be merged with itself: its messages would count twice")
        self._refuse_foreign(other.digest, "the other aggregator is")
        self._refuse_overflow(other.count)
        if self._sources & other._sources:
            raise ValueError("both aggregators contain the same message file: its messages would count twice")
        self._merge_state(other)
        self._sources |= other._sources
        self._count += other._count
        self._simulated |= other._simulated

    def _merge_state(self, other: "Aggregator") -> None:
        self._state += other.sums()

    def mean(self) -> Estimate:
        """Return the mean so far with its standard error, in the units of the vectors."""
        if not self._count:
            raise ValueError("a mean needs at least one message, got none")
        estimate: Estimate = self._mechanism.finished(self._mean())
        return estimate

    def _mean(self) -> Estimate:
        """The mean of the vectors as they are encoded: clipped, and scaled by bounds if there are any."""
        value, second_moment = self._mean_and_second_moment()
        # In place: in ten million dimensions every further array takes a large part of the memory.
        second_moment -= value**2
        stderr = np.sqrt(np.maximum(second_moment, 0.0, out=second_moment), out=second_moment)
        stderr /= (self._count - 1) ** 0.5 or np.nan
        directions = None if self._count == 1 else self._directions(value, stderr)
        largest, longest = self._largest()
        return Estimate(
            value,
            stderr,
            self._count,
            self._simulated,
            directions=directions,
            messages=self._mechanism.messages,
            largest=largest / self._count,
            longest=longest / self._count,
        )

    def _directions(self, value: NDArray[np.float64], stderr: NDArray[np.float64]) -> float | None:  # noqa: ARG002
        """The effective number of directions of the noise; None for independent coordinates."""
        return None

    def _largest(self) -> tuple[float, float]:
        """The largest coordinate and the norm of the longest message; 0 if scatter can be trusted as it is."""
        return 0.0, 0.0

    @property
    def numbers(self) -> int:
        """The maximum number of rows of a state."""
        return len(self._state)

    def sums(self) -> NDArray[np.int64]:
        """The integers of the state (read-only), which depend on the messages alone, not on their order."""
        return self._state

    @classmethod
    def from_sums(cls, mechanism: Any, sums: NDArray[np.int64], count: int) -> Self:
        """Create an aggregator from the sums of this many messages; ValueError if they are not valid."""
        made = cls(mechanism)
        made._restore(sums, count, simulated=False)
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to an .npz file, completely or not at all; the name is used as given."""
        kind: dict[str, Any] = {"format": _STATE_FORMAT, "version": _STATE_VERSION, "digest": self.digest}
        sources, state = np.array(sorted(self._sources), dtype=f"U{_LONGEST_SOURCE}"), self.sums()
        with atomic_file(path, private=self.private_file) as file:
            np.savez(file, **kind, count=self._count, simulated=self._simulated, sources=sources, state=state)

    @classmethod
    def load(cls, path: str | os.PathLike[str], mechanism: Any) -> Self:
        """Load an aggregator that `save` wrote, for the same mechanism; ValueError for anything else."""
        info, state, sources = _read_state(path)
        loaded = cls(mechanism)
        loaded._refuse_foreign(info.digest, f"{os.fspath(path)} is")
        try:
            loaded._restore(state, info.count, bool(info.simulated))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} is damaged: {error}") from error
        loaded._sources = sources
        return loaded

    def _restore(self, state: NDArray[np.int64], count: int, simulated: bool) -> None:
        """Take over saved sums of this many messages; ValueError if they cannot be this aggregator's."""
        self._check_state(state, count)
        self._state, self._count, self._simulated = state, count, simulated

    def _check_state(self, state: NDArray[np.int64], count: int) -> None:  # noqa: ARG002 (those that count rows use it)
        """Raise ValueError for sums that cannot be those of this aggregator."""
        if state.shape != self._state.shape:
            raise ValueError(f"it has sums of shape {state.shape}, expected {self._state.shape}")

    def _refuse_foreign(self, digest: str, what: str) -> None:
        if digest != self.digest:
            raise ValueError(f"{what} of another mechanism: digest {digest[:16]}…, expected {self.digest[:16]}…")

    def _refuse_overflow(self, added: int) -> None:
        if self._count + added > MOST_MESSAGES:
            raise ValueError(f"an aggregator holds at most 2^32 messages, got {self._count} and {added} more")


def describe_state(path: str | os.PathLike[str]) -> StateInfo:
    """Read the description of a saved state; ValueError if the file is damaged or something else.

    Examples:
        >>> import sstq, tempfile
        >>> mechanism = sstq.FrameUnit(dim=3, epsilon=2.0)
        >>> aggregator = mechanism.aggregator().update(mechanism.encode(np.zeros((5, 3))))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     aggregator.save(f"{folder}/state.npz")
        ...     describe_state(f"{folder}/state.npz").count
        5
    """
    return _read_state(path)[0]


def _read_state(path: str | os.PathLike[str]) -> tuple[StateInfo, NDArray[np.int64], set[str]]:
    name = os.fspath(path)
    try:
        stored = read_archive(path, _STATE_KEYS)
        version, count, simulated = (stored[key].item() for key in ("version", "count", "simulated"))
    except FileNotFoundError:
        raise
    except DAMAGED_ARCHIVE as error:
        raise ValueError(f"{name} is damaged or not an aggregator's state: {error}") from error
    if str(stored["format"]) != _STATE_FORMAT:
        raise ValueError(f"{name} is not an aggregator's state")
    if type(version) is not int or version != _STATE_VERSION:
        raise ValueError(f"{name} has version {version} of the format, this library reads version {_STATE_VERSION}")
    state, sources = stored["state"], stored["sources"]
    counted = type(count) is int and 0 <= count <= MOST_MESSAGES and isinstance(simulated, bool)
    if state.dtype != np.int64 or state.ndim != 2 or sources.dtype.kind != "U" or sources.ndim != 1 or not counted:
        raise ValueError(f"{name} does not hold the sums of an aggregator")
    files = set(sources.tolist())
    known = known_simulated(simulated, files)
    return StateInfo(version, str(stored["digest"]), count, len(state), len(files), known), state, files
