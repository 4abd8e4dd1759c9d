"""One mean per public group, such as the country, in one pass over the messages.

Each message carries its label in public (`sstq.messages.labels`); only the vector is private. A private group
needs GroupUnit, which sends the group and the vector in one private message.

A group is one more column of a table of counts: the state is how often each message occurred in each group, so ten
thousand small groups take no more memory than their messages. Mechanisms that are not estimated from counts have the
sums of an ordinary `Aggregator` per group.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.aggregation.base import Aggregator, MessageOwner, refuse_changed
from sstq.aggregation.counts import COUNT, MOST_MESSAGES, column_names, read_counts
from sstq.aggregation.estimates import Estimate
from sstq.aggregation.group_states import FORMAT, VERSION, as_json, in_order, read_groups
from sstq.aggregation.sparse_counts import MOST_BITS, CountsAggregator
from sstq.files.atomic import atomic_file
from sstq.files.stores import version_of
from sstq.messages.batch import Messages
from sstq.messages.files import describe_messages, read_messages
from sstq.messages.labels import Labels

FEW = 30
"""Groups with fewer messages are marked: their scatter says little about the error (two equal messages have none)."""


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
    messages and however they are spread over files and aggregators.

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
        return in_order(self._groups)

    @property
    def counts(self) -> dict[str, int]:
        """The number of messages of each group."""
        return {label: self._groups[label].count for label in self.labels}

    @property
    def count(self) -> int:
        """The number of messages of all groups."""
        return sum(group.count for group in self._groups.values())

    def update(self, messages: Messages, labels: ArrayLike | None = None) -> Self:
        """Add a batch with its own labels or with these. A refused batch changes nothing.

        Args:
            messages: messages of the mechanism.
            labels: one per message: text, integers or booleans. Leave it out if messages carry labels.
        """
        if messages.labels is not None and labels is not None:
            raise ValueError("labels must be left out: these messages carry labels")
        given = messages.labels if labels is None else Labels.of(labels, self.column or "group")
        if given is None:
            raise ValueError("labels must be given: these messages carry none; encode with --by, or pass labels=")
        self._check_labels(given, len(messages), "message")
        self._empty._refuse_foreign(messages.digest, "messages are")
        # Beside the groups, because sums of vectors can refuse a message.
        part = GroupedAggregator(self._mechanism, given.column)
        plain = replace(messages, labels=None)
        for label, rows in _by_label(given):
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
        layout = self._mechanism.counted_layout
        if labels is None:
            if self.column is None or self.column not in column_names(columns):
                raise ValueError(f"columns must have the labels, got no column {self.column!r}; or pass labels=")
            labels = columns[self.column]
        given = Labels.of(labels, self.column or "group")
        table, times = read_counts(columns, counts, layout)
        self._check_labels(given, len(times), "row")
        messages = self._mechanism.counted_messages(table, simulated)
        named = {field.name: column for field, column in zip(layout.fields, messages.columns, strict=True)}
        part = GroupedAggregator(self._mechanism, given.column)
        for label, rows in _by_label(given):
            own = {name: values[rows] for name, values in named.items()}
            part._group(label).update_counts(own, times[rows], simulated=simulated)
        part._groups = {label: group for label, group in part._groups.items() if group.count}
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
        groups = [self._groups[label] for label in self.labels]
        sums = [group.sums() for group in groups]
        head: dict[str, Any] = {"format": FORMAT, "version": VERSION, "digest": self.digest}
        with atomic_file(path, private=self._mechanism.trust != "local") as file:
            np.savez(
                file,
                **head,
                column=as_json(self.column or "group"),
                sources=np.array(sorted(self._sources), dtype="U64"),
                labels=as_json(self.labels),
                counts=np.array([group.count for group in groups], dtype=np.int64),
                simulated=np.array([group._simulated for group in groups], dtype=bool),
                rows=np.array([len(state) for state in sums], np.int64),
                sums=np.concatenate([self._empty.sums()[:0], *sums]),
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str], mechanism: GroupOwner) -> GroupedAggregator:
        """Load an aggregator that `save` wrote, for the same mechanism; ValueError for anything else."""
        info, labels, stored = read_groups(path)
        loaded = cls(mechanism, info.column)
        loaded._empty._refuse_foreign(info.digest, f"{os.fspath(path)} is")
        counts, rows, simulated = (stored[key].tolist() for key in ("counts", "rows", "simulated"))
        try:
            first = 0
            for label, count, height, seeded in zip(labels, counts, rows, simulated, strict=True):
                loaded._group(label)._restore(stored["sums"][first : first + height].copy(), count, seeded)
                first += height
            if first != len(stored["sums"]):
                raise ValueError("its sums are of another number of rows")
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} is damaged: {error}") from error
        loaded._sources = set(stored["sources"].tolist())
        return loaded

    def _group(self, label: str) -> Aggregator[Any]:
        if label not in self._groups:
            self._groups[label] = type(self._empty)(self._mechanism)
        return self._groups[label]

    def _check_labels(self, labels: Labels, count: int, each: str) -> None:
        if len(labels) != count:
            raise ValueError(f"labels must be {count}, one per {each}, got {len(labels)}")
        self._refuse_column(labels.column, "messages have")

    def _refuse_column(self, column: str | None, what: str) -> None:
        if column is not None and self.column is not None and column != self.column:
            raise ValueError(f"{what} labels by {column!r}, expected labels by {self.column!r}")


def _by_label(labels: Labels) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Every label that occurs, and the rows that have it."""
    order = np.argsort(labels.codes, kind="stable")
    starts = np.flatnonzero(np.diff(labels.codes[order], prepend=np.int64(-1)))
    for start, rows in zip(starts, np.split(order, starts[1:]), strict=False):
        yield labels.names[labels.codes[order[start]]], rows
