"""What clients and server agree on: options as given, the parameters solved from them, and their JSON form.

Parameters are a frozen dataclass of integers and decoding values; JSON is its fields. A field with a default is left
out there if it has that value. Integers that may exceed 2^53 are decimal strings, because JSON parsers of other
languages round them.
"""

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from sstq.aggregation.estimates import Estimate
from sstq.checks import ArgumentError, check_arguments, did_you_mean
from sstq.files.strict_json import read_json

JSON_VERSION = 2

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


class Agreement(ABC):
    """Options as given, and the parameters that were solved from them; immutable.

    The constructor checks options, solves, and ends with `_hold`. The JSON form is the parameters, and reading it goes
    through the same `_hold`. Parts such as a frame or a channel are cached properties, made from the parameters. Each
    field of the parameters is an attribute too, unless there is a part of that name.

    Attributes:
        options: the arguments as given.
        parameters: integers and decoding values, a frozen dataclass of `parameters_class`.
        name: that of the mechanism in JSON, if there are several of the format.
        seed_option: the name of the option with the public seed; None if there is no public randomness.
        narrowed: the least and the largest value of arguments whose range is not the common one.
    """

    json_format: ClassVar[str]
    name: ClassVar[str] = ""
    parameters_class: ClassVar[type[Parameters]]
    seed_option: ClassVar[str | None] = None
    narrowed: ClassVar[Mapping[str, tuple[float, float]]] = {}

    options: Mapping[str, Any]
    parameters: Parameters

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Note the options as given; `__init__` checks them."""
        made = super().__new__(cls)
        with suppress(TypeError):  # which `__init__` raises with a better message
            options = inspect.signature(cls).bind(*arguments, **options).arguments
        given = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
        vars(made)["options"] = MappingProxyType(given)
        return made

    @classmethod
    def _checked(cls, **arguments: Any) -> dict[str, Any]:
        """Check arguments that have a common range."""
        return check_arguments(arguments, cls.narrowed)

    def _hold(self, parameters: Parameters, **parts: Any) -> None:
        """Keep parameters, with parts that solving has made, and check them exactly; the end of `__init__`."""
        self._keep(parameters, **parts)
        self._check()

    def _keep(self, parameters: Parameters, **parts: Any) -> None:
        kinds = {name: getattr(type(self), name, None) for name in vars(parameters)}
        plain = [name for name, kind in kinds.items() if not isinstance(kind, property | cached_property)]
        vars(self).update({name: vars(parameters)[name] for name in plain} | parts, parameters=parameters)

    def _note(self, **options: Any) -> None:
        """Keep options in a form that `repr` can show, in the order of the arguments."""
        given = {**self.options, **options}
        known = inspect.signature(type(self)).parameters
        vars(self)["options"] = MappingProxyType({name: given[name] for name in known if name in given})

    @abstractmethod
    def _check(self) -> None:
        """Refuse parameters that are not private, or whose decoding values are wrong; ranges are already checked."""

    def _copy(self, options: Mapping[str, Any], parameters: Parameters) -> Self:
        """Return an object with other options and parameters; nothing is checked."""
        made: Self = _restored(type(self), dict(options), parameters, vars(self).get("_from_json", False))
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: use replace({name}=…)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), dict(self.options), self.parameters, vars(self).get("_from_json", False))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other options; nothing is solved again for another clip or public seed.

        Examples:
            >>> import sstq
            >>> sstq.SSTQ(100, 3.0, bits=2).replace(clip=2.0, frame_seed=5)
            SSTQ(dim=100, epsilon=3.0, bits=2, clip=2.0, frame_seed=5)
        """
        options, known = {**self.options, **changes}, inspect.signature(type(self)).parameters
        if changes.keys() <= {"clip", self.seed_option} & known.keys():
            ordered = {name: options[name] for name in known if name in options}
            return self._copy(ordered, replace(self.parameters, **self._checked(**changes)))
        if vars(self).get("_from_json") and type(self)(**self.options) != self:
            raise ValueError(
                "replace needs all options, but JSON does not hold a custom density: build the mechanism again"
            )
        return type(self)(**options)

    @classmethod
    def from_parameters(cls, parameters: Parameters) -> Self:
        """Build the object from parameters that were read, and check them exactly; ValueError if they are wrong."""
        check_arguments(vars(parameters), cls.narrowed)
        # What has its default is no option that was given, as in JSON.
        known = without_defaults(type(parameters), vars(parameters))
        options = {name: known[name] for name in inspect.signature(cls).parameters if name in known}
        made = object.__new__(cls)
        vars(made).update(options=MappingProxyType(options), _from_json=True)
        made._hold(parameters)
        return made

    def finished(self, estimate: Estimate) -> Estimate:
        """Return an aggregator's estimate with whatever is to be added to it; a hook."""
        return estimate

    def to_dict(self) -> dict[str, Any]:
        """Return all options, resolved, and what was solved; integers that may exceed 2^53 are decimal strings."""
        return self.parameters.to_dict()

    def to_json(self) -> str:
        """Return canonical JSON (RFC 8785), from which any machine builds the same object."""
        return self._canonical().decode()

    def _canonical(self) -> bytes:
        import rfc8785

        named = {"mechanism": self.name} if self.name else {}
        return rfc8785.dumps({"format": self.json_format, "version": JSON_VERSION, **named, **self.to_dict()})

    def digest(self) -> str:
        """The SHA-256 of the JSON form in hexadecimal: equal only for the same object, integer by integer."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self._canonical()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Agreement) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())


def read_document(text: str, json_format: str) -> dict[str, Any]:
    """Read the content of a `to_json` of this format; ValueError for anything else."""
    try:
        data = read_json(text)
    except ValueError as error:
        raise ValueError(f"the {json_format} is not JSON: {error}") from error
    if not isinstance(data, dict) or data.pop("format", None) != json_format:
        raise ValueError(f"format must be {json_format!r}, but this JSON is something else")
    version = data.pop("version", None)
    if type(version) is not int or version != JSON_VERSION:
        raise ValueError(
            f"the {json_format} has version {version!r}, this library reads version {JSON_VERSION}; write it with "
            "`sstq spec`"
        )
    return data


def _restored(cls: type[Any], options: dict[str, Any], parameters: Parameters, from_json: bool) -> Any:
    made = object.__new__(cls)
    vars(made).update(options=MappingProxyType(options), _from_json=from_json)
    made._keep(parameters)
    return made


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
