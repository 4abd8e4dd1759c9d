"""Encoding in Arrow batches, as engines run it."""

import pickle

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest

import sstq
from paper.baselines import CSGM
from sstq.integrations.arrow import encode_batches

DIM = 4
X = np.random.default_rng(1).standard_normal((300, DIM)) / 2
PEOPLE = pa.table(
    {"id": np.arange(300), "country": ["DE", "FR", "MT"] * 100, "x": X.tolist()}
)


def estimate_of(mechanism, table):
    aggregator = mechanism.aggregator()
    aggregator.update_counts(table, np.ones(len(table), dtype=int))
    return aggregator.mean()


@pytest.mark.parametrize(
    ("mechanism", "options", "names"),
    [
        (sstq.FrameUnit(DIM, 8.0, frames=64), {}, ["row", "frame"]),
        (sstq.SSTQ(DIM, 8.0, bits=2), {}, ["code", "index"]),
        (sstq.SQKR(DIM, 8.0, k=2), {}, ["bits", "index"]),
        (sstq.GroupUnit(DIM, 8.0, groups=300), {"groups": "id"}, ["row"]),
    ],
    ids=lambda value: value.name if isinstance(value, sstq.Mechanism) else "",
)
def test_batches_become_messages_and_kept_columns(mechanism, options, names):
    encoder = pickle.loads(  # noqa: S301
        pickle.dumps(encode_batches(mechanism, "x", keep=["country"], **options))
    )
    batches = list(encoder(PEOPLE.to_batches(max_chunksize=70)))
    assert [batch.num_rows for batch in batches] == [70, 70, 70, 70, 20]
    table = pa.Table.from_batches(batches)
    assert table.column_names == [*names, "country"]
    assert table["country"].to_pylist() == PEOPLE["country"].to_pylist()
    assert all(
        pa.types.is_signed_integer(getattr(kind, "value_type", kind))
        for kind in table.schema.types[:-1]
    )
    estimate = estimate_of(mechanism, table)
    # false failures: below 1e-9 for four numbers, by seven standard errors
    if mechanism.groups is None:
        clipped = X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
        assert np.all(
            np.abs(estimate.value - clipped.mean(axis=0)) < 7 * estimate.stderr
        )
    assert not estimate.simulated


def test_several_messages_per_person_keep_their_columns():
    mechanism = sstq.FrameUnit(DIM, 2.0, messages=3)
    table = pa.Table.from_batches(
        encode_batches(mechanism, "x", keep="country")(PEOPLE)
    )
    assert table["country"].to_pylist() == 3 * PEOPLE["country"].to_pylist()


def test_duckdb_and_polars_take_the_batches():
    mechanism = sstq.FrameUnit(DIM, 3.0)
    encoder = encode_batches(mechanism, "x", keep=["country"])
    with duckdb.connect() as connection:
        people = PEOPLE  # noqa: F841 (DuckDB finds it by name)
        messages = pa.Table.from_batches(
            encoder(
                connection.sql("from people where country <> 'MT'").to_arrow_reader()
            )
        )
        counted = connection.sql(
            "select row, count(*) as messages from messages group by row"
        ).to_arrow_table()
    aggregator = mechanism.aggregator()
    aggregator.update_counts(counted)
    assert aggregator.count == len(messages) == 200
    frame = polars.from_arrow(
        pa.Table.from_batches(encoder(polars.from_arrow(PEOPLE).to_arrow()))
    )
    assert frame.columns == ["row", "country"]
    assert len(frame) == 300


def test_types_as_sql_states_them():
    assert (
        encode_batches(sstq.FrameUnit(DIM, 3.0, frames=8), "x").ddl
        == "`row` int, `frame` int"
    )
    assert (
        encode_batches(sstq.SQKR(DIM, 3.0, k=2), "x").ddl
        == "`bits` int, `index` array<int>"
    )


def test_what_cannot_be_encoded_is_refused():
    frameunit = sstq.FrameUnit(DIM, 3.0)
    grouped = sstq.GroupUnit(DIM, 3.0, groups=2)
    for arguments, options, problem in (
        ((CSGM(DIM, 1.0, clients=10), "x"), {}, "must be locally private, got csgm"),
        (
            (sstq.Survey(2.0, {"x": sstq.Vector(DIM)}), "x"),
            {},
            "one column, got one that takes tables; use its encode",
        ),
        ((frameunit, "x"), {"keep": ["row"]}, "keep must not name .*, got 'row'"),
        ((frameunit, "x"), {"keep": ["x"]}, "keep must not name .*, got 'x'"),
    ):
        with pytest.raises(ValueError, match=problem):
            encode_batches(*arguments, **options)
    with pytest.raises(ValueError, match="batches must have a column 'y'"):
        list(encode_batches(frameunit, "y")(PEOPLE))
    holes = pa.table({"id": [1, None], "x": X[:2].tolist()})
    with pytest.raises(ValueError, match="column 'id' must not have nulls, got 1"):
        list(encode_batches(grouped, "x", groups="id")(holes))
