import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sstq import vector_files
from sstq.vector_files import open_vectors

DIM = 5


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """Two rows a chunk, so that every file here has several."""
    monkeypatch.setattr(vector_files, "_NUMBERS_AT_A_TIME", 2 * DIM)


@pytest.fixture
def vectors():
    return np.random.default_rng(1).normal(size=(7, DIM))


def read(path, **options):
    file = open_vectors(path, DIM, **options)
    once, twice = (list(file.chunks()) for _ in range(2))
    assert all(len(chunk) <= 2 for chunk in once)
    together = np.concatenate(once)
    assert file.count == len(together)
    assert np.array_equal(together, np.concatenate(twice))
    return together


def parquet(path, columns):
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f4", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_every_float_type_and_order(tmp_path, vectors, dtype, order):
    stored = np.array(vectors, dtype=dtype, order=order)
    np.save(tmp_path / "x.npy", stored)
    result = read(tmp_path / "x.npy")
    assert result.dtype == stored.dtype.newbyteorder("=")
    assert np.array_equal(result, stored)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_of_either_order_compressed_or_not(tmp_path, vectors, save, order):
    save(tmp_path / "x.npz", only=np.asarray(vectors, order=order))
    assert np.array_equal(read(tmp_path / "x.npz"), vectors)
    assert np.array_equal(read(tmp_path / "x.npz", key="only"), vectors)


def test_the_kind_is_in_the_content_not_in_the_name(tmp_path, vectors):
    with open(tmp_path / "x.parquet", "wb") as file:
        np.save(file, vectors)
    assert np.array_equal(read(tmp_path / "x.parquet"), vectors)


def test_one_vector_may_come_without_an_axis_for_the_clients(tmp_path, vectors):
    np.save(tmp_path / "x.npy", vectors[0])
    assert np.array_equal(read(tmp_path / "x.npy"), vectors[:1])


def test_no_vectors_are_no_vectors(tmp_path):
    np.save(tmp_path / "x.npy", np.empty((0, DIM)))
    file = open_vectors(tmp_path / "x.npy", DIM)
    assert file.count == 0
    assert list(file.chunks()) == []


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float16, np.complex128, np.bool_, object])
def test_other_types_are_refused(tmp_path, dtype):
    np.save(tmp_path / "x.npy", np.zeros((3, DIM), dtype=dtype))
    with pytest.raises(ValueError, match=r"x\.npy.*float32 or float64"):
        open_vectors(tmp_path / "x.npy", DIM)


@pytest.mark.parametrize("shape", [(3, DIM + 1), (DIM + 1,), (2, 3, DIM), ()])
def test_other_shapes_are_refused(tmp_path, shape):
    np.save(tmp_path / "x.npy", np.zeros(shape))
    with pytest.raises(ValueError, match=r"shape \(5,\) or \(n, 5\)"):
        open_vectors(tmp_path / "x.npy", DIM)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["npy", "npz", "parquet"])
def test_numbers_that_are_not_finite_are_found_in_a_later_chunk(tmp_path, vectors, kind, value):
    vectors[5, 3] = value
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, vectors)
    elif kind == "npz":
        np.savez(path, vectors)
    else:
        parquet(path, {"x": list(vectors)})
    chunks = open_vectors(path, DIM).chunks()
    next(chunks)
    with pytest.raises(ValueError, match=r"in row 5, column 3; it must be finite"):
        list(chunks)


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet"])
def test_truncated_files_are_refused_by_name(tmp_path, vectors, kind):
    whole = tmp_path / f"whole.{kind}"
    if kind == "npy":
        np.save(whole, vectors)
    elif kind == "npz":
        np.savez(whole, vectors)
    else:
        parquet(whole, {"x": list(vectors)})
    cut = tmp_path / f"cut.{kind}"
    cut.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(ValueError, match=rf"cut\.{kind} is truncated"):
        list(open_vectors(cut, DIM).chunks())


def test_a_small_file_in_fortran_order_is_not_unpacked_to_a_large_array(tmp_path):
    large = np.zeros((1 << 21, DIM), order="F")
    np.savez_compressed(tmp_path / "x.npz", large)
    with pytest.raises(
        ValueError, match=r"Fortran order .* 83,886,208 bytes; save it in C order: np\.savez_compressed"
    ):
        open_vectors(tmp_path / "x.npz", DIM)
    np.savez(tmp_path / "x.npz", large)
    assert open_vectors(tmp_path / "x.npz", DIM).count == len(large)


@pytest.mark.parametrize("rows", [5, 8])
def test_a_header_that_declares_another_array_is_refused(tmp_path, vectors, rows):
    header = {"descr": "<f8", "fortran_order": True, "shape": (rows, DIM)}
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive, archive.open("x.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(vectors.tobytes("F"))
    with pytest.raises(ValueError, match=r"x\.npz is truncated or damaged: an array of shape"):
        list(open_vectors(tmp_path / "x.npz", DIM).chunks())


def test_a_damaged_npz_fails_its_checksum(tmp_path, vectors):
    np.savez(tmp_path / "x.npz", vectors)
    raw = bytearray((tmp_path / "x.npz").read_bytes())
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        start = archive.infolist()[0].header_offset
    raw[start + 400] ^= 1
    (tmp_path / "x.npz").write_bytes(raw)
    with pytest.raises(ValueError, match=r"x\.npz is truncated or damaged"):
        list(open_vectors(tmp_path / "x.npz", DIM).chunks())


def test_keys_choose_among_arrays(tmp_path, vectors):
    np.savez(tmp_path / "x.npz", first=vectors, second=2 * vectors)
    assert np.array_equal(read(tmp_path / "x.npz", key="second"), 2 * vectors)
    with pytest.raises(ValueError, match=r"holds 2 arrays \(first, second\)"):
        open_vectors(tmp_path / "x.npz", DIM)
    with pytest.raises(ValueError, match=r"no array 'third'; it holds first, second"):
        open_vectors(tmp_path / "x.npz", DIM, key="third")


def test_a_key_or_column_for_the_wrong_kind_is_refused(tmp_path, vectors):
    np.save(tmp_path / "x.npy", vectors)
    with pytest.raises(ValueError, match=r"key.*\.npz"):
        open_vectors(tmp_path / "x.npy", DIM, key="a")
    with pytest.raises(ValueError, match=r"column.*Parquet"):
        open_vectors(tmp_path / "x.npy", DIM, column="a")


@pytest.mark.parametrize("value_type", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("make", [pa.list_, pa.large_list, lambda value_type: pa.list_(value_type, DIM)])
def test_parquet_lists(tmp_path, vectors, make, value_type):
    column = pa.array(list(vectors), type=make(value_type))
    path = parquet(tmp_path / "x.parquet", {"client": list(range(7)), "x": column})
    expected = vectors.astype(value_type.to_pandas_dtype())
    assert np.array_equal(read(path), expected)
    assert np.array_equal(read(path, column="x"), expected)


def test_parquet_coordinates(tmp_path, vectors):
    path = parquet(tmp_path / "x.parquet", {f"c{i}": vectors[:, i] for i in range(DIM)})
    assert np.array_equal(read(path), vectors)


def test_parquet_columns_of_the_wrong_number_or_type(tmp_path, vectors):
    path = parquet(tmp_path / "x.parquet", {f"c{i}": vectors[:, i] for i in range(DIM - 1)})
    with pytest.raises(ValueError, match="5 columns of floats; it has 0 and 4"):
        open_vectors(path, DIM)
    path = parquet(tmp_path / "y.parquet", {"a": list(vectors), "b": list(vectors), "c": ["word"] * 7})
    with pytest.raises(ValueError, match="say which with a column"):
        open_vectors(path, DIM)
    with pytest.raises(ValueError, match="column 'c' must hold lists of float32 or float64, got string"):
        open_vectors(path, DIM, column="c")
    with pytest.raises(ValueError, match="no column 'd'; it has a, b, c"):
        open_vectors(path, DIM, column="d")
    path = parquet(tmp_path / "z.parquet", {"a": [[1, 2, 3, 4, 5]]})
    with pytest.raises(ValueError, match="it has 0 and 0"):
        open_vectors(path, DIM)


def test_parquet_nulls_and_other_lengths(tmp_path, vectors):
    rows = vectors.tolist()
    path = parquet(tmp_path / "x.parquet", {"x": [*rows[:5], None, rows[6]]})
    with pytest.raises(ValueError, match="a null among rows 4 to 5"):
        list(open_vectors(path, DIM).chunks())
    path = parquet(tmp_path / "y.parquet", {"x": [*rows[:5], [1.0, None, 2.0, 3.0, 4.0]]})
    with pytest.raises(ValueError, match="a null among rows 4 to 5"):
        list(open_vectors(path, DIM).chunks())
    path = parquet(tmp_path / "z.parquet", {"x": [*rows[:5], [1.0, 2.0]]})
    with pytest.raises(ValueError, match="2 numbers in row 5; vectors have 5"):
        list(open_vectors(path, DIM).chunks())


def test_other_files_are_refused(tmp_path):
    (tmp_path / "x.txt").write_text("1 2 3")
    with pytest.raises(ValueError, match=r"x\.txt is not a \.npy, \.npz or Parquet file"):
        open_vectors(tmp_path / "x.txt", DIM)
    with pytest.raises(FileNotFoundError):
        open_vectors(tmp_path / "none.npy", DIM)


def test_without_pyarrow_the_error_names_the_extra(tmp_path, vectors, monkeypatch):
    path = parquet(tmp_path / "x.parquet", {"x": list(vectors)})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"sstq\[data\]"):
        open_vectors(path, DIM)
