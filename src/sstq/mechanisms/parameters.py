"""Solved parameters: a frozen dataclass of integers and decoding values that is the JSON form of a mechanism.

A field with a default is left out of the JSON form where it has that value. Integers that may exceed 2^53 are decimal
strings there, because JSON parsers of other languages round them.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from sstq.checks import ArgumentError, did_you_mean

Word = Annotated[int, "decimal string"]
"""An integer below 2^64."""

Words = Annotated[tuple[int, ...], "decimal strings"]
WordTable = Annotated[NDArray[np.int64], "decimal strings"]
Ranges = Annotated[tuple[tuple[str, float, float], ...], "names and numbers"]
Values = Annotated[NDArray[np.float64], "numbers"]


# Doubles beyond are refused in ranges; integers beyond are rounded by other parsers.
_LARGEST = 1e300


@dataclass(frozen=True, eq=False, kw_only=True)
class Parameters:
    """The base of all solved parameters.

    Examples:
        >>> @dataclass(frozen=True, eq=False, kw_only=True)
        ... class Coin(Parameters):
        ...     heads: Word
        ...     tosses: int = 1
        >>> Coin(heads=2**61).to_dict()
        {'heads': '2305843009213693952'}
        >>> Coin.from_dict({"heads": "2305843009213693952", "tosses": 3}).tosses
        3
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return _write(type(self), vars(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the fields from JSON values; ValueError if they are not exactly what `to_dict` writes."""
        required = {field.name for field in fields(cls) if field.default is MISSING}
        if missing := sorted(required - data.keys()):
            raise ValueError(f"the JSON is incomplete: fields {missing} are missing")
        values = {name: _read(name, data[name], kind) for name, kind in _kinds(cls).items() if name in data}
        written = _write(cls, values)
        wrong = data.keys() ^ written.keys() | {name for name in data if written.get(name) != data[name]}
        if wrong:
            raise ValueError(f"the JSON has unknown or inconsistent fields: {sorted(wrong)}")
        return cls(**values)


def _kinds(cls: type[Parameters]) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def without_defaults(cls: type[Parameters], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of fields that differ from their defaults, in the order of the fields."""
    defaults = {field.name: field.default for field in fields(cls) if field.name in values}
    return {
        name: values[name]
        for name, default in defaults.items()
        if type(values[name]) is not type(default) or values[name] != default
    }


def _write(cls: type[Parameters], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _written(value, _kinds(cls)[name]) for name, value in without_defaults(cls, values).items()}


def integer_of(name: str, text: Any) -> int:
    """Return the integer of a decimal string, because JSON parsers of other languages round integers beyond 2^53.

    Examples:
        >>> integer_of("threshold", "4611686018427387904")
        4611686018427387904
        >>> integer_of("threshold", 4611686018427387904)
        Traceback (most recent call last):
        ...
        ValueError: threshold must be a decimal string of an integer below 2^64, got 4611686018427387904
    """
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 20 and str(int(text)) == text:
        return int(text)
    raise ValueError(f"{name} must be a decimal string of an integer below 2^64, got {text!r}")


def table_of(name: str, value: Any) -> Any:
    """Return the integers of decimal strings in a list of lists."""
    return [[integer_of(name, entry) for entry in _list(name, row)] for row in _list(name, value)]


def _written(value: Any, kind: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [list(map(str, row)) for row in value.tolist()] if value.dtype == np.int64 else value.tolist()
    if isinstance(value, tuple):
        return [list(entry) if isinstance(entry, tuple) else str(entry) for entry in value]
    return str(value) if kind == Word or (Word in get_args(kind) and value is not None) else value


def _read(name: str, value: Any, kind: Any) -> Any:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if value is None and NoneType in kinds:
        return None
    for literal in (option for option in kinds if get_origin(option) is Literal):
        if isinstance(value, str) or len(kinds) == 1:
            if value in get_args(literal):
                return value
            words = " or ".join(map(repr, get_args(literal)))
            raise ArgumentError(name, f"must be {words}, got {value!r}{did_you_mean(value, get_args(literal))}")
    kind = next(option for option in kinds if get_origin(option) is not Literal)
    if kind == Word:
        return integer_of(name, value)
    if kind == Words:
        return tuple(integer_of(name, entry) for entry in _list(name, value))
    if kind == Ranges:
        return tuple(_range(name, _list(name, entry)) for entry in _list(name, value))
    if kind == WordTable:
        return np.array(table_of(name, value))
    if kind == Values:
        return np.array([_read(name, entry, float) for entry in _list(name, value)], dtype=np.float64)
    wanted, allowed = ("an integer", int) if kind is int else ("a number", int | float)
    if isinstance(value, bool) or not isinstance(value, allowed) or abs(value) > _LARGEST:
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return value if kind is int else float(value)


def _range(name: str, entry: list[Any]) -> tuple[str, float, float]:
    if len(entry) != 3 or not isinstance(entry[0], str):
        raise ValueError(f"{name} must be lists of a name and two numbers, got {entry!r}")
    return entry[0], _read(name, entry[1], float), _read(name, entry[2], float)


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list, got {value!r}")
    return value
