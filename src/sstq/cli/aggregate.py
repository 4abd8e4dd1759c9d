"""`sstq aggregate`: estimates the mean and its error from message files or tables of counts."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.common import (
    FORCE,
    MECHANISM,
    PLOT,
    VERBOSE,
    WrongUsage,
    argument,
    check_output,
    check_picture,
    check_usage,
    flag,
    option,
    output_option,
    read_mechanism,
    save_picture,
)
from sstq.cli.results import RESULTS, report
from sstq.cli.terminal import note, progress, warn

if TYPE_CHECKING:
    from sstq import Aggregator, Estimate, Mechanism


def aggregate(
    messages: list[str] = argument(
        "Aggregate these message files; Parquet also at s3://, gs://, https://.",
        metavar="MESSAGES...",
    ),
    mechanism: Path = MECHANISM,
    output: Path = output_option(
        "Write the mean, its errors and a summary to this folder."
    ),
    state: Path | None = option(
        "Save the progress in this file.", show_default="state.npz in the output folder"
    ),
    counts: bool = flag("Read tables of counts, not messages (sstq sql).", "--counts"),
    query: str | None = option(
        "Read the counts of this query of DuckDB or SQLite files.", metavar="SQL"
    ),
    by: str | None = option(
        "Estimate one mean per group of this column.", metavar="COLUMN"
    ),
    plot: Path | None = PLOT,
    verbose: bool = VERBOSE,
    force: bool = FORCE,
) -> None:
    """Estimate the mean and its standard error from message files.

    The state is saved after every file, and files already counted are skipped. After an interruption, or when more
    files have arrived, run the same command again. A file is added as a whole or not at all; one that is refused ends
    the command, and what was added before stays. Results are overwritten only if the state that they come from exists,
    or with --force.

    With --by country, a column of Parquet files (sstq encode --by), there is one mean per group and no state: pass
    all files at once. A group of fewer than 30 clients is marked "too few". Messages with a private group (GroupUnit)
    give shares, sums and means of every group in groups.npz, and one line per group in groups.csv.

    With --counts the files are tables that a SQL engine made of the messages. The result is the same bit for bit. A
    table with the same rows as one that was added before is skipped with a warning.

    Example: sstq aggregate day1.sstq day2.sstq --mechanism mechanism.json --output result
    """
    shared = read_mechanism(mechanism)
    _check_options(shared, by, state)
    tables = counts or query is not None
    if tables:
        with check_usage():
            _ = shared.counted_layout
    check_picture(plot, force)
    output.mkdir(parents=True, exist_ok=True)
    state_path = state or output / "state.npz"
    check_output(state_path, True, "--state")
    resumed = by is None and state_path.exists()
    for name in RESULTS:
        check_output(output / name, force or resumed)
    sums = _Sums(shared, by, state_path if resumed else None)
    repeated = 0
    with progress("Aggregating", len(messages)) as advance:
        for path in messages:
            added = sums.add_table(path, query) if tables else sums.add_messages(path)
            repeated += not added
            if added and by is None:
                sums.of[""].save(state_path)
            advance(1)
    if repeated:
        note(f"{repeated} of {len(messages)} files were already counted and skipped")
    means = {label: part.mean() for label, part in sums.of.items()}
    report(shared, means, by, sums.sources, output, verbose)
    if plot is not None:
        from sstq.plots.estimates import draw_means

        save_picture(draw_means(means), plot)


def _check_options(mechanism: "Mechanism", by: str | None, state: Path | None) -> None:
    if by is not None and "by" not in mechanism.input.file_options:
        takes = f"this mechanism takes {mechanism.input.takes}"
        raise WrongUsage(
            f"--by must be left out: {takes}; count each group by itself, with WHERE"
        )
    if by is not None and state is not None:
        raise WrongUsage("--state is for one mean; with --by pass all files at once")


class _Sums:
    """The sums of each label of the column `by`; without one, those of all people, whose label is empty."""

    def __init__(
        self, mechanism: "Mechanism", by: str | None, state: Path | None
    ) -> None:
        self.mechanism = mechanism
        self.by = by
        self.of: dict[str, Aggregator[Estimate]] = {}
        self.sources: set[str] = set()
        if by is None:
            self.of[""] = (
                mechanism.aggregator()
                if state is None
                else mechanism.load_aggregator(state)
            )
            self.sources = self.of[""].sources

    def add_messages(self, path: str) -> bool:
        """Add the messages of a file; returns whether it was new."""
        from sstq.messages.files import open_messages

        if self.by is None:
            return self.of[""].update_from_file(path)
        with open_messages(path) as opened:
            if opened.info.file_id in self.sources:
                return False
            for messages in opened.read(self.mechanism, self.by):
                for label, rows in _split(messages.labels):
                    self._of_label(label).update(messages[rows])
        self.sources.add(opened.info.file_id)
        return True

    def add_table(self, path: str, query: str | None) -> bool:
        """Add a table of counts; returns whether its rows were new."""
        from sstq.aggregation.counts import fingerprint
        from sstq.inputs.tables import column_names
        from sstq.messages.count_tables import read_count_table

        table = read_count_table(path, query, self.by)
        try:
            if self.by is not None and self.by not in column_names(table):
                raise ValueError(f"there is no column {self.by!r}")
            source = fingerprint(table, self.mechanism.counted_layout, self.by)
            if source in self.sources:
                warn(
                    f"{path} has the same rows as a table that was added before, and is skipped. If they count other "
                    "messages, unite both tables with UNION ALL, and add that one to a new --output"
                )
                return False
            for label, part in self._by_label(table):
                self._of_label(label).update_counts(part)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        self.sources.add(source)
        return True

    def _of_label(self, label: str) -> "Aggregator[Estimate]":
        return self.of.setdefault(label, self.mechanism.aggregator())

    def _by_label(self, table: Any) -> Iterator[tuple[str, Any]]:
        """Yield each label with its part of a table of counts."""
        import numpy as np

        from sstq.aggregation.counts import COUNT

        if self.by is None:
            yield "", table
            return
        labels = np.asarray(table[self.by], dtype=object)
        if any(label is None or label == "" for label in labels):
            raise ValueError(
                f"the column {self.by!r} must not have nulls or empty labels; fill or drop them first"
            )
        names = (COUNT, *self.mechanism.counted_layout.names)
        arrays = {name: np.asarray(table[name]) for name in names}
        for label, rows in _split(labels.astype(str)):
            yield label, {name: array[rows] for name, array in arrays.items()}


def _split(labels: Any) -> Iterator[tuple[str, Any]]:
    """Yield each label with its rows."""
    import numpy as np

    names, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    yield from zip(
        names.tolist(),
        np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1]),
        strict=True,
    )
