"""Output of `sstq aggregate` for public groups: one mean per group, with its error and its mark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.common import summarize_mechanism, warn_of_seed
from sstq.cli.numbers import safe_figure
from sstq.cli.terminal import note, progress, show_table, warn

if TYPE_CHECKING:
    from sstq import Estimate, GroupedAggregator, GroupMean, Mechanism

__all__ = ["RESULTS", "is_grouped_state", "printable", "report", "require_pictures", "start"]

RESULTS = ("means.npy", "stderr.npy", "groups.csv", "summary.json")
# A picture shows the groups with the most clients.
_DRAWN = 40
_CAPTION = (
    "error: norm of the standard errors. within error: the norm is at most the radius, or at most √2 times the error. "
    "too few: fewer than 30 clients."
)


def is_grouped_state(path: Path) -> bool:
    """Return whether a file is the state of groups."""
    from sstq.aggregation import group_states

    return group_states.is_grouped_state(path)


def require_pictures() -> None:
    """Raise ImportError if pictures cannot be drawn, before any work is done."""
    from sstq.canvas import require_matplotlib

    require_matplotlib()


def start(mechanism: Mechanism, state: Path | None) -> GroupedAggregator:
    """Return the saved sums of groups, or empty ones."""
    from sstq import GroupedAggregator

    return GroupedAggregator(mechanism) if state is None else GroupedAggregator.load(state, mechanism)


def report(mechanism: Mechanism, groups: GroupedAggregator, folder: Path, png: Path | None) -> None:
    """Write the means, their errors and marks to a folder, print them as a table, and draw them."""
    from sstq.files.atomic import atomic_file, write_csv

    if not groups.count:
        raise ValueError("a mean needs at least one message, got none")
    counts = groups.counts
    drawn = sorted(counts, key=lambda label: -counts[label])[:_DRAWN] if png is not None else []
    picture: list[GroupMean] = []
    rows: list[dict[str, Any]] = []
    notes: dict[str, str] = {}
    simulated = False
    with _arrays(folder, len(counts), mechanism.estimate_dim) as write, progress("Groups", len(counts)) as advance:
        # One group at a time: the vectors of all groups may not fit in memory.
        for label in counts:
            group = groups.mean(label)
            write(group.estimate)
            rows.append(_numbers(group))
            simulated |= group.estimate.simulated
            if group.estimate.note:
                notes[label] = group.estimate.note
            if label in drawn:
                picture.append(group)
            advance(1)
    write_csv(folder / "groups.csv", list(rows[0]), rows)
    largest = max(notes, key=lambda label: counts[label], default="")
    summary = {
        "count": groups.count,
        "column": groups.column,
        "groups": len(rows),
        "marked": sum(bool(row["mark"]) for row in rows),
        "level": group.level,
        **summarize_mechanism(mechanism, groups.count),
        "groups_with_note": len(notes),
        "note": notes[largest] if notes else "",
        "simulated": simulated,
        "digest": mechanism.digest(),
    }
    with atomic_file(folder / "summary.json") as file:
        file.write(json.dumps(summary, indent=2, allow_nan=False).encode() + b"\n")
    _print(rows, folder, summary)
    if notes:
        warn(f"{len(notes):,} of {len(rows):,} groups; {printable(largest)}: {notes[largest]}")
        same = (
            f"--name {mechanism.name} --dim {mechanism.dim} --epsilon {mechanism.epsilon!r} --clip {mechanism.clip!r}"
        )
        note(f"for the next round: sstq spec {same} --clients {max(counts.values())} --output next.json")
    if simulated:
        warn_of_seed("some of these messages were simulated with a seed")
    if png is not None:
        from sstq.plots import draw_groups

        draw_groups(picture, png, column=str(groups.column), epsilon=mechanism.epsilon, groups=len(rows))
        note(f"wrote {png}")


@contextmanager
def _arrays(folder: Path, groups: int, dim: int) -> Iterator[Callable[[Estimate], None]]:
    """Write means.npy and stderr.npy, (groups, dim) each; yields a function that adds one row to both."""
    import numpy as np

    from sstq.files.atomic import atomic_file

    header = {"descr": "<f8", "fortran_order": False, "shape": (groups, dim)}
    with atomic_file(folder / RESULTS[0]) as means, atomic_file(folder / RESULTS[1]) as errors:
        for file in (means, errors):
            np.lib.format.write_array_header_1_0(file, header)

        def write(estimate: Estimate) -> None:
            means.write(estimate.value.astype("<f8").tobytes())
            errors.write(estimate.stderr.astype("<f8").tobytes())

        yield write


def _numbers(group: GroupMean) -> dict[str, Any]:
    """Return a line of groups.csv; a single message has no error."""
    several = group.estimate.count > 1
    return {
        "label": group.label,
        "clients": round(group.estimate.people),
        "norm": group.norm,
        "error": group.error if several else None,
        "radius": group.radius if several else None,
        "mark": group.mark,
    }


def _print(rows: list[dict[str, Any]], folder: Path, summary: dict[str, Any]) -> None:
    level, column = f"{100 * summary['level']:g} %", summary["column"]
    shown = [{**row, "label": printable(row["label"])} for row in rows]
    show_table(
        f"{folder}: one mean per {column}",
        [column, "clients", "norm of mean", "error", f"{level} radius", "mark"],
        [list(row.values()) for row in shown],
        caption=_CAPTION,
    )
    loss = summary["privacy_loss"]
    spent = "no privacy" if loss is None else f"ε = {safe_figure(loss)} per message, the {column} public"
    note(f"{summary['count']:,} messages, {len(rows):,} groups, {summary['marked']:,} marked; {spent}")


def printable(label: str) -> str:
    """Return a label for a line of a table, with unprintable characters such as tabs escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in label)
