"""One mean per public group, such as the country, in one pass over the messages.

Each message carries its label in public (`sstq.messages.labels`); only the vector is private. A private group
needs GroupUnit, which sends the group and the vector in one private message.

A group is one more column of a table of counts: the state is how often each message occurred in each group, so ten
thousand small groups take no more memory than their messages. Mechanisms that are not estimated from counts have the
sums of an ordinary `Aggregator` per group.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.aggregation.base import Aggregator, MessageOwner, StateInfo, check_source, refuse_changed
from sstq.aggregation.counts import COUNT, MOST_MESSAGES, column_names, known_simulated, read_counts
from sstq.aggregation.estimates import Estimate
from sstq.aggregation.sparse_counts import MOST_BITS, CountsAggregator
from sstq.files.atomic import atomic_file
from sstq.files.npy import DAMAGED_ARCHIVE, read_archive
from sstq.files.stores import version_of
from sstq.files.strict_json import read_json
from sstq.messages.batch import Messages
from sstq.messages.files import describe_messages, read_messages
from sstq.messages.labels import Labels, check_name

FEW = 30
"""Groups with fewer messages are marked: their scatter says little about the error (two equal messages have none)."""
_FORMAT, _VERSION = "sstq-groups", 3


@dataclass(frozen=True)
class GroupMean:
    """The mean of one public group, and a mark if it does not stand out from its error.

    Attributes:
        label: the label of the group.
        estimate: the mean, its standard errors and the number of messages.
        radius: the radius of the ball that contains the true mean with probability `level` (`Estimate.region`); nan
            for a single message.
        level: the probability of the ball.

    Examples:
        >>> from sstq.aggregation import Estimate
        >>> GroupMean("DE", Estimate(np.full(2, 0.3), np.full(2, 0.01), count=1000), radius=0.03, level=0.95).mark
        ''
    """

    label: str
    estimate: Estimate
    radius: float
    level: float

    @property
    def norm(self) -> float:
        """The Euclidean norm of the mean; noise makes it longer: about √(true norm² + error²)."""
        return float(np.linalg.norm(self.estimate.value))

    @property
    def error(self) -> float:
        """The norm of the standard errors; nan for a single message."""
        return float(np.linalg.norm(self.estimate.stderr))

    @property
    def mark(self) -> str:
        """The warning about the group: "too few", "within error" or an empty string.

        "too few": fewer than 30 messages, whose scatter says little about their error. "within error": the norm is at
        most the radius, so zero is in the region, or at most √2 times the error, so the true mean is probably
        shorter than its error. Of groups whose true mean is zero, about one in twenty has no mark at a
        level of 0.95, and fewer in many dimensions.
        """
        if self.estimate.count < FEW:
            return "too few"
        return "within error" if self.norm <= max(self.radius, math.sqrt(2) * self.error) else ""


class GroupOwner(MessageOwner, Protocol):
    """What adding messages up by group needs of a mechanism."""

    @property
    def name(self) -> str:
        """The name of the mechanism."""

    @property
    def trust(self) -> str:
        """Who must be trusted: "local" means nobody."""

    @property
    def uncountable(self) -> str:
        """Why no estimate comes from counts of the messages; empty if one does."""

    def aggregator(self) -> Aggregator[Any]:
        """Return an empty sum of messages."""


class GroupedAggregator:
    """Exact sums of the messages of every public group: one `Aggregator` per label.

    Labels are text; integers and booleans become text. The result is the same bit for bit, whatever the order of the
    messages and however they are spread over files and aggregators. What is refused changes nothing.

    Examples:
        >>> import sstq
        >>> mechanism = sstq.FrameUnit(dim=4, epsilon=4.0)
        >>> X = np.repeat([[0.5, 0.5, 0.5, 0.5], [0.0, 0.0, 0.0, -1.0]], [3000, 3000], axis=0)
        >>> groups = GroupedAggregator(mechanism, column="country")
        >>> groups.update(mechanism.encode(X, rng=1), np.repeat(["DE", "FR"], 3000))
        <GroupedAggregator by country of FrameUnit(dim=4, epsilon=4.0): 2 groups, 6,000 messages>
        >>> groups.means()["FR"].estimate.value.round(1).tolist()[-1], groups.mean("DE").mark
        (-1.0, '')
    """

    def __init__(self, mechanism: GroupOwner, column: str | None = None) -> None:
        """Create an empty aggregator; `column` names the labels, by default as in the first messages."""
        if mechanism.trust == "aggregator":
            problem = f"{mechanism.name} adds noise once for all clients of a round, not per group"
            raise ValueError(f"mechanism must make every single message private; {problem}")
        self._mechanism = mechanism
        self._empty: Aggregator[Any] = mechanism.aggregator()
        countable = not mechanism.uncountable and mechanism.counted_layout.message_bits <= MOST_BITS
        if countable and not self._empty.sparse:
            self._empty = CountsAggregator(mechanism)
        self.digest = self._empty.digest
        """The fingerprint of the mechanism whose messages are added."""
        self.column = column
        """The name of the labels, such as "country"; None until known."""
        self._groups: dict[str, Aggregator[Any]] = {}
        self._sources: set[str] = set()

    def __repr__(self) -> str:
        by = "" if self.column is None else f" by {self.column}"
        return f"<GroupedAggregator{by} of {self._mechanism!r}: {len(self._groups):,} groups, {self.count:,} messages>"

    @property
    def labels(self) -> list[str]:
        """The labels of groups with messages, sorted: numbers by value, then text."""
        return _in_order(self._groups)

    @property
    def counts(self) -> dict[str, int]:
        """The number of messages of each group."""
        return {label: self._groups[label].count for label in self.labels}

    @property
    def count(self) -> int:
        """The number of messages of all groups."""
        return sum(group.count for group in self._groups.values())

    def update(self, messages: Messages, labels: ArrayLike | None = None) -> Self:
        """Add a batch with its own labels or with these, one per message: text, integers or booleans."""
        if messages.labels is not None and labels is not None:
            raise ValueError("labels must be left out: these messages carry labels")
        given = messages.labels if labels is None else Labels.of(labels, self.column or "group")
        if given is None:
            raise ValueError("labels must be given: these messages carry none; encode with --by, or pass labels=")
        part, plain = self._part(given, len(messages), "message"), replace(messages, labels=None)
        for label, rows in given.split():
            part._group(label).update(plain.sorted_by(rows))
        self.merge(part)
        return self

    def update_counts(
        self,
        columns: Any,
        counts: ArrayLike | str = COUNT,
        labels: ArrayLike | None = None,
        *,
        source: str | None = None,
        simulated: bool = False,
    ) -> Self:
        """Add a table of counts, as `Aggregator.update_counts` does, with one more column: the label of each row.

        Args:
            columns: a table with the fields of a message.
            counts: how often each row's message occurred, or the name of the table's column that says so.
            labels: one per row; the table's column with the name of the groups unless given.
            source: a name of this table; it is refused if this aggregator has counted it already.
            simulated: whether a seed replaced the operating system's randomness.
        """
        check_source(source, self._sources)
        if labels is None:
            if self.column is None or self.column not in column_names(columns):
                raise ValueError(f"columns must have the labels, got no column {self.column!r}; or pass labels=")
            labels = columns[self.column]
        given, layout = Labels.of(labels, self.column or "group"), self._mechanism.counted_layout
        table, times = read_counts(columns, counts, layout)
        part = self._part(given, len(times), "row")
        for label, rows in given.split():
            own = {field.name: column[rows] for field, column in zip(layout.fields, table, strict=True)}
            part._group(label).update_counts(own, times[rows], simulated=simulated)
        part._sources = set() if source is None else {source}
        self.merge(part)
        return self

    def update_from_file(self, path: str | os.PathLike[str]) -> bool:
        """Add all messages of a file with labels, or none if it is refused; returns whether it was added.

        Files already counted are skipped, whatever their names: each carries a random identifier.
        """
        before = version_of(path)
        info = describe_messages(path)
        if info.file_id in self._sources:
            return False
        if info.label_column is None:
            remedy = f"encode it with --by {self.column or 'COLUMN'}"
            raise ValueError(f"{os.fspath(path)} must have labels, got none; {remedy}")
        self._refuse_column(info.label_column, f"{os.fspath(path)} has")
        part = GroupedAggregator(self._mechanism, info.label_column)
        for messages in read_messages(path, self._mechanism):
            part.update(messages)
        refuse_changed(path, before)
        part._sources = {info.file_id}
        self.merge(part)
        return True

    def merge(self, other: GroupedAggregator) -> None:
        """Add another aggregator of the same mechanism and column, as if all messages had been added here.

        Aggregators that contain the same file are refused: its messages would count twice.
        """
        if other is self:
            raise ValueError("an aggregator cannot be merged with itself: its messages would count twice")
        self._empty._refuse_foreign(other.digest, "the other aggregator is")
        self._refuse_column(other.column, "the other aggregator has")
        if self.count + other.count > MOST_MESSAGES:
            raise ValueError(f"an aggregator holds at most 2^32 messages, got {self.count} and {other.count} more")
        if self._sources & other._sources:
            raise ValueError("both aggregators contain the same message file: its messages would count twice")
        for label, theirs in other._groups.items():
            if theirs.count:
                self._group(label).merge(theirs)
        self._sources |= other._sources
        self.column = other.column or self.column

    def mean(self, label: str | int, level: float = 0.95) -> GroupMean:
        """Return the mean of one group, with its error and its mark."""
        group = self._groups.get(str(label))
        if group is None:
            raise ValueError(f"there is no group {str(label)!r}; see `labels`")
        estimate = group.mean()
        return GroupMean(str(label), estimate, estimate.region(level).radius, level)

    def means(self, level: float = 0.95) -> dict[str, GroupMean]:
        """Return the means of all groups, by sorted label."""
        return {label: self.mean(label, level) for label in self.labels}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to an .npz file, completely or not at all; the name is used as given."""
        head = {"format": _FORMAT, "version": _VERSION, "digest": self.digest, "column": self.column or "group"}
        head |= {"sources": sorted(self._sources), "labels": self.labels}
        groups = [self._groups[label] for label in self.labels]
        sums = [group.sums() for group in groups]
        table = [(group.count, group._simulated, len(rows)) for group, rows in zip(groups, sums, strict=True)]
        with atomic_file(path, private=self._mechanism.trust != "local") as file:
            np.savez(
                file,
                # As UTF-8: arrays of text would lose null characters at the end.
                head=np.frombuffer(json.dumps(head, ensure_ascii=False).encode(), dtype=np.uint8),
                groups=np.array(table, dtype=np.int64).reshape(-1, 3),
                sums=np.concatenate([self._empty.sums()[:0], *sums]),
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str], mechanism: GroupOwner) -> GroupedAggregator:
        """Load an aggregator that `save` wrote, for the same mechanism; ValueError for anything else."""
        head, table, sums = _read(path)
        loaded = cls(mechanism, head["column"])
        loaded._empty._refuse_foreign(head["digest"], f"{os.fspath(path)} is")
        states = np.split(sums, np.cumsum(table[:, 2]))[:-1]
        try:
            for label, (count, simulated, _), state in zip(head["labels"], table.tolist(), states, strict=True):
                loaded._group(label)._restore(state.copy(), count, bool(simulated))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} is damaged: {error}") from error
        loaded._sources = set(head["sources"])
        return loaded

    def _group(self, label: str) -> Aggregator[Any]:
        if label not in self._groups:
            self._groups[label] = type(self._empty)(self._mechanism)
        return self._groups[label]

    def _part(self, labels: Labels, count: int, each: str) -> GroupedAggregator:
        """An empty aggregator for messages with these labels: it is merged when nothing was refused."""
        if len(labels) != count:
            raise ValueError(f"labels must be {count}, one per {each}, got {len(labels)}")
        self._refuse_column(labels.column, "messages have")
        return GroupedAggregator(self._mechanism, labels.column)

    def _refuse_column(self, column: str | None, what: str) -> None:
        if column is not None and self.column is not None and column != self.column:
            raise ValueError(f"{what} labels by {column!r}, expected labels by {self.column!r}")


@dataclass(frozen=True)
class GroupsInfo(StateInfo):
    """The description in the file of a saved `GroupedAggregator`."""

    column: str
    groups: int


def describe_groups(path: str | os.PathLike[str]) -> GroupsInfo | None:
    """Read the description of a saved state of groups, None for other files; ValueError if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            if "groups.npy" not in archive.namelist():
                return None
    except FileNotFoundError:
        raise
    except DAMAGED_ARCHIVE:
        return None
    head, table, sums = _read(path)
    kind = (head["version"], head["digest"], int(table[:, 0].sum()), len(sums))
    simulated = known_simulated(bool(table[:, 1].any()), head["sources"])
    return GroupsInfo(*kind, len(head["sources"]), simulated, head["column"], len(table))


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], NDArray[np.int64], NDArray[np.int64]]:
    """Read the head of a state, a row per group (messages, simulated, rows of sums) and the sums, and check them."""
    try:
        stored = read_archive(path, {"head", "groups", "sums"})
        head, table, sums = read_json(stored["head"].tobytes()), stored["groups"], stored["sums"]
        if (head["format"], head["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"its format has version {head['version']}, this library reads version {_VERSION}")
        if not all(isinstance(text, str) for text in (head["digest"], head["column"], *head["sources"])):
            raise ValueError("its digest, column and sources must be text")
        if head["labels"] != _in_order({check_name(label, "labels", "the state") for label in head["labels"]}):
            raise ValueError("its labels are not sorted")
        shaped = table.shape == (len(head["labels"]), 3) and sums.ndim == 2
        if not shaped or not table.dtype == sums.dtype == np.int64:
            raise ValueError("its arrays have wrong shapes or types")
        # Each within its limits first, so that no sum can wrap around.
        bounded = np.all(table >= (1, 0, 0)) and np.all(table <= (MOST_MESSAGES, 1, len(sums)))
        if not bounded or table[:, 2].sum() != len(sums):
            raise ValueError("its groups have invalid numbers of messages or rows")
    except FileNotFoundError:
        raise
    except DAMAGED_ARCHIVE as error:
        raise ValueError(f"{os.fspath(path)} is damaged or not a state of groups: {error}") from error
    return head, table, sums


def _in_order(labels: Iterable[str]) -> list[str]:
    """Sort labels: decimal numbers by value, then text."""
    return sorted(labels, key=lambda label: (not label.isdecimal(), len(label) if label.isdecimal() else 0, label))
