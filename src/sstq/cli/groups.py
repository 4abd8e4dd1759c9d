"""Groups of people in `sstq aggregate`: one mean per public group, and shares, sums and means of private ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.common import advise_next_round, safe_figure, summarize_mechanism, to_json, warn_of_seed
from sstq.cli.counts import whether_simulated
from sstq.cli.terminal import note, progress, show_table, warn
from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    from sstq import GroupedAggregator, GroupEstimate, GroupMean, Mechanism

PUBLIC_RESULTS = ("means.npy", "stderr.npy", "groups.csv", "summary.json")
PRIVATE_RESULTS = ("groups.npz", "groups.csv")
_ARRAYS = ("shares", "shares_stderr", "sums", "sums_stderr", "means", "means_stderr")
_LEVEL = 0.95
# A picture shows the groups with the most clients.
_DRAWN = 40
_WITHIN = "within error: the norm is at most the radius, or at most √2 times the error."


def report_public(mechanism: Mechanism, groups: GroupedAggregator, folder: Path, png: Path | None) -> None:
    """Write the means, their errors and marks to a folder, print them as a table, and draw them."""
    import numpy as np

    from sstq.files.atomic import atomic_file, write_csv

    if not groups.count:
        raise ValueError("a mean needs at least one message, got none")
    counts = groups.counts
    drawn = sorted(counts, key=lambda label: -counts[label])[:_DRAWN] if png is not None else []
    picture: list[GroupMean] = []
    rows: list[dict[str, Any]] = []
    notes: dict[str, str] = {}
    simulated = False
    files = (atomic_file(folder / PUBLIC_RESULTS[0]), atomic_file(folder / PUBLIC_RESULTS[1]))
    with files[0] as means, files[1] as errors, progress("Groups", len(counts)) as advance:
        shape = {"descr": "<f8", "fortran_order": False, "shape": (len(counts), mechanism.estimate_dim)}
        for file in (means, errors):
            np.lib.format.write_array_header_1_0(file, shape)
        # One group at a time: the vectors of all groups may not fit in memory.
        for label in counts:
            group = groups.mean(label, _LEVEL)
            means.write(group.estimate.value.astype("<f8").tobytes())
            errors.write(group.estimate.stderr.astype("<f8").tobytes())
            rows.append({"label": label, "clients": round(group.estimate.people), **_numbers(group)})
            simulated |= group.estimate.simulated
            if group.estimate.note:
                notes[label] = group.estimate.note
            if label in drawn:
                picture.append(group)
            advance(1)
    write_csv(folder / "groups.csv", list(rows[0]), rows)
    largest = max(notes, key=lambda label: counts[label], default="")
    marked = sum(bool(row["mark"]) for row in rows)
    summary = {
        "count": groups.count,
        "column": groups.column,
        "groups": len(rows),
        "marked": marked,
        "level": _LEVEL,
        **summarize_mechanism(mechanism, groups.count),
        "groups_with_note": len(notes),
        "note": notes.get(largest, ""),
        "simulated": whether_simulated(groups, simulated),
        "digest": mechanism.digest(),
    }
    with atomic_file(folder / "summary.json") as file:
        file.write(to_json(summary).encode())
    few = "too few: fewer than 30 clients."
    _show(f"{folder}: one mean per {groups.column}", [str(groups.column), "clients"], rows, f"{_WITHIN} {few}")
    loss = summary["privacy_loss"]
    spent = "no privacy" if loss is None else f"ε = {safe_figure(loss)} per message, the {groups.column} public"
    note(f"{groups.count:,} messages, {len(rows):,} groups, {marked:,} marked; {spent}")
    if notes:
        warn(f"{len(notes):,} of {len(rows):,} groups; {_printable(largest)}: {notes[largest]}")
        advise_next_round(mechanism, max(counts.values()))
    if simulated:
        warn_of_seed()
    if png is not None:
        from sstq.plots import draw_groups

        draw_groups(picture, png, column=str(groups.column), epsilon=mechanism.epsilon, groups=len(rows))
        note(f"wrote {png}")


def report_private(estimate: GroupEstimate, folder: Path, names: list[str] | None) -> None:
    """Write shares, sums and means of private groups with their standard errors, and print them as a table."""
    import numpy as np

    from sstq import Estimate, GroupMean
    from sstq.files.atomic import atomic_file, write_csv

    arrays = {name: getattr(estimate, name) for name in _ARRAYS}
    with atomic_file(folder / PRIVATE_RESULTS[0]) as file:
        np.savez(file, **arrays)
    rows: list[dict[str, Any]] = []
    for group, (share, stderr) in enumerate(zip(estimate.shares, estimate.shares_stderr, strict=True)):
        label = str(group) if names is None else names[group]
        numbers = {"norm": None, "error": None, "radius": None, "mark": "too few"}
        if not estimate.too_few[group]:
            own = Estimate(arrays["means"][group], arrays["means_stderr"][group], estimate.count, terms=estimate.terms)
            numbers = _numbers(GroupMean(label, own, own.region(_LEVEL).radius, _LEVEL))
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


def _numbers(group: GroupMean) -> dict[str, Any]:
    """Return the numbers of a line of groups.csv; a single message has no error."""
    numbers = {"norm": group.norm, "error": group.error, "radius": group.radius}
    return {name: None if math.isnan(value) else value for name, value in numbers.items()} | {"mark": group.mark}


def _show(title: str, columns: list[str], rows: list[dict[str, Any]], caption: str) -> None:
    cells = [[_printable(cell) if isinstance(cell, str) else cell for cell in row.values()] for row in rows]
    numbers = ["norm of mean", "error", f"{100 * _LEVEL:g} % radius", "mark"]
    show_table(title, [*columns, *numbers], cells, caption=f"error: norm of the standard errors. {caption}")


def _printable(label: str) -> str:
    """Return a label for a line of a table, with unprintable characters such as tabs escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in label)
