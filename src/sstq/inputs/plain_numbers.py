"""Vectors as a device reads them: whatever is not a number is nan."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.array_types import Floats
from sstq.inputs.arrays import as_vectors, is_arrow, of_dim
from sstq.inputs.cells import cells_of, number_of


def plain_numbers(X: ArrayLike) -> NDArray[Any]:
    """Convert X to an array of floats in which whatever is not a number is nan: masked, missing, or anything else.

    In a list of rows those of another length than most are nan.

    Examples:
        >>> plain_numbers([[1, None], [2, "x"], [3]])
        array([[ 1., nan],
               [ 2., nan],
               [nan, nan]])
    """
    if isinstance(X, np.ma.MaskedArray):
        X = np.where(np.ma.getmaskarray(X), np.nan, plain_numbers(np.ma.getdata(X)))
    if is_arrow(X):
        return _numbers_of_arrow(X)
    try:
        values = np.asarray(X)
    except Exception:
        if not isinstance(X, list | tuple):
            raise  # no array at all, whatever its values
        return _numbers_of_lists(X)
    if values.dtype.kind in "biuf":
        return values.astype(
            np.float32 if values.dtype == np.float32 else np.float64, copy=False
        )
    if values.dtype.kind == "O" and isinstance(X, list | tuple):
        return _numbers_of_lists(X)
    if values.dtype.kind == "O" and values.ndim == 1:
        return _numbers_of_lists(list(values))
    return np.array(
        [number_of(value) for value in values.flat], dtype=np.float64
    ).reshape(values.shape)


def any_vectors(X: ArrayLike, dim: int) -> NDArray[Any]:
    """Return X as (n, d) floats, nan for whatever is no number; ValueError for a wrong shape."""
    return of_dim(plain_numbers(X), dim)


def _numbers_of_lists(values: Sequence[Any]) -> Floats:
    """The numbers of a list, or of a list of rows."""
    read = [_row_of(value) for value in values]
    lengths = Counter(len(row) for row in read if row is not None)
    if not lengths:
        return np.array([number_of(value) for value in values], dtype=np.float64)
    width = lengths.most_common(1)[0][0]
    rows = np.full((len(values), width), np.nan)
    for place, row in enumerate(read):
        if row is not None and len(row) == width:
            rows[place] = row
    return rows


def _row_of(value: Any) -> list[float] | None:
    """The numbers of a list; None for what is none, and for an object that raises when it is read."""
    try:
        is_row = isinstance(value, list | tuple) or (
            isinstance(value, np.ndarray) and value.ndim > 0
        )
        return [number_of(number) for number in value] if is_row else None
    except Exception:  # an object may raise anything
        return None


def _numbers_of_arrow(X: Any) -> NDArray[Any]:
    """The numbers of a table, or of a column, whose cells may be lists."""
    try:
        return as_vectors(X)
    except Exception:
        of_polars = hasattr(X, "get_columns")
        columns = X.get_columns() if of_polars else list(getattr(X, "columns", [X]))
    if len(columns) == 1:
        return _numbers_of_lists(cells_of(columns[0]))
    return np.column_stack(
        [[number_of(cell) for cell in cells_of(column)] for column in columns]
    )
