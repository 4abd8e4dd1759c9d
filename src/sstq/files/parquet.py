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
def open_parquet(file: BinaryIO | str) -> Iterator[Any]:
    """Open a file, or the file of that name, as Parquet; ValueError if it cannot be read, now or later in the block."""
    pyarrow = import_pyarrow()
    try:
        # It closes what it has opened itself.
        with pyarrow.parquet.ParquetFile(
            file, page_checksum_verification=True
        ) as table:
            yield table
    except (OSError, pyarrow.ArrowException) as error:
        name = file if isinstance(file, str) else file.name
        raise ValueError(
            f"{name} is truncated, damaged or not a Parquet file: {error}"
        ) from error
