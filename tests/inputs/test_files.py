import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sstq.checks import ArgumentError
from sstq.inputs import Vectors, people
from sstq.inputs.vector_tables import VectorColumns, open_vectors

DIM = 5


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """Two rows a chunk, so that every file here has several."""
    monkeypatch.setattr(people, "_NUMBERS_AT_A_TIME", 2 * DIM)


@pytest.fixture
def vectors():
    return np.random.default_rng(1).normal(size=(7, DIM))


def read(path, dim=DIM, **options):
    file = open_vectors(path, VectorColumns(dim, **options))
    once, twice = ([piece.X for piece in file.pieces()] for _ in range(2))
    assert all(len(chunk) <= 2 for chunk in once)
    together = np.concatenate(once)
    assert file.count == len(together)
    assert np.array_equal(together, np.concatenate(twice))
    return together


def test_later_pieces_say_from_which_row_they_are_counted(tmp_path, vectors):
    np.save(tmp_path / "x.npy", vectors)
    pieces = open_vectors(tmp_path / "x.npy", VectorColumns(DIM)).pieces()
    first, second, *_ = (piece.place for piece in pieces)
    assert first.endswith("x.npy")
    assert second.endswith("x.npy, counted from row 2")


def parquet(path, columns):
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
def test_npy_of_every_float_type_and_order(tmp_path, vectors, dtype):
    stored = np.array(vectors, dtype=dtype, order="F")
    np.save(tmp_path / "x.npy", stored)
    result = read(tmp_path / "x.npy")
    assert result.dtype == stored.dtype.newbyteorder("=")
    assert np.array_equal(result, stored)


def test_the_kind_is_in_the_content_not_in_the_name(tmp_path, vectors):
    with open(tmp_path / "x.parquet", "wb") as file:
        np.save(file, vectors)
    assert np.array_equal(read(tmp_path / "x.parquet"), vectors)


def test_one_vector_may_come_without_an_axis_for_the_clients(tmp_path, vectors):
    np.save(tmp_path / "x.npy", vectors[0])
    assert np.array_equal(read(tmp_path / "x.npy"), vectors[:1])


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float16, np.bool_])
def test_what_is_exact_as_a_float_is_read(tmp_path, dtype):
    stored = np.eye(7, DIM).astype(dtype)
    np.save(tmp_path / "x.npy", stored)
    lists = pa.array(stored.tolist(), type=pa.list_(pa.from_numpy_dtype(dtype)))
    parquet(tmp_path / "x.parquet", {"client": list(range(7)), "x": lists})
    parquet(tmp_path / "c.parquet", {f"c{i}": stored[:, i] for i in range(DIM)})
    for name in ("x.npy", "x.parquet", "c.parquet"):
        assert np.array_equal(read(tmp_path / name), np.eye(7, DIM))


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_integers_that_a_float_would_round_are_refused_with_their_row(tmp_path, kind):
    rows = np.ones((7, DIM), dtype=np.int64)
    path = tmp_path / f"x.{kind}"
    rows[5, 3] = 2**53 + 1
    if kind == "parquet":
        parquet(path, {"x": rows.tolist()})
    else:
        np.save(path, rows)
    with pytest.raises(
        ValueError,
        match=rf"x\.{kind}: vectors must be .* 2\^53, got 9007199254740993 in row 5",
    ):
        list(open_vectors(path, VectorColumns(DIM)).pieces())


@pytest.mark.parametrize("shape", [(3, DIM + 1), (DIM + 1,), (2, 3, DIM), ()])
def test_other_shapes_are_refused(tmp_path, shape):
    np.save(tmp_path / "x.npy", np.zeros(shape))
    with pytest.raises(ValueError, match=r"shape \(5,\) or \(n, 5\)"):
        open_vectors(tmp_path / "x.npy", VectorColumns(DIM))


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_numbers_that_are_not_finite_are_found_in_a_later_chunk(
    tmp_path, vectors, value
):
    vectors[5, 3] = value
    pieces = open_vectors(
        parquet(tmp_path / "x.parquet", {"x": list(vectors)}), VectorColumns(DIM)
    ).pieces()
    next(pieces)
    with pytest.raises(
        ValueError,
        match=r"must be 5 finite numbers, got (no number|-inf) in row 5, column 3",
    ):
        list(pieces)


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_truncated_files_are_refused_by_name(tmp_path, vectors, kind):
    whole = tmp_path / f"whole.{kind}"
    if kind == "npy":
        np.save(whole, vectors)
    else:
        parquet(whole, {"x": list(vectors)})
    cut = tmp_path / f"cut.{kind}"
    cut.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(ValueError, match=rf"cut\.{kind} is truncated"):
        list(open_vectors(cut, VectorColumns(DIM)).pieces())


def test_columns_of_npy_are_refused(tmp_path, vectors):
    np.save(tmp_path / "x.npy", vectors)
    with pytest.raises(
        ValueError, match=r"columns must be left out for the \.npy file"
    ):
        open_vectors(tmp_path / "x.npy", VectorColumns(DIM, columns=["a"]))


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float64(), DIM)],
)
def test_parquet_lists(tmp_path, vectors, kind):
    column = pa.array(list(vectors), type=kind)
    path = parquet(tmp_path / "x.parquet", {"client": list(range(7)), "x": column})
    expected = vectors.astype(kind.value_type.to_pandas_dtype())
    assert np.array_equal(read(path), expected)
    assert np.array_equal(read(path, columns=["x"]), expected)


def test_parquet_columns_of_the_wrong_number_or_type(tmp_path, vectors):
    path = parquet(
        tmp_path / "x.parquet", {f"c{i}": vectors[:, i] for i in range(DIM - 1)}
    )
    with pytest.raises(
        ValueError, match=r"columns must be 5 columns of .* \(c0, c1, c2, c3\), got 4"
    ):
        open_vectors(path, VectorColumns(DIM))
    path = parquet(
        tmp_path / "y.parquet",
        {"a": list(vectors), "b": list(vectors), "c": ["word"] * 7},
    )
    with pytest.raises(
        ValueError, match=r"columns must be given for .* 2 columns of lists"
    ):
        open_vectors(path, VectorColumns(DIM))
    with pytest.raises(ValueError, match="must be 5 columns"):
        open_vectors(path, VectorColumns(DIM, columns=["c"]))
    with pytest.raises(ValueError, match=r"\(a, b, c\), got 'd'"):
        open_vectors(path, VectorColumns(DIM, columns=["d"]))
    path = parquet(
        tmp_path / "z.parquet",
        {f"c{i}": vectors[:, i] for i in range(DIM - 1)} | {"word": ["x"] * 7},
    )
    with pytest.raises(
        ValueError,
        match=r"one column of lists or columns of numbers .*, got word: string",
    ):
        open_vectors(path, VectorColumns(DIM))


def test_parquet_columns_beside_those_of_the_vectors(tmp_path, vectors):
    columns = {f"c{i}": vectors[:, i] for i in range(DIM)}
    path = parquet(tmp_path / "x.parquet", {"client": list(range(7))} | columns)
    with pytest.raises(
        ValueError, match=r"columns must be 5 columns of .*, such as client,c0,c1,c2,c3"
    ):
        open_vectors(path, VectorColumns(DIM))
    assert np.array_equal(read(path, columns=list(columns)), vectors)


def test_parquet_nulls_and_other_lengths(tmp_path, vectors):
    rows = vectors.tolist()
    for columns, place in (
        ({"x": [*rows[:5], None, rows[6]]}, "0"),
        ({"x": [*rows[:5], [1.0, None, 2.0, 3.0, 4.0]]}, "1"),
        ({"x": [*rows[:5], [1.0, 2.0]]}, "0"),
        ({f"c{i}": [*rows[i], None, None] for i in range(DIM)}, "c0"),
    ):
        path = parquet(tmp_path / "x.parquet", columns)
        message = rf"x\.parquet: vectors must be 5 finite numbers, got no number in row 5, column {place}; fill or drop"
        with pytest.raises(ValueError, match=message):
            list(open_vectors(path, VectorColumns(DIM)).pieces())


@pytest.mark.parametrize(
    "header",
    ["", "\ufeff", '"1st, of five",b,c,d,e\n', "2020_1,2020_2,2020_3,2020_4,2020_5\n"],
)
def test_csv_with_and_without_a_header(tmp_path, vectors, header):
    lines = [",".join(map(repr, row)) for row in vectors.tolist()]
    (tmp_path / "x.csv").write_text(header + "\r\n".join(lines) + "\n\n", newline="")
    assert np.array_equal(read(tmp_path / "x.csv"), vectors)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a,b,c,d,e\n1,2,3,4,5\n1,2,,4,5\n",
            "got no number in row 1, column c; fill or drop it",
        ),
        ("1,2,,4,5\n1,2,3,4,5\n", "got no number in row 0, column 2"),
        (",,,,\n1,2,3,4,5\n", "got no number in row 0, column 0"),
        ("1,2,NA,4,5\n", "got no number in row 0, column 2"),
        ("1,2,3,4,5\n1,2,1_0,4,5\n", "got no number in row 1, column 2"),
        ("1,2,3,4,5\n1,2,nan,4,5\n", "got no number in row 1, column 2"),
        ("1,2,3,4,5\n1,2,inf,4,5\n", "got inf in row 1, column 2"),
        ("1,2,3,4,5\n1,2,3,4\n", "line 2 has 4 values, the first line has 5"),
        ("id,a,b,c,d,e\nx,1,2,3,4,5\n", "\\(id, a, b, c, d, e\\), such as a,b,c,d,e"),
        ('1,2,3,4,"5\n', "unexpected end of data"),
    ],
)
def test_csv_that_is_not_all_numbers_is_refused_with_its_row(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"x\.csv.*{message}"):
        list(open_vectors(tmp_path / "x.csv", VectorColumns(DIM)).pieces())


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_columns_of_csv_are_chosen_by_name_in_the_given_order(tmp_path, delimiter):
    path = tmp_path / "x.csv"
    path.write_text("id,a,b,note\n7,1,2,x\n8,3,4,y\n".replace(",", delimiter))
    assert read(path, dim=2, columns=["b", "a"]).tolist() == [[2, 1], [4, 3]]
    opened = open_vectors(path, VectorColumns(None, columns=["b", "a"]))
    assert (opened.dim, opened.columns) == (2, ("b", "a"))
    with pytest.raises(
        ArgumentError,
        match=r"columns must be columns of .* \(id, a, b, note\), got 'c'",
    ):
        open_vectors(path, VectorColumns(1, columns=["c"]))
    with pytest.raises(ArgumentError, match=r"columns must be 3 columns of .*, got 2"):
        open_vectors(path, VectorColumns(3, columns=["a", "b"]))
    with pytest.raises(
        ArgumentError, match=r"columns must be 2 columns of .*, such as a,b"
    ):
        open_vectors(path, VectorColumns(2))
    with pytest.raises(
        ArgumentError, match=r"'id', which identifies people; such as a,b$"
    ):
        open_vectors(path, VectorColumns(None))
    with pytest.raises(
        ValueError, match=r"got no number in row 0, column note; fill or drop it"
    ):
        read(path, dim=2, columns=["a", "note"])


def test_the_length_may_be_that_of_the_file(tmp_path, vectors):
    np.save(tmp_path / "x.npy", vectors)
    np.savetxt(tmp_path / "x.csv", vectors, delimiter=",")
    parquet(tmp_path / "lists.parquet", {"x": list(vectors)})
    parquet(tmp_path / "floats.parquet", {f"c{i}": vectors[:, i] for i in range(DIM)})
    for name in ("x.npy", "x.csv", "lists.parquet", "floats.parquet"):
        assert open_vectors(tmp_path / name, VectorColumns(None)).dim == DIM
    (tmp_path / "x.csv").write_text("id,a\n1,2\n")
    with pytest.raises(ArgumentError, match=r"columns must be .*such as a"):
        open_vectors(tmp_path / "x.csv", VectorColumns(None))


def test_a_file_named_twice_is_refused_whatever_the_name(
    tmp_path, vectors, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", vectors)
    np.save("copy.npy", vectors)
    Path("hard.npy").hardlink_to("x.npy")
    Path("soft.npy").symlink_to("x.npy")
    held = Vectors(DIM, clip=1.0)
    assert held.open(["x.npy", "copy.npy"]).count == 14
    for other in ("x.npy", tmp_path / "x.npy", "hard.npy", "soft.npy"):
        with pytest.raises(
            ArgumentError,
            match=r"nobody is encoded twice: .* is the same file as x\.npy",
        ):
            held.open(["x.npy", "copy.npy", other])


def test_other_files_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", np.zeros((2, DIM)))
    for content in (b"1 2 3", b"\x00\xff\xfe", (tmp_path / "x.npz").read_bytes()):
        (tmp_path / "x.txt").write_bytes(content)
        with pytest.raises(
            ValueError,
            match=r"x\.txt is not a \.npy, Parquet or CSV file|must be 5 columns",
        ):
            open_vectors(tmp_path / "x.txt", VectorColumns(DIM))
    with pytest.raises(FileNotFoundError):
        open_vectors(tmp_path / "none.npy", VectorColumns(DIM))


def test_without_pyarrow_the_error_names_the_extra(tmp_path, vectors, monkeypatch):
    path = parquet(tmp_path / "x.parquet", {"x": list(vectors)})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"sstq\[data\]"):
        open_vectors(path, VectorColumns(DIM))
