"""The framed format of message files, version 1; all integers are little-endian.

======  =====  ==============================================================================
offset  bytes  what
======  =====  ==============================================================================
0       8      magic: 0x8f "SSTQ" CR LF 0x1a, which a transfer in text mode would break
8       2      version, 1
10      2      flags: 1 = simulated (from a seed, not private), 2 = client identifiers, 4 = labels included
12      4      bits of one message
16      8      number of messages
24      32     digest of the mechanism
56      16     identifier of the file, drawn at random when it is written
72      4      messages per block: as many as fit in 16 MiB, at most 2^20
76      4      CRC-32 of bytes 0–75
======  =====  ==============================================================================

Then blocks, all full but the last: the client identifiers if included (8 bytes each), the numbers of the labels if
included (4 bytes each), the packed messages (`sstq.messages.layouts`), and the CRC-32 of the block's number (8 bytes)
followed by the block's data. With labels the file ends in their table, the JSON {"column": …, "names": […]}, the
length of that (8 bytes), and the CRC-32 of both. The size of the file follows from its header and the table's length,
so nothing can be missing or added at the end.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np

from sstq.files.strict_json import read_json
from sstq.messages.batch import BLOCK_BITS, BLOCK_MESSAGES, MessageReader, Messages, block_messages
from sstq.messages.labels import Labels, check_name

MAGIC = b"\x8fSSTQ\r\n\x1a"
VERSION = 1
_HEADER = struct.Struct("<8sHHIQ32s16sI")
_CRC_BYTES = 4
_HEADER_BYTES = _HEADER.size + _CRC_BYTES
_SIMULATED, _WITH_CLIENTS, _WITH_LABELS = 1, 2, 4
_TABLE_END = struct.Struct("<Q")


@dataclass(frozen=True)
class MessageFileInfo:
    """The header of a message file; a random `file_id` distinguishes files with the same messages."""

    kind: str
    version: int
    digest: str
    count: int
    message_bits: int
    simulated: bool
    with_clients: bool
    block_messages: int
    file_id: str
    label_column: str | None = None


def describe(file: BinaryIO) -> MessageFileInfo:
    """Read the header; ValueError if it is damaged, or if the file's length does not match it."""
    name = file.name
    header = file.read(_HEADER_BYTES)
    size = os.fstat(file.fileno()).st_size
    if len(header) < _HEADER_BYTES:
        raise ValueError(f"{name} is truncated in its header: {_HEADER_BYTES} bytes expected, got {len(header)}")
    _, version, flags, width, count, digest, file_id, block = _HEADER.unpack_from(header)
    if version != VERSION:
        raise ValueError(f"{name} has version {version} of the message format; this library reads version {VERSION}")
    if header[_HEADER.size :] != _crc(header[: _HEADER.size]):
        raise ValueError(f"{name} is damaged: the checksum of its header (bytes 0–{_HEADER.size - 1}) does not match")
    sound = 1 <= block <= BLOCK_MESSAGES and (block == 1 or block * width <= BLOCK_BITS)
    if width < 1 or not sound or flags > _SIMULATED | _WITH_CLIENTS | _WITH_LABELS:
        raise ValueError(f"{name} has an invalid header: flags {flags}, {width} bits, blocks of {block}")
    simulated, with_clients = bool(flags & _SIMULATED), bool(flags & _WITH_CLIENTS)
    column, _, table_bytes = _read_table(file) if flags & _WITH_LABELS else (None, (), 0)
    identity = (digest.hex(), count, width, simulated, with_clients, block, file_id.hex())
    info = MessageFileInfo("framed", version, *identity, label_column=column)
    full, rest = divmod(count, block)
    expected = _HEADER_BYTES + full * (_block_bytes(info, block) + _CRC_BYTES)
    expected += _block_bytes(info, rest) + _CRC_BYTES if rest else 0
    expected += table_bytes
    if size != expected:
        problem = "truncated" if size < expected else "too long"
        raise ValueError(f"{name} is {problem}: {count} messages take {expected} bytes, the file has {size}")
    return info


def write(file: BinaryIO, blocks: Iterable[Messages]) -> int:
    """Write messages of one mechanism, in whole blocks; returns their number."""
    file.write(bytes(_HEADER_BYTES))
    count, table = 0, dict[str, int]()
    for number, block in enumerate(blocks):
        clients = b"" if block.clients is None else block.clients.astype("<u8").tobytes()
        labels = b"" if block.labels is None else block.labels.codes_in(table).astype("<u4").tobytes()
        data = clients + labels + block.to_bytes()
        file.write(data + _block_crc(number, data))
        count += len(block)
    if block.label_column is not None:
        names = json.dumps({"column": block.label_column, "names": [*table]}, ensure_ascii=False).encode()
        ended = names + _TABLE_END.pack(len(names))
        file.write(ended + _crc(ended))
    flags = _SIMULATED * block.simulated | _WITH_CLIENTS * (block.clients is not None)
    flags |= _WITH_LABELS * (block.labels is not None)
    width, digest = block.layout.message_bits, bytes.fromhex(block.digest)
    header = _HEADER.pack(MAGIC, VERSION, flags, width, count, digest, os.urandom(16), block_messages(width))
    file.seek(0)
    file.write(header + _crc(header))
    return count


def read(file: BinaryIO, mechanism: MessageReader, info: MessageFileInfo) -> Iterator[Messages]:
    """Iterate over the messages, one block at a time; ValueError, with the position, for damage or bad values."""
    layout, width = mechanism.layout, info.message_bits
    if width != layout.message_bits:
        raise ValueError(f"{file.name} has messages of {width} bits, the mechanism's have {layout.message_bits}")
    column, names, _ = _read_table(file) if info.label_column is not None else ("", (), 0)
    file.seek(_HEADER_BYTES)
    for number, start in enumerate(range(0, info.count, info.block_messages)):
        rows = min(info.block_messages, info.count - start)
        place = f"{file.name}, block {number} at byte {file.tell()}"
        data, checksum = file.read(_block_bytes(info, rows)), file.read(_CRC_BYTES)
        if len(checksum) < _CRC_BYTES:
            raise ValueError(f"{place}: the file ended early")
        if checksum != _block_crc(number, data):
            raise ValueError(f"{place}: damaged, the checksum does not match")
        clients = codes = None
        if info.with_clients:
            clients, data = np.frombuffer(data[: 8 * rows], dtype="<u8").astype(np.uint64), data[8 * rows :]
        if info.label_column is not None:
            codes, data = np.frombuffer(data[: 4 * rows], dtype="<u4").astype(np.uint32), data[4 * rows :]
            if codes.max() >= len(names):
                raise ValueError(f"{place}: labels must be below {len(names)}, got {codes.max()}")
        try:
            messages = mechanism.messages_from_columns(layout.unpack(data, rows), clients, info.simulated)
            yield messages if codes is None else replace(messages, labels=Labels(column, names, codes))
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error


def _read_table(file: BinaryIO) -> tuple[str, tuple[str, ...], int]:
    """Read the table of labels at the end of a file: its column, its names, and its size in bytes."""
    size, end = os.fstat(file.fileno()).st_size, _TABLE_END.size + _CRC_BYTES
    damaged = f"{file.name} is truncated or damaged: its table of labels"
    file.seek(max(_HEADER_BYTES, size - end))
    tail = file.read(end)
    length = _TABLE_END.unpack_from(tail)[0] if len(tail) == end else size
    if length > size - end - _HEADER_BYTES:
        raise ValueError(f"{damaged} is missing")
    file.seek(size - end - length)
    ended = file.read(length + _TABLE_END.size)
    if tail[_TABLE_END.size :] != _crc(ended):
        raise ValueError(f"{damaged} does not match its checksum")
    try:
        table = read_json(ended[:length])
        column, names = table["column"], tuple(table["names"])
        names = tuple(check_name(name, "labels", f"place {place}") for place, name in enumerate(names))
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{damaged} cannot be read: {error}") from error
    return str(column), names, length + end


def _block_bytes(info: MessageFileInfo, messages: int) -> int:
    beside = 8 * info.with_clients + 4 * (info.label_column is not None)
    return beside * messages + -(-messages * info.message_bits // 8)


def _block_crc(number: int, data: bytes) -> bytes:
    return _crc(data, zlib.crc32(struct.pack("<Q", number)))


def _crc(data: bytes, before: int = 0) -> bytes:
    return struct.pack("<I", zlib.crc32(data, before))
