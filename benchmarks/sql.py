"""Counting messages in DuckDB beside adding them up: the same mean, from the same Parquet file."""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Remark, Result, benchmark, run_python
from sstq import FrameUnit, Messages, write_messages
from sstq.aggregation.counts import counting_query

DIM, EPSILON = 256, 3.0
FEW, MANY, AT_A_TIME = 10_000_000, 100_000_000, 1 << 22
SECONDS, MEGABYTES, FLAT = 10.0, 2048.0, 1.25


@benchmark
def sql() -> Iterator[Result | Remark]:
    """10^8 Parquet messages of FrameUnit (d = 256) into a mean: DuckDB's GROUP BY beside `Aggregator.update`."""
    try:
        import duckdb  # noqa: F401
    except ImportError as error:
        yield Remark(f"not measured: {error}")
        return
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for count in (FEW, MANY):
            path = Path(folder) / "messages.parquet"
            write_messages(path, _messages(count))
            yield Remark(f"{count:,} messages take {path.stat().st_size / 1e6:.0f} MB")
            for way in ("duckdb", "update"):
                found[way, count] = json.loads(run_python("-m", "benchmarks.sql", way, str(path)))
            assert found["duckdb", count]["mean"] == found["update", count]["mean"]
    few, many, added = found["duckdb", FEW], found["duckdb", MANY], found["update", MANY]
    yield Result("DuckDB: 10^8 messages to a mean", many["seconds"], "s", target=SECONDS, at_most=True)
    yield Result("DuckDB: memory", many["megabytes"], "MB", target=MEGABYTES, at_most=True)
    grown = many["megabytes"] / few["megabytes"]
    yield Result("DuckDB: memory of 10^8 over 10^7", grown, "times", target=FLAT, at_most=True)
    yield Result("update_from_file: time", added["seconds"] / many["seconds"], "of DuckDB's", "one thread")
    yield Result("update_from_file: memory", added["megabytes"] / many["megabytes"], "of DuckDB's")


def _messages(count: int) -> Iterator[Messages]:
    mechanism, rng = FrameUnit(DIM, EPSILON), np.random.default_rng(1)
    (field,) = mechanism.layout.fields
    for start in range(0, count, AT_A_TIME):
        rows = rng.integers(field.limit, size=min(AT_A_TIME, count - start), dtype=field.dtype)
        yield mechanism.messages_from_columns((rows,), None, simulated=True)


def main(way: str, path: str) -> None:
    """Estimate the mean of a file in one way, and print how long it took and how much memory."""
    mechanism = FrameUnit(DIM, EPSILON)
    aggregator = mechanism.aggregator()
    started = time.perf_counter()
    if way == "duckdb":
        import duckdb

        with duckdb.connect() as connection:
            query = counting_query(mechanism.counted_layout, path)
            aggregator.update_counts(connection.sql(query).to_arrow_table(), simulated=True)
    else:
        aggregator.update_from_file(path)
    mean = aggregator.mean().value
    seconds = time.perf_counter() - started
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "megabytes": megabytes, "mean": mean.tobytes().hex()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
