"""One mean per public group, such as the country, in one pass over the messages.

Each message carries its label in public (`sstq.messages.labels`); only the vector is private. A private group
needs GroupUnit, which sends the group and the vector in one private message.

The sums of a group are those of an ordinary `Aggregator`. A small group is kept as its messages until they would take
more memory than the sums, so ten thousand small groups take about as much memory as their messages.
"""

from __future__ import annotations

import copy
import math
import os
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.aggregation.base import Aggregator, MessageOwner, refuse_changed
from sstq.aggregation.counts import MOST_MESSAGES
from sstq.aggregation.estimates import Estimate
from sstq.aggregation.group_states import FORMAT, VERSION, as_json, in_order, read_groups
from sstq.aggregation.sums import FrameAggregator
from sstq.files.atomic import atomic_file
from sstq.messages.batch import Messages
from sstq.messages.files import describe_messages, read_messages
from sstq.messages.labels import Labels
from sstq.messages.layouts import Column

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
    def coin(self) -> str:
        """Whether a message's coordinate is "private" or follows from the client's identifier ("public")."""

    @property
    def message_bits(self) -> int:
        """The length of a message."""

    def aggregator(self) -> Aggregator[Any]:
        """Return an empty sum of messages."""

    def _check_messages(self, messages: Messages) -> None: ...


@dataclass
class _Group:
    """The messages of a small group, or the sums of a larger one."""

    count: int = 0
    held: list[Messages] = field(default_factory=list)
    sums: Aggregator[Any] | None = None

    def hold(self, messages: Messages) -> None:
        # Batches double from the last to the first, so that there are few of them, however small they come.
        while self.held and len(self.held[-1]) <= 2 * len(messages):
            messages = Messages.concatenate([self.held.pop(), messages])
        self.held.append(messages)


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
        >>> groups
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
        self.digest = mechanism.digest()
        """The fingerprint of the mechanism whose messages are added."""
        self.column = column
        """The name of the labels, such as "country"; None until known."""
        self._empty = mechanism.aggregator()
        self._groups: dict[str, _Group] = {}
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

    def update(self, messages: Messages, labels: ArrayLike | None = None) -> None:
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
        if len(given) != len(messages):
            raise ValueError(f"labels must be {len(messages)}, one per message, got {len(given)}")
        self._empty._refuse_foreign(messages.digest, "messages are")
        self._refuse_column(given.column, "messages have")
        self._refuse_overflow(len(messages))
        if not len(messages):
            return
        # Sums of vectors can refuse a message; they do so before anything is added.
        part = self._part()
        order = np.argsort(given.codes, kind="stable")
        # Without the table of names, which is that of all groups.
        ordered, codes = replace(messages, labels=None).sorted_by(order), given.codes[order]
        starts = np.flatnonzero(np.diff(codes, prepend=np.int64(-1)))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(codes)], strict=True):
            part._add(given.names[codes[start]], ordered[start:stop])
        self._take(part)
        self.column = given.column

    def update_from_file(self, path: str | os.PathLike[str]) -> bool:
        """Add all messages of a file with labels, or none if it is refused; returns whether it was added.

        Files already counted are skipped, whatever their names: each carries a random identifier.
        """
        before = os.stat(path)
        info = describe_messages(path)
        if info.file_id in self._sources:
            return False
        if info.label_column is None:
            remedy = f"encode it with --by {self.column or 'COLUMN'}"
            raise ValueError(f"{os.fspath(path)} must have labels, got none; {remedy}")
        self._refuse_column(info.label_column, f"{os.fspath(path)} has")
        part = self._part()
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
        self._refuse_overflow(other.count)
        if self._sources & other._sources:
            raise ValueError("both aggregators contain the same message file: its messages would count twice")
        self._take(other)
        self._sources |= other._sources
        self.column = other.column or self.column

    def mean(self, label: str | int, level: float = 0.95) -> GroupMean:
        """Return the mean of one group, with its error and its mark."""
        group = self._groups.get(str(label))
        if group is None:
            raise ValueError(f"there is no group {str(label)!r}; see `labels`")
        estimate = self._sums(group).mean()
        return GroupMean(str(label), estimate, estimate.region(level).radius, level)

    def means(self, level: float = 0.95) -> dict[str, GroupMean]:
        """Return the means of all groups, by sorted label."""
        return {label: self.mean(label, level) for label in self.labels}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to an .npz file, completely or not at all; the name is used as given."""
        groups = [self._groups[label] for label in self.labels]
        summed = [group.sums for group in groups if group.sums is not None]
        for sums in summed:
            sums._settle()
        states = [sums._state for sums in summed]
        held = [_sorted(Messages.concatenate(group.held)) for group in groups if group.sums is None]
        kept = Messages.concatenate(held) if held else self._no_messages()
        columns: dict[str, Any] = {f"held{number}": column for number, column in enumerate(kept.columns)}
        if kept.clients is not None:
            columns["clients"] = kept.clients
        simulated = [any(part.simulated for part in group.held) or _simulated(group.sums) for group in groups]
        head: dict[str, Any] = {"format": FORMAT, "version": VERSION, "digest": self.digest}
        private = self._mechanism.trust != "local"
        with atomic_file(path, private=private) as file:
            np.savez(
                file,
                **head,
                column=as_json(self.column or "group"),
                sources=np.array(sorted(self._sources), dtype="U64"),
                labels=as_json(self.labels),
                counts=np.array([group.count for group in groups], dtype=np.int64),
                simulated=np.array(simulated, dtype=bool),
                rows=np.array([0 if group.sums is None else len(group.sums._state) for group in groups], np.int64),
                sums=np.concatenate([self._empty._state[:0], *states]),
                **columns,
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str], mechanism: GroupOwner) -> GroupedAggregator:
        """Load an aggregator that `save` wrote, for the same mechanism; ValueError for anything else."""
        info, labels, stored = read_groups(path)
        loaded = cls(mechanism, info.column)
        loaded._empty._refuse_foreign(info.digest, f"{os.fspath(path)} is")
        try:
            loaded._restore(labels, stored)
        except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            raise ValueError(f"{os.fspath(path)} is damaged: {error}") from error
        loaded._sources = set(stored["sources"].tolist())
        return loaded

    def _restore(self, labels: list[str], stored: dict[str, NDArray[Any]]) -> None:
        counts, rows, simulated = (stored[key].tolist() for key in ("counts", "rows", "simulated"))
        small = [self._is_small(count) for count in counts]
        total = sum(count for count, is_small in zip(counts, small, strict=True) if is_small)
        columns = tuple(stored[f"held{number}"] for number in range(len(self._mechanism.layout.fields)))
        for part, column in zip(self._mechanism.layout.fields, columns, strict=True):
            if column.shape != part.shape(total) or column.dtype != part.dtype:
                raise ValueError(f"it has {part.name} of shape {column.shape}, expected {part.shape(total)}")
            part.check(column.reshape(total, part.count))
        clients = stored["clients"] if self._mechanism.coin == "public" else None
        if clients is not None and (clients.shape != (total,) or clients.dtype != np.uint64):
            raise ValueError(f"it has clients of shape {clients.shape}, expected {(total,)}")
        # Identifiers may repeat: they are distinct in each batch, not in all of them.
        messages = self._messages(columns, clients)
        self._mechanism._check_messages(messages)
        first_message = first_row = 0
        for label, count, height, seeded, is_small in zip(labels, counts, rows, simulated, small, strict=True):
            group = self._groups[label] = _Group(count)
            if is_small:
                part_of = messages[first_message : first_message + count]
                group.held = [replace(part_of, simulated=seeded)]
                first_message += count
            else:
                group.sums = self._mechanism.aggregator()
                group.sums._restore(stored["sums"][first_row : first_row + height].copy(), count, seeded)
                first_row += height
        if first_row != len(stored["sums"]):
            raise ValueError("its sums are of another number of rows")

    def _part(self) -> GroupedAggregator:
        """An empty one of the same mechanism and column."""
        part = copy.copy(self)
        part._groups, part._sources = {}, set()
        return part

    def _is_small(self, count: int) -> bool:
        """Whether this many messages take less memory than their sums, so they are kept as messages."""
        in_frame = isinstance(self._empty, FrameAggregator)  # others take no more memory, or may refuse a message
        return in_frame and count * self._mechanism.message_bits < self._empty._state.nbytes

    def _add(self, label: str, messages: Messages) -> None:
        """Add messages of one group."""
        group = self._groups.setdefault(label, _Group())
        if self._is_small(group.count + len(messages)):
            group.hold(messages)
        else:
            group.sums = self._sums(group)
            group.held = []
            group.sums.update(messages)
        group.count += len(messages)

    def _sums(self, group: _Group) -> Aggregator[Any]:
        """Return the sums of a group, computed from its messages if necessary."""
        if group.sums is not None:
            return group.sums
        sums = self._mechanism.aggregator()
        for messages in group.held:
            sums.update(messages)
        return sums

    def _take(self, other: GroupedAggregator) -> None:
        """Add the groups of another aggregator, which stays unchanged."""
        for label, theirs in other._groups.items():
            if theirs.sums is None:
                for messages in theirs.held:
                    self._add(label, messages)
                continue
            ours = self._groups.setdefault(label, _Group())
            ours.sums = self._sums(ours)
            ours.held = []
            ours.sums.merge(theirs.sums)
            ours.count += theirs.count

    def _no_messages(self) -> Messages:
        public = self._mechanism.coin == "public"
        clients = np.zeros(0, dtype=np.uint64) if public else None
        return self._messages(self._mechanism.layout.empty(), clients)

    def _messages(self, columns: tuple[Column, ...], clients: NDArray[np.uint64] | None) -> Messages:
        in_clear = self._mechanism.trust != "local"
        return Messages(self._mechanism.layout, columns, self.digest, clients=clients, in_clear=in_clear)

    def _refuse_column(self, column: str | None, what: str) -> None:
        if column is not None and self.column is not None and column != self.column:
            raise ValueError(f"{what} labels by {column!r}, expected labels by {self.column!r}")

    def _refuse_overflow(self, added: int) -> None:
        if self.count + added > MOST_MESSAGES:
            raise ValueError(f"an aggregator holds at most 2^32 messages, got {self.count} and {added} more")


def _simulated(sums: Aggregator[Any] | None) -> bool:
    return sums is not None and sums._simulated


def _sorted(messages: Messages) -> Messages:
    """Sort messages by value, so that a saved state depends on the messages alone."""
    keys = [*messages.columns] if messages.clients is None else [*messages.columns, messages.clients]
    flat = [entry for column in keys for entry in column.reshape(len(messages), -1).T]
    return messages.sorted_by(np.lexsort(flat))
