"""The base of everything that clients and server agree on: options, the parameters solved from them, and JSON."""

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from sstq.aggregation.estimates import Estimate
from sstq.checks import check_arguments
from sstq.files.strict_json import read_json
from sstq.mechanisms.parameters import Parameters, without_defaults

JSON_VERSION = 2


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
