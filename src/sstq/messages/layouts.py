"""The fields of a message and their packing into bits without gaps.

A message is a few fields side by side, each one number or several. The first field stands in the lowest bits; message i
of a batch takes the bits [i·w, (i+1)·w) of the byte stream, w being the message's width and bit k of the stream being
bit k mod 8, least significant first, of byte k // 8. The bits left over in the last byte are zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq import kernels

__all__ = ["Column", "Field", "FloatField", "Layout"]

Column = NDArray[Any]

# The widest message that the bit-packing kernel takes in one piece.
_WORD_BITS = 64
# Messages are packed in blocks, of so many numbers that all of their copies on the way stay in the cache. In the worst
# case, messages wider than a word, every single bit is a number for a while.
_NUMBERS_A_BLOCK = 1 << 15
_BITS_A_BLOCK = 1 << 20


@dataclass(frozen=True)
class Field:
    """One or `count` unsigned integers of a message, each below `limit` ≤ 2^`bits`."""

    name: str
    bits: int
    limit: int
    count: int = 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned type that holds the field."""
        return np.min_scalar_type(self.limit - 1)

    @property
    def width(self) -> int:
        """The bits that the field takes in a message."""
        return self.bits * self.count

    def to_integers(self, column: Column) -> NDArray[np.uint64]:
        """The values as integers of `bits` bits, (n, count)."""
        return column.reshape(len(column), self.count).astype(np.uint64)

    def from_integers(self, values: NDArray[np.uint64], first: int = 0) -> Column:
        """The inverse; ValueError for a value that the field cannot have, in a message numbered from `first` on."""
        if self.limit < 1 << self.bits:
            self._refuse(values, values >= self.limit, f"must be below {self.limit}", first)
        return self._shaped(values.astype(self.dtype))

    def _refuse(self, values: NDArray[Any], bad: NDArray[np.bool_], requirement: str, first: int) -> None:
        if bad.any():
            row, entry = np.argwhere(bad)[0]
            raise ValueError(f"message {first + row}: {self.name} {requirement}, got {values[row, entry]}")

    def _shaped(self, values: Column) -> Column:
        return values[:, 0] if self.count == 1 else values


@dataclass(frozen=True)
class FloatField(Field):
    """`count` finite single-precision numbers of a message."""

    name: str
    bits: int = 32
    limit: int = 1 << 32
    count: int = 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Single precision."""
        return np.dtype(np.float32)

    def to_integers(self, column: Column) -> NDArray[np.uint64]:
        """The bit patterns of the numbers."""
        values = np.ascontiguousarray(column, dtype="<f4").reshape(len(column), self.count)
        return values.view("<u4").astype(np.uint64)

    def from_integers(self, values: NDArray[np.uint64], first: int = 0) -> Column:
        """The numbers of the bit patterns; ValueError unless they are finite."""
        numbers = values.astype("<u4").view("<f4").astype(np.float32)
        self._refuse(numbers, ~np.isfinite(numbers), "must be finite", first)
        return self._shaped(numbers)


@dataclass(frozen=True)
class Layout:
    """The fields of a message, from the lowest bits to the highest."""

    fields: tuple[Field, ...]

    @property
    def message_bits(self) -> int:
        """The width of one message."""
        return sum(field.width for field in self.fields)

    def pack(self, columns: tuple[Column, ...]) -> bytes:
        """The columns as bits without gaps."""
        count = len(columns[0])
        return b"".join(self._pack_block([column[block] for column in columns]) for block in self._blocks(count))

    def unpack(self, raw: bytes, count: int) -> tuple[Column, ...]:
        """The columns of `count` messages; ValueError where the bytes cannot be such messages."""
        if not isinstance(raw, bytes | bytearray | memoryview):
            raise ValueError(f"messages must be bytes, got {type(raw).__name__}")
        if count < 0:
            raise ValueError(f"count must not be negative, got {count}")
        expected = -(-count * self.message_bits // 8)
        if len(raw) != expected:
            problem = "truncated" if len(raw) < expected else "too long"
            raise ValueError(
                f"messages are {problem}: {count} messages of {self.message_bits} bits take {expected} bytes, "
                f"got {len(raw)}"
            )
        spare = 8 * expected - count * self.message_bits
        if spare and raw[-1] >> (8 - spare):
            raise ValueError(f"the last {spare} bits of the last byte (byte {expected - 1}) must be zero")
        data = np.frombuffer(raw, dtype=np.uint8)
        columns = self._empty(count)
        for block in self._blocks(count):
            first, last = block.start * self.message_bits // 8, -(-block.stop * self.message_bits // 8)
            integers = self._unpack_block(data[first:last], block.stop - block.start)
            for field, column, values in zip(self.fields, columns, integers, strict=True):
                column[block] = field.from_integers(values, block.start)
        return columns

    def empty(self) -> tuple[Column, ...]:
        """The columns of no message."""
        return self._empty(0)

    def _empty(self, count: int) -> tuple[Column, ...]:
        return tuple(np.empty((count, f.count) if f.count > 1 else count, dtype=f.dtype) for f in self.fields)

    def _blocks(self, count: int) -> Iterator[slice]:
        """Slices over the messages, each but the last of a multiple of eight, so that they end on whole bytes."""
        numbers = sum(field.count for field in self.fields)
        size = max(8, min(_NUMBERS_A_BLOCK // numbers, _BITS_A_BLOCK // self.message_bits) // 8 * 8)
        for start in range(0, count, size):
            yield slice(start, min(start + size, count))

    def _pack_block(self, columns: list[Column]) -> bytes:
        integers = [field.to_integers(column) for field, column in zip(self.fields, columns, strict=True)]
        if self.message_bits <= _WORD_BITS:
            return kernels.pack_bits(self._joined(integers), self.message_bits).tobytes()
        if self._whole_bytes:
            return self._pack_bytes(integers)
        return self._pack_single_bits(integers)

    def _unpack_block(self, data: NDArray[np.uint8], count: int) -> list[NDArray[np.uint64]]:
        if self.message_bits <= _WORD_BITS:
            return self._split(kernels.unpack_bits(data, count, self.message_bits))
        if self._whole_bytes:
            return self._unpack_bytes(data.reshape(count, self.message_bits // 8))
        return self._unpack_single_bits(data, count)

    @property
    def _whole_bytes(self) -> bool:
        return all(field.bits % 8 == 0 for field in self.fields)

    def _joined(self, integers: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
        joined = np.zeros(len(integers[0]), dtype=np.uint64)
        shift = 0
        for field, values in zip(self.fields, integers, strict=True):
            for entry in values.T:
                joined |= entry << np.uint64(shift)
                shift += field.bits
        return joined

    def _split(self, joined: NDArray[np.uint64]) -> list[NDArray[np.uint64]]:
        integers = []
        for field in self.fields:
            entries = np.empty((len(joined), field.count), dtype=np.uint64)
            mask = np.uint64((1 << field.bits) - 1)
            for entry in entries.T:
                entry[:] = joined & mask
                # A shift by 64 is undefined; there is nothing left to shift then.
                joined = joined >> np.uint64(field.bits) if field.bits < _WORD_BITS else joined
            integers.append(entries)
        return integers

    def _pack_bytes(self, integers: list[NDArray[np.uint64]]) -> bytes:
        pieces = []
        for field, values in zip(self.fields, integers, strict=True):
            eight_bytes = values.astype("<u8", order="C").view(np.uint8).reshape(*values.shape, 8)
            pieces.append(eight_bytes[:, :, : field.bits // 8].reshape(len(values), field.width // 8))
        return np.concatenate(pieces, axis=1).tobytes()

    def _unpack_bytes(self, data: NDArray[np.uint8]) -> list[NDArray[np.uint64]]:
        integers, start = [], 0
        for field in self.fields:
            width = field.bits // 8
            piece = data[:, start : start + width * field.count].reshape(len(data), field.count, width)
            padded = np.zeros((len(data), field.count, 8), dtype=np.uint8)
            padded[:, :, :width] = piece
            integers.append(padded.view("<u8")[:, :, 0].astype(np.uint64))
            start += width * field.count
        return integers

    def _pack_single_bits(self, integers: list[NDArray[np.uint64]]) -> bytes:
        bits = []
        for field, values in zip(self.fields, integers, strict=True):
            single = values[:, :, None] >> np.arange(field.bits, dtype=np.uint64) & np.uint64(1)
            bits.append(single.reshape(len(values), field.width))
        return np.packbits(np.concatenate(bits, axis=1).astype(np.uint8), bitorder="little").tobytes()

    def _unpack_single_bits(self, data: NDArray[np.uint8], count: int) -> list[NDArray[np.uint64]]:
        bits = np.unpackbits(data, count=count * self.message_bits, bitorder="little").reshape(count, -1)
        integers, place = [], 0
        for field in self.fields:
            entries = bits[:, place : place + field.width].reshape(count, field.count, field.bits).astype(np.uint64)
            weights = np.uint64(1) << np.arange(field.bits, dtype=np.uint64)
            integers.append(entries @ weights)
            place += field.width
        return integers
