"""What a client does, whatever the mechanism: rows are checked, secret words drawn, and messages made or read."""

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from numpy.typing import ArrayLike, NDArray

from sstq import kernels
from sstq.array_types import Floats32, Words
from sstq.checks import check_number
from sstq.inputs import Input, LocalReport, Vectors
from sstq.inputs.base import Rows
from sstq.kernels.threads import row_chunks
from sstq.mechanisms.agreement import Agreement
from sstq.mechanisms.solved import Ranges
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column, Layout
from sstq.randomness.secret import BitSource, RngLike, bit_source

Columns = tuple[Column, ...]

# About how many numbers drawing one message takes.
_NUMBERS_OF_A_DRAW = 16


class Batch(NamedTuple):
    """Checked rows, (n, …), with `words_each` secret words each."""

    rows: Rows
    words: Words
    report: LocalReport | None


class Encoder(Agreement):
    """A randomizer of vectors; `Mechanism` says what its attributes mean."""

    name: ClassVar[str]
    exact: ClassVar[bool]

    uniform_index: ClassVar[bool] = False
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    dim: int
    epsilon: float
    delta: float = 0.0
    clip: float
    clients: int | None = None
    groups: int | None = None
    messages: int = 1
    bounds: Ranges | None = None
    frame_size: int | None = None

    @cached_property
    def input(self) -> Input:
        """What a person holds: how it is read, opened from files, and mended on a device."""
        return Vectors(self.dim, self.clip, self.bounds)

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """The fields of a message."""

    @property
    def words_each(self) -> int:
        """The number of secret words per message, the same for every vector."""
        return 3

    @abstractmethod
    def encode_batch(self, batch: Batch) -> Columns:
        """Return the columns of the messages. Most encoders start with `unit_ball`; others count clipped rows."""

    def encode_rows(
        self, rows: Rows, source: BitSource, report: LocalReport | None
    ) -> Columns:
        """Encode rows with words of a source."""
        # The same number of words for every vector, drawn before anything is known about the data.
        shape = len(rows), self.words_each
        return self.encode_batch(
            Batch(rows, source.words(shape[0] * shape[1]).reshape(shape), report)
        )

    @property
    def row_cost(self) -> int:
        """About how many numbers encoding one row takes, such as its scores, which limits the rows at a time."""
        return self.frame_size or self.dim

    def encode(
        self,
        X: Any,
        rng: RngLike = None,
        *,
        groups: ArrayLike | None = None,
        report: LocalReport | None = None,
    ) -> Messages:
        """Encode each row of X as one private message; with `messages` = m, as m messages, slot by slot.

        Message j·n + i is that of row i in slot j. Each is drawn independently, on its own frame.

        Args:
            X: (d,) or (n, d), finite: floats, or anything that converts to them exactly, such as integers, tensors and
                columns of lists. Rows longer than `clip` are scaled down to it.
            rng: None for the operating system's randomness (needed for privacy); an integer seed or a NumPy Generator
                for simulations, which marks the messages as simulated.
            groups: for mechanisms with private groups, one integer from 0 to groups − 1 per row.
            report: counts of clipped rows and missed certificates, which depend on the data; keep it local.

        Examples:
            >>> import numpy as np, sstq
            >>> mechanism = sstq.SSTQ(dim=3, epsilon=2.0, bits=2)
            >>> mechanism.encode(np.array([0.1, -0.2, 0.3])).to_bytes() != b""
            True
        """
        seen = LocalReport()
        rows = self.input.read(X, groups, seen)
        for warning in [*self.input.warnings(rows), *seen.warnings()]:
            warnings.warn(warning, stacklevel=2)  # the line that called encode
        if report is not None:
            report.add(seen)
        return self.encode_slots(rows, bit_source(rng), report, self.messages)

    def encode_slots(
        self,
        rows: NDArray[Any],
        source: BitSource,
        report: LocalReport | None,
        slots: int,
    ) -> Messages:
        """Encode this many messages per checked row, slot by slot."""
        count = len(rows)
        # Kernels work on a few rows at a time, so that a quarter of their numbers is about what is in memory.
        parts = row_chunks(count, _NUMBERS_OF_A_DRAW + self.row_cost // 4)
        columns = self.layout.empty(slots * count)
        for slot in range(slots):
            for part in parts:
                # Each vector is reported once.
                encoded = self.encode_rows(
                    rows[part], source, report if slot == 0 else None
                )
                place = slice(slot * count + part.start, slot * count + part.stop)
                for column, values in zip(columns, encoded, strict=True):
                    column[place] = values
        if report is not None:
            report.vectors += count
        return self._messages(columns, source.simulated)

    def messages_from_bytes(self, raw: bytes, count: int) -> Messages:
        """Read the messages that `Messages.to_bytes` packed; ValueError for anything else."""
        count = check_number("count", count, 0, 2**62, integer=True)
        return self.messages_from_columns(
            self.layout.unpack(raw, count), simulated=False
        )

    def messages_from_columns(self, columns: Columns, simulated: bool) -> Messages:
        """Build messages from the values of their fields; ValueError for values out of range."""
        messages = self._messages(columns, simulated)
        self.check_messages(messages)
        return messages

    def check_messages(self, messages: Messages) -> None:
        """Refuse values that the fields allow but this mechanism never sends."""

    def _messages(self, columns: Columns, simulated: bool) -> Messages:
        return Messages(self.layout, columns, self._digest, simulated=simulated)

    def unit_ball(self, rows: Rows, report: LocalReport | None = None) -> Floats32:
        """Clip rows to norm `clip` and divide by it; the report counts the longer ones."""
        unit, longer = kernels.clip_to_ball(rows, self.clip)
        if report is not None:
            report.clipped += int(longer.sum())
        return unit
