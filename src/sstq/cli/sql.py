"""`sstq sql`: prints the query that counts messages in a SQL engine."""

from pathlib import Path

import typer

from sstq.cli.common import argument, check_usage, option, read_mechanism


def sql(
    mechanism: Path = argument(
        "Count messages of the mechanism in this JSON file (sstq spec)."
    ),
    table: str = option("Count this table, or this Parquet file.", default="messages"),
    dialect: str = option(
        "Choose the engine.",
        default="duckdb",
        metavar="duckdb|spark|bigquery|clickhouse|postgresql|sqlite",
    ),
    by: str | None = option(
        "Count each group of this public column on its own.", metavar="COLUMN"
    ),
) -> None:
    """Print the query that counts messages in a SQL engine.

    Its result is all that an estimate needs. Write it to a Parquet or CSV file, and estimate the mean with `sstq
    aggregate FILE --counts`. Or run `sstq aggregate DATABASE --query "$(sstq sql mechanism.json)"` on a DuckDB or
    SQLite database. The mean is the same, bit for bit, as from the messages themselves.

    Example: sstq sql mechanism.json --table 'messages/*.parquet' --dialect duckdb
    """
    from sstq.aggregation.counts import counting_query

    shared = read_mechanism(mechanism)
    with check_usage():
        query = counting_query(shared.counted_layout, table, dialect, by)
    typer.echo(query)
