"""Reading and writing message files: Parquet (`sstq.messages.parquet`), and the framed format, version 1.

docs/formats.md has the framed format byte by byte: a header with a checksum, then blocks, all full but the last: the
packed messages (`sstq.messages.layouts`), and the CRC-32 of the block's number (8 bytes) followed by the block's data.
The size of the file follows from its header, so nothing can be missing or added at the end. Public labels need Parquet.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sstq.files.atomic import atomic_file
from sstq.files.parquet import MAGIC as PARQUET
from sstq.files.stores import open_object
from sstq.messages import parquet
from sstq.messages.batch import MessageReader, Messages

MAGIC = b"\x8fSSTQ\r\n\x1a"
VERSION = 1
_HEADER = struct.Struct("<8sHHIQ32s16sI")
_CRC_BYTES = 4
_HEADER_BYTES = _HEADER.size + _CRC_BYTES
_SIMULATED = 1
BLOCK_MESSAGES = 1 << 20
BLOCK_BITS = 1 << 27


def write_messages(
    path: str | os.PathLike[str],
    batches: Messages | Iterable[Messages],
    by: str | None = None,
) -> int:
    """Write batches of messages of one mechanism to a file, Parquet if its name ends in .parquet; returns their number.

    `by` names the column of Parquet that keeps the messages' public labels; without it they are left out.
    The file appears completely or not at all. Messages that are not private are readable only by the file's owner.

    Examples:
        >>> import tempfile, numpy as np, sstq
        >>> mechanism = sstq.FrameUnit(dim=3, epsilon=2.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_messages(f"{folder}/day1.sstq", [mechanism.encode(np.zeros((5, 3)))])
        5
    """
    blocks = _in_blocks([batches] if isinstance(batches, Messages) else batches)
    with atomic_file(path) as file:
        if Path(path).name.lower().endswith(parquet.SUFFIXES):
            return parquet.write(file, blocks, by)
        if by is not None:
            raise ValueError(
                f"path must end in .parquet for labels by {by}, got {os.fspath(path)}"
            )
        return _write_framed(file, blocks)


@dataclass(frozen=True)
class MessageFileInfo:
    """What a message file says of itself; a random `file_id` distinguishes files with the same messages."""

    kind: str
    version: int
    digest: str
    count: int
    message_bits: int
    simulated: bool
    file_id: str
    block_messages: int = 0


@dataclass(frozen=True)
class MessageFile:
    """An open message file and its description."""

    file: BinaryIO
    info: MessageFileInfo

    def read(
        self, mechanism: MessageReader, by: str | None = None
    ) -> Iterator[Messages]:
        """Iterate over the messages, as `read_messages` does."""
        name = self.file.name
        info = self.info
        if info.digest != mechanism.digest():
            digests = f"digest {info.digest[:16]}…, expected {mechanism.digest()[:16]}…"
            raise ValueError(f"{name} holds messages of another mechanism: {digests}")
        if info.kind == "parquet":
            size = block_messages(mechanism.layout.message_bits)
            return parquet.read(self.file, mechanism, info.simulated, size, by)
        if by is not None:
            raise ValueError(
                f"{name} has no column {by!r}: only Parquet files have columns beside the messages"
            )
        return _read_framed(self.file, mechanism, info)


@contextmanager
def open_messages(path: str | os.PathLike[str]) -> Iterator[MessageFile]:
    """Open a message file, recognised by its content; ValueError for anything else, or if it changes while open."""
    name = os.fspath(path)
    remote = "://" in name
    with open_object(name) if remote else open(name, "rb") as file:
        before = None if remote else os.fstat(file.fileno())
        start = file.read(8)
        file.seek(0)
        if start.startswith(PARQUET):
            yield MessageFile(file, MessageFileInfo("parquet", *parquet.describe(file)))
        elif start == MAGIC and not remote:
            yield MessageFile(file, _describe_framed(file))
        else:
            wanted = (
                "must be Parquet to be read from an object store"
                if remote
                else "is not a message file"
            )
            raise ValueError(f"{name} {wanted}: unknown header")
        after = before and os.fstat(file.fileno())
    if (
        before
        and after
        and (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns)
    ):
        raise ValueError(
            f"{name} changed while it was read; none of its messages were added"
        )


def read_messages(
    path: str | os.PathLike[str], mechanism: MessageReader, by: str | None = None
) -> Iterator[Messages]:
    """Iterate over the messages of a file, one batch at a time in bounded memory.

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
    with open_messages(path) as opened:
        yield from opened.read(mechanism, by)


def block_messages(message_bits: int) -> int:
    """The number of messages read or written at a time: as many as fit in 16 MiB, at most 2^20."""
    return max(1, min(BLOCK_MESSAGES, BLOCK_BITS // message_bits))


def _in_blocks(batches: Iterable[Messages]) -> Iterator[Messages]:
    """Group messages into blocks, all full but the last; ValueError if there are none, or not of one mechanism."""
    first: Messages | None = None
    waiting: list[Messages] = []
    length = 0
    for batch in filter(len, batches):
        first = first or batch
        if (batch.digest, batch.simulated) != (first.digest, first.simulated):
            raise ValueError(
                "a file must hold messages of one mechanism, either all simulated or none"
            )
        waiting.append(batch)
        length += len(batch)
        size = block_messages(first.layout.message_bits)
        while length >= size:
            together = Messages.concatenate(waiting)
            yield together[:size]
            waiting = [together[size:]]
            length -= size
    if first is None:
        raise ValueError("batches must contain at least one message")
    if length:
        yield Messages.concatenate(waiting)


def _describe_framed(file: BinaryIO) -> MessageFileInfo:
    """Read the header; ValueError if it is damaged, or if the file's length does not match it."""
    name = file.name
    header = file.read(_HEADER_BYTES)
    size = os.fstat(file.fileno()).st_size
    if len(header) < _HEADER_BYTES:
        raise ValueError(
            f"{name} is truncated in its header: {_HEADER_BYTES} bytes expected, got {len(header)}"
        )
    _, version, flags, width, count, digest, file_id, block = _HEADER.unpack_from(
        header
    )
    if version != VERSION:
        raise ValueError(
            f"{name} has version {version} of the message format; this library reads version {VERSION}"
        )
    if header[_HEADER.size :] != _crc(header[: _HEADER.size]):
        raise ValueError(
            f"{name} is damaged: the checksum of its header (bytes 0–{_HEADER.size - 1}) does not match"
        )
    sound = 1 <= block <= BLOCK_MESSAGES and (block == 1 or block * width <= BLOCK_BITS)
    if width < 1 or not sound or flags > _SIMULATED:
        raise ValueError(
            f"{name} has an invalid header: flags {flags}, {width} bits, blocks of {block}"
        )
    info = MessageFileInfo(
        "framed",
        version,
        digest.hex(),
        count,
        width,
        flags == _SIMULATED,
        file_id.hex(),
        block,
    )
    full, rest = divmod(count, block)
    expected = _HEADER_BYTES + full * (_block_bytes(info, block) + _CRC_BYTES)
    expected += _block_bytes(info, rest) + _CRC_BYTES if rest else 0
    if size != expected:
        problem = "truncated" if size < expected else "too long"
        raise ValueError(
            f"{name} is {problem}: {count} messages take {expected} bytes, the file has {size}"
        )
    return info


def _write_framed(file: BinaryIO, blocks: Iterable[Messages]) -> int:
    """Write whole blocks of messages; returns the number of messages."""
    file.write(bytes(_HEADER_BYTES))
    count = 0
    for number, block in enumerate(blocks):
        count += len(block)
        data = block.to_bytes()
        file.write(data + _block_crc(number, data))
    # All blocks are of one mechanism.
    width = block.layout.message_bits
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        _SIMULATED * block.simulated,
        width,
        count,
        bytes.fromhex(block.digest),
        os.urandom(16),
        block_messages(width),
    )
    file.seek(0)
    file.write(header + _crc(header))
    return count


def _read_framed(
    file: BinaryIO, mechanism: MessageReader, info: MessageFileInfo
) -> Iterator[Messages]:
    """Iterate over the messages, one block at a time; ValueError, with the position, for damage or bad values."""
    file.seek(_HEADER_BYTES)
    for number, start in enumerate(range(0, info.count, info.block_messages)):
        rows = min(info.block_messages, info.count - start)
        place = f"{file.name}, block {number} at byte {file.tell()}"
        data = file.read(_block_bytes(info, rows))
        checksum = file.read(_CRC_BYTES)
        if len(checksum) < _CRC_BYTES:
            raise ValueError(f"{place}: the file ended early")
        if checksum != _block_crc(number, data):
            raise ValueError(f"{place}: damaged, the checksum does not match")
        try:
            yield mechanism.messages_from_columns(
                mechanism.layout.unpack(data, rows), info.simulated
            )
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error


def _block_bytes(info: MessageFileInfo, messages: int) -> int:
    return -(-messages * info.message_bits // 8)


def _block_crc(number: int, data: bytes) -> bytes:
    return _crc(data, zlib.crc32(struct.pack("<Q", number)))


def _crc(data: bytes, before: int = 0) -> bytes:
    return struct.pack("<I", zlib.crc32(data, before))
