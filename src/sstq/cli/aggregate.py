"""`sstq aggregate`: estimates the mean and its error from message files or tables of counts."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sstq.cli.common import (
    ForceOption,
    MechanismOption,
    VerboseOption,
    WrongUsage,
    argument,
    check_output,
    check_usage,
    option,
    output_option,
    read_mechanism,
)
from sstq.cli.results import RESULTS, report_groups, report_mean
from sstq.cli.terminal import note, progress, warn

if TYPE_CHECKING:
    from sstq import Aggregator, Estimate, Mechanism


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
    counts: Annotated[bool, option("Read tables of counts, not messages (sstq sql).", "--counts")] = False,
    query: Annotated[
        str | None, option("Read the counts of this query of DuckDB or SQLite files.", metavar="SQL")
    ] = None,
    by: Annotated[str | None, option("Estimate one mean per group of this column.", metavar="COLUMN")] = None,
    verbose: VerboseOption = False,
    force: ForceOption = False,
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
    from sstq.aggregation.counts import known_simulated

    shared = read_mechanism(mechanism)
    tables = counts or query is not None
    if tables:
        with check_usage():
            _ = shared.counted_layout
    if by is not None and "by" not in shared.input.file_options:
        takes = f"this mechanism takes {shared.input.takes}"
        raise WrongUsage(f"--by must be left out: {takes}; count each group by itself, with WHERE")
    if by is not None and state is not None:
        raise WrongUsage("--state is for one mean; with --by pass all files at once")
    output.mkdir(parents=True, exist_ok=True)
    state_path = output / "state.npz" if state is None else state
    check_output(state_path, True, "--state")
    resumed = by is None and state_path.exists()
    for name in RESULTS:
        check_output(output / name, force or resumed)
    sums: dict[str, Aggregator[Estimate]] = defaultdict(shared.aggregator)
    if by is None:
        sums[""] = shared.load_aggregator(state_path) if resumed else shared.aggregator()
    sources = sums[""]._sources if by is None else set()
    repeated = 0
    with progress("Aggregating", len(messages)) as advance:
        for path in messages:
            if tables:
                added = _add_counts(sums, sources, shared, path, query, by)
            elif by is None:
                added = sums[""].update_from_file(path)
            else:
                added = _add_messages(sums, sources, shared, path, by)
            repeated += not added
            if added and by is None:
                sums[""].save(state_path)
            advance(1)
    if repeated:
        note(f"{repeated} of {len(messages)} files were already counted and skipped")
    if not sums:
        raise ValueError("a mean needs at least one message, got none")
    means = {label: part.mean() for label, part in sums.items()}
    simulated = known_simulated(any(mean.simulated for mean in means.values()), sources)
    if by is not None:
        report_groups(shared, means, simulated, by, output)
        return
    report_mean(shared, means[""], simulated, output, verbose)


def _add_messages(
    sums: "dict[str, Aggregator[Estimate]]", sources: set[str], mechanism: "Mechanism", path: str, by: str
) -> bool:
    """Add the messages of a Parquet file to the sums of their labels; returns whether it was new."""
    from sstq.messages.files import open_messages

    with open_messages(path) as opened:
        if opened.info.file_id in sources:
            return False
        for messages in opened.read(mechanism, by):
            for label, rows in _split(messages.labels):
                sums[label].update(messages[rows])
    sources.add(opened.info.file_id)
    return True


def _add_counts(
    sums: "dict[str, Aggregator[Estimate]]",
    sources: set[str],
    mechanism: "Mechanism",
    path: str,
    query: str | None,
    by: str | None,
) -> bool:
    """Add a table of counts to the sums of each label, or to those of all; returns whether its rows were new."""
    import numpy as np

    from sstq.aggregation.counts import COUNT, fingerprint
    from sstq.inputs.tables import column_names
    from sstq.messages.count_tables import read_count_table

    table = read_count_table(path, query, by)
    layout = mechanism.counted_layout
    try:
        if by is not None and by not in column_names(table):
            raise ValueError(f"there is no column {by!r}")
        source = fingerprint(table, layout, by)
        if source in sources:
            warn(
                f"{path} has the same rows as a table that was added before, and is skipped. If they count other "
                "messages, unite both tables with UNION ALL, and add that one to a new --output"
            )
            return False
        if by is None:
            sums[""].update_counts(table)
        else:
            labels = table[by].to_pylist() if hasattr(table[by], "to_pylist") else list(table[by])
            if None in labels or "" in labels:
                raise ValueError(f"the column {by!r} must not have nulls or empty labels; fill or drop them first")
            arrays = {name: np.asarray(table[name]) for name in (COUNT, *(field.name for field in layout.fields))}
            for label, rows in _split(np.array([str(label) for label in labels], dtype=object)):
                sums[label].update_counts({name: array[rows] for name, array in arrays.items()})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    sources.add(source)
    return True


def _split(labels: Any) -> Iterator[tuple[str, Any]]:
    """Yield each label with its rows."""
    import numpy as np

    names, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    yield from zip(names.tolist(), np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1]), strict=True)
