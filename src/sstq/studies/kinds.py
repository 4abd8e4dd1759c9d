"""What can be read from JSON: studies and questions by their kind, those of installed packages included."""

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeVar

from sstq.checks import check_option

GROUP = "sstq.studies"
"""The group of entry points by which installed packages name the modules of their studies."""

_Class = TypeVar("_Class", bound=type)


@cache
def _load_installed() -> None:
    """Import the modules that register the kinds of installed packages."""
    for entry in entry_points(group=GROUP):
        entry.load()


class Kinds:
    """Classes by their `kind`; `later` has the modules and names of those that are loaded when they are asked for."""

    def __init__(self, later: dict[str, str] | None = None) -> None:
        self._classes: dict[str, Any] = {}
        self._later = later or {}

    def add(self, cls: _Class) -> _Class:
        """Register a class by its kind; ValueError if another class has this kind."""
        kind: str = cls.kind  # type: ignore[attr-defined]
        registered = self._classes.setdefault(kind, cls)
        if registered.__qualname__ != cls.__qualname__:
            raise ValueError(
                f"kind must be a new one, got {kind!r}, which is that of {registered.__name__}"
            )
        self._classes[kind] = cls
        return cls

    def find(self, kind: Any) -> Any:
        """Return the class of this kind; ValueError if there is none."""
        names = {*self._classes, *self._later}
        if not isinstance(kind, str) or kind not in names:
            _load_installed()
            names |= set(self._classes)
        kind = check_option("kind", kind, tuple(sorted(names)))
        if kind not in self._classes:
            module, _, name = self._later[kind].partition(":")
            return getattr(import_module(module), name)
        return self._classes[kind]
