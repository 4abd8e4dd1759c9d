"""A mechanism is options as given plus the parameters solved from them; its JSON form is the parameters.

Parameters are a frozen dataclass of integers and decoding values. A field with a default is left out of JSON if it has
that value. Integers that may exceed 2^53 are decimal strings, because JSON parsers of other languages round them.
"""

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_arguments, check_option

JSON_FORMAT, JSON_VERSION = "sstq-mechanism", 2

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


@dataclass(frozen=True)
class _Codec:
    """How JSON holds a field: `read` takes the name and the JSON value, `write` the field's value."""

    read: Callable[[str, Any], Any]
    write: Callable[[Any], Any]


Word = Annotated[int, _Codec(integer_of, str)]
"""An integer below 2^64."""

Words = Annotated[
    tuple[int, ...],
    _Codec(
        lambda name, value: tuple(integer_of(name, entry) for entry in _list(name, value)), lambda v: [*map(str, v)]
    ),
]
WordTable = Annotated[
    NDArray[np.int64],
    _Codec(
        lambda name, value: np.array(table_of(name, value)), lambda table: [[*map(str, row)] for row in table.tolist()]
    ),
]
Ranges = Annotated[
    tuple[tuple[str, float, float], ...],
    _Codec(
        lambda name, value: tuple(_range(name, _list(name, entry)) for entry in _list(name, value)),
        lambda ranges: [list(entry) for entry in ranges],
    ),
]
"""The name, the least and the largest value of each column."""

Values = Annotated[
    NDArray[np.float64],
    _Codec(
        lambda name, value: np.array([_number(name, entry) for entry in _list(name, value)], dtype=np.float64),
        lambda values: values.tolist(),
    ),
]


def _read(name: str, value: Any, kind: Any) -> Any:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if value is None and NoneType in kinds:
        return None
    words = [word for each in kinds if get_origin(each) is Literal for word in get_args(each)]
    others = [each for each in kinds if each is not NoneType and get_origin(each) is not Literal]
    if words and (isinstance(value, str) or not others):
        return value if value in words else check_option(name, value, words)
    codec = _codec(others[0])
    return codec.read(name, value) if codec else _number(name, value, others[0])


def _codec(kind: Any) -> _Codec | None:
    """The codec of a kind of field, which may be one of several that are allowed."""
    kinds = (kind, *get_args(kind))
    return next((each.__metadata__[0] for each in kinds if get_origin(each) is Annotated), None)


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

    def options(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults; options of the same name have these values."""
        values = ((field.default, field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for default, name, value in values if type(value) is not type(default) or value != default}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        kinds, values = get_type_hints(type(self), include_extras=True), Parameters.options(self)
        codecs = {name: _codec(kinds[name]) for name in values}
        return {name: codec.write(values[name]) if codec else values[name] for name, codec in codecs.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the fields from JSON values; ValueError if they are not exactly what `to_dict` writes."""
        required = {field.name for field in fields(cls) if field.default is MISSING}
        if missing := sorted(required - data.keys()):
            raise ValueError(f"the JSON is incomplete: fields {missing} are missing")
        kinds = get_type_hints(cls, include_extras=True)
        read = cls(**{name: _read(name, data[name], kind) for name, kind in kinds.items() if name in data})
        written = read.to_dict()
        wrong = data.keys() ^ written.keys() | {name for name in data if written.get(name) != data[name]}
        if wrong:
            raise ValueError(f"the JSON has unknown or inconsistent fields: {sorted(wrong)}")
        return read


class Agreement(ABC):
    """Options as given, and the parameters that were solved from them; immutable.

    The constructor checks options, solves, and ends with `_hold`. Reading JSON ends with the same `_hold`. Parts such
    as a frame or a channel are cached properties, made from the parameters. Each field of the parameters is an
    attribute too, unless there is a part of that name.

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
        """The arguments as given, in their order; where it was read, those that JSON holds."""
        solved, known = self.parameters.options(), inspect.signature(type(self)).parameters
        return MappingProxyType({name: solved[name] for name in known if name in solved})

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Note the options as given; `__init__` checks them."""
        made = super().__new__(cls)
        with suppress(TypeError):  # which `__init__` raises with a better message
            options = inspect.signature(cls).bind(*arguments, **options).arguments
        made._note(
            **{name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
        )
        return made

    def _note(self, **options: Any) -> None:
        """Keep options, in a form that `repr` can show, in the order of the arguments."""
        noted = {**vars(self).get("options", {}), **options}
        known = inspect.signature(type(self)).parameters
        vars(self)["options"] = MappingProxyType({name: noted[name] for name in known if name in noted})

    @classmethod
    def _checked(cls, **arguments: Any) -> dict[str, Any]:
        """Check arguments that have a common range."""
        return check_arguments(arguments, cls.narrowed)

    def _hold(self, parameters: Parameters, **parts: Any) -> None:
        """Keep parameters, with parts that solving has made, and check them exactly; the end of `__init__`."""
        self._keep(parameters, **parts)
        self._check()

    def _keep(self, parameters: Parameters, **parts: Any) -> None:
        made_later = {name for name in vars(parameters) if isinstance(getattr(type(self), name, None), cached_property)}
        plain = {name: value for name, value in vars(parameters).items() if name not in made_later}
        vars(self).update(plain | parts, parameters=parameters)

    @abstractmethod
    def _check(self) -> None:
        """Refuse parameters that are out of range or not private, or whose decoding values are wrong."""

    @classmethod
    def from_parameters(cls, parameters: Parameters) -> Self:
        """Build the object from parameters that were read, and check them exactly; ValueError if they are wrong."""
        made = object.__new__(cls)
        made._hold(parameters)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: use replace({name}=…)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), dict(self.options), self.parameters)

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
            return restored(type(self), options, replace(self.parameters, **self._checked(**changes)))
        # JSON does not hold a density; nothing else is lost there.
        if "density" in known and "density" not in self.options and type(self)(**self.options) != self:
            raise ValueError(
                "replace needs all options, but JSON does not hold a custom density: build the mechanism again"
            )
        return type(self)(**options)

    def to_dict(self) -> dict[str, Any]:
        """Return all options, resolved, and what was solved; integers that may exceed 2^53 are decimal strings."""
        return self.parameters.to_dict()

    def to_json(self) -> str:
        """Return canonical JSON (RFC 8785), from which any machine builds the same object."""
        return self._canonical().decode()

    def _canonical(self) -> bytes:
        import rfc8785

        return rfc8785.dumps({"format": JSON_FORMAT, "version": JSON_VERSION, "mechanism": self.name, **self.to_dict()})

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


Made = TypeVar("Made", bound=Agreement)


def restored(cls: type[Made], options: Mapping[str, Any], parameters: Parameters) -> Made:
    """An object with these options and parameters, of which nothing is checked."""
    made = object.__new__(cls)
    made._note(**options)
    made._keep(parameters)
    return made
