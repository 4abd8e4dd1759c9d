"""Tables as CSV, written whole or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sstq.files.atomic import atomic_file

__all__ = ["write_csv"]


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows of named values, the columns in this order; None is an empty field.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_csv(Path(folder) / "points.csv", ["bits", "error"], [{"bits": 16, "error": 0.74}])
        ...     print((Path(folder) / "points.csv").read_text())
        bits,error
        16,0.74
        <BLANKLINE>
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with atomic_file(path) as file:
        file.write(text.getvalue().encode())
