"""Encoding where the data are: from Arrow batches to Arrow batches, for Spark, DuckDB, Polars and Ray Data."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sstq.accounting.ledger import check_local
from sstq.files.parquet import import_pyarrow
from sstq.mechanisms.base import Mechanism
from sstq.messages.parquet import engine_type, field_columns

_SQL_TYPES = {"<i4": "int", "<i8": "bigint", "<f4": "float"}


@dataclass(frozen=True)
class BatchEncoder:
    """Encodes the vectors of Arrow batches; what `encode_batches` returns."""

    mechanism: Mechanism
    column: str
    keep: tuple[str, ...]
    groups: str | None

    def __call__(self, batches: Any) -> Iterator[Any]:
        """Yield a batch of messages for each batch of vectors; a table counts as its batches."""
        pyarrow = import_pyarrow()
        if isinstance(batches, pyarrow.RecordBatch):
            batches = [batches]
        for batch in (
            batches.to_batches() if isinstance(batches, pyarrow.Table) else batches
        ):
            yield self._encode(pyarrow, batch)

    def _encode(self, pyarrow: Any, batch: Any) -> Any:
        wanted = [self.column, *self.keep, *filter(None, [self.groups])]
        missing = [name for name in wanted if name not in batch.schema.names]
        if missing:
            raise ValueError(
                f"batches must have a column {missing[0]!r}, got {', '.join(batch.schema.names)}"
            )
        groups = None if self.groups is None else _numbers(batch, self.groups)
        columns = field_columns(
            self.mechanism.encode(batch.column(self.column), groups=groups)
        )
        # A person's messages come slot by slot, one for each row of the batch.
        rows = np.tile(np.arange(batch.num_rows), self.mechanism.messages)
        columns |= {
            name: batch.column(name).take(pyarrow.array(rows)) for name in self.keep
        }
        return pyarrow.RecordBatch.from_pydict(columns)

    @property
    def ddl(self) -> str:
        """The columns of messages with their types as SQL states them, without those that are kept."""
        fields = self.mechanism.layout.fields
        single = [
            (field.name, _SQL_TYPES[engine_type(field)], field.count)
            for field in fields
        ]
        columns = [
            f"`{name}` {kind if count == 1 else f'array<{kind}>'}"
            for name, kind, count in single
        ]
        return ", ".join(columns)


def encode_batches(
    mechanism: Mechanism,
    column: str,
    *,
    keep: Iterable[str] = (),
    groups: str | None = None,
) -> BatchEncoder:
    """Return a function that turns Arrow batches of vectors into Arrow batches of messages.

    It is what Spark's `mapInArrow` takes; a `RecordBatchReader`, a table or a list of batches does as well, so DuckDB,
    Polars and Ray Data can use it. Randomness is the operating system's. An engine that runs a task again draws new
    messages: write the messages to a table once, and count that table.

    Args:
        mechanism: the mechanism that all parties share.
        column: the column of vectors, lists of `dim` numbers.
        keep: public columns to keep beside the messages, such as a country; whoever sees the messages sees them.
        groups: for mechanisms with private groups, the column of a person's group.

    Examples:
        >>> import pyarrow, sstq
        >>> mechanism = sstq.FrameUnit(dim=3, epsilon=2.0)
        >>> people = pyarrow.table({"country": ["DE", "FR"], "x": [[0.1, 0.2, 0.3], [0.0, 0.5, 0.0]]})
        >>> encode = encode_batches(mechanism, "x", keep=["country"])
        >>> [batch.schema.names for batch in encode(people)]
        [['row', 'country']]
        >>> encode.ddl
        '`row` int'
    """
    check_local(mechanism)
    if "columns" not in mechanism.input.file_options:
        takes = f"got one that takes {mechanism.input.takes}"
        raise ValueError(
            f"mechanism must take one column, {takes}; use its encode on each batch"
        )
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    encoder = BatchEncoder(mechanism, column, kept, groups)
    taken = [name for name in kept if name in {column, *mechanism.layout.names}]
    if taken:
        raise ValueError(
            f"keep must not name the vectors or a column of messages, got {taken[0]!r}"
        )
    return encoder


def _numbers(batch: Any, name: str) -> Any:
    """A column of integers without nulls."""
    column = batch.column(name)
    if column.null_count:
        raise ValueError(
            f"column {name!r} must not have nulls, got {column.null_count}"
        )
    return column.to_numpy(zero_copy_only=False)
