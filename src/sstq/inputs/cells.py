"""Single values as Python objects and numbers: each is converted on its own, and none makes a device refuse.

A value of a table may be anything: text, a date beyond the calendar, an object whose methods raise. What has no plain
value is `UNREADABLE`, which is neither a number nor a label.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sstq.array_types import Floats

Label = str | int


class _Unreadable:
    def __repr__(self) -> str:
        return "a value that cannot be read"


UNREADABLE = _Unreadable()


def cells_of(values: Any) -> list[Any]:
    """The values of a column as Python objects; None for what is missing: null, NaN, NaT, NA or masked."""
    if type(values) is np.ndarray and values.ndim > 1:
        return list(values)
    return [_cell(value) for value in _objects(values)]


def _cell(value: Any) -> Any:
    try:
        return None if _is_missing(value) else as_label(value, object)
    except Exception:
        return UNREADABLE


def _objects(values: Any) -> Sequence[Any]:
    for method in ("to_pylist", "to_list", "tolist"):  # Arrow; pandas and Polars; NumPy
        if hasattr(values, method):
            try:
                listed: list[Any] = getattr(values, method)()
            except BaseException as error:
                _reraise_unless_of_a_value(error)
                return [_object_at(values, place) for place in range(len(values))]
            return listed
    return list(values)


def _object_at(values: Any, place: int) -> Any:
    try:
        value = values[place]
        if hasattr(value, "as_py"):  # of Arrow
            return value.as_py()
        # a list of Polars is a column
        return value.to_list() if hasattr(value, "to_list") else value
    except BaseException as error:
        _reraise_unless_of_a_value(error)
        return UNREADABLE


def _reraise_unless_of_a_value(error: BaseException) -> None:
    """Polars panics at dates beyond the calendar; its error is no Exception."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def as_label(value: Any, kind: type) -> Any:
    """The value as a Python object; where labels are integers a whole float is one: nulls turn integers into floats."""
    plain = value.item() if isinstance(value, np.generic) else value
    return (
        int(plain)
        if kind is int and isinstance(plain, float) and plain.is_integer()
        else plain
    )


def number_of(value: Any) -> float:
    """The value as a float; nan for whatever is none."""
    try:
        return float(value)
    except Exception:
        return math.nan


def vector_of(value: Any, dim: int) -> Floats | None:
    """The numbers of one cell, nan for those that are missing; None for what is no vector of this length."""
    try:
        given = np.asarray(value)
        if given.dtype.kind == "O" and all(
            number is None or isinstance(number, int | float) for number in given
        ):
            given = given.astype(np.float64)
    except Exception:
        return None
    return (
        given.astype(np.float64)
        if given.shape == (dim,) and given.dtype.kind in "fiu"
        else None
    )
