"""The base class of aggregators: adds, merges, saves and resumes sums of messages, and gives the mean with its error.

The state is an array of integers, so the result is the same bit for bit in any order and any partition.
"""

import os
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from sstq.aggregation.counts import COUNT, MOST_MESSAGES, known_simulated, read_counts
from sstq.aggregation.estimates import Estimate
from sstq.aggregation.estimator import Estimator, Sums
from sstq.array_types import Ints
from sstq.files.atomic import atomic_file
from sstq.files.npy import DAMAGED_ARCHIVE, read_archive
from sstq.messages.batch import Messages
from sstq.messages.files import open_messages

_STATE_FORMAT = "sstq-aggregate"
_STATE_VERSION = 1
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


Result = TypeVar("Result", bound=Estimate, covariant=True)


class Aggregator(Generic[Result]):
    """An exact sum of the messages of one mechanism; its type names that of the estimate.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.SSTQ(dim=4, epsilon=4.0, bits=2)
        >>> aggregator = mechanism.aggregator().update(mechanism.encode(np.full((1000, 4), 0.5), rng=1))
        >>> aggregator
        <Aggregator of SSTQ(dim=4, epsilon=4.0, bits=2): 1,000 messages>
        >>> estimate = aggregator.mean()
        >>> estimate.count, bool(np.all(np.abs(estimate.value - 0.5) < 6 * estimate.stderr))
        (1000, True)
    """

    def __init__(self, estimator: Estimator) -> None:
        self.estimator = estimator
        self.digest = estimator.source.digest()
        """The fingerprint of the mechanism whose messages are added."""
        self._state = estimator.state()
        self._count = 0
        self._simulated = False
        self.sources: set[str] = set()
        """What is counted already: identifiers of files, and names of tables."""

    def __repr__(self) -> str:
        return f"<Aggregator of {self.estimator.source!r}: {self._count:,} messages>"

    def sums(self) -> Ints:
        """The integers of the state (read-only), which depend on the messages alone, not on their order."""
        return self._state.rows

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
        _refuse_foreign(messages.digest, self.digest, "messages are")
        self._add_checked(messages, None, len(messages))
        return self

    def _add_checked(self, messages: Messages, times: Ints | None, added: int) -> None:
        self._refuse_overflow(added)
        if added:
            self._state.add(messages, times)
            self._count += added
            self._simulated |= messages.simulated

    def update_counts(
        self,
        columns: Any,
        counts: ArrayLike | str = COUNT,
        *,
        source: str | None = None,
        simulated: bool = False,
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
        mechanism = self.estimator.source
        if source is not None and (
            not isinstance(source, str) or not 1 <= len(source) <= _LONGEST_SOURCE
        ):
            raise ValueError(
                f"source must be a text of 1 to {_LONGEST_SOURCE} characters, got {source!r}"
            )
        if source in self.sources:
            raise ValueError(
                f"source {source!r} is counted already: its messages would count twice"
            )
        table, times = read_counts(columns, counts, mechanism.counted_layout)
        self._add_checked(
            mechanism.messages_from_columns(table, simulated), times, int(times.sum())
        )
        if source is not None:
            self.sources.add(source)
        return self

    def update_from_file(self, path: str | os.PathLike[str]) -> bool:
        """Add all messages of a file, or none if it is refused (ValueError); returns whether it was added.

        Files already counted are skipped, whatever their names: each carries a random identifier. So an interrupted
        run can simply be repeated. Parquet files may be in an object store (s3://, gs://, https://).
        """
        with open_messages(path) as opened:
            info = opened.info
            if info.file_id in self.sources:
                return False
            batches = opened.read(self.estimator.source)
            if info.count * info.message_bits < self._state.nbytes:
                # So few messages take less memory than sums of their own.
                few = list(batches)
                part = None
            else:
                few = []
                part = type(self)(self.estimator)
                for batch in batches:
                    part._add_checked(batch, None, len(batch))
        # Nothing is added before the whole file was read, and found to be what it was.
        if part is not None:
            self.merge(part)
        elif few:
            self._add_checked(Messages.concatenate(few), None, info.count)
        self.sources.add(info.file_id)
        return True

    def merge(self, other: "Aggregator[Estimate]") -> None:
        """Add another aggregator of the same mechanism, as if all its messages had been added here.

        Aggregators that contain the same file are refused: its messages would count twice.
        """
        if other is self:
            raise ValueError(
                "an aggregator cannot be merged with itself: its messages would count twice"
            )
        _refuse_foreign(other.digest, self.digest, "the other aggregator is")
        self._refuse_overflow(other.count)
        if self.sources & other.sources:
            raise ValueError(
                "both aggregators contain the same message file: its messages would count twice"
            )
        self._state.merge(other.sums())
        self.sources |= other.sources
        self._count += other._count
        self._simulated |= other._simulated

    def mean(self) -> Result:
        """Return the mean so far with its standard error, in the units of the vectors."""
        if not self._count:
            raise ValueError("a mean needs at least one message, got none")
        return cast(
            "Result",
            self.estimator.source.finished(self.estimator.estimate(self.counted())),
        )

    def counted(self) -> Sums:
        """The sums with the number of their messages, for an estimator."""
        return Sums(self._state.rows, self._count, self._simulated)

    @classmethod
    def from_sums(
        cls, estimator: Estimator, sums: Ints, count: int, simulated: bool = False
    ) -> Self:
        """Create an aggregator from the sums of this many messages; ValueError if they are not valid."""
        estimator.check(Sums(sums, count))
        made = cls(estimator)
        made._state.merge(sums)
        made._count = count
        made._simulated = simulated
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to an .npz file, completely or not at all; the name is used as given."""
        kind: dict[str, Any] = {
            "format": _STATE_FORMAT,
            "version": _STATE_VERSION,
            "digest": self.digest,
        }
        sources = np.array(sorted(self.sources), dtype=f"U{_LONGEST_SOURCE}")
        state = self.sums()
        with atomic_file(path) as file:
            np.savez(
                file,
                **kind,
                count=self._count,
                simulated=self._simulated,
                sources=sources,
                state=state,
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str], estimator: Estimator) -> Self:
        """Load an aggregator that `save` wrote, for the same mechanism; ValueError for anything else."""
        info, state, sources = _read_state(path)
        _refuse_foreign(info.digest, estimator.source.digest(), f"{os.fspath(path)} is")
        try:
            loaded = cls.from_sums(estimator, state, info.count, bool(info.simulated))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} is damaged: {error}") from error
        loaded.sources = sources
        return loaded

    def _refuse_overflow(self, added: int) -> None:
        if self._count + added > MOST_MESSAGES:
            raise ValueError(
                f"an aggregator holds at most 2^32 messages, got {self._count} and {added} more"
            )


def _refuse_foreign(digest: str, expected: str, what: str) -> None:
    if digest != expected:
        raise ValueError(
            f"{what} of another mechanism: digest {digest[:16]}…, expected {expected[:16]}…"
        )


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


def _read_state(path: str | os.PathLike[str]) -> tuple[StateInfo, Ints, set[str]]:
    name = os.fspath(path)
    try:
        stored = read_archive(path, _STATE_KEYS)
        version, count, simulated = (
            stored[key].item() for key in ("version", "count", "simulated")
        )
    except FileNotFoundError:
        raise
    except DAMAGED_ARCHIVE as error:
        raise ValueError(
            f"{name} is damaged or not an aggregator's state: {error}"
        ) from error
    if str(stored["format"]) != _STATE_FORMAT:
        raise ValueError(f"{name} is not an aggregator's state")
    if type(version) is not int or version != _STATE_VERSION:
        raise ValueError(
            f"{name} has version {version} of the format, this library reads version {_STATE_VERSION}"
        )
    state = stored["state"]
    sources = stored["sources"]
    counted = (
        type(count) is int
        and 0 <= count <= MOST_MESSAGES
        and isinstance(simulated, bool)
    )
    if (
        state.dtype != np.int64
        or state.ndim != 2
        or sources.dtype.kind != "U"
        or sources.ndim != 1
        or not counted
    ):
        raise ValueError(f"{name} does not hold the sums of an aggregator")
    files = set(sources.tolist())
    seeded = known_simulated(simulated, files)
    return (
        StateInfo(
            version, str(stored["digest"]), count, len(state), len(files), seeded
        ),
        state,
        files,
    )
