"""Solved values: the integers and decoding values of a mechanism, and their JSON form.

They are a frozen dataclass, and JSON holds its fields and nothing else. A field with a default is left out of JSON if
it has that value. Integers that may exceed 2^53 are decimal strings, because JSON parsers of other languages round
them.
"""

from collections.abc import Container, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from sstq.array_types import Floats, Ints
from sstq.checks import check_option

# Numbers beyond are refused: integers would be rounded by other parsers.
_LARGEST = 1e300
_WANTED = {int: "an integer", float: "a number", NoneType: "null"}

MOST_ROWS_PER_DIM = 40
"""The usual limit of the rows of a frame per dimension, for JSON of strangers."""

FEW_ROWS = 2048
"""The rows that every frame may have."""


def _number(value: Any, kind: Any = float) -> Any:
    if type(value) not in (int, kind) or not abs(value) <= _LARGEST:
        raise ValueError(f"{value!r} is no number")
    return kind(value)


def _word(text: str) -> int:
    number = int(text)
    if text != str(number) or not 0 <= number < 1 << 64:
        raise ValueError(f"{text!r} is no decimal string of an integer below 2^64")
    return number


# A field of these kinds is read from its JSON value by the first function, and written by the second. What is read must
# be written alike, so that a reader may take more than that.
Word = Annotated[int, _word, str]
"""An integer below 2^64."""

WordTable = Annotated[
    Ints,
    lambda rows: np.array(
        [[_word(entry) for entry in row] for row in rows], dtype=np.int64
    ),
    lambda table: [[*map(str, row)] for row in table.tolist()],
]
"""A table of integers below 2^63."""

WordList = Annotated[
    tuple[int, ...],
    lambda entries: tuple(map(_word, entries)),
    lambda words: [*map(str, words)],
]
"""Integers below 2^64."""

Ranges = Annotated[
    tuple[tuple[str, float, float], ...],
    lambda entries: tuple(
        (name, _number(low), _number(high)) for name, low, high in entries
    ),
    lambda ranges: [list(entry) for entry in ranges],
]
"""The name, the least and the largest value of each column."""

Values = Annotated[
    Floats,
    lambda entries: np.array([_number(entry) for entry in entries]),
    lambda values: values.tolist(),
]
"""Doubles."""


def _read(name: str, value: Any, kind: Any) -> Any:
    """Read a field; one of several kinds may be None."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if value is None and NoneType in kinds:
        return None
    kind = kinds[0]
    if get_origin(kind) is Literal:
        return (
            value
            if value in get_args(kind)
            else check_option(name, value, get_args(kind))
        )
    try:
        return (
            kind.__metadata__[0](value)
            if get_origin(kind) is Annotated
            else _number(value, kind)
        )
    except (TypeError, ValueError, OverflowError) as error:
        wanted = _WANTED.get(kind)
        problem = (
            f"must be {wanted}, got {value!r}"
            if wanted
            else f"must be as JSON has it: {error}"
        )
        raise ValueError(f"{name} {problem}") from error


def _write(value: Any, kind: Any) -> Any:
    """The JSON value of a field."""
    for each in (kind, *get_args(kind)):
        if value is not None and get_origin(each) is Annotated:
            return each.__metadata__[1](value)
    return value


@dataclass(frozen=True, eq=False, kw_only=True)
class Solved:
    """The base of all solved values.

    Fields are integers, doubles, texts (`Literal`), `Word`, `WordList`, `WordTable`, `Values` or `Ranges`.

    Examples:
        >>> @dataclass(frozen=True, eq=False, kw_only=True)
        ... class Coin(Solved):
        ...     heads: Word
        ...     tosses: int = 1
        >>> Coin(heads=2**61).to_dict()
        {'heads': '2305843009213693952'}
        >>> Coin.from_dict({"heads": "2305843009213693952", "tosses": 3}).tosses
        3
    """

    @classmethod
    @cache
    def _kinds(cls) -> dict[str, Any]:
        return get_type_hints(cls, include_extras=True)

    def limits(self) -> Mapping[str, int]:
        """The largest values of fields that memory and time grow with, which JSON of strangers may have."""
        return {}

    def options(self) -> dict[str, Any]:
        """The fields that differ from their defaults; options of the same name have these values."""
        values = (
            (field.default, field.name, getattr(self, field.name))
            for field in fields(self)
        )
        return {
            name: value
            for default, name, value in values
            if type(value) is not type(default) or value != default
        }

    def to_dict(self, only: Container[str] | None = None) -> dict[str, Any]:
        """Return the fields as JSON values, or only those of these names."""
        kinds = self._kinds()
        values = Solved.options(self).items()
        return {
            name: _write(value, kinds[name])
            for name, value in values
            if only is None or name in only
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the fields from JSON values; ValueError if they are not exactly what `to_dict` writes."""
        required = {field.name for field in fields(cls) if field.default is MISSING}
        if missing := sorted(required - data.keys()):
            raise ValueError(f"the JSON is incomplete: fields {missing} are missing")
        kinds = cls._kinds()
        read = cls(
            **{
                name: _read(name, data[name], kind)
                for name, kind in kinds.items()
                if name in data
            }
        )
        written = read.to_dict()
        wrong = data.keys() ^ written.keys() | {
            name for name in data if written.get(name) != data[name]
        }
        if wrong:
            raise ValueError(
                f"the JSON has unknown or inconsistent fields: {sorted(wrong)}"
            )
        return read
