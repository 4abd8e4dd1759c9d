"""Records: each person holds a row of a table, or several named values."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sstq.array_types import Floats, Rows
from sstq.inputs.base import Held, Input
from sstq.inputs.cells import cells_of
from sstq.inputs.people import Path, PeopleFile
from sstq.inputs.reports import LocalReport
from sstq.inputs.table_files import open_table
from sstq.inputs.tables import Columns, as_table
from sstq.randomness.secret import BitSource


class Column(ABC):
    """A column of a table, whose values become numbers of a record. None is a missing value, which is no answer."""

    holds_lists = False
    """Whether a value is a list."""

    @property
    def width(self) -> int:
        """How many numbers of a record it has."""
        return 1

    @abstractmethod
    def record(self, value: Any, strict: bool) -> Any:
        """The numbers of a value; TypeError with what it should be. A list may have other types, unless `strict`."""

    @abstractmethod
    def parsed(self, text: str) -> Any:
        """The value that a field of a CSV file has; ValueError if it is none."""

    def is_blank(self, text: str) -> bool:
        """Whether a field of a CSV file is a missing value."""
        return not text.strip()

    @abstractmethod
    def examples(self) -> list[Any]:
        """Values that differ as much as they can."""

    def unknown_labels(self, value: Any) -> list[str]:
        """The labels of a value that the column does not have."""
        return []

    def is_beyond(self, value: Any) -> bool:
        """Whether a value is beyond the bounds."""
        return False

    def read(
        self, values: Any, name: str, strict: bool, report: LocalReport | None = None
    ) -> Floats:
        """The values as numbers, (n, width). What is no value is a ValueError if `strict`, and no answer otherwise."""
        cells = cells_of(values)
        counts = LocalReport() if report is None else report
        rows = np.empty((len(cells), self.width))
        for row, value in enumerate(cells):
            try:
                rows[row] = self.record(value, strict)
                if value is not None:
                    self._count(value, name, counts)
            except Exception as wanted:
                if not strict:  # an object may raise anything
                    rows[row] = self.record(None, strict)
                    counts.values[name] += 1
                    counts.unreadable[name] += 1
                    continue
                if not isinstance(wanted, TypeError):
                    raise
                raise ValueError(
                    f"column {name!r} must be {wanted}, got {repr(value)[:40]} in row {row}"
                ) from wanted
        return rows

    def _count(self, value: Any, name: str, report: LocalReport) -> None:
        report.values[name] += 1
        report.beyond[name] += self.is_beyond(value)
        unknown = self.unknown_labels(value)
        if unknown:
            report.unlabelled[name] += 1
            report.unknown.setdefault(name, Counter()).update(unknown)


@dataclass(frozen=True)
class Record(Input):
    """Several named values, one per column of a table. A row has the numbers of all columns, side by side.

    Attributes:
        columns: the columns by name.
        estimated: the numbers that the estimates of rows should have.
        items: the true value of each item of each question, from the rows by column.

    Examples:
        >>> import sstq
        >>> held = sstq.Survey(2.0, {"os": sstq.Choice(["mac", "win"]), "age": sstq.Number(0, 100)}).input
        >>> held.read({"os": ["mac", "win", None], "age": [30, 40, 50]}).tolist()
        [[0.0, 30.0], [1.0, 40.0], [2.0, 50.0]]
        >>> held.read({"os": "mac", "age": 30}).tolist()
        [[0.0, 30.0]]
    """

    takes = "tables"
    columns: Mapping[str, Column]
    estimated: Callable[[Rows], Rows]
    items: Callable[[Mapping[str, Rows]], dict[tuple[str, str], float]]

    @property
    def width(self) -> int:
        """The numbers of a row."""
        return sum(column.width for column in self.columns.values())

    def strict_rows(self, X: Any, groups: Any, report: LocalReport | None) -> Rows:
        """The records of a table (pandas, Polars, Arrow or a dict of columns), or of one person, a dict of values."""
        return self._rows(as_table(X, self.columns, strict=True), True, report)

    def mended_rows(
        self, X: Any, groups: Any, source: BitSource, report: LocalReport | None
    ) -> Rows:
        """The records, with no answer in the place of whatever cannot be encoded, and of columns that are missing."""
        return self._rows(as_table(X, self.columns, strict=False), False, report)

    def _rows(
        self, table: Mapping[str, Any], strict: bool, report: LocalReport | None
    ) -> Rows:
        nothing = [None] * len(next(iter(table.values())))
        read = [
            column.read(table.get(name, nothing), name, strict, report)
            for name, column in self.columns.items()
        ]
        return np.hstack(read)

    def together(self, values: Sequence[Any]) -> dict[str, list[Any]]:
        """The columns of the values by name; whatever is no dict has no answers."""
        records = [value if isinstance(value, Mapping) else {} for value in values]
        return Columns(
            {name: [record.get(name) for record in records] for name in self.columns}
        )

    def by_column(self, rows: Rows) -> dict[str, Rows]:
        """The numbers of each column, by its name."""
        ends = np.cumsum([column.width for column in self.columns.values()])[:-1]
        return dict(zip(self.columns, np.split(rows, ends, axis=1), strict=True))

    def open_file(
        self,
        path: Path,
        columns: Sequence[str] | None,
        by: str | None,
        *,
        answering: bool = False,
    ) -> PeopleFile:
        """Open a CSV or Parquet file that has the columns.

        In CSV files an empty field is a missing value, unless the empty text is a label. Several labels are separated
        by semicolons, and one semicolon is none of them; the numbers of a vector are separated so as well.
        """
        return open_table(path, self.columns, answering=answering)

    def trial(self, rng: np.random.Generator, count: int) -> Held:
        """Random columns with missing values."""
        columns = {}
        for name, column in self.columns.items():
            some = [*column.examples(), None]
            columns[name] = [
                some[place] for place in rng.integers(len(some), size=count)
            ]
        return {"X": columns}

    def extremes(self, rng: np.random.Generator) -> dict[str, Held]:
        """Records of the examples of all columns."""
        some = {name: column.examples() for name, column in self.columns.items()}
        most = max(map(len, some.values()))
        return {
            f"record {place}": {
                "X": {name: [each[place % len(each)]] for name, each in some.items()}
            }
            for place in range(most)
        }

    def refused(self) -> list[Held]:
        """What is no table, has no such columns, or columns of several lengths."""
        whole: dict[str, Any] = {name: [None] for name in self.columns}
        first = next(iter(whole))
        fewer = {name: column for name, column in whole.items() if name != first}
        wrong: list[Any] = [np.zeros((1, len(whole))), "table", [whole], fewer]
        if fewer:
            wrong.append(whole | {first: [None, None]})
        return [{"X": X} for X in wrong] + [{"X": whole, "groups": [0]}]

    def truth(self, rows: Rows) -> Rows:
        """What the mechanism estimates of the records."""
        return self.estimated(rows)

    def true_items(self, rows: Rows) -> dict[tuple[str, str], float]:
        """The true value of each item that results show."""
        return self.items(self.by_column(rows))
