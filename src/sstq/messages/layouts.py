"""The fields of a message, and packing them into bits without gaps.

A message is a few fields side by side, each one number or several. The first field stands in the lowest bits; message i
of a batch takes the bits [i·w, (i+1)·w) of the byte stream, w being the message's width and bit k of the stream being
bit k mod 8, least significant first, of byte k // 8. The bits left over in the last byte are zero.
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.array_types import Bools, Words

Column = NDArray[Any]
# Numbers, their bits, the byte and its bit where the first begins, and the bytes from one row and entry to the next.
_Lane = tuple[Words, int, int, int, tuple[int, int]]

# Messages are packed in blocks that stay in the cache.
_NUMBERS_PER_BLOCK = 1 << 17


@dataclass(frozen=True)
class Field:
    """One or `count` unsigned integers of a message, each below `limit`."""

    name: str
    limit: int
    count: int = 1

    @property
    def bits(self) -> int:
        """The width of one integer."""
        return (self.limit - 1).bit_length()

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
            raise ValueError(
                f"message {first + row}: {self.name} must be {allowed}, got {values[row, entry]}"
            )

    def _impossible(self, values: NDArray[Any]) -> tuple[Bools, str]:
        return (values < 0) | (values >= self.limit), f"in [0, {self.limit})"

    def to_integers(self, column: Column) -> Words:
        """Convert values to integers of `bits` bits, (n, count)."""
        return column.reshape(len(column), self.count).astype(np.uint64)

    def from_integers(self, values: Words, first: int = 0) -> NDArray[Any]:
        """Convert integers of `bits` bits back to values, (n, count); ValueError for an invalid value."""
        if self.limit < 1 << self.bits:
            self.check(values, first)
        return values.astype(self.dtype)


@dataclass(frozen=True)
class FloatField(Field):
    """`count` finite single-precision numbers of a message."""

    limit: int = 1 << 32

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers: single precision."""
        return np.dtype(np.float32)

    def _impossible(self, values: NDArray[Any]) -> tuple[Bools, str]:
        return ~np.isfinite(values), "finite"

    def to_integers(self, column: Column) -> Words:
        """Return the bit patterns of the numbers."""
        return (
            np.ascontiguousarray(column, "<f4")
            .reshape(len(column), self.count)
            .view("<u4")
            .astype(np.uint64)
        )

    def from_integers(self, values: Words, first: int = 0) -> NDArray[Any]:
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
        object.__setattr__(
            self, "message_bits", sum(one.bits * one.count for one in self.fields)
        )

    @property
    def names(self) -> list[str]:
        """The names of the fields."""
        return [field.name for field in self.fields]

    def empty(self, count: int = 0) -> tuple[Column, ...]:
        """Allocate columns for this many messages, without values."""
        return tuple(
            np.empty(field.shape(count), dtype=field.dtype) for field in self.fields
        )

    def pack(self, columns: tuple[Column, ...]) -> bytes:
        """Pack the columns into bits without gaps."""
        packed = []
        for block in self._blocks(len(columns[0])):
            data = np.zeros(
                -(-(block.stop - block.start) * self.message_bits // 8), dtype=np.uint8
            )
            integers = [
                f.to_integers(column[block])
                for f, column in zip(self.fields, columns, strict=True)
            ]
            for numbers, bits, byte, shift, strides in self._lanes(integers):
                for place in range(-(-(shift + bits) // 8)):
                    moved = (
                        numbers >> np.uint64(8 * place - shift)
                        if place
                        else numbers << np.uint64(shift)
                    )
                    lane = np.ndarray(
                        numbers.shape, np.uint8, data, byte + place, strides
                    )
                    lane |= moved.astype(np.uint8)
            packed.append(data.tobytes())
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
            raise ValueError(
                f"the last {spare} bits of the last byte (byte {expected - 1}) must be zero"
            )
        columns = self.empty(count)
        for block in self._blocks(count):
            rows = block.stop - block.start
            # Numbers are read with the eight bytes from their first bit on, and one more if they end there.
            data = bytes(
                raw[block.start * width // 8 : -(-block.stop * width // 8)]
            ) + bytes(9)
            integers = [
                np.empty((rows, field.count), dtype=np.uint64) for field in self.fields
            ]
            for numbers, bits, byte, shift, strides in self._lanes(integers):
                read = np.ndarray(
                    numbers.shape, "<u8", data, byte, strides
                ) >> np.uint64(shift)
                if shift + bits > 64:
                    last = np.ndarray(numbers.shape, np.uint8, data, byte + 8, strides)
                    read |= last.astype(np.uint64) << np.uint64(64 - shift)
                numbers[:] = read & np.uint64((1 << bits) - 1)
            for field, column, values in zip(
                self.fields, columns, integers, strict=True
            ):
                column[block] = field.from_integers(values, block.start).reshape(
                    field.shape(rows)
                )
        return columns

    def _lanes(self, integers: list[Words]) -> Iterator[_Lane]:
        """Yield views of a block's numbers that all begin at the same bit of a byte, and where.

        Eight messages take `message_bits` bytes, and eight numbers of a field `bits` bytes; so at the latest every
        eighth number of every eighth message begins at the same bit.
        """
        offset = 0
        width = self.message_bits
        rows = 8 // math.gcd(8, width)
        for field, numbers in zip(self.fields, integers, strict=True):
            entries = 8 // math.gcd(8, field.bits)
            strides = rows * width // 8, entries * field.bits // 8
            for row in range(min(rows, len(numbers))):
                for entry in range(min(entries, field.count)):
                    byte, shift = divmod(row * width + offset + entry * field.bits, 8)
                    yield (
                        numbers[row::rows, entry::entries],
                        field.bits,
                        byte,
                        shift,
                        strides,
                    )
            offset += field.bits * field.count

    def _blocks(self, count: int) -> list[slice]:
        """Slices over the messages, all but the last with a multiple of eight, so that they end on whole bytes."""
        numbers = sum(field.count for field in self.fields)
        size = max(8, _NUMBERS_PER_BLOCK // numbers // 8 * 8)
        return [
            slice(start, min(start + size, count)) for start in range(0, count, size)
        ]
