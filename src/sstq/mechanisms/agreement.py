"""What client and server agree on: options as given, and the values that were solved from them."""

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from sstq.checks import check_arguments
from sstq.mechanisms.solved import Solved

JSON_FORMAT = "sstq-mechanism"
JSON_VERSION = 2

_signature = cache(inspect.signature)


def _options(made: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a class takes, in their order, without those that have their default."""
    options = {}
    for name, parameter in _signature(made).parameters.items():
        value = given.get(name, parameter.default)
        if isinstance(value, np.generic):
            value = value.item()
        if type(value) is not type(parameter.default) or value != parameter.default:
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
        options: the arguments as given; of an object read from JSON, those that JSON holds.
        solved: integers and decoding values, a frozen dataclass of `solved_class`.
        name: that of the mechanism in JSON.
        seed_option: the name of the option with the public seed; None if there is no public randomness.
        narrowed: the least and the largest value of arguments whose range is not the common one.
    """

    name: ClassVar[str]
    solved_class: ClassVar[type[Solved]]
    seed_option: ClassVar[str | None] = None
    narrowed: ClassVar[Mapping[str, tuple[float, float]]] = {}

    options: Mapping[str, Any]
    solved: Solved

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
        self._keep(_options(type(self), {**given, **shown}), solved)
        self._check()

    @classmethod
    def from_solved(cls, solved: Solved) -> Self:
        """An object with these values, which are checked exactly."""
        made = cls._made(_options(cls, solved.options()), solved)
        made._check()
        return made

    @classmethod
    def _made(cls, options: Mapping[str, Any], solved: Solved) -> Self:
        made = object.__new__(cls)
        made._keep(options, solved)
        return made

    def _keep(self, options: Mapping[str, Any], solved: Solved) -> None:
        vars(self)["options"] = MappingProxyType(options)
        vars(self)["solved"] = solved
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
        return self._made, (dict(self.options), self.solved)

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
        known = _signature(type(self)).parameters
        if changes.keys() <= {"clip", self.seed_option} & known.keys():
            solved = replace(self.solved, **self.checked(**changes))
            made = self._made(_options(type(self), options), solved)
            kept = {
                name: text for name, text in self._texts.items() if name not in changes
            }
            vars(made)["_texts"] = kept | _texts_of(solved.to_dict(changes))
            return made
        # JSON does not hold a rate; nothing else is lost there.
        if (
            "rate" in known
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
        return (
            "{"
            + ",".join(f'"{name}":{self._texts[name]}' for name in sorted(self._texts))
            + "}"
        )

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
