"""A mechanism is options as given plus the parameters solved from them; its JSON form is the parameters.

Parameters are a frozen dataclass of integers and decoding values. A field with a default is left out of JSON if it has
that value. Integers that may exceed 2^53 are decimal strings, because JSON parsers of other languages round them.
"""

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache, cached_property
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_arguments, check_option

JSON_FORMAT, JSON_VERSION = "sstq-mechanism", 2

_signature = cache(inspect.signature)

# Doubles beyond are refused in ranges; integers beyond are rounded by other parsers.
_LARGEST = 1e300


def integer_of(name: str, text: Any) -> int:
    """Return the integer of a decimal string.

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


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list, got {value!r}")
    return value


def _number(name: str, value: Any, kind: type[int] | type[float] = float) -> Any:
    wanted, allowed = ("an integer", int) if kind is int else ("a number", int | float)
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
Words = Annotated[
    tuple[int, ...],
    lambda name, value: tuple(integer_of(name, entry) for entry in _list(name, value)),
    lambda words: [*map(str, words)],
]
Ranges = Annotated[
    tuple[tuple[str, float, float], ...],
    lambda name, value: tuple(_range(name, _list(name, entry)) for entry in _list(name, value)),
    lambda ranges: [list(entry) for entry in ranges],
]
"""The name, the least and the largest value of each column."""

Values = Annotated[
    NDArray[np.float64],
    lambda name, value: np.array([_number(name, entry) for entry in _list(name, value)], dtype=np.float64),
    lambda values: values.tolist(),
]


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

    @classmethod
    @cache
    def _kinds(cls) -> dict[str, Any]:
        return get_type_hints(cls, include_extras=True)

    def options(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults; options of the same name have these values."""
        values = ((field.default, field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for default, name, value in values if type(value) is not type(default) or value != default}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        kinds = self._kinds()
        return {name: _write(value, kinds[name]) for name, value in Parameters.options(self).items()}

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


class Agreement(ABC):
    """Options as given, and the parameters that were solved from them; immutable.

    The life of a mechanism: `__new__` notes the options as given, `__init__` checks and solves them, and `_hold` keeps
    the parameters and runs one exact check. JSON holds the parameters, and reading it ends with the same check. Parts
    such as a frame or a channel are cached properties, made from the parameters.

    Attributes:
        parameters: integers and decoding values, a frozen dataclass of `parameters_class`.
        name: that of the mechanism in JSON.
        seed_option: the name of the option with the public seed; None if there is no public randomness.
        narrowed: the least and the largest value of arguments whose range is not the common one.
    """

    name: ClassVar[str]
    parameters_class: ClassVar[type[Parameters]]
    seed_option: ClassVar[str | None] = None
    narrowed: ClassVar[Mapping[str, tuple[float, float]]] = {}

    parameters: Parameters

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """The arguments as given, in their order; of an object read from JSON, those that JSON holds."""
        return self._plain(self.parameters.options())

    @classmethod
    def _plain(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Options in the order of the arguments, with plain numbers."""
        known = {name: options[name] for name in _signature(cls).parameters if name in options}
        return MappingProxyType({name: v.item() if isinstance(v, np.generic) else v for name, v in known.items()})

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Note the options as given; `__init__` checks them."""
        made = super().__new__(cls)
        with suppress(TypeError):  # which `__init__` raises with a better message
            options = _signature(cls).bind(*arguments, **options).arguments
        vars(made)["options"] = options
        return made

    @classmethod
    def _restored(cls, parameters: Any, options: Mapping[str, Any] | None = None) -> Self:
        """An object with these parameters, which are not checked, and with these options, or those that they hold."""
        made = object.__new__(cls)
        made._keep(parameters, options)
        return made

    def _keep(self, parameters: Parameters, options: Mapping[str, Any] | None) -> None:
        """Keep the options, and the parameters, each as an attribute too unless there is a part of that name."""
        parts = {name for name in vars(parameters) if isinstance(getattr(type(self), name, None), cached_property)}
        vars(self).update({name: value for name, value in vars(parameters).items() if name not in parts})
        vars(self)["parameters"] = parameters
        if options is not None:
            vars(self)["options"] = self._plain(options)

    @classmethod
    def _checked(cls, **arguments: Any) -> dict[str, Any]:
        """Check arguments that have a common range."""
        return check_arguments(arguments, cls.narrowed)

    def _hold(self, parameters: Parameters, **shown: Any) -> None:
        """Keep the parameters and check them exactly; the end of `__init__`.

        The options `shown` take the place of those given, in a form that `repr` can show.
        """
        self._keep(parameters, {**self.options, **shown})
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Refuse parameters that are out of range or not private, or whose decoding values are wrong."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: use replace({name}=…)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return self._restored, (self.parameters, dict(self.options))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other options; nothing is solved again for another clip or public seed.

        Examples:
            >>> import sstq
            >>> sstq.SSTQ(100, 3.0, bits=2).replace(clip=2.0, frame_seed=5)
            SSTQ(dim=100, epsilon=3.0, bits=2, clip=2.0, frame_seed=5)
        """
        options, known = {**self.options, **changes}, _signature(type(self)).parameters
        if changes.keys() <= {"clip", self.seed_option} & known.keys():
            return self._restored(replace(self.parameters, **self._checked(**changes)), options)
        # JSON does not hold a rate; nothing else is lost there.
        if "rate" in known and "rate" not in options and type(self)(**self.options) != self:
            raise ValueError("replace needs the rate, which JSON does not hold: pass it as well")
        return type(self)(**options)

    def to_json(self) -> str:
        """Return canonical JSON (RFC 8785), from which any machine builds the same object.

        It has all options, resolved, and what was solved; integers that may exceed 2^53 are decimal strings.
        """
        import rfc8785

        kind: dict[str, Any] = {"format": JSON_FORMAT, "version": JSON_VERSION, "mechanism": self.name}
        return rfc8785.dumps(kind | self.parameters.to_dict()).decode()

    def digest(self) -> str:
        """The SHA-256 of the JSON form in hexadecimal: equal only for the same object, integer by integer."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Agreement) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())
