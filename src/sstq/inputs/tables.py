"""Columns of tables: pandas, Polars, Arrow, NumPy or lists, as Python objects, with None for what is missing."""

import math
from collections.abc import Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

Label = str | int


def columns_of(X: Any, names: list[str], strict: bool) -> dict[str, Any]:
    """The columns of a table by name; ValueError for what is no table, and if `strict` for columns that are missing."""
    if isinstance(X, np.ndarray | str | list) or not hasattr(X, "__getitem__"):
        raise ValueError(f"X must be a table or a dict of columns, got {type(X).__name__}")
    header = column_names(X)
    check_header("X", names if strict else [name for name in names if name in header], header)
    columns = {name: X[name] for name in names if name in header}
    for name, values in columns.items():
        # Whatever the values are: texts and sets have other items than one per person, in order.
        no_column = isinstance(values, str | bytes | Mapping | Set) or not getattr(values, "shape", True)
        if no_column or not hasattr(values, "__len__"):
            raise ValueError(f"column {name!r} must have one value per person, got {type(values).__name__}")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"X must have columns of one length, got {lengths}")
    return columns


def column_names(table: Any) -> list[str]:
    """The names of a table's columns: those of Arrow, of data frames, or the keys of a dict."""
    names = getattr(table, "column_names", None)
    return list(getattr(table, "columns", table) if names is None else names)


def check_header(table: str, names: list[str], header: list[str]) -> None:
    """Refuse a table in which a column that is asked for is missing, or there twice."""
    if missing := [name for name in names if name not in header]:
        raise ValueError(f"{table} must have the columns {', '.join(names)}, got none called {', '.join(missing)}")
    if twice := [name for name in names if header.count(name) > 1]:
        raise ValueError(f"{table} must have every column once, got several called {twice[0]!r}")


def cells_of(values: Any) -> list[Any]:
    """The values of a column as Python objects; None for what is missing: null, NaN, NaT, NA or masked."""
    if type(values) is np.ndarray and values.ndim > 1:
        return list(values)
    for method in ("to_pylist", "to_list", "tolist"):  # Arrow; pandas and Polars; NumPy
        if hasattr(values, method):
            values = getattr(values, method)()
            break
    return [None if _missing(value) else as_label(value, object) for value in values]


def _missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def as_label(value: Any, kind: type) -> Any:
    """The value as a Python object; where labels are integers a whole float is one: nulls turn integers into floats."""
    plain = value.item() if isinstance(value, np.generic) else value
    return int(plain) if kind is int and isinstance(plain, float) and plain.is_integer() else plain


def vector_of(value: Any, dim: int) -> NDArray[np.float64] | None:
    """The numbers of one cell, nan for those that are missing; None for what is no vector of this length."""
    try:
        given = np.asarray(value)
        if given.dtype.kind == "O" and all(number is None or isinstance(number, int | float) for number in given):
            given = given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return given.astype(np.float64) if given.shape == (dim,) and given.dtype.kind in "fiu" else None


def writable(label: Label) -> bool:
    """Whether every reader of JSON gets this label as it is."""
    if isinstance(label, int):
        return abs(label) < 2**53
    return not any("\ud800" <= letter <= "\udfff" for letter in label)
