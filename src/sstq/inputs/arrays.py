"""Converting vectors to arrays of floats: from NumPy, lists, Arrow, Polars, pandas and PyTorch.

Only exact conversions are made: half precision, booleans, and integers up to 2^53. Masked entries, strings and other
objects are refused, with their row if they have one. Infinity and nan pass, and Arrow's nulls become nan: the caller
checks them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sstq.inputs.cells import cells_of, number_of, vector_of

_EXACT = 2**53  # no integer up to here is rounded by float64
_NUMBERS = (bool, int, float, np.number, np.bool_)
_REMEDIES = {"detach": "X.detach().cpu().float().numpy()", "toarray": "X.toarray()"}


def as_vectors(X: ArrayLike, name: str = "X") -> NDArray[Any]:
    """Convert X to an array of float32 or float64 of the same shape; errors call it `name`.

    A column of lists is (n, d), and so is a table that has only columns of numbers, or only one of lists.

    ValueError if X is something else, or the conversion would change it.

    Examples:
        >>> as_vectors([[1, 0, 0], [0, 0, 1]])
        array([[1., 0., 0.],
               [0., 0., 1.]])
    """
    if np.ma.is_masked(X) or (
        isinstance(X, list | tuple) and any(np.ma.is_masked(row) for row in X)
    ):
        raise ValueError(
            f"{name} must not be masked, got a masked entry; fill or drop it first"
        )
    try:
        values = (
            np.asarray(X)
            if (from_arrow := _from_arrow(X, name)) is None
            else from_arrow
        )
    except (ValueError, TypeError, RuntimeError) as error:
        # lists of several lengths; tensors elsewhere or with grad
        raise ValueError(
            f"{name} must be an array of numbers: {error}{_remedy(X)}"
        ) from error
    if values.dtype == object:
        values = _from_objects(values, name, X)
    return as_floats(values, name)


def finite_vectors(X: ArrayLike, dim: int) -> NDArray[Any]:
    """Return X as (n, d) floats; ValueError for a wrong shape or dtype, masks, nan or infinity."""
    rows = of_dim(as_vectors(X), dim)
    # nan is the least and the largest of all numbers, and nothing is copied
    if not np.isfinite([rows.min(initial=0.0), rows.max(initial=0.0)]).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ValueError(
            f"X must be finite, got {rows[row, column]} at row {row}, column {column}"
        )
    return rows


def finite_rows(
    read: NDArray[Any], name: str, columns: tuple[str, ...], row: int
) -> NDArray[Any]:
    """Convert numbers of a file to floats; ValueError, with the file's name and the row, unless all are finite."""
    rows = as_floats(read, f"{name}: vectors", row)
    finite = np.isfinite(rows)
    if not finite.all():
        at, place = np.argwhere(~finite)[0]
        got = "no number" if np.isnan(rows[at, place]) else rows[at, place]
        column = columns[place] if columns else place
        wanted = f"{name}: vectors must be {rows.shape[1]} finite numbers"
        raise ValueError(
            f"{wanted}, got {got} in row {row + at}, column {column}; fill or drop it, or name other columns"
        )
    return rows


def of_dim(rows: NDArray[Any], dim: int) -> NDArray[Any]:
    """Return vectors as (n, d); ValueError for another shape."""
    if rows.shape[-1:] != (dim,) or rows.ndim > 2:
        raise ValueError(f"X must have shape ({dim},) or (n, {dim}), got {rows.shape}")
    return np.atleast_2d(rows)


def as_floats(values: NDArray[Any], name: str, first: int = 0) -> NDArray[Any]:
    """Convert numbers to native float32 or float64, copied only if needed; rows are numbered from `first` on."""
    dtype = values.dtype
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(
            f"{name} must be floats, integers or booleans, got dtype {dtype}; convert to float64 first"
        )
    if dtype.kind == "f" and dtype.itemsize > 2:
        return values.astype(dtype.newbyteorder("="), copy=False)
    if dtype.itemsize == 8:
        inexact = np.argwhere((values > _EXACT) | (values < -_EXACT))
        if len(inexact):
            row = f" in row {first + inexact[0][0]}" if values.ndim > 1 else ""
            raise ValueError(
                f"{name} must be integers of at most 2^53, got {values[tuple(inexact[0])]}{row}"
            )
    return values.astype(np.float32 if dtype.itemsize <= 2 else np.float64)


def is_arrow(X: Any) -> bool:
    """Whether X is a table or column of Arrow or Polars; pandas converts to NumPy by itself."""
    return not hasattr(X, "iloc") and (
        hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")
    )


def is_arrow_number(kind: Any) -> bool:
    """Whether `arrow_numbers` takes columns of this Arrow type, one per coordinate."""
    from pyarrow import types

    return bool(
        types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)
    )


def is_arrow_list(kind: Any) -> bool:
    """Whether a column of this Arrow type has vectors of numbers as lists."""
    return is_any_arrow_list(kind) and is_arrow_number(kind.value_type)


def is_any_arrow_list(kind: Any) -> bool:
    """Whether a column of this Arrow type has lists of whatever kind."""
    from pyarrow import types

    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
    )


def arrow_numbers(columns: Sequence[Any], dim: int) -> NDArray[Any]:
    """Convert an Arrow array of lists, or one Arrow array per coordinate, to numbers, (n, dim).

    Nulls are nan, and so are rows of another length, and whatever is no number in columns of other types.
    """
    lists = columns[0]
    if is_arrow_list(lists.type):
        return _numbers_of_lists(lists, dim)
    if is_any_arrow_list(lists.type):
        vectors = (vector_of(value, dim) for value in cells_of(lists))
        return np.array(
            [np.full(dim, np.nan) if vector is None else vector for vector in vectors]
        ).reshape(-1, dim)
    return np.stack([_numbers(column) for column in columns], axis=1)


def _numbers_of_lists(lists: Any, dim: int) -> NDArray[Any]:
    import pyarrow.compute

    whole = pyarrow.compute.equal(
        pyarrow.compute.list_value_length(lists), dim
    ).fill_null(False)
    values = _numbers(
        (lists if whole.true_count == len(lists) else lists.filter(whole)).flatten()
    ).reshape(-1, dim)
    if len(values) == len(lists):
        return values
    rows = np.full((len(lists), dim), np.nan)
    rows[whole.to_numpy(zero_copy_only=False)] = values
    return rows


def _numbers(column: Any) -> NDArray[Any]:
    if not is_arrow_number(column.type):
        return np.array([number_of(cell) for cell in cells_of(column)])
    numbers = column.cast("float64", safe=False) if column.null_count else column
    return np.asarray(numbers.to_numpy(zero_copy_only=False))


def arrow_labels(column: Any, name: str, place: str, first: int = 0) -> NDArray[Any]:
    """Convert an Arrow array of text, integers, booleans or dates to text, in an array of Python's strings.

    The 7 of a Parquet file and the "7" of a CSV file are one label. ValueError, with the row, for nulls.
    """
    import pyarrow

    check_label_type(column.type, name, place)
    if column.null_count:
        row = first + int(
            np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]
        )
        raise ValueError(
            f"{place}: column {name!r} must not have nulls, got one in row {row}; fill or drop it first"
        )
    return np.asarray(
        column.cast(pyarrow.string()).to_numpy(zero_copy_only=False), dtype=object
    )


def check_label_type(kind: Any, name: str, place: str) -> None:
    """Raise ValueError for an Arrow type that cannot be labels."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    text = types.is_string(kind) or types.is_large_string(kind)
    if not (
        text or types.is_integer(kind) or types.is_boolean(kind) or types.is_date(kind)
    ):
        wanted = "must be text, integers or booleans"
        raise ValueError(
            f"{place}: column {name!r} {wanted}, got {kind}; cast it to text first"
        )


def _from_arrow(X: Any, name: str) -> NDArray[Any] | None:
    """Convert objects that support Arrow; None for others, and for pandas, which adds its index."""
    if not is_arrow(X):
        return None
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError:
        # objects that support Arrow without PyArrow support NumPy as well
        return None
    stream = hasattr(X, "__arrow_c_stream__")
    whole = pyarrow.chunked_array(X if stream else [pyarrow.array(X)])
    table = pyarrow.types.is_struct(whole.type)
    columns = whole.flatten() if table else [whole]
    if len(columns) == 1 and is_arrow_list(columns[0].type):
        dim = (
            pyarrow.compute.max(pyarrow.compute.list_value_length(columns[0])).as_py()
            or 0
        )
        single = columns[0].num_chunks == 1  # then nothing is copied
        return arrow_numbers(
            [columns[0].chunk(0) if single else columns[0].combine_chunks()], dim
        )
    if not columns or not all(is_arrow_number(column.type) for column in columns):
        wanted = f"{name} must be one column of lists of numbers, or columns of numbers only, got {whole.type}"
        raise ValueError(
            f"{wanted}; pass the column that holds the vectors, for example X['vectors']"
        )
    vectors = arrow_numbers(
        [column.combine_chunks() for column in columns], len(columns)
    )
    return vectors if table else vectors[:, 0]


def _from_objects(values: NDArray[Any], name: str, X: Any) -> NDArray[Any]:
    """Convert numbers or rows that NumPy keeps as objects: pandas' nullable numbers, and columns of arrays."""
    strange = [
        place
        for place, value in np.ndenumerate(values)
        if not isinstance(value, _NUMBERS)
    ]
    if not strange:
        return np.array(values.tolist())
    if not values.ndim:
        raise ValueError(
            f"{name} must be an array of numbers, got {type(X).__name__}{_remedy(X)}"
        )
    if values.size > len(values):
        row, column = strange[0][:2]
        kind = type(values[strange[0]]).__name__
        raise ValueError(
            f"{name} must be numbers, got {kind} in row {row}, column {column}; fill or drop it first"
        )
    rows = [
        as_vectors(row, f"row {number} of {name}")
        for number, row in enumerate(values.flat)
    ]
    for number, row in enumerate(rows):
        if row.shape != rows[0].shape:
            raise ValueError(
                f"{name} must have rows of one length, got {row.size} numbers in row {number}"
            )
    return np.stack(rows)


def _remedy(X: Any) -> str:
    return next(
        (
            f"; pass {remedy}"
            for method, remedy in _REMEDIES.items()
            if hasattr(X, method)
        ),
        "",
    )
