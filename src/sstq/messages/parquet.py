"""Parquet files of messages: one column a field (and the client, behind a public coin), for tools that read tables.

A field of several numbers is a column of fixed-size lists.

The mechanism's digest, whether the messages are simulated, the file's random identifier and a CRC-32 of each column and
of all this stand in the file's metadata; pages carry Parquet's own checksums.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np

from sstq.files.atomic import atomic_file
from sstq.messages.batch import Messages
from sstq.messages.files import MessageFileInfo, MessageReader, block_messages
from sstq.messages.layouts import Field, FloatField

__all__ = ["describe", "import_pyarrow", "read", "write"]

VERSION = 1
_KEYS = (b"sstq.version", b"sstq.digest", b"sstq.bits", b"sstq.simulated", b"sstq.file")
_CHECKSUMS = b"sstq.checksums"


def import_pyarrow() -> Any:
    """Pyarrow with its Parquet and compute modules; an ImportError that names the extra where it is missing."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'sstq[data]'") from error
    return pyarrow


def write(path: str | os.PathLike[str], batches: Iterable[Messages]) -> int:
    """Write batches of messages of one mechanism, at least one; returns their number."""
    pyarrow = import_pyarrow()
    iterator = iter(batches)
    first = next(iterator)
    bits, simulated = str(first.layout.message_bits), str(int(first.simulated))
    stated = (str(VERSION), first.digest, bits, simulated, os.urandom(16).hex())
    metadata = dict(zip(_KEYS, stated, strict=True))
    schema = _as_table(pyarrow, first).schema.with_metadata(metadata)
    checksums = [_metadata_checksum(stated)] * len(schema.names)
    count = 0
    with (
        atomic_file(path, private=first.in_clear) as file,
        pyarrow.parquet.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for batch in chain([first], iterator):
            if (batch.digest, batch.simulated) != (first.digest, first.simulated):
                raise ValueError("a file holds messages of one mechanism, either simulated or not")
            table = _as_table(pyarrow, batch).cast(schema)
            writer.write_table(table, row_group_size=block_messages(first.layout.message_bits))
            checksums = _checksums(_arrays(batch), checksums)
            count += len(batch)
        writer.add_key_value_metadata({_CHECKSUMS: _as_text(checksums)})
    return count


def _arrays(messages: Messages) -> list[Any]:
    return [*messages.columns] if messages.clients is None else [*messages.columns, messages.clients]


def _as_table(pyarrow: Any, messages: Messages) -> Any:
    names = [field.name for field in messages.layout.fields] + ["client"] * (messages.clients is not None)
    return pyarrow.table(
        {name: _as_arrow(pyarrow, array) for name, array in zip(names, _arrays(messages), strict=True)}
    )


def _as_arrow(pyarrow: Any, array: Any) -> Any:
    """A column as it is, or a fixed-size list a message for a field of several numbers."""
    if array.ndim == 1:
        return pyarrow.array(array)
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(array.ravel()), array.shape[1])


def _metadata_checksum(stated: Sequence[str]) -> int:
    return zlib.crc32("\n".join(stated).encode())


def _checksums(arrays: list[Any], before: list[int]) -> list[int]:
    return [zlib.crc32(array.tobytes(), crc) for array, crc in zip(arrays, before, strict=True)]


def _as_text(checksums: list[int]) -> bytes:
    return ",".join(f"{crc:08x}" for crc in checksums).encode()


@contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The Parquet file at a path; ValueError if it cannot be read as one, then or later."""
    pyarrow = import_pyarrow()
    with open(path, "rb") as file:
        try:
            yield pyarrow.parquet.ParquetFile(file, page_checksum_verification=True)
        except (OSError, pyarrow.ArrowException) as error:
            raise ValueError(f"{os.fspath(path)} is truncated, damaged or not a Parquet file: {error}") from error


def describe(path: str | os.PathLike[str]) -> MessageFileInfo:
    """What the file says of itself; ValueError if it does not hold messages."""
    with _open(path) as file:
        schema = file.schema_arrow
        metadata = schema.metadata or {}
        name = os.fspath(path)
        if not all(key in metadata for key in _KEYS):
            raise ValueError(f"{name} is a Parquet file, but not of SSTQ messages: its metadata lack the digest")
        version, digest, bits, simulated, file_id = (metadata[key].decode(errors="replace") for key in _KEYS)
        if version != str(VERSION):
            raise ValueError(
                f"{name} has version {version} of the message format, this library reads version {VERSION}"
            )
        if not re.fullmatch("[1-9][0-9]{0,9}", bits) or simulated not in ("0", "1"):
            raise ValueError(f"{name} has impossible metadata: {bits!r} bits, simulated {simulated!r}")
        return MessageFileInfo(
            kind="parquet",
            version=VERSION,
            digest=digest,
            count=file.metadata.num_rows,
            message_bits=int(bits),
            simulated=simulated == "1",
            with_clients="client" in schema.names,
            block_messages=block_messages(int(bits)),
            file_id=file_id,
        )


def read(path: str | os.PathLike[str], mechanism: MessageReader, info: MessageFileInfo) -> Iterator[Messages]:
    """The messages, a batch at a time; ValueError for damage, missing columns and values out of range."""
    name = os.fspath(path)
    layout = mechanism.layout
    fields = [*layout.fields, Field("client", 64, 1 << 64)] if info.with_clients else [*layout.fields]
    wanted = [field.name for field in fields]
    with _open(path) as file:
        missing = set(wanted) - set(file.schema_arrow.names)
        if missing:
            raise ValueError(f"{name} has no column {', '.join(sorted(missing))}")
        # Before anything is read: a batch of longer lists, or of texts, might not fit the memory.
        for field in fields:
            _check_type(file.schema_arrow.field(field.name).type, field, name)
        stated = (file.metadata.metadata or {}).get(_CHECKSUMS)
        metadata = file.schema_arrow.metadata
        checksums = [_metadata_checksum([metadata[key].decode() for key in _KEYS])] * len(wanted)
        row = 0
        # By the width that the fields really have, whatever the file says of it.
        for batch in file.iter_batches(batch_size=block_messages(layout.message_bits), columns=wanted):
            place = f"{name}, from row {row}"
            columns = tuple(_values(batch.column(field.name), field, place) for field in fields)
            clients = columns[-1] if info.with_clients else None
            messages = mechanism.messages_from_columns(columns[: len(layout.fields)], clients, info.simulated)
            checksums = _checksums(_arrays(messages), checksums)
            row += batch.num_rows
            yield messages
    # A file written by another tool may lack our checksums; its pages' own have been verified.
    if stated is not None and stated != _as_text(checksums):
        raise ValueError(f"{name} is damaged: the checksums of its columns do not match")


def _check_type(kind: Any, field: Field, place: str) -> None:
    """Refuse a column (ValueError) of another type than numbers of the field, or lists of as many as it has."""
    types = import_pyarrow().types
    single = kind.value_type if types.is_fixed_size_list(kind) and kind.list_size == field.count else kind
    wanted = types.is_floating if isinstance(field, FloatField) else types.is_integer
    if not wanted(single) or (field.count > 1 and single is kind):
        what = "finite numbers" if isinstance(field, FloatField) else "integers"
        many = f"lists of {field.count} {what}" if field.count > 1 else what
        raise ValueError(f"{place}: column {field.name} must hold {many} without nulls, got {kind}")


def _values(array: Any, field: Field, place: str) -> Any:
    """A column of the right type as the numbers of a field; ValueError for values that the field cannot have."""
    rows = len(array)
    nulls = array.null_count
    if not nulls and import_pyarrow().types.is_fixed_size_list(array.type):
        array = array.flatten()
        nulls = array.null_count
    if nulls:
        raise ValueError(f"{place}: column {field.name} must hold numbers without nulls, got {nulls}")
    values = array.to_numpy(zero_copy_only=False)
    if isinstance(field, FloatField):
        bad = ~np.isfinite(values)
    else:
        # Compared as Python integers would be: an unsigned limit may exceed the column's own type.
        bad = values < 0
        if rows and int(values.max()) >= field.limit:
            bad |= values >= field.limit
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        allowed = "finite" if isinstance(field, FloatField) else f"in [0, {field.limit})"
        raise ValueError(f"{place}: {field.name} must be {allowed}, got {values[row]} in row {row // field.count}")
    shape = (rows,) if field.count == 1 else (rows, field.count)
    return values.astype(field.dtype, copy=False).reshape(shape)
