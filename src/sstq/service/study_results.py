"""What studies have found, as JSON values with intervals of 95 %, and as CSV."""

from typing import Any

from sstq.service.rendering import LEVEL, as_json, write_csv
from sstq.studies import Study


def described(study: Study) -> dict[str, Any] | None:
    """Return what is known so far; None if that is nothing yet."""
    found = study.so_far
    if found is None:
        return None
    known = found.details(LEVEL)
    if study.asks_next is not None:
        known = known | {"prefixes": study.asks_next}
    plain: dict[str, Any] = as_json(known)
    return plain


def for_readers(found: dict[str, Any]) -> dict[str, Any]:
    """Return what is described without what the study asks about next."""
    return found | dict.fromkeys(found.keys() & {"prefixes"})


def as_csv(found: dict[str, Any]) -> str:
    """Return the table of what is described as CSV; curves one below the other."""
    tables = list(map(_columns, found.get("curves", [for_readers(found)])))
    rows = (row for table in tables for row in zip(*table.values(), strict=True))
    return write_csv(tables[0] if tables else (), rows)


def _columns(table: dict[str, Any]) -> dict[str, list[Any]]:
    """The columns of a table, which come first, and what is said once of a curve, in every row."""
    lists = {name: own for name, own in table.items() if isinstance(own, list)}
    size = len(next(iter(lists.values()), ()))
    named = {
        name: [table[name]] * size for name in ("question", "item") if name in table
    }
    return named | {name: own for name, own in lists.items() if len(own) == size}
