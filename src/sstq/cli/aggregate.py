"""`sstq aggregate`: estimates the mean and its error from message files or tables of counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.common import (
    ForceOption,
    GroupNamesOption,
    MechanismOption,
    VerboseOption,
    WrongUsage,
    argument,
    check_output,
    check_usage,
    flag,
    option,
    output_option,
    read_group_names,
    read_mechanism,
)
from sstq.cli.results import report_groups, report_mean, result_files
from sstq.cli.terminal import complain, note, progress, warn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sstq import Aggregator, Mechanism

    Sums = dict[str, Aggregator]


def aggregate(
    messages: Annotated[
        list[str],
        argument("Aggregate these message files; Parquet also at s3://, gs://, https://.", metavar="MESSAGES..."),
    ],
    mechanism: MechanismOption,
    output: Annotated[Path, output_option("Write the mean, its errors and a summary to this folder.")],
    state: Annotated[
        Path | None, option("Save the progress in this file.", show_default="state.npz in the output folder")
    ] = None,
    counts: Annotated[bool, flag("Read tables of counts, not messages (sstq sql).", "--counts")] = False,
    query: Annotated[
        str | None, option("Read the counts of this query of DuckDB or SQLite files.", metavar="SQL")
    ] = None,
    by: Annotated[str | None, option("Estimate one mean per group of this column.", metavar="COLUMN")] = None,
    group_names: GroupNamesOption = None,
    skip_bad: Annotated[bool, flag("Continue without files that are refused; exit with 1.", "--skip-bad")] = False,
    verbose: VerboseOption = False,
    force: ForceOption = False,
) -> None:
    """Estimate the mean and its standard error from message files.

    The state is saved after every file, and files already counted are skipped. After an interruption, or when more
    files have arrived, run the same command again. A file is added as a whole or not at all. Results are overwritten
    only if the state that they come from exists, or with --force. Mechanisms that need a trusted aggregator (CSGM)
    close the round here: noise is added once, and further files are refused.

    With --by country, a column of Parquet files (sstq encode --by), there is one mean per group and no state: pass
    all files at once. A group is marked "too few" if it has fewer than 30 clients, and "within error" unless its mean
    is longer than both the radius of its 95 % region and √2 times its error. Messages with a private group (GroupUnit)
    give shares, sums and means of every group in groups.npz, and one line per group in groups.csv.

    With --counts the files are tables that a SQL engine made of the messages. The result is the same bit for bit. A
    table with the same rows as one that was added before is skipped with a warning.

    Example: sstq aggregate day1.sstq day2.sstq --mechanism mechanism.json --output result
    """
    shared = read_mechanism(mechanism)
    counts = counts or query is not None
    if counts:
        with check_usage():
            _ = shared.counted_layout
    if by is not None and shared.name == "survey":
        raise WrongUsage("--by: a survey has no single mean per group; count each group by itself, with WHERE")
    if by is not None and shared.trust == "aggregator":
        raise WrongUsage(f"--by needs a mechanism whose single messages are private, unlike {shared.name}")
    if by is not None and state is not None:
        raise WrongUsage("--state is for one mean; with --by pass all files at once")
    names = read_group_names(group_names, shared)
    output.mkdir(parents=True, exist_ok=True)
    state_path = output / "state.npz" if state is None else state
    check_output(state_path, True, "--state")
    resumed = by is None and state_path.exists()
    for name in result_files(shared, by):
        check_output(output / name, force or resumed)
    whole = shared.load_aggregator(state_path) if resumed else shared.aggregator()
    groups: Sums = {}
    sources = whole._sources if by is None else set()

    def add(path: str) -> bool:
        if counts:
            new = _add_counts(whole if by is None else groups, sources, shared, path, query, by)
        else:
            new = whole.update_from_file(path) if by is None else _add_labelled(groups, sources, shared, path, by)
        if new and by is None:
            whole.save(state_path)
        return new

    bad = _add_files(add, messages, skip_bad)
    if by is not None:
        if not groups:
            raise ValueError("a mean needs at least one message, got none")
        means = {label: sums.mean() for label, sums in groups.items()}
        simulated = _known(any(mean.simulated for mean in means.values()), sources)
        report_groups(shared, means, simulated, by, output)
    else:
        mean = whole.mean()
        if shared.trust == "aggregator":
            # The mean has closed the round: only its noisy sums are kept, so the same mean comes out again.
            whole.save(state_path)
        report_mean(shared, mean, _known(mean.simulated, sources), output, names, verbose)
    if bad:
        complain(f"{len(bad)} of {len(messages)} files were refused and are not in the mean:")
        for error in bad:
            complain(error)
        raise typer.Exit(1)


def _known(simulated: bool, sources: set[str]) -> bool | None:
    """Return whether some messages come from a seed; None, with a remark, where only tables of counts could tell."""
    from sstq.aggregation.counts import known_simulated

    known = known_simulated(simulated, sources)
    if known is None:
        note("tables of counts do not say whether messages were simulated with a seed: only their source can tell")
    return known


def _add_files(add: Callable[[str], bool], paths: list[str], skip_bad: bool) -> list[Exception]:
    """Add the files; returns the refusals, or raises the first one."""
    refusals: list[Exception] = []
    repeated = 0
    with progress("Aggregating", len(paths)) as advance:
        for path in paths:
            try:
                repeated += not add(path)
            except (ValueError, OSError) as error:
                if not skip_bad:
                    raise
                refusals.append(error)
            advance(1)
    if repeated:
        note(f"{repeated} of {len(paths)} files were already counted and skipped")
    return refusals


def _add_counts(
    sums: Aggregator | Sums, sources: set[str], mechanism: Mechanism, path: str, query: str | None, by: str | None
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


def _add_labelled(sums: Sums, sources: set[str], mechanism: Mechanism, path: str, by: str) -> bool:
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
