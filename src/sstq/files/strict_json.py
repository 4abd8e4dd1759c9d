"""Strict JSON: refuses everything that other parsers might read differently."""

import json
from typing import Any, NoReturn

JsonObject = dict[str, Any]
"""An object of JSON: values by name."""


def read_json(text: str | bytes, *, booleans: bool = False) -> Any:
    """Parse JSON text (UTF-8 if it is bytes); ValueError for anything else or ambiguous.

    Refused are names that occur twice in an object, NaN and infinities, nesting beyond Python's stack and, because
    Python takes `true` for 1, booleans unless the format has them.
    """
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        value = json.loads(
            decoded, object_pairs_hook=_distinct, parse_constant=_refuse_constant
        )
        if not booleans:
            _refuse_booleans(value)
    except TypeError as error:
        raise ValueError(f"JSON must be text, got {type(text).__name__}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the name {name[:100]!r} occurs twice in one object")
        members[name] = value
    return members


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _refuse_booleans(value: Any) -> None:
    if isinstance(value, bool):
        raise ValueError(f"{json.dumps(value)} does not occur in this format")
    if isinstance(value, dict | list):
        members = list(value.values()) if isinstance(value, dict) else value
        # Most lists are long rows of numbers, whose types are compared without a call for each.
        if not {int, float}.issuperset(map(type, members)):
            for member in members:
                _refuse_booleans(member)
