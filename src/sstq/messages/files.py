"""Reading and writing message files: the framed format, and Parquet with the [data] extra."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Protocol

from sstq.files.atomic import atomic_file
from sstq.files.stores import is_remote, open_file
from sstq.messages import framed, parquet
from sstq.messages.batch import MessageReader, Messages, in_blocks
from sstq.messages.framed import MessageFileInfo


class Countable(Protocol):
    """What writing the columns of a public coin needs of a mechanism."""

    def counted(self, messages: Messages) -> Messages:
        """The messages with the columns that a public coin gives."""


FORMATS = (parquet, framed)
"""The formats: modules with a MAGIC, and with functions that describe, read and write files."""


def write_messages(
    path: str | os.PathLike[str],
    batches: Messages | Iterable[Messages],
    mechanism: Countable | None = None,
    by: str | None = None,
) -> int:
    """Write batches of messages of one mechanism to a file, Parquet if its name ends in .parquet; returns their number.

    With a public coin, pass the mechanism to write Parquet with the columns that the coin gives, for SQL engines. `by`
    names the column of Parquet that keeps the messages' public labels; without it they are left out.
    The file appears completely or not at all. Messages that are not private are readable only by the file's owner.

    Examples:
        >>> import tempfile, numpy as np, sstq
        >>> mechanism = sstq.FrameUnit(dim=3, epsilon=2.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_messages(f"{folder}/day1.sstq", [mechanism.encode(np.zeros((5, 3)))])
        5
    """
    filled = filter(len, [batches] if isinstance(batches, Messages) else batches)
    first = next(filled, None)
    if first is None:
        raise ValueError("batches must contain at least one message")
    blocks = in_blocks(first, filled)
    with atomic_file(path, private=first.in_clear) as file:
        if Path(path).name.lower().endswith(parquet.SUFFIXES):
            return parquet.write(file, blocks, None if mechanism is None else mechanism.counted, by)
        if by is not None:
            raise ValueError(f"path must end in .parquet for labels by {by}, got {os.fspath(path)}")
        return framed.write(file, blocks)


def read_messages(
    path: str | os.PathLike[str],
    mechanism: MessageReader,
    info: MessageFileInfo | None = None,
    by: str | None = None,
) -> Iterator[Messages]:
    """Iterate over the messages of a file, one batch at a time in bounded memory; `info` is its description, if known.

    With `by`, a column of a Parquet file, the messages have its text as their `labels`.

    Raises ValueError, saying what is wrong and where, for a file that is damaged or of another version or mechanism.
    Batches before the damage have been returned by then; `Aggregator.update_from_file` adds all of a file or nothing.

    Examples:
        >>> import tempfile, numpy as np, sstq
        >>> mechanism = sstq.FrameUnit(dim=3, epsilon=2.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     count = write_messages(f"{folder}/day1.sstq", [mechanism.encode(np.zeros((5, 3)))])
        ...     [len(batch) for batch in read_messages(f"{folder}/day1.sstq", mechanism)]
        [5]
    """
    with open_file(path) as file:
        form = _format_of(file)
        info = form.describe(file) if info is None else info
        if info.digest != mechanism.digest():
            digests = f"digest {info.digest[:16]}…, expected {mechanism.digest()[:16]}…"
            raise ValueError(f"{file.name} holds messages of another mechanism: {digests}")
        if by is not None and form is framed:
            raise ValueError(f"{file.name} has no column {by!r}: only Parquet files have columns beside the messages")
        yield from form.read(file, mechanism, info, by) if form is parquet else form.read(file, mechanism, info)


def describe_messages(path: str | os.PathLike[str]) -> MessageFileInfo:
    """Read the description of a message file, recognised by its content; ValueError for anything else or damaged."""
    with open_file(path) as file:
        info: MessageFileInfo = _format_of(file).describe(file)
        return info


def _format_of(file: BinaryIO) -> ModuleType:
    start = file.read(8)
    file.seek(0)
    for form in FORMATS:
        if start.startswith(form.MAGIC):
            if form is framed and is_remote(file.name):
                raise ValueError(f"{file.name} must be Parquet to be read from an object store, got a framed file")
            return form
    raise ValueError(f"{file.name} is not a message file: unknown header")
