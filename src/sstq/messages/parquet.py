"""Parquet files of messages, for tools that read tables: one column per field.

Columns have the integer types that every SQL engine knows: 32 bits with a sign, or 64 where needed. A field of several
numbers is a column of fixed-size lists; public labels are a column of text with its own name. The file's metadata hold
the mechanism's digest, whether the messages are simulated, the file's random identifier, and a CRC-32 of all this and
the number of messages; pages carry Parquet's own checksums.
"""

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, BinaryIO

from sstq.files.parquet import import_pyarrow, open_parquet
from sstq.inputs.arrays import arrow_labels, check_label_type
from sstq.messages.batch import MessageReader, Messages
from sstq.messages.layouts import Column, Field, FloatField

SUFFIXES = (".parquet", ".pq")
VERSION = 2
_KEYS = (b"sstq.version", b"sstq.digest", b"sstq.bits", b"sstq.simulated", b"sstq.file")
_CHECKSUM = b"sstq.checksum"


def write(file: BinaryIO, blocks: Iterator[Messages], by: str | None = None) -> int:
    """Write blocks of messages of one mechanism, at least one; returns the number of messages."""
    pyarrow = import_pyarrow()
    first = next(blocks)
    bits = str(first.layout.message_bits)
    simulated = str(int(first.simulated))
    values = (str(VERSION), first.digest, bits, simulated, os.urandom(16).hex())
    schema = _as_table(pyarrow, first[:1], by).schema.with_metadata(
        dict(zip(_KEYS, values, strict=True))
    )
    count = 0
    with pyarrow.parquet.ParquetWriter(
        file, schema, compression="zstd", write_page_checksum=True
    ) as writer:
        for block in chain([first], blocks):
            writer.write_table(
                _as_table(pyarrow, block, by).cast(schema), row_group_size=len(block)
            )
            count += len(block)
        writer.add_key_value_metadata({_CHECKSUM: _checksum(values, count)})
    return count


def describe(file: BinaryIO) -> tuple[int, str, int, int, bool, str]:
    """Read what a file says of itself (`MessageFileInfo`); ValueError if it is damaged or has no messages."""
    with open_parquet(file) as table:
        schema = table.schema_arrow
        count = table.metadata.num_rows
        checksum = (table.metadata.metadata or {}).get(_CHECKSUM)
    metadata = schema.metadata or {}
    if not all(key in metadata for key in _KEYS):
        raise ValueError(
            f"{file.name} is a Parquet file, but not a message file: its metadata have no digest"
        )
    values = [metadata[key].decode(errors="replace") for key in _KEYS]
    version, digest, bits, simulated, file_id = values
    if version != str(VERSION):
        raise ValueError(
            f"{file.name} has version {version} of this format; this library reads version {VERSION}"
        )
    if not re.fullmatch("[1-9][0-9]{0,9}", bits) or simulated not in ("0", "1"):
        raise ValueError(
            f"{file.name} has invalid metadata: {bits!r} bits, simulated {simulated!r}"
        )
    # A file written by another tool may lack our checksum; its pages' own are verified.
    if checksum not in (None, _checksum(values, count)):
        raise ValueError(
            f"{file.name} is damaged: the checksum of its metadata does not match"
        )
    return VERSION, digest, count, int(bits), simulated == "1", file_id


def _checksum(values: Iterable[str], count: int) -> bytes:
    return f"{zlib.crc32(','.join([*values, str(count)]).encode()):08x}".encode()


def read(
    file: BinaryIO,
    mechanism: MessageReader,
    simulated: bool,
    size: int,
    by: str | None = None,
) -> Iterator[Messages]:
    """Iterate over the messages, so many at a time; ValueError for damage, missing columns and bad values."""
    fields = mechanism.layout.fields
    wanted = mechanism.layout.names + ([] if by is None else [by])
    with open_parquet(file) as table:
        schema = table.schema_arrow
        missing = set(wanted) - set(schema.names)
        if missing:
            raise ValueError(f"{file.name} has no column {', '.join(sorted(missing))}")
        # Before anything is read: a batch of longer lists, or of texts, might not fit in memory.
        for field in fields:
            _check_type(schema.field(field.name).type, field, file.name)
        if by is not None:
            check_label_type(schema.field(by).type, by, file.name)
        row = 0
        for batch in table.iter_batches(batch_size=size, columns=wanted):
            columns = tuple(
                _values(batch.column(field.name), field, row, file.name)
                for field in fields
            )
            messages = mechanism.messages_from_columns(columns, simulated)
            if by is not None:
                messages = replace(
                    messages, labels=arrow_labels(batch.column(by), by, file.name, row)
                )
            row += batch.num_rows
            yield messages
        count = table.metadata.num_rows
    if row != count:
        raise ValueError(
            f"{file.name} is damaged: it must have {count} messages, got {row}"
        )


def _as_table(pyarrow: Any, messages: Messages, by: str | None) -> Any:
    """One column per field, of numbers or of fixed-size lists, and labels."""
    columns = field_columns(messages)
    if by is not None:
        if by in columns:
            raise ValueError(
                f"by must not be the name of a message's field, got {by!r}"
            )
        columns[by] = pyarrow.array(messages.labels, pyarrow.string())
    return pyarrow.table(columns)


def field_columns(messages: Messages) -> dict[str, Any]:
    """The fields of messages as Arrow arrays of the engines' types."""
    pyarrow = import_pyarrow()
    columns = {}
    for field, array in zip(messages.layout.fields, messages.columns, strict=True):
        flat = pyarrow.array(array.ravel().astype(engine_type(field)))
        columns[field.name] = (
            flat
            if array.ndim == 1
            else pyarrow.FixedSizeListArray.from_arrays(flat, field.count)
        )
    return columns


def engine_type(field: Field) -> str:
    """The type of a field's column: a type with a sign, because not every engine has others."""
    if isinstance(field, FloatField):
        return "<f4"
    return "<i4" if field.limit <= 1 << 31 else "<i8"


def _check_type(kind: Any, field: Field, place: str) -> None:
    """Raise ValueError unless the column has the field's type: numbers, or lists of as many as the field has."""
    types = import_pyarrow().types
    single = (
        kind.value_type
        if types.is_fixed_size_list(kind) and kind.list_size == field.count
        else kind
    )
    real = isinstance(field, FloatField)
    wanted, what = (
        (types.is_floating, "finite numbers")
        if real
        else (types.is_integer, "integers")
    )
    if not wanted(single) or (field.count > 1 and single is kind):
        many = f"lists of {field.count} {what}" if field.count > 1 else what
        raise ValueError(
            f"{place}: column {field.name} must hold {many} without nulls, got {kind}"
        )


def _values(array: Any, field: Field, first: int, place: str) -> Column:
    """Convert a column of the right type to the numbers of a field; ValueError for invalid values."""
    rows = len(array)
    if not array.null_count and import_pyarrow().types.is_fixed_size_list(array.type):
        array = array.flatten()
    if nulls := array.null_count:
        wanted = f"column {field.name} must hold numbers without nulls"
        raise ValueError(f"{place}: {wanted}, got {nulls} from row {first} on")
    values: Column = array.to_numpy(zero_copy_only=False).reshape(rows, field.count)
    try:
        field.check(values, first)
    except ValueError as error:
        raise ValueError(f"{place}, {error}") from error
    return values.astype(field.dtype, copy=False).reshape(field.shape(rows))
