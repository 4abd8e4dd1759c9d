"""`sstq sql` and `sstq aggregate --counts`: an engine counts, and the mean is the same bit for bit."""

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
GROUPS = ("means.npy", "stderr.npy", "groups.csv", "summary.json")


@pytest.fixture(params=["private", "public"])
def files(tmp_path, request):
    """A mechanism, Parquet messages of people from three countries, and the results of `aggregate` on them."""
    mechanism = sstq.SSTQ(DIM, 4.0, bits=2, coin=request.param)
    (tmp_path / "m.json").write_text(mechanism.to_json())
    x = np.random.default_rng(1).standard_normal((3000, DIM)) / 2
    people = pa.table({"country": ["DE", "FR", "007"] * 1000, "x": x.tolist()})
    pq.write_table(people, tmp_path / "people.parquet")
    options = []
    if request.param == "public":
        np.save(tmp_path / "ids.npy", np.arange(3000))
        options = ["--clients", tmp_path / "ids.npy"]
    encoded = ("encode", tmp_path / "people.parquet", "--by", "country", "-m", tmp_path / "m.json")
    run(*encoded, "-o", tmp_path / "messages.parquet", *options)
    run("aggregate", tmp_path / "messages.parquet", "-m", tmp_path / "m.json", "-o", tmp_path / "groups")
    overall = ("-o", tmp_path / "mean", "--overall")
    run("aggregate", tmp_path / "messages.parquet", "-m", tmp_path / "m.json", *overall)
    return tmp_path


def query(files, *options):
    return run("sql", files / "m.json", *options).stdout.strip()


def same(files, found, expected, names):
    for name in names:
        assert (files / found / name).read_bytes() == (files / expected / name).read_bytes()


def test_messages_have_types_that_every_engine_reads(files):
    schema = pq.read_schema(files / "messages.parquet")
    assert [schema.field(name).type for name in ("code", "index")] == [pa.int32(), pa.int32()]
    assert "country" in schema.names
    assert facts(run("inspect", files / "messages.parquet"))["checksums"] == "verified"
    assert facts(run("inspect", files / "messages.parquet", "-m", files / "m.json"))["public labels"] == "country"


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
        table = run("aggregate", files / name, "--counts", "--by", "country", *m, "-o", files / f"{name}-out")
        assert "007" in table.stdout
        same(files, f"{name}-out", "groups", GROUPS)
    # Without --by the groups are added up.
    run("aggregate", files / "by.csv", "--counts", *m, "-o", files / "b")
    same(files, "b", "mean", RESULTS)
    again = run("aggregate", files / "counts.parquet", files / "by.csv", "--counts", *m, "-o", files / "a")
    assert "1 of 2 files were already counted and skipped" in again.stderr
    assert facts(again)["count"] == "6000"


def test_queries_of_databases(files):
    sent = pq.read_table(files / "messages.parquet", columns=["code", "index", "country"])
    with duckdb.connect(str(files / "m.duckdb")) as connection:
        connection.execute("create table messages as select * from sent")
    with sqlite3.connect(files / "m.sqlite") as connection:
        connection.execute('create table messages (code, "index", country)')
        columns = (column.to_pylist() for column in sent.columns)
        connection.executemany("insert into messages values (?, ?, ?)", zip(*columns, strict=True))
    connection.close()
    m = ("-m", files / "m.json")
    for name, dialect in (("m.duckdb", "duckdb"), ("m.sqlite", "sqlite")):
        counted = query(files, "--dialect", dialect)
        run("aggregate", files / name, "--query", counted, *m, "-o", files / dialect)
        same(files, dialect, "mean", RESULTS)
        wrong = run("aggregate", files / name, "--query", "select * from nothing", *m, "-o", files / "x", code=1)
        assert "the query failed" in wrong.stderr
        assert (
            "--query reads a DuckDB or SQLite database"
            in run("aggregate", files / name, "--counts", *m, "-o", files / "x", code=2).stderr
        )


def test_wrong_tables_are_refused_by_name(files):
    m, out = ("-m", files / "m.json"), ("-o", files / "x")
    for text, options, words, code in (
        ("code,index\n0,0\n", (), "got none named messages", 1),
        ("code,index,messages\n0,0,-1\n", (), "counts must hold integers", 1),
        ("code,index,messages\n0,0,1.5\n", (), "counts must hold integers", 1),
        ("code,index,messages\n9,0,1\n", (), "code must be in [0, 4), got 9", 1),
        ("code,index,messages\n0,0\n", (), "as many fields in every line", 1),
        ("code,index,messages\n0,0,1\n", ("--by", "town"), "there is no column 'town'", 1),
        ("code,index,messages\n0,0,1\n", ("--query", "select 1"), "--query reads a DuckDB or SQLite", 2),
    ):
        (files / "bad.csv").write_text(text)
        refused = run("aggregate", files / "bad.csv", "--counts", *options, *m, *out, code=code)
        assert words in refused.stderr
        assert "bad.csv" in refused.stderr
    refused = run("aggregate", files / "messages.parquet", "--by", "country", *m, *out, code=2)
    assert "--by is for tables of counts" in refused.stderr


def test_mechanisms_without_counts_say_why(tmp_path):
    (tmp_path / "m.json").write_text(sstq.RRSC(DIM, 3.0).to_json())
    why = "rrsc cannot be estimated from counts of messages: each client has a set of candidates"
    assert why in run("sql", tmp_path / "m.json", code=2).stderr
    refused = run("aggregate", tmp_path / "x.csv", "--counts", "-m", tmp_path / "m.json", "-o", tmp_path / "x", code=2)
    assert why in refused.stderr


def test_messages_and_counts_in_object_stores(files):
    store = fsspec.filesystem("memory")
    store.pipe("/bucket/messages.parquet", (files / "messages.parquet").read_bytes())
    m = ("-m", files / "m.json")
    for number, address in enumerate(("memory://bucket/messages.parquet", (files / "messages.parquet").as_uri())):
        run("aggregate", address, *m, "-o", files / f"store{number}")
        same(files, f"store{number}", "groups", GROUPS)
    with duckdb.connect() as connection:
        connection.sql(query(files, "--table", files / "messages.parquet")).write_parquet(str(files / "c.parquet"))
    store.pipe("/bucket/counts.parquet", (files / "c.parquet").read_bytes())
    run("aggregate", "memory://bucket/counts.parquet", "--counts", *m, "-o", files / "counted")
    same(files, "counted", "mean", RESULTS)
    store.pipe("/bucket/x.sstq", b"\x8fSSTQ\r\n\x1a" + bytes(100))
    refused = run("aggregate", "memory://bucket/x.sstq", *m, "-o", files / "none", code=1)
    assert "must be Parquet to be read from an object store" in refused.stderr
    missing = run("aggregate", "memory://bucket/none.parquet", *m, "-o", files / "none", code=2)
    assert "memory://bucket/none.parquet" in missing.stderr or "none.parquet" in missing.stderr


def test_vectors_are_never_read_from_afar_unless_asked(files):
    address = (files / "people.parquet").as_uri()
    refused = run("encode", address, "-m", files / "m.json", "-o", files / "y.parquet", code=2)
    assert "--allow-remote-vectors" in refused.stderr
    assert not (files / "y.parquet").exists()
    ids = ("--clients", files / "ids.npy") if (files / "ids.npy").exists() else ()
    allowed = ("--allow-remote-vectors", "--columns", "x", *ids)
    run("encode", address, "-m", files / "m.json", "-o", files / "y.parquet", *allowed)
    assert pq.read_metadata(files / "y.parquet").num_rows == 3000
