"""The base of everything that clients and server agree on: immutable objects with options and a JSON form."""

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from sstq.checks import check_argument, check_number, stated_integer
from sstq.files.strict_json import read_json

JSON_VERSION = 2


class Agreement(ABC):
    """Options as given, the parts built from them, and a JSON form that holds everything that was solved.

    If `_stated` is not None, the object is read from JSON: its content is checked, not solved again.

    Attributes:
        options: the arguments as given.
        seed_option: the name of the option with the public seed; None if there is no public randomness.
        narrowed: the least and the largest value of arguments whose range is narrower than the common one.
    """

    json_format: ClassVar[str]
    seed_option: ClassVar[str | None] = None
    narrowed: ClassVar[Mapping[str, tuple[float, float]]] = {}

    options: Mapping[str, Any]
    _stated: Mapping[str, Any] | None = None
    _parts: dict[str, Any]
    _from_json = False

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Store the options as given; `__init__` checks them."""
        agreed = super().__new__(cls)
        with suppress(TypeError):
            options = inspect.signature(cls).bind(*arguments, **options).arguments
        given = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
        agreed.__dict__["options"] = MappingProxyType(given)
        return agreed

    def _set(self, **parts: Any) -> None:
        """Store the parts built from the options; in `__init__` only."""
        self.__dict__.setdefault("_parts", {}).update(parts)
        self.__dict__.update(parts)

    def _take(self, **arguments: Any) -> None:
        """Check arguments that have a common range, and store them; in `__init__` only."""
        for name, value in arguments.items():
            low, high = self.narrowed.get(name, (None, None))
            self._set(**{name: check_argument(name, value, low=low, high=high)})

    def _stated_or(self, name: str, computed: float, tolerance: float) -> float:
        """The computed number, or the one in the JSON, whose last digits may differ; never zero, as it divides."""
        if self._stated is None:
            return computed
        low, high = (max(computed * (1 + sign * tolerance), 1e-30) for sign in (-1, 1))
        return float(check_number(name, self._stated[name], low, high))

    def _named(self, *names: str) -> dict[str, Any]:
        """Parts by name, for `to_dict`."""
        return {name: getattr(self, name) for name in names}

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: use replace({name}=…)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), dict(self.options), dict(self._parts))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other options; nothing is solved again for another clip or public seed.

        Examples:
            >>> import sstq
            >>> sstq.SSTQ(100, 3.0, bits=2).replace(clip=2.0, frame_seed=5)
            SSTQ(dim=100, epsilon=3.0, bits=2, clip=2.0, frame_seed=5)
        """
        options = {**self.options, **changes}
        if not changes.keys() <= {"clip", self.seed_option} & inspect.signature(type(self)).parameters.keys():
            if self._from_json and type(self)(**self.options) != self:
                raise ValueError(
                    "replace needs all options, but JSON does not hold a custom density: build the mechanism again"
                )
            return type(self)(**options)
        parts = {}
        if "clip" in changes:
            parts["clip"] = check_argument("clip", changes["clip"])
        if self.seed_option in changes:
            parts |= self._reseeded(check_argument(self.seed_option, changes[self.seed_option]))
        return self._with_parts(options, **parts)

    def _with_parts(self, options: Mapping[str, Any] | None = None, /, **parts: Any) -> Self:
        """Return a copy with other parts; nothing is checked."""
        other: Self = _restore(type(self), dict(self.options if options is None else options), {**self._parts, **parts})
        return other

    def _reseeded(self, seed: int) -> dict[str, Any]:
        """The parts that another public seed changes."""
        return {str(self.seed_option): seed}

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return all options, resolved, and what was solved; integers that may exceed 2^53 are decimal strings."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the object from its `to_dict`; its integers are checked, not solved again."""
        options = {name: data[name] for name in inspect.signature(cls).parameters if name in data}
        if cls.seed_option is not None:
            options[cls.seed_option] = stated_integer(cls.seed_option, data[cls.seed_option])
        agreed = cls.__new__(cls, **options)
        agreed.__dict__["_stated"] = data
        agreed.__init__(**options)  # type: ignore[misc]
        del agreed.__dict__["_stated"]
        agreed._set(_from_json=True)
        return agreed

    def to_json(self) -> str:
        """Return canonical JSON (RFC 8785), from which any machine builds the same object."""
        return self._canonical().decode()

    def _header(self) -> dict[str, Any]:
        return {"format": self.json_format, "version": JSON_VERSION}

    def _canonical(self) -> bytes:
        import rfc8785

        return rfc8785.dumps(self._header() | self.to_dict())

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


def read_agreement(text: str, json_format: str, choose: Callable[[dict[str, Any]], type[Agreement]]) -> Any:
    """Read an object from its `to_json`, integer by integer; ValueError for anything else.

    `choose` removes the fields that name the class from the JSON values, and returns the class.
    """
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
            "`sstq spec` for a mechanism or `sstq clip spec` for a survey"
        )
    chosen = choose(data)
    try:
        loaded = chosen.from_dict(data)
    except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"the {json_format} is incomplete or malformed: {error!r}") from error
    # Compared as text, in which true is not 1, so the digest is the one that anyone computes from the text.
    unknown = sorted({key for key, _ in _as_text(loaded.to_dict()) ^ _as_text(data)})
    if unknown:
        raise ValueError(f"the {json_format} has unknown or inconsistent fields: {unknown}")
    return loaded


def _as_text(values: dict[str, Any]) -> set[tuple[str, bytes]]:
    import rfc8785

    return {(name, rfc8785.dumps(value)) for name, value in values.items()}


def _restore(cls: type[Any], options: dict[str, Any], parts: dict[str, Any]) -> Any:
    restored = object.__new__(cls)
    restored.__dict__["options"] = MappingProxyType(options)
    restored._set(**parts)
    return restored
