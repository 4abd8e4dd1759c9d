"""Verifying a message file without its mechanism: the checksums, and that all values have the width of their fields."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sstq.messages.arrays import is_arrow_number
from sstq.messages.batch import Messages
from sstq.messages.files import describe_messages, read_messages
from sstq.messages.layouts import Column, Field, FloatField, Layout


def read_any_messages(path: str | os.PathLike[str]) -> Iterator[Messages]:
    """Read a message file of any mechanism; ValueError if it is damaged."""
    info = describe_messages(path)
    bits = Layout((Field("bit", 1, 2, count=info.message_bits),))
    layout = _columns_of(path) if info.kind == "parquet" else bits
    return read_messages(path, _AnyMechanism(layout, info.digest))


@dataclass(frozen=True)
class _AnyMechanism:
    layout: Layout
    stated: str

    def digest(self) -> str:
        return self.stated

    def messages_from_columns(
        self, columns: tuple[Column, ...], clients: NDArray[np.uint64] | None, simulated: bool
    ) -> Messages:
        return Messages(self.layout, columns, self.stated, clients=clients, simulated=simulated)


def _columns_of(path: str | os.PathLike[str]) -> Layout:
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    from sstq.messages.parquet import CLIENT

    fields: list[Field] = []
    for column in read_schema(path):
        several = pa.types.is_fixed_size_list(column.type)
        entry, count = (column.type.value_type, column.type.list_size) if several else (column.type, 1)
        if column.name == CLIENT or not is_arrow_number(entry):
            break  # the fields come first, labels last
        if pa.types.is_floating(entry):
            fields.append(FloatField(column.name, count=count))
        else:
            bits = entry.bit_width - pa.types.is_signed_integer(entry)
            fields.append(Field(column.name, bits, 1 << bits, count))
    return Layout(tuple(fields))
