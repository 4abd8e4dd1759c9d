"""What `sstq aggregate` adds at a time: a table of counts, or a file of messages by their label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sstq.cli.terminal import warn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sstq import Aggregator, Mechanism

    Sums = dict[str, Aggregator]


def add_counts(
    sums: Aggregator | Sums,
    sources: set[str],
    mechanism: Mechanism,
    path: str,
    query: str | None,
    by: str | None,
) -> bool:
    """Add a table of counts as a whole; returns whether it was added, because each table counts once."""
    from sstq.aggregation.counts import COUNT, COUNTED, column_names, fingerprint
    from sstq.messages.count_tables import read_count_table

    table = read_count_table(path, query, by)
    try:
        if by is not None and by not in column_names(table):
            raise ValueError(f"there is no column {by!r}")
        source = COUNTED + fingerprint(table, COUNT, mechanism.counted_layout, by)[len(COUNTED) :]
        if source in sources:
            warn(
                f"{path} has the same rows as a table that was added before, and is skipped. If they count other "
                "messages, unite both tables with UNION ALL, and add that one to a new --output"
            )
            return False
        if not isinstance(sums, dict):
            sums.update_counts(table, source=source)
            return True
        _merge(sums, _counted(mechanism, table, str(by)))
        sources.add(source)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return True


def add_labelled(sums: Sums, sources: set[str], mechanism: Mechanism, path: str, by: str) -> bool:
    """Add a Parquet file of messages to the sums of its labels, as a whole; returns whether it was new."""
    from sstq.messages.files import open_messages

    part: Sums = {}
    with open_messages(path) as opened:
        if opened.info.file_id in sources:
            return False
        for messages in opened.read(mechanism, by):
            for label, rows in _split(messages.labels):
                part.setdefault(label, mechanism.aggregator()).update(messages[rows])
    _merge(sums, part.items())
    sources.add(opened.info.file_id)
    return True


def _counted(mechanism: Mechanism, table: Any, by: str) -> list[tuple[str, Aggregator]]:
    """The sums of each label of a table of counts."""
    import numpy as np

    from sstq.aggregation.counts import COUNT, read_counts

    layout, column = mechanism.counted_layout, table[by]
    columns, times = read_counts(table, COUNT, layout)
    labels = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    if None in labels or "" in labels:
        raise ValueError(f"the column {by!r} must not have nulls or empty labels; fill or drop them first")
    found = []
    for label, rows in _split(np.array([str(label) for label in labels], dtype=object)):
        fields = {field.name: values[rows] for field, values in zip(layout.fields, columns, strict=True)}
        found.append((label, mechanism.aggregator().update_counts(fields, times[rows])))
    return found


def _merge(sums: Sums, parts: Iterable[tuple[str, Aggregator]]) -> None:
    for label, part in parts:
        if label in sums:
            sums[label].merge(part)
        else:
            sums[label] = part


def _split(labels: Any) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield each label with its rows."""
    import numpy as np

    names, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    yield from zip(names.tolist(), np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1]), strict=True)
