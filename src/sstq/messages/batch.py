"""Batches of messages: what leaves clients, as arrays of small numbers and as packed bits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from sstq.messages.layouts import Column, Layout
from sstq.randomness.secret import RngLike, bit_source


@dataclass(frozen=True, eq=False, repr=False)
class Messages:
    """A batch of messages of one mechanism.

    Attributes:
        layout: the fields of a message.
        columns: one array per field.
        digest: the digest of the mechanism that the messages belong to.
        simulated: whether a seed replaced the operating system's randomness; then nothing is private.
        labels: public text beside each message, such as a country, which Parquet files keep; None if there is none.

    Examples:
        >>> import numpy as np, sstq
        >>> messages = sstq.FrameUnit(dim=3, epsilon=2.0).encode(np.zeros((5, 3)))
        >>> len(messages), len(messages[:2]), len(messages.to_bytes())
        (5, 2, 6)
    """

    layout: Layout
    columns: tuple[Column, ...]
    digest: str
    simulated: bool = False
    labels: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, part: slice | NDArray[Any]) -> Self:
        """Return some of the messages: a slice, an array of their positions, or one of booleans."""
        if not isinstance(part, slice | np.ndarray):
            raise TypeError(
                f"index must be a slice such as messages[i : i + 1], got {type(part).__name__}"
            )
        labels = None if self.labels is None else self.labels[part]
        columns = tuple(np.ascontiguousarray(column[part]) for column in self.columns)
        return replace(self, columns=columns, labels=labels)

    def shuffled(self, slots: int = 1, rng: RngLike = None) -> Self:
        """Return the messages in random order within each slot, as a shuffler forwards them.

        Args:
            slots: the number of slots, all of the same length, one after the other, as `Mechanism.encode` returns them.
            rng: None for the operating system's randomness; a seed or Generator for simulations.
        """
        if slots < 1 or len(self) % slots:
            raise ValueError(f"slots must divide the {len(self)} messages, got {slots}")
        # Words of 64 bits in their order: two equal ones are a matter of 2⁻⁶⁴ per pair.
        words = bit_source(rng).words(len(self)).reshape(slots, -1)
        order = np.argsort(words, axis=1) + np.arange(slots)[:, None] * words.shape[1]
        return self[order.ravel()]

    @staticmethod
    def concatenate(batches: Sequence["Messages"]) -> "Messages":
        """Join batches of one mechanism into one."""
        if not batches:
            raise ValueError("batches must not be empty")
        first = batches[0]
        if len(batches) == 1:
            return first
        if any(batch.digest != first.digest for batch in batches):
            raise ValueError("messages of different mechanisms cannot be joined")
        columns = tuple(
            np.concatenate(parts)
            for parts in zip(*(batch.columns for batch in batches), strict=True)
        )
        labelled = [batch.labels for batch in batches if batch.labels is not None]
        if labelled and len(labelled) < len(batches):
            raise ValueError("messages with and without labels cannot be joined")
        labels = np.concatenate(labelled) if labelled else None
        simulated = any(batch.simulated for batch in batches)
        return replace(first, columns=columns, simulated=simulated, labels=labels)

    def __repr__(self) -> str:
        mark = ", simulated" if self.simulated else ""
        return f"<{len(self)} messages of {self.layout.message_bits} bits for {self.digest[:12]}{mark}>"

    def column(self, name: str) -> Column:
        """Return the values of one field, such as "code"."""
        names = self.layout.names
        if name not in names:
            raise ValueError(f"name must be one of {', '.join(names)}, got {name!r}")
        return self.columns[names.index(name)]

    def to_bytes(self) -> bytes:
        """Pack the messages into ⌈n·message_bits/8⌉ bytes, without padding between them."""
        return self.layout.pack(self.columns)


class MessageReader(Protocol):
    """The mechanism of messages, as far as reading them needs it."""

    @property
    def layout(self) -> Layout:
        """The fields of a message."""

    def digest(self) -> str:
        """The fingerprint of the mechanism."""

    def messages_from_columns(
        self, columns: tuple[Column, ...], simulated: bool
    ) -> Messages:
        """Build messages from the values of their fields; ValueError for values out of range."""
