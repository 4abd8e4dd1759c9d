"""Opening Parquet files; pyarrow comes with the extra [data]."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

MAGIC = b"PAR1"


def import_pyarrow() -> Any:
    """Import pyarrow with its Parquet and compute modules; ImportError names the extra if it is missing."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files need pyarrow: pip install 'sstq[data]'"
        ) from error
    return pyarrow


@contextmanager
def open_parquet(file: BinaryIO) -> Iterator[Any]:
    """Open a file as Parquet; ValueError if it cannot be read, now or later in the block."""
    pyarrow = import_pyarrow()
    try:
        yield pyarrow.parquet.ParquetFile(file, page_checksum_verification=True)
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(
            f"{file.name} is truncated, damaged or not a Parquet file: {error}"
        ) from error
