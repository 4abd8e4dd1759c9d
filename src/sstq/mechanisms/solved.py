"""Solved values: the integers and decoding values of a mechanism, and their JSON form.

They are a frozen dataclass, and JSON holds its fields and nothing else. A field with a default is left out of JSON if
it has that value. Integers that may exceed 2^53 are decimal strings, because JSON parsers of other languages round
them.
"""

from collections.abc import Container, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_option
from sstq.files.strict_json import integer_of, list_of, table_of

# Doubles beyond are refused in ranges; integers beyond are rounded by other parsers.
_LARGEST = 1e300

MOST_ROWS_PER_DIM = 40
"""The usual limit of the rows of a frame per dimension, for JSON of strangers."""

FEW_ROWS = 2048
"""The rows that every frame may have."""


def _number(name: str, value: Any, kind: type[int] | type[float] = float) -> Any:
    wanted = "an integer" if kind is int else "a number"
    allowed = int if kind is int else int | float
    if isinstance(value, bool) or not isinstance(value, allowed) or abs(value) > _LARGEST:
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return kind(value)


def _range(name: str, entry: list[Any]) -> tuple[str, float, float]:
    if len(entry) != 3 or not isinstance(entry[0], str):
        raise ValueError(f"{name} must be lists of a name and two numbers, got {entry!r}")
    return entry[0], _number(name, entry[1]), _number(name, entry[2])


# A field of these kinds is read by the first function, from its name and JSON value, and written by the second.
Word = Annotated[int, integer_of, str]
"""An integer below 2^64."""

WordTable = Annotated[
    NDArray[np.int64],
    lambda name, value: np.array(table_of(name, value)),
    lambda table: [[*map(str, row)] for row in table.tolist()],
]
"""A table of integers below 2^63."""

WordList = Annotated[
    tuple[int, ...],
    lambda name, value: tuple(integer_of(name, entry) for entry in list_of(name, value)),
    lambda words: [*map(str, words)],
]
"""Integers below 2^64."""

Ranges = Annotated[
    tuple[tuple[str, float, float], ...],
    lambda name, value: tuple(_range(name, list_of(name, entry)) for entry in list_of(name, value)),
    lambda ranges: [list(entry) for entry in ranges],
]
"""The name, the least and the largest value of each column."""

Values = Annotated[
    NDArray[np.float64],
    lambda name, value: np.array([_number(name, entry) for entry in list_of(name, value)], dtype=np.float64),
    lambda values: values.tolist(),
]
"""Doubles."""


def _read(name: str, value: Any, kind: Any) -> Any:
    """Read a field, which may be of one of several kinds."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if value is None and NoneType in kinds:
        return None
    words = [word for each in kinds if get_origin(each) is Literal for word in get_args(each)]
    others = [each for each in kinds if each is not NoneType and get_origin(each) is not Literal]
    if words and (isinstance(value, str) or not others):
        return value if value in words else check_option(name, value, words)
    if not others:
        raise ValueError(f"{name} must be null, got {value!r}")
    return others[0].__metadata__[0](name, value) if _is_annotated(others[0]) else _number(name, value, others[0])


def _write(value: Any, kind: Any) -> Any:
    """The JSON value of a field."""
    annotated = [each for each in (kind, *get_args(kind)) if _is_annotated(each)]
    return annotated[0].__metadata__[1](value) if annotated else value


def _is_annotated(kind: Any) -> bool:
    return get_origin(kind) is Annotated


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
        return self._told()

    def _told(self) -> dict[str, Any]:
        values = ((field.default, field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for default, name, value in values if type(value) is not type(default) or value != default}

    def to_dict(self, only: Container[str] | None = None) -> dict[str, Any]:
        """Return the fields as JSON values, or only those of these names."""
        kinds = self._kinds()
        told = self._told().items()
        return {name: _write(value, kinds[name]) for name, value in told if only is None or name in only}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the fields from JSON values; ValueError if they are not exactly what `to_dict` writes."""
        required = {field.name for field in fields(cls) if field.default is MISSING}
        if missing := sorted(required - data.keys()):
            raise ValueError(f"the JSON is incomplete: fields {missing} are missing")
        kinds = cls._kinds()
        read = cls(**{name: _read(name, data[name], kind) for name, kind in kinds.items() if name in data})
        written = read.to_dict()
        wrong = data.keys() ^ written.keys() | {name for name in data if written.get(name) != data[name]}
        if wrong:
            raise ValueError(f"the JSON has unknown or inconsistent fields: {sorted(wrong)}")
        return read
