"""`sstq sql` and `sstq aggregate --counts`: an engine counts, and the mean is the same bit for bit."""

import json
import sqlite3

import duckdb
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sstq

from .test_cli import facts, run

DIM = 4
RESULTS = ("mean.npy", "stderr.npy", "summary.json")
GROUPS = ("mean.npy", "stderr.npy", "groups.csv", "summary.json")


@pytest.fixture
def files(tmp_path):
    """A mechanism, Parquet messages of people from three countries, and the results of `aggregate` on them."""
    mechanism = sstq.SSTQ(DIM, 4.0, bits=2)
    (tmp_path / "m.json").write_text(mechanism.to_json())
    x = np.random.default_rng(1).standard_normal((3000, DIM)) / 2
    people = pa.table({"country": ["DE", "FR", "007"] * 1000, "x": x.tolist()})
    pq.write_table(people, tmp_path / "people.parquet")
    encoded = (
        "encode",
        tmp_path / "people.parquet",
        "--by",
        "country",
        "-m",
        tmp_path / "m.json",
    )
    run(*encoded, "-o", tmp_path / "messages.parquet")
    grouped = ("--by", "country", "-o", tmp_path / "groups")
    run("aggregate", tmp_path / "messages.parquet", "-m", tmp_path / "m.json", *grouped)
    overall = ("-o", tmp_path / "mean")
    run("aggregate", tmp_path / "messages.parquet", "-m", tmp_path / "m.json", *overall)
    return tmp_path


def query(files, *options):
    return run("sql", files / "m.json", *options).stdout.strip()


def same(files, found, expected, names):
    """The same bits, but counts do not say whether messages are simulated."""
    for name in names:
        counted, sent = (
            (files / folder / name).read_bytes() for folder in (found, expected)
        )
        if name == "summary.json" and found not in ("store0", "store1"):
            assert json.loads(counted)["simulated"] is None
            counted = counted.replace(b'"simulated": null', b'"simulated": false')
        assert counted == sent


def test_messages_have_types_that_every_engine_reads(files):
    schema = pq.read_schema(files / "messages.parquet")
    assert [schema.field(name).type for name in ("code", "index")] == [
        pa.int32(),
        pa.int32(),
    ]
    assert "country" in schema.names
    assert (
        facts(run("inspect", files / "messages.parquet", "-m", files / "m.json"))[
            "checksums"
        ]
        == "verified"
    )


def test_duckdb_counts_and_aggregate_reads_the_table(files):
    counted = query(files, "--table", files / "messages.parquet")
    by_group = query(files, "--table", files / "messages.parquet", "--by", "country")
    with duckdb.connect() as connection:
        connection.sql(counted).write_parquet(str(files / "counts.parquet"))
        connection.sql(by_group).write_parquet(str(files / "by.parquet"))
        connection.sql(by_group).write_csv(str(files / "by.csv"))
    m = ("-m", files / "m.json")
    run("aggregate", files / "counts.parquet", "--counts", *m, "-o", files / "a")
    same(files, "a", "mean", RESULTS)
    for name in ("by.parquet", "by.csv"):
        table = run(
            "aggregate",
            files / name,
            "--counts",
            "--by",
            "country",
            *m,
            "-o",
            files / f"{name}-out",
        )
        assert "007" in table.stdout
        same(files, f"{name}-out", "groups", GROUPS)
    # Without --by the groups are added up.
    run("aggregate", files / "by.csv", "--counts", *m, "-o", files / "b")
    same(files, "b", "mean", RESULTS)
    again = run(
        "aggregate",
        files / "counts.parquet",
        files / "by.csv",
        "--counts",
        *m,
        "-o",
        files / "a",
    )
    assert "1 of 2 files were already counted and skipped" in again.stderr
    assert facts(again)["count"] == "6000"


def test_queries_of_databases(files):
    sent = pq.read_table(
        files / "messages.parquet", columns=["code", "index", "country"]
    )
    with duckdb.connect(str(files / "m.duckdb")) as connection:
        connection.execute("create table messages as select * from sent")
    with sqlite3.connect(files / "m.sqlite") as connection:
        connection.execute('create table messages (code, "index", country)')
        columns = (column.to_pylist() for column in sent.columns)
        connection.executemany(
            "insert into messages values (?, ?, ?)", zip(*columns, strict=True)
        )
    connection.close()
    m = ("-m", files / "m.json")
    for name, dialect in (("m.duckdb", "duckdb"), ("m.sqlite", "sqlite")):
        counted = query(files, "--dialect", dialect)
        run("aggregate", files / name, "--query", counted, *m, "-o", files / dialect)
        same(files, dialect, "mean", RESULTS)
        wrong = run(
            "aggregate",
            files / name,
            "--query",
            "select * from nothing",
            *m,
            "-o",
            files / "x",
            code=1,
        )
        assert "the query failed" in wrong.stderr
        assert (
            "--query reads a DuckDB or SQLite database"
            in run(
                "aggregate", files / name, "--counts", *m, "-o", files / "x", code=2
            ).stderr
        )


def test_wrong_tables_are_refused_by_name(files):
    m = ("-m", files / "m.json")
    out = ("-o", files / "x")
    for text, options, words, code in (
        ("code,index\n0,0\n", (), "got none called messages", 1),
        (
            "code,index,messages\n0,0,-1\n",
            (),
            "counts must be from 0 to 2^32, got -1",
            1,
        ),
        ("code,index,messages\n9,0,1\n", (), "code must be in [0, 4), got 9", 1),
        ("code,index,messages\n0,0\n", (), "as many fields in every line", 1),
        (
            "code,index,messages\n0,0,1\n",
            ("--by", "town"),
            "there is no column 'town'",
            1,
        ),
        (
            "code,index,messages\n0,0,1\n",
            ("--query", "select 1"),
            "--query reads a DuckDB or SQLite",
            2,
        ),
    ):
        (files / "bad.csv").write_text(text)
        refused = run(
            "aggregate", files / "bad.csv", "--counts", *options, *m, *out, code=code
        )
        assert words in refused.stderr
        assert "bad.csv" in refused.stderr


@pytest.fixture
def shares(tmp_path):
    """Frequencies of five categories, and tables of counts."""
    (tmp_path / "m.json").write_text(sstq.Frequencies(5, 2.0).to_json())
    (tmp_path / "one.csv").write_text(
        "code,messages,country,town\n0,5,DE,x\n1,7,FR,y\n"
    )
    (tmp_path / "two.csv").write_text(
        "code,messages,country,town\n1,7,FR,y\n0,5,DE,x\n"
    )
    (tmp_path / "new.csv").write_text("code,messages,country,town\n3,2,FR,y\n")
    return tmp_path


def test_a_table_with_equal_rows_is_skipped_aloud(shares):
    m = ("-m", shares / "m.json")
    out = ("-o", shares / "out")
    found = run(
        "aggregate", shares / "one.csv", shares / "two.csv", "--counts", *m, *out
    )
    assert facts(found)["count"] == "12"
    assert (
        "two.csv has the same rows as a table that was added before, and is skipped"
        in found.stderr
    )
    assert "UNION ALL" in found.stderr


def test_counts_cannot_say_whether_a_seed_was_used(shares):
    m = ("-m", shares / "m.json")
    out = ("-o", shares / "out")
    said = "tables of counts do not say whether messages were simulated with a seed"
    found = run("aggregate", shares / "one.csv", "--counts", *m, *out)
    assert said in found.stderr
    assert (
        json.loads((shares / "out" / "summary.json").read_text())["simulated"] is None
    )
    inspected = facts(run("inspect", shares / "out" / "state.npz", *m))
    assert inspected["randomness"] == "unknown: tables of counts do not say it"
    # The state remembers where its messages come from; messages with a seed are still told.
    mechanism = sstq.Frequencies(5, 2.0)
    for rng, simulated in ((None, None), (1, True)):
        sstq.write_messages(
            shares / f"{rng}.parquet", mechanism.encode([1, 2], rng=rng)
        )
        found = run("aggregate", shares / f"{rng}.parquet", *m, *out)
        assert (
            json.loads((shares / "out" / "summary.json").read_text())["simulated"]
            is simulated
        )
        assert (said in found.stderr, "NOT PRIVATE" in found.stderr) == (
            not simulated,
            bool(simulated),
        )


def test_a_survey_has_no_mean_per_group(shares):
    (shares / "s.json").write_text(
        sstq.Survey(2.0, {"c": sstq.Choice(["a", "b"])}).to_json()
    )
    options = (
        "--counts",
        "--by",
        "country",
        "-m",
        shares / "s.json",
        "-o",
        shares / "out",
    )
    assert (
        "count each group by itself, with WHERE"
        in run("aggregate", shares / "one.csv", *options, code=2).stderr
    )


def test_columns_of_one_name_are_refused(shares):
    m = ("-m", shares / "m.json")
    out = ("-o", shares / "out")
    (shares / "bad.csv").write_text("code,messages,messages\n0,5,900\n")
    with duckdb.connect(str(shares / "m.duckdb")) as connection:
        connection.execute("create table messages as select 0 as code, 5 as n")
    with sqlite3.connect(shares / "m.sqlite") as connection:
        connection.execute("create table messages as select 0 as code, 5 as n")
    connection.close()
    query = ("--query", "select code, n as messages, 900 as messages from messages")
    for name, options in (
        ("bad.csv", ("--counts",)),
        ("m.sqlite", query),
        ("m.duckdb", query),
    ):
        refused = run("aggregate", shares / name, *options, *m, *out, code=1)
        assert "name" in refused.stderr
        assert name in refused.stderr


def test_names_cannot_leave_their_quotes(shares):
    for dialect, column, file in (
        ("duckdb", '"a""b`c\\"', "read_parquet('x''y`\\.parquet')"),
        ("spark", '`a"b``c\\`', "parquet.`x'y``\\.parquet`"),
        ("clickhouse", '"a\\"b`c\\\\"', "file('x\\'y`\\\\.parquet', Parquet)"),
    ):
        options = ("--by", 'a"b`c\\', "--table", "x'y`\\.parquet", "--dialect", dialect)
        found = run("sql", shares / "m.json", *options).stdout
        assert f"SELECT {column}, " in found
        assert f"FROM {file}\n" in found
    bigquery = run(
        "sql", shares / "m.json", "--by", "a`b\\", "--dialect", "bigquery"
    ).stdout
    assert "SELECT `a\\`b\\\\`, `code`" in bigquery
    refused = run(
        "sql", shares / "m.json", "--table", "messages; DROP TABLE people", code=2
    )
    assert "table must be one table as SQL names it" in refused.stderr


def test_mechanisms_without_counts_say_why(tmp_path):
    (tmp_path / "m.json").write_text(sstq.PrivUnit(DIM, 3.0).to_json())
    why = "privunit cannot be estimated from counts of messages: its messages are whole vectors"
    assert why in run("sql", tmp_path / "m.json", code=2).stderr
    refused = run(
        "aggregate",
        tmp_path / "x.csv",
        "--counts",
        "-m",
        tmp_path / "m.json",
        "-o",
        tmp_path / "x",
        code=2,
    )
    assert why in refused.stderr


def test_messages_and_counts_in_object_stores(files):
    store = fsspec.filesystem("memory")
    store.pipe("/bucket/messages.parquet", (files / "messages.parquet").read_bytes())
    m = ("-m", files / "m.json")
    for number, address in enumerate(
        ("memory://bucket/messages.parquet", (files / "messages.parquet").as_uri())
    ):
        run("aggregate", address, "--by", "country", *m, "-o", files / f"store{number}")
        same(files, f"store{number}", "groups", GROUPS)
    with duckdb.connect() as connection:
        connection.sql(
            query(files, "--table", files / "messages.parquet")
        ).write_parquet(str(files / "c.parquet"))
    store.pipe("/bucket/counts.parquet", (files / "c.parquet").read_bytes())
    run(
        "aggregate",
        "memory://bucket/counts.parquet",
        "--counts",
        *m,
        "-o",
        files / "counted",
    )
    same(files, "counted", "mean", RESULTS)
    store.pipe("/bucket/x.sstq", b"\x8fSSTQ\r\n\x1a" + bytes(100))
    refused = run(
        "aggregate", "memory://bucket/x.sstq", *m, "-o", files / "none", code=1
    )
    assert "must be Parquet to be read from an object store" in refused.stderr
    missing = run(
        "aggregate", "memory://bucket/none.parquet", *m, "-o", files / "none", code=2
    )
    assert (
        "memory://bucket/none.parquet" in missing.stderr
        or "none.parquet" in missing.stderr
    )


def test_vectors_are_never_read_from_afar(files):
    address = (files / "people.parquet").as_uri()
    run("encode", address, "-m", files / "m.json", "-o", files / "y.parquet", code=2)
    assert not (files / "y.parquet").exists()
