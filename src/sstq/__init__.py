"""Estimate the mean of many people's vectors with ε-local differential privacy, in about 20 bits per person.

The public names are loaded on first use, so that `import sstq` and `sstq --help` are fast. `__init__.pyi` lists them.
"""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sstq._version import __version__ as __version__

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {
    alias.name: str(node.module)
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
    if not alias.name.startswith("_")
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    # Rooms, so that sstq.accounting works after `import sstq` alone.
    if not name.startswith("_") and find_spec(f"sstq.{name}") is not None:
        return import_module(f"sstq.{name}")
    raise AttributeError(f"module 'sstq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
