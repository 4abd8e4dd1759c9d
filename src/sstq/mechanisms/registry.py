"""The registry of mechanisms by name, and reading one from its JSON form."""

import inspect
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar, cast

from sstq.checks import ArgumentError, did_you_mean
from sstq.files.strict_json import read_json
from sstq.mechanisms.agreement import JSON_FORMAT, JSON_VERSION
from sstq.mechanisms.base import Mechanism

Kind = TypeVar("Kind", bound=Mechanism)

GROUP = "sstq.mechanisms"
"""The group of entry points by which installed packages register their mechanisms."""

# The class of every mechanism, or the module and name from which it is loaded on first use.
_REGISTRY: dict[str, type[Mechanism] | str] = {
    "sstq": "sstq.mechanisms.sstq:SSTQ",
    "frameunit": "sstq.mechanisms.frameunit.frameunit:FrameUnit",
    "groupunit": "sstq.mechanisms.groupunit.groupunit:GroupUnit",
    "frequencies": "sstq.mechanisms.frequencies:Frequencies",
    "survey": "sstq.mechanisms.survey.survey:Survey",
    "vqsgd": "sstq.baselines.vqsgd:VqSGD",
    "sqkr": "sstq.baselines.sqkr:SQKR",
    "privunit": "sstq.baselines.privunit:PrivUnit",
    "privunitg": "sstq.baselines.privunit:PrivUnitG",
    "projunit": "sstq.baselines.projunit:ProjUnit",
}


@cache
def _installed() -> dict[str, EntryPoint]:
    """The mechanisms of installed packages, by the names of their entry points."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


_OURS = frozenset(_REGISTRY)


def list_mechanisms() -> list[str]:
    """Return the names of all mechanisms, those of installed packages last.

    Examples:
        >>> list_mechanisms()[:3]
        ['sstq', 'frameunit', 'groupunit']
    """
    return list(dict.fromkeys([*_REGISTRY, *_installed()]))


def installed_mechanisms() -> list[str]:
    """Return the names of the mechanisms of installed packages."""
    return [name for name in _installed() if name not in _OURS]


def register(cls: type[Kind]) -> type[Kind]:
    """Add your own mechanism to the registry, under its `name`; usable as a decorator.

    `mechanism`, `from_json`, files, aggregation, audits and the contract suite then know it, in this process. A package
    registers for all processes by entry points of the group "sstq.mechanisms". A name already in use is a ValueError.
    See examples/own-mechanism.

    Examples:
        >>> import sstq
        >>> @register
        ... class Renamed(sstq.FrameUnit):
        ...     name = "renamed-frameunit"
        >>> mechanism("renamed-frameunit", dim=3, epsilon=1.0).name
        'renamed-frameunit'
        >>> del _REGISTRY["renamed-frameunit"]
    """
    if not (isinstance(cls, type) and issubclass(cls, Mechanism)) or inspect.isabstract(
        cls
    ):
        raise TypeError(
            f"cls must be a subclass of sstq.Mechanism without abstract methods, got {cls!r}"
        )
    if cls.name in list_mechanisms():
        raise ValueError(f"name must be new, got {cls.name!r}, which is taken")
    _REGISTRY[cls.name] = cls
    return cls


def mechanism(name: str, **options: Any) -> Mechanism:
    """Create the mechanism with this name; an unknown or missing option is a TypeError.

    Examples:
        >>> mechanism("sstq", dim=100, epsilon=1.0, bits=4).message_bits
        12
    """
    taken = options_of(name)
    for option in options:
        if option not in taken:
            close = did_you_mean(option, taken)
            raise TypeError(
                f"{name} takes no option {option!r}; it takes {', '.join(taken)}{close}"
            )
    for option, parameter in taken.items():
        if parameter.default is parameter.empty and option not in options:
            raise TypeError(f"{name} needs the option {option!r}: pass {option}=VALUE")
    return mechanism_class(name)(**options)


def from_json(
    text: str, *, max_frame_size: int | None = None, max_steps: int | None = None
) -> Mechanism:
    """Read a mechanism from its `to_json`, integer by integer; ValueError for anything else.

    A few bytes of JSON can ask for any amount of memory and time, so the size of the frame (by default 40 rows per
    dimension, or 2048) and the steps of the representation (by default 128) are bounded.

    Examples:
        >>> original = mechanism("sstq", dim=100, epsilon=1.0)
        >>> from_json(original.to_json()).digest() == original.digest()
        True
    """
    if not isinstance(text, str) or text.strip().endswith(".json"):
        problem = f"must be a mechanism's JSON, got {text!r:.100}; to read a file pass pathlib.Path(name).read_text()"
        raise ArgumentError("text", problem)
    try:
        data = read_json(text)
    except ValueError as error:
        raise ValueError(f"the {JSON_FORMAT} is not JSON: {error}") from error
    return from_document(data, max_frame_size, max_steps)


def from_document(
    data: Any, max_frame_size: int | None = None, max_steps: int | None = None
) -> Mechanism:
    """Read a mechanism from the values of its JSON form, as `from_json` does from the text."""
    if not isinstance(data, dict) or data.get("format") != JSON_FORMAT:
        raise ValueError(
            f"format must be {JSON_FORMAT!r}, but this JSON is something else"
        )
    data = {name: value for name, value in data.items() if name != "format"}
    version = data.pop("version", None)
    if type(version) is not int or version != JSON_VERSION:
        raise ValueError(
            f"the {JSON_FORMAT} has version {version!r}, this library reads version {JSON_VERSION}; write it with "
            "`sstq spec`"
        )
    return from_values(data, max_frame_size, max_steps)


def from_values(
    data: dict[str, Any],
    max_frame_size: int | None = None,
    max_steps: int | None = None,
) -> Mechanism:
    """Read a mechanism from JSON values, within the bounds of `from_json`."""
    chosen = mechanism_class(data.pop("mechanism", None))
    solved = chosen.solved_class.from_dict(data)
    given = {"frame_size": max_frame_size, "steps": max_steps}
    for name, usual in solved.limits().items():
        most = given[name] or usual
        size = getattr(solved, name)
        if size > most:
            raise ValueError(
                f"{name} must be at most {most}, got {size!r}; pass max_{name}= to allow more"
            )
    return chosen.from_solved(solved)


def options_of(name: str) -> Mapping[str, inspect.Parameter]:
    """Return the options that the mechanism with this name takes."""
    return inspect.signature(mechanism_class(name)).parameters


def mechanism_class(name: Any) -> type[Mechanism]:
    """Return the class of the mechanism with this name."""
    entry = _REGISTRY.get(name) if isinstance(name, str) else None
    if isinstance(entry, type):
        return entry
    if isinstance(entry, str):
        module, _, attribute = entry.partition(":")
        loaded: type[Mechanism] = getattr(import_module(module), attribute)
    else:
        loaded = _from_package(name)
    _REGISTRY[name] = loaded
    return loaded


def _from_package(name: Any) -> type[Mechanism]:
    """Load a mechanism of an installed package."""
    if not isinstance(name, str) or name not in _installed():
        names = list_mechanisms()
        close = did_you_mean(name, names)
        raise ArgumentError(
            "mechanism",
            f"must be one of {', '.join(map(repr, names))}, got {name!r}{close}",
        )
    loaded = _installed()[name].load()
    is_class = isinstance(loaded, type) and issubclass(loaded, Mechanism)
    if is_class and loaded.name == name:
        return cast("type[Mechanism]", loaded)
    raise TypeError(
        f"the entry point {name!r} of {GROUP} must be a sstq.Mechanism of this name, got {loaded!r}"
    )
