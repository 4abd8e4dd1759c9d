"""Public labels beside messages, and the columns of files that they and private groups come from."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sstq
from sstq.messages import vectors as vector_files
from sstq.messages.batch import Messages
from sstq.messages.files import describe_messages
from sstq.messages.labels import LONGEST, Labels
from sstq.messages.vectors import open_vectors

DIM = 3
MECHANISM = sstq.FrameUnit(DIM, 2.0)
NAMES = ["DE", "a/b", "Zoë", "x\ty\n", "..", "東京", "0"]
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def listed(labels):
    return [labels.names[code] for code in labels.codes]


def labelled(values, rng=1, column="country", **options):
    messages = MECHANISM.encode(np.zeros((len(values), DIM)), rng=rng, **options)
    return Messages(**{**vars(messages), "labels": Labels.of(values, column)})


def read_all(path):
    return Messages.concatenate(list(sstq.read_messages(path, MECHANISM)))


# --- labels ---


@pytest.mark.parametrize(
    "values",
    [
        [7, 8, 7],
        np.array([7, 8, 7], np.int16),
        ("7", "8", "7"),
        np.array(["7", "8", "7"]),
        np.array(["7", "8", "7"], object),
        pa.array([7, 8, 7]),
        pa.chunked_array([["7", "8"], ["7"]]),
    ],
)
def test_integers_and_text_are_one(values):
    assert listed(Labels.of(values)) == ["7", "8", "7"]


def test_booleans_are_as_in_parquet():
    assert listed(Labels.of([True, False])) == ["true", "false"]
    assert listed(Labels.of_arrow(pa.array([True, False]), "x", "file")) == ["true", "false"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", None], "must not be null, got None in row 1; fill or drop it first"),
        ([1.0, float("nan")], "must be text, integers or booleans, got 1.0 in row 0"),
        (["a", float("nan")], "must not be null, got nan in row 1"),
        (["a", ""], "must not have empty labels, got one in row 1"),
        (["a" * (LONGEST + 1)], "at most 256 characters, got 257 in row 0"),
        (["\ud800"], "valid Unicode"),
        ("abc", "must be a sequence"),
        (np.array("abc"), "must be a sequence"),
        (np.array([["a"]]), r"must be text, integers or booleans, got \['a'\]"),
    ],
)
def test_other_labels_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Labels.of(values)


def test_arrow_columns():
    coded = pa.array(["FR", "DE", "FR"]).dictionary_encode()
    assert listed(Labels.of_arrow(coded[1:], "x", "file")) == ["DE", "FR"]
    assert listed(Labels.of_arrow(pa.array([datetime.date(2024, 5, 1)]), "x", "file")) == ["2024-05-01"]
    with pytest.raises(ValueError, match=r"file: column 'x' must not have nulls, got one in row 12"):
        Labels.of_arrow(pa.array(["a", "b", None]), "x", "file", first=10)
    with pytest.raises(ValueError, match="must be text, integers or booleans, got double; cast it to text first"):
        Labels.of_arrow(pa.array([0.5]), "x", "file")


@given(st.lists(st.lists(names, min_size=1, max_size=5), min_size=1, max_size=4))
def test_joining_and_slicing(parts):
    whole = Labels.concatenate([Labels.of(part) for part in parts])
    expected = [name for part in parts for name in part]
    assert listed(whole) == expected
    assert listed(whole[1:]) == expected[1:]
    assert len(set(whole.names)) == len(whole.names)


def test_labels_of_other_columns_are_not_joined():
    with pytest.raises(ValueError, match="different columns cannot be joined: country, town"):
        Messages.concatenate([labelled(["a"]), labelled(["a"], column="town")])
    with pytest.raises(ValueError, match="with and without labels cannot be joined"):
        Messages.concatenate([labelled(["a"]), MECHANISM.encode(np.zeros(DIM), rng=1)])


# --- message files ---


def test_labels_survive_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("sstq.messages.batch.BLOCK_MESSAGES", 4)
    path = tmp_path / "messages.parquet"
    batches = [labelled(NAMES[:3]), labelled(NAMES[2:] * 2, rng=2)]
    assert sstq.write_messages(path, iter(batches)) == 13
    info = describe_messages(path)
    assert (info.label_column, info.count) == ("country", 13)
    found = read_all(path)
    assert listed(found.labels) == NAMES[:3] + NAMES[2:] * 2
    assert found.to_bytes() == Messages.concatenate(batches).to_bytes()
    assert found.label_column == "country"


def test_clients_and_labels_go_together(tmp_path):
    public = sstq.FrameUnit(DIM, 2.0, bits=3)
    messages = public.encode(np.zeros((7, DIM)), rng=1, clients=np.arange(7, dtype=np.uint64) << 60)
    sstq.write_messages(tmp_path / "x.parquet", Messages(**{**vars(messages), "labels": Labels.of(NAMES, "c")}))
    (found,) = sstq.read_messages(tmp_path / "x.parquet", public)
    assert listed(found.labels) == NAMES
    assert np.array_equal(found.clients, messages.clients)


def test_a_file_has_labels_of_one_column(tmp_path):
    plain = MECHANISM.encode(np.zeros((2, DIM)), rng=1)
    for other in (plain, labelled(["a"], column="town")):
        with pytest.raises(ValueError, match="labels of one column, or all without"):
            sstq.write_messages(tmp_path / "x.parquet", [labelled(["a"]), other])
    assert not list(tmp_path.iterdir())


def test_changed_labels_of_parquet_are_refused(tmp_path):
    path = tmp_path / "x.parquet"
    sstq.write_messages(path, labelled(["a", "b"]))
    table, checksums = pq.read_table(path), pq.read_metadata(path).metadata[b"sstq.checksums"]
    swapped = table.set_column(table.schema.get_field_index("country"), "country", pa.array(["b", "a"]))
    metadata = {key: value for key, value in table.schema.metadata.items() if key != b"sstq.checksums"}
    pq.write_table(swapped.replace_schema_metadata(metadata), path)
    assert listed(read_all(path).labels) == ["b", "a"]  # another tool's file may have no checksums
    pq.write_table(swapped.replace_schema_metadata(metadata | {b"sstq.checksums": checksums}), path)
    with pytest.raises(ValueError, match="checksums of its columns do not match"):
        read_all(path)


def test_framed_files_have_no_labels(tmp_path):
    with pytest.raises(ValueError, match="labels need Parquet"):
        sstq.write_messages(tmp_path / "x.sstq", labelled(["a"]))
    assert not list(tmp_path.iterdir())


# --- columns of files of vectors ---


@pytest.fixture(params=["csv", "lists", "numbers"])
def people(request, tmp_path, monkeypatch):
    """A file of five people with a public country and a private diagnosis; two rows are read at a time."""
    monkeypatch.setattr(vector_files, "_NUMBERS_AT_A_TIME", 2 * DIM)
    x = np.arange(5.0 * DIM).reshape(5, DIM)
    countries, diagnoses = ["DE", "FR", "DE", "a,b", "Zoë"], [0, 2, 1, 1, 0]
    path = tmp_path / "people"
    if request.param == "csv":
        lines = [f'{row[0]},"{c}",{row[1]},{g},{row[2]}' for row, c, g in zip(x, countries, diagnoses, strict=True)]
        path.write_text("\n".join(["x0,country,x1,diagnosis,x2", *lines]))
    else:
        vectors = {"x": list(x)} if request.param == "lists" else {f"x{k}": x[:, k] for k in range(DIM)}
        pq.write_table(pa.table({"country": countries, "diagnosis": diagnoses, **vectors}), path)
    return path, x, countries, diagnoses


def test_columns_beside_vectors(people):
    path, x, countries, diagnoses = people
    pieces = list(open_vectors(path, DIM, by="country", group="diagnosis").pieces())
    assert [len(piece.rows) for piece in pieces] == [2, 2, 1]
    assert np.array_equal(np.concatenate([piece.rows for piece in pieces]), x)
    assert [name for piece in pieces for name in listed(piece.labels)] == countries
    assert np.concatenate([piece.groups for piece in pieces]).tolist() == diagnoses


def test_groups_by_their_names(people):
    path = people[0]
    names = ["Zoë", "FR", "a,b", "DE"]
    pieces = open_vectors(path, DIM, by="diagnosis", group="country", group_names=names).pieces()
    assert np.concatenate([piece.groups for piece in pieces]).tolist() == [3, 1, 3, 2, 0]
    with pytest.raises(ValueError, match="must hold one of the 2 names of groups, got 'a,b' in row 3"):
        list(open_vectors(path, DIM, by="diagnosis", group="country", group_names=["DE", "FR", "Zoë"][:2]).pieces())
    with pytest.raises(ValueError, match="must hold integers ≥ 0, got 'DE' in row 0; or pass --group-names"):
        list(open_vectors(path, DIM, by="diagnosis", group="country").pieces())


def test_wrong_columns_are_refused(people):
    path = people[0]
    with pytest.raises(ValueError, match=r"has no column 'contry'; it has .*; did you mean 'country'\?"):
        open_vectors(path, DIM, by="contry", group="diagnosis")
    with pytest.raises(ValueError, match="'country' cannot be public labels and private groups at once"):
        open_vectors(path, DIM, by="country", group="country")


def test_missing_labels_are_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("country,a,b,c\nDE,1,2,3\n,4,5,6\n")
    with pytest.raises(ValueError, match=r"column 'country' must not have empty labels, got one in line 3"):
        open_vectors(path, DIM, by="country")
    path.write_text("country,a,b,c\nDE,1,2\n")
    with pytest.raises(ValueError, match="line 2 has 3 values, line 1 has 4"):
        open_vectors(path, DIM, by="country")
    path.write_text("country,a,b\nDE,1,2\n")
    with pytest.raises(ValueError, match="line 1 has 2 values, vectors have 3"):
        open_vectors(path, DIM, by="country")
    path.write_text("country,country,b,c\nDE,FR,2,3\n")
    with pytest.raises(ValueError, match="has 2 columns 'country'; give them different names"):
        open_vectors(path, DIM, by="country")
    path.write_text("country,a,b,c\nDE,1,oops,3\n")
    with pytest.raises(ValueError, match="must be numbers, got 'oops' in line 2"):
        list(open_vectors(path, DIM, by="country").pieces())
    pq.write_table(pa.table({"country": ["DE", None], "x": [[1.0, 2, 3]] * 2}), path)
    with pytest.raises(ValueError, match="column 'country' must not have nulls, got one in row 1"):
        list(open_vectors(path, DIM, by="country").pieces())
    pq.write_table(pa.table({"country": [0.5, 1.5], "x": [[1.0, 2, 3]] * 2}), path)
    with pytest.raises(ValueError, match="must be text, integers or booleans, got double"):
        open_vectors(path, DIM, by="country")
    with pytest.raises(ValueError, match="cannot hold both the vectors and the groups"):
        open_vectors(path, DIM, columns=["x"], by="x")
    np.save(tmp_path / "x.npy", np.zeros((2, DIM)))
    with pytest.raises(ValueError, match=r"x\.npy has no column 'country'"):
        open_vectors(tmp_path / "x.npy", DIM, by="country")
