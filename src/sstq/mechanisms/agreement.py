"""What client and server agree on: options as given, the values that were solved from them, and their JSON form.

Solved values are integers and decoding values in a frozen dataclass. JSON holds its fields and nothing else; a field
with a default is left out if it has that value. Integers that may exceed 2^53 are decimal strings, because JSON parsers
of other languages round them.
"""

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache, cached_property
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from sstq.array_types import Floats, Ints
from sstq.checks import check_arguments, check_option

JSON_FORMAT = "sstq-mechanism"
JSON_VERSION = 2

# Numbers beyond are refused: integers would be rounded by other parsers.
_LARGEST = 1e300
_PLAIN = {int: "an integer", float: "a number", NoneType: "null"}

MOST_ROWS_PER_DIM = 40
"""The usual limit of the rows of a frame per dimension, for JSON of strangers."""

FEW_ROWS = 2048
"""The rows that every frame may have."""


def _number(value: Any, kind: Any = float) -> Any:
    if type(value) not in (int, kind) or not abs(value) <= _LARGEST:
        raise ValueError(f"{value!r} is not {_PLAIN[kind]}")
    return kind(value)


def _word(text: Any) -> int:
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
    lambda rows: np.array([[*map(_word, row)] for row in rows], dtype=np.int64),
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
    lambda entries: np.array([*map(_number, entries)]),
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
        if value not in get_args(kind):
            check_option(name, value, get_args(kind))
        return value
    try:
        if get_origin(kind) is Annotated:
            return kind.__metadata__[0](value)
        return _number(value, kind)
    except (TypeError, ValueError, OverflowError) as error:
        problem = f"must be as JSON has it: {error}"
        if kind in _PLAIN:
            problem = f"must be {_PLAIN[kind]}, got {value!r}"
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
        """The values of options of the same name; those that are not named have their default."""
        return self._beside_defaults(vars(self))

    @classmethod
    def _beside_defaults(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of fields that differ from their defaults."""
        return {
            field.name: values[field.name]
            for field in fields(cls)
            if field.name in values and _differ(values[field.name], field.default)
        }

    @classmethod
    def _written(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON values of fields, without those that have their defaults."""
        kinds = cls._kinds()
        chosen = cls._beside_defaults(values)
        return {name: _write(value, kinds[name]) for name, value in chosen.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return self._written(vars(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the fields from JSON values; ValueError if they are not exactly what `to_dict` writes."""
        kinds = cls._kinds()
        required = {field.name for field in fields(cls) if field.default is MISSING}
        if missing := sorted(required - data.keys()):
            raise ValueError(f"the JSON is incomplete: fields {missing} are missing")
        given = kinds.keys() & data.keys()
        values = {name: _read(name, data[name], kinds[name]) for name in given}
        # What is not written alike has been read too kindly.
        written = cls._written(values)
        wrong = data.keys() ^ written.keys()
        wrong |= {name for name in data if written.get(name) != data[name]}
        if wrong:
            raise ValueError(
                f"the JSON has unknown or inconsistent fields: {sorted(wrong)}"
            )
        return cls(**values)


def _differ(value: Any, default: Any) -> bool:
    return type(value) is not type(default) or value != default


_signature = cache(inspect.signature)


def _options(made: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a class takes, in their order, without those that have their default."""
    options = {}
    for name, parameter in _signature(made).parameters.items():
        value = given.get(name, parameter.default)
        if isinstance(value, np.generic):
            value = value.item()
        if _differ(value, parameter.default):
            options[name] = value
    return options


def _texts_of(values: Mapping[str, Any]) -> dict[str, str]:
    import rfc8785

    return {name: rfc8785.dumps(value).decode() for name, value in values.items()}


class Agreement(ABC):
    """Options as given, and the values that were solved from them; immutable.

    A constructor checks and solves its arguments, and `settle` keeps both and checks the solved values exactly. JSON
    holds the solved values, and reading it ends with the same check. Parts such as a frame or a channel are cached
    properties, made from the solved values; every other solved value is an attribute as well.

    Attributes:
        solved: integers and decoding values, a frozen dataclass of `solved_class`.
        name: that of the mechanism in JSON.
        seed_option: the name of the option with the public seed; None if there is no public randomness.
        narrowed: the least and the largest value of arguments whose range is not the common one.
    """

    name: ClassVar[str]
    solved_class: ClassVar[type[Solved]]
    seed_option: ClassVar[str | None] = None
    narrowed: ClassVar[Mapping[str, tuple[float, float]]] = {}

    solved: Solved

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """The arguments as given; of an object read from JSON, those that JSON holds."""
        return MappingProxyType(_options(type(self), self.solved.options()))

    @classmethod
    def checked(cls, **arguments: Any) -> dict[str, Any]:
        """Check arguments that have a common range, such as dim, epsilon and clip."""
        return check_arguments(arguments, cls.narrowed)

    def settle(self, given: Mapping[str, Any], solved: Solved, **shown: Any) -> None:
        """Keep the options and the solved values, and check the latter exactly; the end of a constructor.

        Args:
            given: the arguments, as `locals()` has them.
            solved: the solved values.
            shown: options in a form that `repr` can show, which take the place of those given.
        """
        self._keep(solved, {**given, **shown})
        self._check()

    @classmethod
    def from_solved(cls, solved: Solved) -> Self:
        """An object with these values, which are checked exactly."""
        made = cls._made(solved)
        made._check()
        return made

    @classmethod
    def _made(cls, solved: Solved, given: Mapping[str, Any] | None = None) -> Self:
        made = object.__new__(cls)
        made._keep(solved, given)
        return made

    def _keep(self, solved: Solved, given: Mapping[str, Any] | None) -> None:
        vars(self)["solved"] = solved
        if given is not None:
            options = _options(type(self), given)
            vars(self)["options"] = MappingProxyType(options)
        for name, value in vars(solved).items():
            if not isinstance(getattr(type(self), name, None), cached_property):
                vars(self)[name] = value

    @abstractmethod
    def _check(self) -> None:
        """Refuse values that are out of range or not private, or decoding values that are wrong."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"{type(self).__name__} cannot be changed: use replace({name}=…)"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(
            f"{type(self).__name__} cannot be changed: {name} cannot be deleted"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made, (self.solved, dict(self.options))

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({options})"

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other options; nothing is solved again for another clip or public seed.

        Examples:
            >>> import sstq
            >>> sstq.SSTQ(100, 3.0, bits=2).replace(clip=2.0, frame_seed=5)
            SSTQ(dim=100, epsilon=3.0, bits=2, clip=2.0, frame_seed=5)
        """
        options = {**self.options, **changes}
        taken = _signature(type(self)).parameters
        if changes.keys() <= {"clip", self.seed_option} & taken.keys():
            solved = replace(self.solved, **self.checked(**changes))
            made = self._made(solved, options)
            kept = {
                name: text for name, text in self._texts.items() if name not in changes
            }
            changed = {name: getattr(solved, name) for name in changes}
            vars(made)["_texts"] = kept | _texts_of(solved._written(changed))
            return made
        # JSON does not hold a rate; nothing else is lost there.
        if (
            "rate" in taken
            and "rate" not in options
            and type(self)(**self.options) != self
        ):
            raise ValueError(
                "replace needs the rate, which JSON does not hold: pass it as well"
            )
        return type(self)(**options)

    def to_json(self) -> str:
        """Return canonical JSON (RFC 8785), from which any machine builds the same object.

        It has all options, resolved, and what was solved; integers that may exceed 2^53 are decimal strings.
        """
        members = (f'"{name}":{text}' for name, text in sorted(self._texts.items()))
        return f"{{{','.join(members)}}}"

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        """The canonical JSON of each field: copies share that of a large table, which takes longer than encoding."""
        kind: dict[str, Any] = {
            "format": JSON_FORMAT,
            "version": JSON_VERSION,
            "mechanism": self.name,
        }
        return _texts_of(kind | self.solved.to_dict())

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
