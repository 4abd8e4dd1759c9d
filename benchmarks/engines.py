"""Messages counted in SQL engines: DuckDB, and Spark with two workers; against reading the same files here.

Spark needs Java and `pip install pyspark`.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Remark, Result, benchmark, fastest
from sstq import FrameUnit
from sstq.aggregation.counts import counting_query
from sstq.messages.files import write_messages

_FILES = 8
_EACH = 1_000_000
_MILLION = 1e6


@benchmark
def engines() -> Iterator[Result | Remark]:
    """Eight million messages of FrameUnit, 64 frames, in eight Parquet files into sums, two cores: by who counts."""
    mechanism = FrameUnit(1000, 3.0, frames=64)
    with tempfile.TemporaryDirectory() as folder:
        _write(mechanism, Path(folder))
        table = f"{folder}/*.parquet"
        files = sorted(Path(folder).glob("*.parquet"))
        expected = _here(mechanism, files)
        (here,) = fastest(partial(_here, mechanism, files), repeats=3)
        yield _speed("the library", here)
        for name, opened in (("DuckDB", _duckdb), ("Spark, 2 workers", _spark)):
            try:
                count, close = opened()
            except ImportError as error:
                yield Remark(f"{name}, not measured: {error}")
                continue
            try:
                dialect = name.split(",")[0].lower()
                query = counting_query(mechanism.counted_layout, table, dialect)
                counted = partial(_counted, mechanism, count, query)
                if not np.array_equal(counted(), expected):
                    raise AssertionError(f"{name} counts otherwise than the library")
                (taken,) = fastest(counted, repeats=3)
            finally:
                close()
            yield _speed(name, taken)
            yield Result(f"{name}, against the library", here / taken, "times as fast")


def _write(mechanism: FrameUnit, folder: Path) -> None:
    rng = np.random.default_rng(1)
    for number in range(_FILES):
        columns = tuple(
            rng.integers(field.limit, size=_EACH, dtype=field.dtype)
            for field in mechanism.layout.fields
        )
        messages = mechanism.messages_from_columns(columns, simulated=True)
        write_messages(folder / f"{number}.parquet", messages)


def _speed(name: str, taken: float) -> Result:
    return Result(name, _FILES * _EACH / taken / _MILLION, "million messages/s")


def _here(mechanism: FrameUnit, files: list[Path]) -> Any:
    aggregator = mechanism.aggregator()
    for path in files:
        aggregator.update_from_file(path)
    return aggregator.sums()


def _counted(mechanism: FrameUnit, count: Callable[[str], Any], query: str) -> Any:
    """The sums from the table that the engine returns."""
    return mechanism.aggregator().update_counts(count(query)).sums()


def _duckdb() -> tuple[Callable[[str], Any], Callable[[], object]]:
    import duckdb

    connection = duckdb.connect(config={"threads": 2})
    return lambda query: connection.sql(query).to_arrow_table(), connection.close


def _spark() -> tuple[Callable[[str], Any], Callable[[], object]]:
    from pyspark.sql import SparkSession

    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise ImportError("it needs Java 17, and there is no java")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    return lambda query: spark.sql(query).toArrow(), spark.stop
