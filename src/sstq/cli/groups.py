"""Groups of people in `sstq aggregate`: one mean per public group, and shares, sums and means of private ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.common import advise_next_round, safe_figure, summarize_mechanism, to_json, warn_of_seed
from sstq.cli.counts import whether_simulated
from sstq.cli.terminal import note, show_table, warn
from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sstq import Aggregator, Estimate, GroupEstimate, Mechanism

PUBLIC_RESULTS = ("means.npy", "stderr.npy", "groups.csv", "summary.json")
PRIVATE_RESULTS = ("groups.npz", "groups.csv")
_ARRAYS = ("shares", "shares_stderr", "sums", "sums_stderr", "means", "means_stderr")
_LEVEL = 0.95
# The scatter of fewer messages says little about their error: two equal messages have none.
_FEW = 30
_WITHIN = "within error: the norm is at most the radius, or at most √2 times the error."


def add_messages(sums: dict[str, Aggregator[Any]], sources: set[str], mechanism: Mechanism, path: str, by: str) -> bool:
    """Add a Parquet file of messages to the sums of its labels, as a whole; returns whether it was new."""
    from sstq.messages.files import describe_messages, read_messages

    info = describe_messages(path)
    if info.file_id in sources:
        return False
    part: dict[str, Aggregator[Any]] = {}
    for messages in read_messages(path, mechanism, info, by):
        for label, rows in split(messages.labels):
            part.setdefault(label, mechanism.aggregator()).update(messages[rows])
    for label, added in part.items():
        sums.setdefault(label, mechanism.aggregator()).merge(added)
    sources.add(info.file_id)
    return True


def split(labels: Any) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield each label with its rows."""
    import numpy as np

    names, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    yield from zip(names.tolist(), np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1]), strict=True)


def report_public(
    mechanism: Mechanism, sums: dict[str, Aggregator[Any]], sources: set[str], by: str, folder: Path
) -> None:
    """Write the means, their errors and marks to a folder, and print them as a table."""
    import numpy as np

    from sstq.files.atomic import atomic_file, write_csv

    if not sums:
        raise ValueError("a mean needs at least one message, got none")
    # Numbers by value, then text.
    labels = sorted(sums, key=lambda text: (not text.isdecimal(), int(text) if text.isdecimal() else 0, text))
    means = [sums[label].mean() for label in labels]
    for name, values in (
        ("means.npy", [mean.value for mean in means]),
        ("stderr.npy", [mean.stderr for mean in means]),
    ):
        with atomic_file(folder / name) as file:
            np.save(file, np.array(values))
    rows: list[dict[str, Any]] = [
        {"label": label, "clients": round(mean.people), **_numbers(mean, mean.count < _FEW)}
        for label, mean in zip(labels, means, strict=True)
    ]
    write_csv(folder / "groups.csv", list(rows[0]), rows)
    count, simulated = sum(mean.count for mean in means), any(mean.simulated for mean in means)
    noted = [(label, mean) for label, mean in zip(labels, means, strict=True) if mean.note]
    summary = {
        "count": count,
        "column": by,
        "groups": len(rows),
        "marked": sum(bool(row["mark"]) for row in rows),
        "level": _LEVEL,
        **summarize_mechanism(mechanism, count),
        "groups_with_note": len(noted),
        "note": noted[0][1].note if noted else "",
        "simulated": whether_simulated(sources, simulated),
        "digest": mechanism.digest(),
    }
    with atomic_file(folder / "summary.json") as file:
        file.write(to_json(summary).encode())
    _show(f"{folder}: one mean per {by}", [by, "clients"], rows, f"{_WITHIN} too few: fewer than {_FEW} clients.")
    loss = summary["privacy_loss"]
    spent = "no privacy" if loss is None else f"ε = {safe_figure(loss)} per message, the {by} public"
    note(f"{count:,} messages, {len(rows):,} groups, {summary['marked']:,} marked; {spent}")
    if noted:
        warn(f"{len(noted):,} of {len(rows):,} groups; {_printable(noted[0][0])}: {noted[0][1].note}")
        advise_next_round(mechanism, max(mean.count for mean in means))
    if simulated:
        warn_of_seed()


def report_private(estimate: GroupEstimate, folder: Path, names: list[str] | None) -> None:
    """Write shares, sums and means of private groups with their standard errors, and print them as a table."""
    import numpy as np

    from sstq import Estimate
    from sstq.files.atomic import atomic_file, write_csv

    arrays = {name: getattr(estimate, name) for name in _ARRAYS}
    with atomic_file(folder / PRIVATE_RESULTS[0]) as file:
        np.savez(file, **arrays)
    rows: list[dict[str, Any]] = []
    for group, (share, stderr) in enumerate(zip(estimate.shares, estimate.shares_stderr, strict=True)):
        label = str(group) if names is None else names[group]
        numbers: dict[str, Any] = {"norm": None, "error": None, "radius": None, "mark": "too few"}
        if not estimate.too_few[group]:
            own = Estimate(arrays["means"][group], arrays["means_stderr"][group], estimate.count, terms=estimate.terms)
            numbers = _numbers(own, few=False)
        rows.append({"group": label, "share": float(share), "share_stderr": float(stderr), **numbers})
    write_csv(folder / PRIVATE_RESULTS[1], list(rows[0]), rows)
    few = "too few: the share is within two standard errors of zero; the sum is in groups.npz."
    _show(f"{folder}: private groups", ["group", "share", "± share"], rows, f"{_WITHIN} {few}")


def read_group_names(path: Path | None, mechanism: Mechanism) -> list[str] | None:
    """Read the names of a mechanism's private groups, one per line."""
    if path is None:
        return None
    if mechanism.groups is None:
        raise WrongUsage(f"--group-names needs private groups (GroupUnit); {mechanism.name} has none")
    try:
        names = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text, one name per line: {error}") from error
    if len(names) != mechanism.groups or len(set(names)) < len(names) or not all(names):
        found = f"{len(names)} lines with {len(set(filter(None, names)))} different names"
        raise ValueError(f"{path} must have {mechanism.groups} different names, one per line, got {found}")
    return names


def _numbers(mean: Estimate, few: bool) -> dict[str, Any]:
    """Return the numbers of a line of groups.csv; a single message has no error.

    "within error" says that zero is in the region, or that the true mean is probably shorter than its error. Of groups
    whose true mean is zero, about one in twenty has no mark, and fewer in many dimensions.
    """
    import numpy as np

    norm, error = float(np.linalg.norm(mean.value)), float(np.linalg.norm(mean.stderr))
    radius = mean.region(_LEVEL).radius
    mark = "too few" if few else "within error" if norm <= max(radius, math.sqrt(2) * error) else ""
    numbers = {"norm": norm, "error": error, "radius": radius}
    return {name: None if math.isnan(value) else value for name, value in numbers.items()} | {"mark": mark}


def _show(title: str, columns: list[str], rows: list[dict[str, Any]], caption: str) -> None:
    cells = [[_printable(cell) if isinstance(cell, str) else cell for cell in row.values()] for row in rows]
    numbers = ["norm of mean", "error", f"{100 * _LEVEL:g} % radius", "mark"]
    show_table(title, [*columns, *numbers], cells, caption=f"error: norm of the standard errors. {caption}")


def _printable(label: str) -> str:
    """Return a label for a line of a table, with unprintable characters such as tabs escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in label)
