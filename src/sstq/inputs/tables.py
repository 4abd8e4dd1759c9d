"""Tables: pandas, Polars, Arrow, or a dict of columns; or what one person holds, a dict of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from sstq.inputs.cells import Label, cells_of

if TYPE_CHECKING:
    from sstq.inputs.records import Column


class Columns(dict[str, Any]):
    """The columns of a table by name, each with one value per person whatever the values are."""


def as_table(X: Any, columns: Mapping[str, Column], strict: bool) -> dict[str, Any]:
    """The columns of a table by name; ValueError for what is no table, and if `strict` for columns that are missing."""
    if isinstance(X, Mapping) and _is_record(X, columns, strict):
        X = {name: [X.get(name)] for name in columns if name in X or not strict}
    if isinstance(X, np.ndarray | str | list) or not hasattr(X, "__getitem__"):
        raise ValueError(
            f"X must be a table, a dict of columns, or a dict of values, got {type(X).__name__}"
        )
    header = column_names(X)
    check_header("X", [name for name in columns if strict or name in header], header)
    table = {name: X[name] for name in columns if name in header}
    for name, values in table.items():
        if not _is_column(values):
            raise ValueError(
                f"column {name!r} must have one value per person, got {type(values).__name__}"
            )
    lengths = {name: len(values) for name, values in table.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"X must have columns of one length, got {lengths}")
    return table


def _is_record(
    X: Mapping[str, Any], columns: Mapping[str, Column], strict: bool
) -> bool:
    """Whether a dict has one person's values, not columns.

    Columns of single values decide, if there is one; a list of lists is a column of values that are lists. A list of
    missing values is a column, but on a device not one that is as long as a value: a vector may have no number.
    """
    if isinstance(X, Columns):
        return False
    asked = {name: X[name] for name in columns if name in X}
    if not asked:
        return not any(_is_column(value) for value in X.values())
    single = [value for name, value in asked.items() if not columns[name].holds_lists]
    if single:
        return not all(_is_column(value) for value in single)
    widths = {name: 0 if strict else columns[name].width for name in asked}
    return not all(
        _is_column(value) and _has_lists(value, widths[name])
        for name, value in asked.items()
    )


def _is_column(values: Any) -> bool:
    """Whether it has one item per person: texts and sets have other items than that, in order."""
    try:
        is_single = isinstance(values, str | bytes | Mapping | Set)
        has_shape = bool(getattr(values, "shape", True))
        return has_shape and not is_single and hasattr(values, "__len__")
    except Exception:  # an object may raise anything
        return False


def _has_lists(values: Any, width: int) -> bool:
    if not isinstance(values, list | tuple | np.ndarray):
        return True  # a column of Arrow, pandas or Polars
    cells = cells_of(values)
    missing = [cell for cell in cells if cell is None]
    return any(isinstance(cell, list | tuple | Set | np.ndarray) for cell in cells) or (
        0 < len(missing) == len(cells) != width
    )


def column_names(table: Any) -> list[str]:
    """The names of a table's columns: those of Arrow, of data frames, or the keys of a dict."""
    names = getattr(table, "column_names", None)
    return list(getattr(table, "columns", table) if names is None else names)


def check_header(table: str, names: Sequence[str], header: Sequence[str]) -> None:
    """Refuse a table in which a column that is asked for is missing, or there twice."""
    if missing := [name for name in names if name not in header]:
        raise ValueError(
            f"{table} must have the columns {', '.join(names)}, got none called {', '.join(missing)}"
        )
    if twice := [name for name in names if header.count(name) > 1]:
        raise ValueError(
            f"{table} must have every column once, got several called {twice[0]!r}"
        )


def writable(label: Label) -> bool:
    """Whether every reader of JSON gets this label as it is."""
    if isinstance(label, int):
        return abs(label) < 2**53
    return not any("\ud800" <= letter <= "\udfff" for letter in label)
