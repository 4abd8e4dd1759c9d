"""Public labels beside messages, and the columns of files that they come from."""

import datetime
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sstq
from sstq.inputs import people
from sstq.inputs.arrays import arrow_labels
from sstq.inputs.vector_tables import VectorColumns, open_vectors
from sstq.messages.batch import Messages

DIM = 3
MECHANISM = sstq.FrameUnit(DIM, 2.0)
NAMES = ["DE", "a/b", "Zoë", "x\ty\n", "..", "東京", "0"]


def labelled(values, rng=1, mechanism=MECHANISM, **options):
    messages = mechanism.encode(np.zeros((len(values), DIM)), rng=rng, **options)
    return replace(messages, labels=np.array(values, dtype=object))


# --- message files ---


def test_labels_survive_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("sstq.messages.files.BLOCK_MESSAGES", 4)
    path = tmp_path / "messages.parquet"
    batches = [labelled(NAMES[:3]), labelled(NAMES[2:] * 2, rng=2)]
    assert sstq.write_messages(path, iter(batches), by="country") == 13
    found = Messages.concatenate(
        list(sstq.read_messages(path, MECHANISM, by="country"))
    )
    assert found.labels.tolist() == NAMES[:3] + NAMES[2:] * 2
    assert found.to_bytes() == Messages.concatenate(batches).to_bytes()
    # They are one more column for other tools, and left out unless they are asked for.
    assert pq.read_table(path)["country"].to_pylist() == found.labels.tolist()
    assert all(batch.labels is None for batch in sstq.read_messages(path, MECHANISM))
    with pytest.raises(ValueError, match="has no column town"):
        list(sstq.read_messages(path, MECHANISM, by="town"))
    with pytest.raises(ValueError, match="with and without labels cannot be joined"):
        Messages.concatenate([labelled(["a"]), MECHANISM.encode(np.zeros(DIM), rng=1)])


def test_labels_need_parquet_and_a_name_of_their_own(tmp_path):
    for name, by, problem in (
        ("x.sstq", "country", "must end in .parquet"),
        ("x.parquet", "row", "message's field"),
    ):
        with pytest.raises(ValueError, match=problem):
            sstq.write_messages(tmp_path / name, labelled(["a"]), by=by)
    assert not list(tmp_path.iterdir())
    sstq.write_messages(tmp_path / "x.sstq", labelled(["a"]))
    with pytest.raises(ValueError, match="only Parquet files have columns"):
        list(sstq.read_messages(tmp_path / "x.sstq", MECHANISM, by="country"))


def test_columns_of_arrow_as_labels():
    coded = pa.array(["FR", "DE", "FR"]).dictionary_encode()
    assert arrow_labels(coded[1:], "x", "file").tolist() == ["DE", "FR"]
    assert arrow_labels(pa.array([7, 8]), "x", "file").tolist() == ["7", "8"]
    assert arrow_labels(pa.array([True, False]), "x", "file").tolist() == [
        "true",
        "false",
    ]
    assert arrow_labels(
        pa.array([datetime.date(2024, 5, 1)]), "x", "file"
    ).tolist() == ["2024-05-01"]
    with pytest.raises(
        ValueError, match=r"file: column 'x' must not have nulls, got one in row 12"
    ):
        arrow_labels(pa.array(["a", "b", None]), "x", "file", first=10)
    with pytest.raises(
        ValueError,
        match="must be text, integers or booleans, got double; cast it to text first",
    ):
        arrow_labels(pa.array([0.5]), "x", "file")


# --- columns of files of vectors ---


@pytest.mark.parametrize("kind", ["csv", "lists", "numbers"])
def test_a_column_beside_vectors(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(people, "_NUMBERS_AT_A_TIME", 2 * DIM)
    x = np.arange(5.0 * DIM).reshape(5, DIM)
    countries = ["DE", "FR", "DE", "a,b", "Zoë"]
    path = tmp_path / "people"
    if kind == "csv":
        lines = [
            f'{row[0]},"{country}",{row[1]},{row[2]}'
            for row, country in zip(x, countries, strict=True)
        ]
        path.write_text("\n".join(["x0,country,x1,x2", *lines]))
    else:
        vectors = (
            {"x": list(x)}
            if kind == "lists"
            else {f"x{k}": x[:, k] for k in range(DIM)}
        )
        pq.write_table(pa.table({"country": countries, **vectors}), path)
    pieces = list(open_vectors(path, VectorColumns(DIM, by="country")).pieces())
    assert [piece.count for piece in pieces] == [2, 2, 1]
    assert np.array_equal(np.concatenate([piece.X for piece in pieces]), x)
    assert [name for piece in pieces for name in piece.labels] == countries
    with pytest.raises(
        ValueError,
        match=r"by must be a column of .*, got 'contry'; did you mean 'country'\?",
    ):
        open_vectors(path, VectorColumns(DIM, by="contry"))


def test_missing_labels_are_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("country,a,b,c\nDE,1,2,3\n,4,5,6\n")
    with pytest.raises(
        ValueError,
        match=r"column 'country' must not have empty labels, got one in row 1",
    ):
        list(open_vectors(path, VectorColumns(DIM, by="country")).pieces())
    path.write_text("country,country,b,c\nDE,FR,2,3\n")
    with pytest.raises(
        ValueError, match="has several columns 'country'; give them different names"
    ):
        open_vectors(path, VectorColumns(DIM, by="country"))
    pq.write_table(pa.table({"country": ["DE", None], "x": [[1.0, 2, 3]] * 2}), path)
    with pytest.raises(
        ValueError, match="column 'country' must not have nulls, got one in row 1"
    ):
        list(open_vectors(path, VectorColumns(DIM, by="country")).pieces())
    pq.write_table(pa.table({"country": [0.5, 1.5], "x": [[1.0, 2, 3]] * 2}), path)
    with pytest.raises(
        ValueError, match="must be text, integers or booleans, got double"
    ):
        open_vectors(path, VectorColumns(DIM, by="country"))
    with pytest.raises(ValueError, match=r"beside the vectors .*, got 'x'"):
        open_vectors(path, VectorColumns(DIM, columns=["x"], by="x"))
    np.save(tmp_path / "x.npy", np.zeros((2, DIM)))
    with pytest.raises(ValueError, match="by must be left out"):
        open_vectors(tmp_path / "x.npy", VectorColumns(DIM, by="country"))
