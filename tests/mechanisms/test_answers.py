"""Answers to a server's document: one message per row, whatever the row holds; `Client.send` is in tests/service."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sstq
from sstq.inputs import LocalReport, Vectors
from sstq.mechanisms.answers import answer, encode_files
from sstq.randomness.secret import bit_source

ROWS = [[1.0, 2.0], [np.nan, 0.0], [np.inf, 1.0], [0.5, -0.5]]


def npy(path):
    with path.open("wb") as file:
        np.save(file, ROWS)


def large_integers(path):
    with path.open("wb") as file:
        np.save(file, np.array([[1, 2], [2**62 + 1, 0], [3, 4]]))


def lists(path):
    rows = [
        [1.0, 2.0],
        None,
        [None, 1.0],
        [1.0],
        [1.0, 2.0, 3.0],
        [np.nan, 0.0],
        [0.5, -0.5],
    ]
    pq.write_table(pa.table({"x": pa.array(rows, pa.list_(pa.float32()))}), path)


def columns(path):
    pq.write_table(
        pa.table(
            {"a": [1.0, None, 0.5], "b": pa.array([2.0, 1.0, -0.5], pa.float32())}
        ),
        path,
    )


def text(path):
    path.write_text("a,b\n1,2\nnan,0\n?,1\n1\n1,2,3\n,\n0.5,-0.5\n")


KINDS = [
    (npy, [0, 3]),
    (large_integers, [0, 1, 2]),
    (lists, [0, 6]),
    (columns, [0, 2]),
    (text, [0, 6]),
]


@pytest.mark.parametrize(
    ("kind", "good"), KINDS, ids=[kind.__name__ for kind, _ in KINDS]
)
def test_a_bad_row_of_a_file_is_a_zero_vector(kind, good, tmp_path):
    kind(tmp_path / "x")
    held = Vectors(2, clip=1.0)
    people = held.open(tmp_path / "x", answering=True)
    report = LocalReport()
    read = [
        held.substitute(piece.X, source=bit_source(1), report=report)
        for piece in people.pieces()
    ]
    rows = np.concatenate(read)
    assert (len(rows), np.flatnonzero(rows.any(axis=1)).tolist()) == (
        people.count,
        good,
    )
    assert (report.answered, report.replaced) == (len(rows), len(rows) - len(good))
    # The owner of the data is told instead.
    with pytest.raises(ValueError, match="x"):
        list(held.open(tmp_path / "x").pieces())


def test_an_unknown_group_is_a_uniform_one_with_the_zero_vector(
    tmp_path, caplog, monkeypatch
):
    mechanism = sstq.GroupUnit(2, 1.0, groups=3, messages=2)
    held = []
    encode = sstq.GroupUnit.encode_slots
    monkeypatch.setattr(
        sstq.GroupUnit,
        "encode_slots",
        lambda *a, **o: held.append(a[1]) or encode(*a, **o),
    )
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.ones((300, 2)))
    given = np.array([0, 1, 2, 3, -1, 2**40] * 100)
    np.save(tmp_path / "groups.npy", given)
    files = [tmp_path / f"{name}.npy" for name in "ab"]
    people = mechanism.input.open(files, groups=tmp_path / "groups.npy", answering=True)
    assert sum(map(len, encode_files(mechanism, people, answering=True))) == 2 * 600
    known = (given >= 0) & (given < 3)
    (groups, *vectors) = np.concatenate(held[:2]).T
    np.testing.assert_array_equal(groups[known], given[known])
    # Each of three groups has 100 of 300 on average; none at all in 3·(2/3)^300 = 1e-52 of runs.
    assert set(groups[~known]) == {0, 1, 2}
    np.testing.assert_array_equal(np.any(vectors, axis=0), known)
    assert len(answer(mechanism, np.ones((600, 2)), given)) == 2 * 600
    assert "300 of 600 vectors cannot be encoded" in caplog.text


def test_vectors_of_unknown_groups_add_to_no_sum():
    """At ε = 8 the vectors of 3000 people would add about 500 to each of three sums; errors are about 30."""
    mechanism = sstq.GroupUnit(2, 8.0, groups=3, clients=3000)
    vectors = np.full((3000, 2), 0.5)

    def sums(group):
        sent = answer(mechanism, vectors, groups=[group] * 3000, rng=1)
        return mechanism.aggregator().update(sent).mean().sums

    assert np.all(np.abs(sums(3)) < 250)
    assert np.all(sums(2)[2] > 1250)


@pytest.mark.parametrize(
    "value", [10**400, -(10**400), "x", None, b"1", object(), 1j, np.datetime64("NaT")]
)
def test_no_value_makes_a_device_refuse(value):
    """Of one person in three the value is no number that a double holds."""
    values = np.array([[1.0, 0.0], [0.0, value], [0.5, 0.5]], dtype=object)
    assert len(answer(sstq.FrameUnit(2, 1.0), values)) == 3
    labels = np.array([1, value, 2], dtype=object)
    assert len(answer(sstq.Frequencies(3, 1.0), labels)) == 3


@pytest.mark.parametrize(
    "groups", [[0, np.nan], [1.5, 2], [None, 1], [True, 10**30], ["a", 1], [-1, 7]]
)
def test_no_group_makes_a_device_refuse(groups):
    assert (
        len(answer(sstq.GroupUnit(2, 1.0, groups=3), [[1.0, 0.0], [0.0, 1.0]], groups))
        == 2
    )


def test_what_was_replaced_is_told_on_the_device_and_once_per_person(tmp_path, caplog):
    mechanism = sstq.FrameUnit(2, 2.0, messages=3)
    rows = np.array([[np.nan, 0.0], [0.5, 0.5]])
    np.save(tmp_path / "rows.npy", rows)
    people = mechanism.input.open(tmp_path / "rows.npy", answering=True)
    with caplog.at_level("WARNING", "sstq"):
        assert len(answer(mechanism, rows)) == 6
        assert sum(map(len, encode_files(mechanism, people, answering=True))) == 6
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert told[0] == told[1]
    assert told[0].startswith("1 of 2 vectors cannot be encoded")
