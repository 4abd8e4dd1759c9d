"""Public labels of messages: the group that each client belongs to, such as a country that the server may know.

Labels are text: the integer 7 of a Parquet file and the "7" of a CSV file are one group. They are stored as indices of
a table of names, so a million labels take four megabytes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.checks import did_you_mean

LONGEST = 256
"""The maximum number of characters of a label."""

_WANTED, _REMEDY = "must be text, integers or booleans", "fill or drop it first"
# How Arrow, NumPy, pandas and Polars turn a column into a list.
_LISTS = ("to_pylist", "tolist", "to_list")


@dataclass(frozen=True, eq=False)
class Labels:
    """One label per message, `names[codes[i]]` for message i; `column` is their name, such as "country".

    Examples:
        >>> labels = Labels.of(["DE", "FR", "DE"], column="country")
        >>> labels.names, labels.codes.tolist(), len(labels[1:])
        (('DE', 'FR'), [0, 1, 0], 2)
    """

    column: str
    names: tuple[str, ...]
    codes: NDArray[np.uint32]

    @classmethod
    def of(cls, values: ArrayLike, column: str = "group") -> Self:
        """Create labels from text, integers or booleans; ValueError, with the row, for nulls and anything else."""
        table: dict[str, int] = {}
        listed = next((getattr(values, turn)() for turn in _LISTS if hasattr(values, turn)), values)
        if not isinstance(listed, list | tuple):
            raise ValueError(f"{column}: labels must be a sequence, one per message, got {values!r}")
        codes = [_number_in(table, value, column, row) for row, value in enumerate(listed)]
        return cls(column, tuple(table), np.array(codes, dtype=np.uint32))

    @classmethod
    def of_arrow(cls, values: Any, column: str, place: str, first: int = 0) -> Self:
        """Create labels from an Arrow array, whose rows are numbered from `first` on; errors begin with `place`."""
        import pyarrow

        check_arrow_type(values.type, column, place)
        if values.null_count:
            row = first + int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise ValueError(f"{place}: column {column!r} must not have nulls, got one in row {row}; {_REMEDY}")
        coded = values if pyarrow.types.is_dictionary(values.type) else values.dictionary_encode()
        names = tuple(coded.dictionary.cast(pyarrow.string()).to_pylist())
        codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.uint32)
        for code in np.unique(codes).tolist():
            check_name(names[code], f"{place}: column {column!r}", f"row {first + int(np.argmax(codes == code))}")
        return cls(column, names, codes)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, part: slice | NDArray[np.int64]) -> "Labels":
        return Labels(self.column, self.names, np.ascontiguousarray(self.codes[part]))

    def split(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Yield every label that occurs, with the rows that have it."""
        order = np.argsort(self.codes, kind="stable")
        starts = np.flatnonzero(np.diff(self.codes[order], prepend=np.int64(-1)))
        for start, rows in zip(starts, np.split(order, starts[1:]), strict=False):
            yield self.names[self.codes[order[start]]], rows

    def numbers(self, names: Sequence[str] | None, place: str, first: int = 0) -> NDArray[np.int64]:
        """Return the labels as integers: their positions among the names, or themselves without names.

        ValueError, with the row counted from `first` on and `place` before it, for a label that is neither.
        """
        known = None if names is None else {name: number for number, name in enumerate(names)}
        lookup = np.zeros(len(self.names), dtype=np.int64)
        for code in np.unique(self.codes).tolist():
            name = self.names[code]
            try:
                lookup[code] = int(name) if known is None else known[name]
            except (ValueError, KeyError, OverflowError) as error:
                wanted = "integers ≥ 0" if known is None else f"one of the {len(known)} names of groups"
                row, close = first + int(np.argmax(self.codes == code)), did_you_mean(name, known or ())
                what = f"{place}: column {self.column!r} must hold {wanted}"
                remedy = "; or pass --group-names FILE" if known is None else close
                raise ValueError(f"{what}, got {name!r} in row {row}{remedy}") from error
        return lookup[self.codes]

    @staticmethod
    def concatenate(parts: Sequence["Labels"]) -> "Labels":
        """Join labels of one column."""
        columns = sorted({part.column for part in parts})
        if len(columns) > 1:
            raise ValueError(f"labels of different columns cannot be joined: {', '.join(columns)}")
        table: dict[str, int] = {}
        lookups = ([table.setdefault(name, len(table)) for name in part.names] for part in parts)
        codes = [np.array(lookup, np.uint32)[part.codes] for lookup, part in zip(lookups, parts, strict=True)]
        return Labels(columns[0], tuple(table), np.concatenate(codes))

    def to_bytes(self) -> bytes:
        """Return the labels as bytes: for each the length of its UTF-8 (four bytes, little-endian) and its UTF-8."""
        encoded = [len(raw).to_bytes(4, "little") + raw for raw in (name.encode() for name in self.names)]
        return b"".join(map(encoded.__getitem__, self.codes.tolist()))


def check_arrow_type(kind: Any, column: str, place: str) -> None:
    """Raise ValueError for an Arrow type that cannot be labels; dates become text."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    text = types.is_string(kind) or types.is_large_string(kind)
    if not (text or types.is_integer(kind) or types.is_boolean(kind) or types.is_date(kind)):
        raise ValueError(f"{place}: column {column!r} {_WANTED}, got {kind}; cast it to text first")


def check_name(name: str, what: str, place: str) -> str:
    """Return the name if it is a valid label: 1 to 256 characters of valid Unicode."""
    if not name:
        raise ValueError(f"{what} must not have empty labels, got one in {place}; {_REMEDY}")
    if len(name) > LONGEST:
        raise ValueError(f"{what} must have labels of at most {LONGEST} characters, got {len(name)} in {place}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} must have labels of valid Unicode, got {name!r} in {place}") from error
    return name


def _number_in(table: dict[str, int], value: Any, column: str, row: int) -> int:
    """Return the index of a label in the table, which gets new labels."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise ValueError(f"{column}: labels must not be null, got {value!r} in row {row}; {_REMEDY}")
    if isinstance(value, bool):
        value = "true" if value else "false"
    if not isinstance(value, str | int):
        raise ValueError(f"{column}: labels {_WANTED}, got {value!r} in row {row}")
    name = str(value)
    return table[name] if name in table else table.setdefault(check_name(name, column, f"row {row}"), len(table))
