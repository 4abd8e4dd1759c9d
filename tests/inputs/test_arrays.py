"""What people hold as vectors: everything that is exact is read, the rest is refused with what to do."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse

import sstq
from sstq.inputs.arrays import as_vectors

ROWS = [[1.0, 0.0, -2.0], [0.5, 0.25, 4.0]]


class Polars:
    """A Series or DataFrame of Polars: it speaks Arrow by its stream alone."""

    def __init__(self, data):
        self._data = data

    def __arrow_c_stream__(self, requested_schema=None):
        return self._data.__arrow_c_stream__(requested_schema)


class Pandas:
    """A Series or DataFrame of pandas: NumPy gets its values as objects; the Arrow stream has the index, too."""

    iloc = None

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return self._values

    def __arrow_c_stream__(self, requested_schema=None):
        raise AssertionError("its index would be taken for a coordinate")


def objects(values, shape=None):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array if shape is None else array.reshape(shape)


def column(kind=None, rows=ROWS):
    return pa.array(rows, type=kind or pa.list_(pa.float64()))


TABLE = pa.table({name: [row[i] for row in ROWS] for i, name in enumerate("abc")})
HELD = {
    "list": ROWS,
    "tuple of arrays": tuple(map(np.array, ROWS)),
    "big-endian": np.array(ROWS, dtype=">f8"),
    "half": np.array(ROWS, dtype=np.float16),
    "masked, nothing hidden": np.ma.array(ROWS, mask=False),
    "arrow lists": column(),
    "arrow large lists": column(pa.large_list(pa.float32())),
    "arrow fixed-size lists": column(pa.list_(pa.float16(), 3)),
    "arrow slice": column(rows=[[9.0, 9.0, 9.0], *ROWS, None])[1:3],
    "arrow chunks": pa.chunked_array([column(rows=ROWS[:1]), column(rows=ROWS[1:])]),
    "arrow table": TABLE,
    "arrow batch": TABLE.to_batches()[0],
    "arrow table of lists": pa.table({"x": column()}),
    "polars series": Polars(pa.chunked_array([column(pa.large_list(pa.float64()))])),
    "polars frame": Polars(TABLE),
    "pandas series of arrays": Pandas(objects(list(map(np.array, ROWS)))),
    "pandas series of lists": Pandas(objects(ROWS)),
    "pandas frame with a column of arrays": Pandas(
        objects(list(map(np.array, ROWS)), (2, 1))
    ),
    "pandas nullable floats": Pandas(np.array(ROWS, dtype=object)),
}


@pytest.mark.parametrize("held", HELD)
def test_vectors_are_read_from_what_holds_them(held):
    values = as_vectors(HELD[held])
    assert values.dtype in (np.float32, np.float64)
    assert values.dtype.isnative
    np.testing.assert_array_equal(values, ROWS)


def test_a_mechanism_takes_all_of_them():
    mechanism = sstq.mechanism("vqsgd", dim=3, epsilon=2.0)
    for held in HELD.values():
        assert len(mechanism.encode(held)) == 2
        assert mechanism.expected_mse(held) == mechanism.expected_mse(np.array(ROWS))
    with pytest.raises(ValueError, match="rows of x, which are the clients"):
        mechanism.expected_mse(column(), clients=5)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint32, np.uint64])
def test_one_hot_rows_of_integers_are_those_of_floats(dtype):
    one_hot = np.eye(4, dtype=dtype)
    for held in (
        one_hot,
        pa.array(one_hot.tolist(), type=pa.list_(pa.from_numpy_dtype(dtype))),
    ):
        np.testing.assert_array_equal(as_vectors(held), np.eye(4))


def test_an_array_of_numbers_is_one_vector_whoever_holds_it():
    for held in (
        pa.array([1.0, 2.0]),
        Polars(pa.chunked_array([[1.0], [2.0]])),
        Pandas(objects([1.0, 2])),
    ):
        np.testing.assert_array_equal(as_vectors(held), [1.0, 2.0])


def test_floats_are_not_copied():
    rows = np.ones((3, 4), dtype=np.float32)
    assert np.shares_memory(as_vectors(rows), rows)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 4)
    assert (
        as_vectors(lists).__array_interface__["data"][0]
        == lists.flatten().buffers()[1].address
    )


@pytest.mark.parametrize("integer", [2**53, -(2**53)])
def test_integers_pass_up_to_the_last_that_is_exact(integer):
    assert as_vectors(np.array([[integer]]))[0, 0] == integer
    for held in (
        np.array([[0], [integer + (1 if integer > 0 else -1)]]),
        [[0], [2**70]],
    ):
        with pytest.raises(
            ValueError, match=r"2\^53, got -?9007199254740993 in row 1|dtype object"
        ):
            as_vectors(held)
    with pytest.raises(ValueError, match="18446744073709551615 in row 0"):
        as_vectors(np.array([[2**64 - 1]], dtype=np.uint64))


MASKED = np.ma.array(ROWS, mask=[[False, False, True], [False, False, False]])
REFUSED = {
    "a masked entry": (MASKED, "must not be masked.*fill or drop"),
    "a list of masked rows": (list(MASKED), "must not be masked"),
    "a column of masked rows": (objects(list(MASKED)), "row 0 of X must not be masked"),
    "complex": (np.ones(3, dtype=complex), "dtype complex128; convert to float64"),
    "long double": (np.ones(3, dtype=np.longdouble), "dtype .*; convert to float64"),
    "strings": ([["1", "2"]], "dtype <U1"),
    "dates": (np.array(["2020-01-01"], dtype="M8[D]"), "dtype datetime64"),
    "rows of several lengths": ([[1.0], [1.0, 2.0]], "must be an array of numbers: .*inhomogeneous"),
    "nothing": (None, "got NoneType"),
    "a missing number": ([[1.0, None]], "NoneType in row 0, column 1; fill or drop"),
    "a missing row": (objects([*ROWS, None]), "row 2 of X must be an array of numbers, got NoneType"),
    "a column of several lengths": (objects([[1.0], [1.0, 2.0]]), "rows of one length, got 2 numbers in row 1"),
    "a sparse matrix": (scipy.sparse.eye_array(3), r"pass X\.toarray\(\)"),
    "arrow strings": (pa.array(["a"]), r"got string; pass the column that holds the vectors, .*X\['vectors'\]"),
    "an arrow table with names": (pa.table({"id": ["a"], "x": column(rows=ROWS[:1])}), "pass the column"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_read_exactly_is_refused_with_what_to_do(what):
    held, message = REFUSED[what]
    with pytest.raises(ValueError, match=message):
        as_vectors(held)


@pytest.mark.parametrize(
    ("held", "row"),
    [
        (column(rows=[*ROWS, None]), [np.nan] * 3),
        (column(rows=[*ROWS, [1.0, None, 2.0]]), [1.0, np.nan, 2.0]),
        (pa.chunked_array([column(), column(rows=[None])]), [np.nan] * 3),
        (column(rows=[*ROWS, [1.0]]), [np.nan] * 3),
        (
            pa.table(
                {"a": [1.0, 2.0, 3.0], "b": [0, 1, None], "c": [True, False, None]}
            ),
            [3.0, np.nan, np.nan],
        ),
    ],
)
def test_nulls_of_arrow_and_rows_of_another_length_are_nan(held, row):
    np.testing.assert_array_equal(as_vectors(held)[2], row)
    with pytest.raises(ValueError, match="X must be finite, got nan at row 2"):
        sstq.FrameUnit(3, 1.0).encode(held)


def test_what_speaks_arrow_is_read_without_pyarrow(monkeypatch):
    import sys

    lists = column()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    np.testing.assert_array_equal(as_vectors(lists), ROWS)
