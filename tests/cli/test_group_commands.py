"""`sstq encode --by` and `--private-group`, and what `sstq aggregate` makes of such messages."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sstq
from sstq.files.npy import read_archive

from .test_cli import facts, run

DIM = 4
COUNTRIES = ["DE", "a/b", "x\ty", "ZW"]
SIZES = [3000, 1000, 500, 3]


@pytest.fixture
def people():
    rng = np.random.default_rng(5)
    n = sum(SIZES)
    x = np.zeros((n, DIM))
    diagnosis = rng.choice(3, n)
    x[np.arange(n), diagnosis] = 0.9
    order = rng.permutation(n)
    return x[order], np.repeat(COUNTRIES, SIZES)[order], diagnosis[order]


@pytest.fixture
def files(tmp_path, people):
    """The first half in a CSV file, the second in Parquet."""
    x, countries, diagnosis = people
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "diagnosis.npy", diagnosis)
    half = len(x) // 2
    with open(tmp_path / "one.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["country", *(f"x{k}" for k in range(DIM))])
        writer.writerows(
            [country, *row]
            for country, row in zip(countries[:half], x[:half], strict=True)
        )
    pq.write_table(
        pa.table({"country": countries[half:], "x": list(x[half:])}),
        tmp_path / "two.parquet",
    )
    return tmp_path


def written(folder, mechanism):
    path = folder / "mechanism.json"
    path.write_text(mechanism.to_json())
    return path


@pytest.fixture
def spec(files):
    return written(files, sstq.FrameUnit(DIM, 4.0, frames=256))


@pytest.fixture
def private(files):
    return written(files, sstq.GroupUnit(DIM, 4.0, groups=3, clients=sum(SIZES)))


def lines(result):
    """The tab-separated lines of the table, by their first cell."""
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    return {row[0]: row[1:] for row in rows}


def listed(folder):
    with open(folder / "groups.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# --- public groups ---


def test_one_mean_per_public_group(files, spec):
    out = files / "out"
    messages = [files / "one-messages.parquet", files / "two-messages.parquet"]
    for vectors, path in zip(
        (files / "one.csv", files / "two.parquet"), messages, strict=True
    ):
        result = run(
            "encode", vectors, "--by", "country", "--mechanism", spec, "--output", path
        )
        assert facts(result)["public labels"] == "country"
        assert "is public" in result.stderr
    table = lines(
        run(
            "aggregate",
            *messages,
            "--by",
            "country",
            "--mechanism",
            spec,
            "--output",
            out,
        )
    )
    # the order is that of the labels, not of the escapes
    assert [*table][-5:] == ["label", "DE", "ZW", "a/b", "x\\ty"]
    assert [table[name][0] for name in ("DE", "a/b", "x\\ty", "ZW")] == [
        str(size) for size in SIZES
    ]
    assert table["ZW"][-1] == "too few"
    assert table["DE"][-1] == ""
    means = np.load(out / "mean.npy")
    errors = np.load(out / "stderr.npy")
    rows = listed(out)
    assert means.shape == errors.shape == (4, DIM)
    assert [row["label"] for row in rows] == ["DE", "ZW", "a/b", "x\ty"]
    for row, mean, error in zip(rows, means, errors, strict=True):
        assert float(row["norm"]) == pytest.approx(np.linalg.norm(mean))
        assert float(row["error"]) == pytest.approx(np.linalg.norm(error))
    summary = json.loads((out / "summary.json").read_text())
    assert (
        summary["count"],
        summary["groups"],
        summary["column"],
        summary["epsilon"],
    ) == (4503, 4, "country", 4.0)
    assert summary["marked"] == sum(bool(row["mark"]) for row in rows)


def test_groups_are_those_of_the_files_however_given(files, spec):
    for name, vectors in (("one", "one.csv"), ("two", "two.parquet")):
        run(
            "encode",
            files / vectors,
            "--by",
            "country",
            "-m",
            spec,
            "-o",
            files / f"{name}.messages.parquet",
        )
    run("encode", files / "two.parquet", "-m", spec, "-o", files / "plain.parquet")
    one = files / "one.messages.parquet"
    two = files / "two.messages.parquet"
    by = ("--by", "country", "-m", spec, "-o")
    run("aggregate", one, two, *by, files / "once")
    again = run("aggregate", two, one, two, *by, files / "twice")
    assert "1 of 3 files were already counted" in again.stderr
    for name in ("mean.npy", "stderr.npy", "groups.csv", "summary.json"):
        assert (files / "once" / name).read_bytes() == (
            files / "twice" / name
        ).read_bytes()
    # Each mean is that of its own messages, to the last bit.
    mechanism = sstq.from_json(spec.read_text())
    alone = mechanism.aggregator()
    for path in (one, two):
        for messages in sstq.read_messages(path, mechanism, by="country"):
            alone.update(messages[messages.labels == "DE"])
    assert np.array_equal(np.load(files / "once" / "mean.npy")[0], alone.mean().value)
    for path, options, words, code in (
        (one, (*by, files / "twice"), "mean.npy already exists; pass --force", 2),
        (files / "plain.parquet", (*by, files / "new"), "has no column country", 1),
        (
            one,
            ("--state", files / "s.npz", *by, files / "new"),
            "with --by pass all files at once",
            2,
        ),
    ):
        assert words in run("aggregate", path, *options, code=code).stderr
    # Without --by there is one mean of all.
    assert (
        facts(
            run(
                "aggregate",
                one,
                files / "plain.parquet",
                "-m",
                spec,
                "-o",
                files / "mean",
            )
        )["count"]
        == "4503"
    )


def test_wrong_columns_leave_no_file(files, spec):
    (files / "null.csv").write_text("country,a,b,c,d\nDE,0,0,0,0\n,0,0,0,0\n")
    for vectors, column, mechanism, words, code in (
        ("two.parquet", "contry", spec, "did you mean 'country'?", 2),
        (
            "null.csv",
            "country",
            spec,
            "must not have empty labels, got one in row 1; fill or drop it first",
            1,
        ),
    ):
        wrong = run(
            "encode",
            files / vectors,
            "--by",
            column,
            "-m",
            mechanism,
            "-o",
            files / "x.parquet",
            code=code,
        )
        assert words in wrong.stderr
    assert not (files / "x.parquet").exists()
    wrong = run(
        "encode",
        files / "one.csv",
        "--by",
        "country",
        "-m",
        spec,
        "-o",
        files / "x.sstq",
        code=2,
    )
    assert "--output must end in .parquet" in wrong.stderr


# --- private groups ---


def test_private_groups(files, private, people):
    x, _, diagnosis = people
    group = ("--private-group", files / "diagnosis.npy")
    run(
        "encode",
        files / "x.npy",
        *group,
        "-m",
        private,
        "-o",
        files / "g.sstq",
        "--seed",
        1,
    )
    mechanism = sstq.from_json(private.read_text())
    (stored,) = sstq.read_messages(files / "g.sstq", mechanism)
    assert stored.to_bytes() == mechanism.encode(x, 1, groups=diagnosis).to_bytes()
    out = files / "out"
    table = lines(run("aggregate", files / "g.sstq", "-m", private, "-o", out))
    assert {"0", "1", "2"} <= set(table)
    arrays = read_archive(out / "groups.npz")
    rows = listed(out)
    found = mechanism.aggregator().update(stored).mean()
    for name in ("means", "means_stderr", "sums", "sums_stderr"):
        np.testing.assert_array_equal(arrays[name], getattr(found, name))
    assert [row["group"] for row in rows] == ["0", "1", "2"]
    for column, shares in (
        ("share", found.shares),
        ("share_stderr", found.shares_stderr),
    ):
        assert [float(row[column]) for row in rows] == pytest.approx(shares)
    assert json.loads((out / "summary.json").read_text())["epsilon"] == 4.0


def test_a_private_group_of_too_few_people_has_no_mean(files):
    private = written(files, sstq.GroupUnit(2, 4.0, groups=8))
    np.save(files / "x.npy", np.full((4000, 2), 0.5))
    np.save(files / "groups.npy", np.arange(4000) % 2)
    array = ("--private-group", files / "groups.npy")
    run("encode", files / "x.npy", *array, "-m", private, "-o", files / "few.sstq")
    table = lines(
        run("aggregate", files / "few.sstq", "-m", private, "-o", files / "few")
    )
    arrays = read_archive(files / "few" / "groups.npz")
    rows = listed(files / "few")
    few = np.isnan(arrays["means"]).all(axis=1)
    # An empty group is beyond three standard errors in 0.1 % of runs: all six in 1e-17.
    assert few[2:].any()
    assert np.isfinite(arrays["sums"]).all()
    for row in rows:
        number = int(row["group"])
        assert (row["mark"] == "too few", row["norm"] == "") == (
            few[number],
            few[number],
        )
        assert (table[row["group"]][-1] == "too few") == few[number]


def test_public_and_private_groups_together(files, private):
    np.save(files / "half.npy", np.load(files / "diagnosis.npy")[sum(SIZES) // 2 :])
    both = ("--by", "country", "--private-group", files / "half.npy")
    run(
        "encode", files / "two.parquet", *both, "-m", private, "-o", files / "x.parquet"
    )
    run(
        "aggregate",
        files / "x.parquet",
        "--by",
        "country",
        "-m",
        private,
        "-o",
        files / "out",
    )
    assert np.load(files / "out" / "mean.npy").shape[1] == 3 * DIM


def test_private_groups_are_required_where_there_are_some_and_refused_elsewhere(
    files, private
):
    plain = files / "plain.json"
    plain.write_text(sstq.FrameUnit(DIM, 4.0).to_json())
    np.save(files / "few.npy", np.zeros(3, int))
    np.save(files / "wrong.npy", np.full(sum(SIZES), 3))
    for mechanism, options, words, code in (
        (
            private,
            (),
            "--private-group must be a .npy file with one integer per person, got None",
            2,
        ),
        (private, ("--private-group", files / "few.npy"), "must hold 4503 integers", 1),
        (
            private,
            ("--private-group", files / "wrong.npy"),
            ".npy: groups must be from 0 to 2, got 3",
            1,
        ),
        (
            plain,
            ("--private-group", files / "diagnosis.npy"),
            "--private-group must be left out: this mechanism takes vectors",
            2,
        ),
    ):
        out = ("-m", mechanism, "-o", files / "g.sstq")
        assert words in run("encode", files / "x.npy", *options, *out, code=code).stderr
    assert not (files / "g.sstq").exists()
