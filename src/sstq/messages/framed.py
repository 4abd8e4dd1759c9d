"""The framed format of message files, version 1; all integers are little-endian.

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
72      4      messages per block: as many as fit in 16 MiB, at most 2^20
76      4      CRC-32 of bytes 0–75
======  =====  ==============================================================================

Then blocks, all full but the last: the client identifiers if included (8 bytes each), the packed messages
(`sstq.messages.layouts`), and the CRC-32 of the block's number (8 bytes) followed by the block's data. The size of the
file follows from its header, so nothing can be missing or added at the end. Public labels need Parquet.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from sstq.messages.batch import BLOCK_BITS, BLOCK_MESSAGES, MessageReader, Messages, block_messages

MAGIC = b"\x8fSSTQ\r\n\x1a"
VERSION = 1
_HEADER = struct.Struct("<8sHHIQ32s16sI")
_CRC_BYTES = 4
_HEADER_BYTES = _HEADER.size + _CRC_BYTES
_SIMULATED, _WITH_CLIENTS = 1, 2


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
    if width < 1 or not sound or flags > _SIMULATED | _WITH_CLIENTS:
        raise ValueError(f"{name} has an invalid header: flags {flags}, {width} bits, blocks of {block}")
    simulated, with_clients = bool(flags & _SIMULATED), bool(flags & _WITH_CLIENTS)
    identity = (digest.hex(), count, width, simulated, with_clients, block, file_id.hex())
    info = MessageFileInfo("framed", version, *identity)
    full, rest = divmod(count, block)
    expected = _HEADER_BYTES + full * (_block_bytes(info, block) + _CRC_BYTES)
    expected += _block_bytes(info, rest) + _CRC_BYTES if rest else 0
    if size != expected:
        problem = "truncated" if size < expected else "too long"
        raise ValueError(f"{name} is {problem}: {count} messages take {expected} bytes, the file has {size}")
    return info


def write(file: BinaryIO, blocks: Iterable[Messages]) -> int:
    """Write messages of one mechanism, in whole blocks; returns their number."""
    file.write(bytes(_HEADER_BYTES))
    count = 0
    for number, block in enumerate(blocks):
        clients = b"" if block.clients is None else block.clients.astype("<u8").tobytes()
        data = clients + block.to_bytes()
        file.write(data + _block_crc(number, data))
        count += len(block)
    flags = _SIMULATED * block.simulated | _WITH_CLIENTS * (block.clients is not None)
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
    file.seek(_HEADER_BYTES)
    for number, start in enumerate(range(0, info.count, info.block_messages)):
        rows = min(info.block_messages, info.count - start)
        place = f"{file.name}, block {number} at byte {file.tell()}"
        data, checksum = file.read(_block_bytes(info, rows)), file.read(_CRC_BYTES)
        if len(checksum) < _CRC_BYTES:
            raise ValueError(f"{place}: the file ended early")
        if checksum != _block_crc(number, data):
            raise ValueError(f"{place}: damaged, the checksum does not match")
        clients = None
        if info.with_clients:
            clients, data = np.frombuffer(data[: 8 * rows], dtype="<u8").astype(np.uint64), data[8 * rows :]
        try:
            yield mechanism.messages_from_columns(layout.unpack(data, rows), clients, info.simulated)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error


def _block_bytes(info: MessageFileInfo, messages: int) -> int:
    return 8 * info.with_clients * messages + -(-messages * info.message_bits // 8)


def _block_crc(number: int, data: bytes) -> bytes:
    return _crc(data, zlib.crc32(struct.pack("<Q", number)))


def _crc(data: bytes, before: int = 0) -> bytes:
    return struct.pack("<I", zlib.crc32(data, before))
