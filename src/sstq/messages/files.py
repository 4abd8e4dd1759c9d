"""Files of messages: our own framed form, and Parquet through the [data] extra.

The framed form, version 1, all integers little-endian:

======  =====  ==============================================================================
offset  bytes  what
======  =====  ==============================================================================
0       8      magic: 0x8f "SSTQ" CR LF 0x1a, which a transfer in text mode would break
8       2      version, 1
10      2      flags: 1 = simulated (from a seed, not private), 2 = client identifiers included
12      4      bits of one message
16      8      number of messages
24      32     digest of the mechanism
56      16     identifier of the file, drawn at random when it is written
72      4      messages a block: as many as fit in 16 MiB, at most 2^20
76      4      CRC-32 of bytes 0–75
======  =====  ==============================================================================

Then blocks, all full but the last: the client identifiers if included (8 bytes each), the packed messages
(`sstq.messages.batch`), and the CRC-32 of the block's number (8 bytes) followed by the block's data. The size of the
file follows from its header, so that nothing can be missing or added at the end.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from sstq.files.atomic import atomic_file
from sstq.messages.batch import Messages
from sstq.messages.layouts import Column, Layout

__all__ = ["MessageFileInfo", "MessageReader", "block_messages", "describe_messages", "read_messages", "write_messages"]

MAGIC = b"\x8fSSTQ\r\n\x1a"
VERSION = 1
BLOCK_MESSAGES, BLOCK_BITS = 1 << 20, 1 << 27
_HEADER = struct.Struct("<8sHHIQ32s16sI")
_CRC = struct.Struct("<I")
_HEADER_BYTES = _HEADER.size + _CRC.size
_SIMULATED, _WITH_CLIENTS = 1, 2
_PARQUET_MAGIC = b"PAR1"


def block_messages(message_bits: int) -> int:
    """The messages that are read and written at a time: as many as fit in 16 MiB, but not more than 2^20.

    Examples:
        >>> block_messages(20), block_messages(1 << 20)
        (1048576, 128)
    """
    return max(1, min(BLOCK_MESSAGES, BLOCK_BITS // message_bits))


class MessageReader(Protocol):
    """What reading needs of a mechanism."""

    @property
    def layout(self) -> Layout:
        """The fields of its messages."""
        ...

    def digest(self) -> str:
        """Its fingerprint."""
        ...

    def messages_from_columns(
        self, columns: tuple[Column, ...], clients: NDArray[np.uint64] | None, simulated: bool
    ) -> Messages:
        """Checked messages from the values of their fields."""
        ...


@dataclass(frozen=True)
class MessageFileInfo:
    """What the header of a message file says.

    `file_id` tells whether a file is another one: two clients may well send the same few bits, so that two different
    files may have the same messages.
    """

    kind: str
    version: int
    digest: str
    count: int
    message_bits: int
    simulated: bool
    with_clients: bool
    block_messages: int
    file_id: str


def write_messages(path: str | os.PathLike[str], batches: Messages | Iterable[Messages]) -> int:
    """Write batches of messages of one mechanism to a file, Parquet if its name ends in .parquet; returns their number.

    The file appears whole or not at all. Messages in clear can be read by the file's owner only.
    """
    iterator = iter([batches] if isinstance(batches, Messages) else batches)
    first = next(iterator, None)
    if first is None:
        raise ValueError("there is no message to write")
    batches = chain([first], iterator)
    if Path(path).suffix.lower() in (".parquet", ".pq"):
        from sstq.messages import parquet as parquet_files

        return parquet_files.write(path, batches)
    with atomic_file(path, private=first.in_clear) as file:
        return _write_framed(file, batches)


def read_messages(path: str | os.PathLike[str], mechanism: MessageReader) -> Iterator[Messages]:
    """The messages of a file, a batch at a time in bounded memory.

    Raises ValueError, saying what is wrong and where, for a file that is truncated, too long, damaged, of another
    version or of another mechanism. Batches before the damage have been handed out by then: to add all of a file or
    nothing, use `sstq.aggregation.Aggregator.update_from_file`.
    """
    info = describe_messages(path)
    name = os.fspath(path)
    if info.digest != mechanism.digest():
        raise ValueError(
            f"{name} holds messages of another mechanism: "
            f"digest {info.digest[:16]}…, expected {mechanism.digest()[:16]}…"
        )
    if info.kind == "parquet":
        from sstq.messages import parquet as parquet_files

        yield from parquet_files.read(path, mechanism, info)
    else:
        yield from _read_framed(path, mechanism, info)


def describe_messages(path: str | os.PathLike[str]) -> MessageFileInfo:
    """What a message file says of itself; ValueError if it is not one, or its header is damaged.

    The form is recognised by the content, whatever the file's name.
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        header = file.read(_HEADER_BYTES)
        size = os.fstat(file.fileno()).st_size
    if header.startswith(_PARQUET_MAGIC):
        from sstq.messages import parquet as parquet_files

        return parquet_files.describe(path)
    if header[: len(MAGIC)] != MAGIC:
        raise ValueError(f"{name} is not a file of SSTQ messages: it begins with neither magic, ours or Parquet's")
    if len(header) < _HEADER_BYTES:
        raise ValueError(f"{name} is truncated in its header: {_HEADER_BYTES} bytes expected, got {len(header)}")
    _, version, flags, message_bits, count, digest, file_id, block = _HEADER.unpack(header[: _HEADER.size])
    if version != VERSION:
        raise ValueError(f"{name} has version {version} of the message format, this library reads version {VERSION}")
    if _CRC.unpack(header[_HEADER.size :])[0] != zlib.crc32(header[: _HEADER.size]):
        raise ValueError(f"{name} is damaged: the checksum of its header (bytes 0–{_HEADER.size - 1}) does not match")
    possible = message_bits >= 1 and 1 <= block <= block_messages(message_bits)
    if not (possible and flags <= _SIMULATED | _WITH_CLIENTS):
        raise ValueError(f"{name} has an impossible header: flags {flags}, {message_bits} bits, blocks of {block}")
    info = MessageFileInfo(
        kind="framed",
        version=version,
        digest=digest.hex(),
        count=count,
        message_bits=message_bits,
        simulated=bool(flags & _SIMULATED),
        with_clients=bool(flags & _WITH_CLIENTS),
        block_messages=block,
        file_id=file_id.hex(),
    )
    expected = _file_bytes(info)
    if size != expected:
        problem = "truncated" if size < expected else "too long"
        raise ValueError(f"{name} is {problem}: {count} messages take {expected} bytes, the file has {size}")
    return info


def _write_framed(file: BinaryIO, batches: Iterable[Messages]) -> int:
    file.write(bytes(_HEADER_BYTES))
    first: Messages | None = None
    count, simulated = 0, False
    for number, block in enumerate(_regroup(batches)):
        first = first or block
        if block.digest != first.digest:
            raise ValueError(
                f"a file holds messages of one mechanism, got {first.digest[:16]}… and {block.digest[:16]}…"
            )
        identifiers = b"" if block.clients is None else block.clients.astype("<u8").tobytes()
        data = identifiers + block.to_bytes()
        file.write(data)
        file.write(_CRC.pack(_block_checksum(number, data)))
        count += len(block)
        simulated |= block.simulated
    if first is None:
        raise ValueError("there is no message to write")
    flags = _SIMULATED * simulated | _WITH_CLIENTS * (first.clients is not None)
    width = first.layout.message_bits
    file_id = os.urandom(16)
    digest = bytes.fromhex(first.digest)
    header = _HEADER.pack(MAGIC, VERSION, flags, width, count, digest, file_id, block_messages(width))
    file.seek(0)
    file.write(header + _CRC.pack(zlib.crc32(header)))
    return count


def _read_framed(path: str | os.PathLike[str], mechanism: MessageReader, info: MessageFileInfo) -> Iterator[Messages]:
    name = os.fspath(path)
    layout = mechanism.layout
    if info.message_bits != layout.message_bits:
        raise ValueError(f"{name} has messages of {info.message_bits} bits, the mechanism's have {layout.message_bits}")
    with open(path, "rb") as file:
        file.seek(_HEADER_BYTES)
        for number, size in enumerate(_block_sizes(info.count, info.block_messages)):
            place = f"{name}, block {number} at byte {file.tell()}"
            data = file.read(_block_bytes(info, size))
            checksum = file.read(_CRC.size)
            if len(checksum) < _CRC.size:
                raise ValueError(f"{place}: the file ended early")
            if _CRC.unpack(checksum)[0] != _block_checksum(number, data):
                raise ValueError(f"{place}: damaged, the checksum does not match")
            clients = None
            if info.with_clients:
                clients = np.frombuffer(data[: 8 * size], dtype="<u8").astype(np.uint64)
                data = data[8 * size :]
            try:
                yield mechanism.messages_from_columns(layout.unpack(data, size), clients, info.simulated)
            except ValueError as error:
                raise ValueError(f"{place}: {error}") from error


def _file_bytes(info: MessageFileInfo) -> int:
    full, rest = divmod(info.count, info.block_messages)
    blocks = full * (_block_bytes(info, info.block_messages) + _CRC.size)
    return _HEADER_BYTES + blocks + (_block_bytes(info, rest) + _CRC.size if rest else 0)


def _block_sizes(count: int, block: int) -> Iterator[int]:
    for start in range(0, count, block):
        yield min(block, count - start)


def _block_bytes(info: MessageFileInfo, messages: int) -> int:
    identifiers = 8 * messages if info.with_clients else 0
    return identifiers + -(-messages * info.message_bits // 8)


def _block_checksum(number: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(struct.pack("<Q", number)))


def _regroup(batches: Iterable[Messages]) -> Iterator[Messages]:
    """The same messages in groups of exactly one block, but for the last."""
    held: list[Messages] = []
    length, size = 0, 0
    for batch in batches:
        size = size or block_messages(batch.layout.message_bits)
        while length + len(batch) >= size:
            head, batch = batch[: size - length], batch[size - length :]
            yield Messages.concatenate([*held, head])
            held, length = [], 0
        if len(batch):
            held.append(batch)
            length += len(batch)
    if held:
        yield Messages.concatenate(held)
