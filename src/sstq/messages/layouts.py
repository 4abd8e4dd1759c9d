"""The fields of a message, and packing them into bits without gaps.

A message is a few fields side by side, each one number or several. The first field stands in the lowest bits; message i
of a batch takes the bits [i·w, (i+1)·w) of the byte stream, w being the message's width and bit k of the stream being
bit k mod 8, least significant first, of byte k // 8. The bits left over in the last byte are zero.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]

# The widest message that lies in the eight bytes from its first bit on, wherever in a byte that is.
_NARROW_BITS = 57
# Messages are packed in blocks that stay in the cache.
_NUMBERS_A_BLOCK, _BITS_A_BLOCK = 1 << 15, 1 << 20


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

    def shape(self, rows: int) -> tuple[int, ...]:
        """The shape of the column for this many messages."""
        return (rows,) if self.count == 1 else (rows, self.count)

    def check(self, values: NDArray[Any], first: int = 0) -> None:
        """Raise ValueError for values, (n, count), that the field cannot have; messages count from `first` on."""
        bad, allowed = self._impossible(values)
        if bad.any():
            row, entry = np.argwhere(bad)[0]
            raise ValueError(f"message {first + row}: {self.name} must be {allowed}, got {values[row, entry]}")

    def _impossible(self, values: NDArray[Any]) -> tuple[NDArray[np.bool_], str]:
        return (values < 0) | (values >= self.limit), f"in [0, {self.limit})"

    def to_integers(self, column: Column) -> NDArray[np.uint64]:
        """Convert values to integers of `bits` bits, (n, count)."""
        return column.reshape(len(column), self.count).astype(np.uint64)

    def from_integers(self, values: NDArray[np.uint64], first: int = 0) -> NDArray[Any]:
        """Convert integers of `bits` bits back to values, (n, count); ValueError for an invalid value."""
        if self.limit < 1 << self.bits:
            self.check(values, first)
        return values.astype(self.dtype)


@dataclass(frozen=True)
class FloatField(Field):
    """`count` finite single-precision numbers of a message."""

    bits: int = 32
    limit: int = 1 << 32

    @property
    def dtype(self) -> np.dtype[Any]:
        """Single precision."""
        return np.dtype(np.float32)

    def _impossible(self, values: NDArray[Any]) -> tuple[NDArray[np.bool_], str]:
        return ~np.isfinite(values), "finite"

    def to_integers(self, column: Column) -> NDArray[np.uint64]:
        """Return the bit patterns of the numbers."""
        return np.ascontiguousarray(column, "<f4").reshape(len(column), self.count).view("<u4").astype(np.uint64)

    def from_integers(self, values: NDArray[np.uint64], first: int = 0) -> NDArray[Any]:
        """Return the numbers of the bit patterns; ValueError unless they are finite."""
        numbers = values.astype("<u4").view("<f4").astype(np.float32)
        self.check(numbers, first)
        return numbers


@dataclass(frozen=True)
class Layout:
    """The fields of a message, from the lowest bits to the highest."""

    fields: tuple[Field, ...]
    message_bits: int = dataclasses.field(init=False, compare=False)
    """The width of one message in bits."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message_bits", sum(one.bits * one.count for one in self.fields))

    def empty(self, count: int = 0) -> tuple[Column, ...]:
        """Allocate columns for this many messages, without values."""
        return tuple(np.empty(field.shape(count), dtype=field.dtype) for field in self.fields)

    def pack(self, columns: tuple[Column, ...]) -> bytes:
        """Pack the columns into bits without gaps."""
        packed = []
        for block in self._blocks(len(columns[0])):
            integers = [f.to_integers(column[block]) for f, column in zip(self.fields, columns, strict=True)]
            packed.append(self._pack_block(integers))
        return b"".join(packed)

    def unpack(self, raw: bytes, count: int) -> tuple[Column, ...]:
        """Unpack the columns of `count` messages; ValueError if the bytes cannot be such messages."""
        if not isinstance(raw, bytes | bytearray | memoryview):
            raise ValueError(f"messages must be bytes, got {type(raw).__name__}")
        width = self.message_bits
        expected = -(-count * width // 8)
        if len(raw) != expected:
            problem = "truncated" if len(raw) < expected else "too long"
            size = f"{count} messages of {width} bits take {expected} bytes"
            raise ValueError(f"messages are {problem}: {size}, got {len(raw)}")
        spare = 8 * expected - count * width
        if spare and raw[-1] >> (8 - spare):
            raise ValueError(f"the last {spare} bits of the last byte (byte {expected - 1}) must be zero")
        data = np.frombuffer(raw, dtype=np.uint8)
        columns = self.empty(count)
        unpack = self._unpack_narrow if width <= _NARROW_BITS else self._unpack_wide
        for block in self._blocks(count):
            rows = block.stop - block.start
            integers = unpack(data[block.start * width // 8 : -(-block.stop * width // 8)], rows)
            for field, column, values in zip(self.fields, columns, integers, strict=True):
                column[block] = field.from_integers(values, block.start).reshape(field.shape(rows))
        return columns

    def _blocks(self, count: int) -> list[slice]:
        """Slices over the messages, all but the last with a multiple of eight, so that they end on whole bytes."""
        numbers = sum(field.count for field in self.fields)
        size = max(8, min(_NUMBERS_A_BLOCK // numbers, _BITS_A_BLOCK // self.message_bits) // 8 * 8)
        return [slice(start, min(start + size, count)) for start in range(0, count, size)]

    def _unpack_narrow(self, data: NDArray[np.uint8], count: int) -> list[NDArray[np.uint64]]:
        width, groups = self.message_bits, -(-count // 8)
        padded = np.zeros(groups * width + 8, dtype=np.uint8)
        padded[: len(data)] = data
        messages = np.empty((groups, 8), dtype=np.uint64)
        for place in range(8):  # eight messages take `width` bytes: those of one place begin at the same bit of a byte
            byte, shift = divmod(place * width, 8)
            messages[:, place] = np.ndarray(groups, "<u8", padded, byte, (width,)) >> np.uint64(shift)
        joined, integers = messages.reshape(-1)[:count], []
        for field in self.fields:
            entries = np.empty((count, field.count), dtype=np.uint64)
            mask = np.uint64((1 << field.bits) - 1)
            for entry in entries.T:
                entry[:] = joined & mask
                joined = joined >> np.uint64(field.bits)
            integers.append(entries)
        return integers

    @property
    def _digit_bits(self) -> int:
        """Split wide messages into bytes if all of their fields are whole bytes, otherwise into bits."""
        return 8 if all(field.bits % 8 == 0 for field in self.fields) else 1

    def _pack_block(self, integers: list[NDArray[np.uint64]]) -> bytes:
        pieces = []
        for field, values in zip(self.fields, integers, strict=True):
            digits = values.astype("<u8", order="C").view(np.uint8).reshape(*values.shape, 8)
            digits = digits[:, :, : -(-field.bits // 8)]
            if self._digit_bits == 1:
                digits = np.unpackbits(digits, axis=2, count=field.bits, bitorder="little")
            pieces.append(digits.reshape(len(values), -1))
        joined = np.concatenate(pieces, axis=1)
        return (joined if self._digit_bits == 8 else np.packbits(joined, bitorder="little")).tobytes()

    def _unpack_wide(self, data: NDArray[np.uint8], count: int) -> list[NDArray[np.uint64]]:
        size, bits = self._digit_bits, count * self.message_bits
        joined = (data if size == 8 else np.unpackbits(data, count=bits, bitorder="little")).reshape(count, -1)
        integers, place = [], 0
        for field in self.fields:
            end = place + field.bits * field.count // size
            digits = joined[:, place:end].reshape(count, field.count, field.bits // size)
            place = end
            if size == 1:  # packbits is slow for a few bits each
                integers.append(digits.astype(np.uint64) @ (np.uint64(1) << np.arange(field.bits, dtype=np.uint64)))
                continue
            whole = np.zeros((count, field.count, 8), dtype=np.uint8)
            whole[:, :, : digits.shape[2]] = digits
            integers.append(whole.view("<u8")[:, :, 0].astype(np.uint64))
        return integers
