"""Private groups (GroupUnit): their names, and the output of `sstq aggregate` for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.groups import printable
from sstq.cli.terminal import show_table
from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    from sstq import GroupEstimate, Mechanism

__all__ = ["RESULTS", "GroupNamesOption", "read_group_names", "report"]

RESULTS = ("groups.npz", "groups.csv")
_ARRAYS = ("shares", "shares_stderr", "sums", "sums_stderr", "means", "means_stderr")
_LEVEL = 0.95
_CAPTION = (
    "Too few: the share is within two standard errors of zero, so that there is no mean; the sum is in groups.npz. "
    "Marked: the norm of the mean is at most the radius of its 95 % region or √2 times its error."
)

GroupNamesOption = Annotated[
    Path | None,
    typer.Option(help="Read the names of the private groups from this shared text file, one per line, group 0 first."),
]


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


def report(estimate: GroupEstimate, folder: Path, names: list[str] | None) -> None:
    """Write shares, sums and means of private groups with their standard errors, and print them as a table."""
    import numpy as np

    from sstq.files.atomic import atomic_file, write_csv

    arrays = {name: getattr(estimate, name) for name in _ARRAYS}
    with atomic_file(folder / RESULTS[0]) as file:
        np.savez(file, **arrays)
    rows = [_numbers(estimate, group, names, arrays) for group in range(len(estimate.shares))]
    write_csv(folder / RESULTS[1], list(rows[0]), rows)
    show_table(
        f"{folder}: private groups",
        ["group", "share", "± share", "norm of mean", "error", "95 % radius", "mark"],
        [[printable(cell) if isinstance(cell, str) else cell for cell in row.values()] for row in rows],
        caption=_CAPTION,
    )


def _numbers(estimate: GroupEstimate, group: int, names: list[str] | None, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return a line of groups.csv, without a mean if the group has too few people."""
    from sstq import Estimate, GroupMean

    label = str(group) if names is None else names[group]
    line = {
        "group": label,
        "share": float(arrays["shares"][group]),
        "share_stderr": float(arrays["shares_stderr"][group]),
    }
    if estimate.too_few[group]:
        return line | {"norm": None, "error": None, "radius": None, "mark": "too few"}
    own = Estimate(arrays["means"][group], arrays["means_stderr"][group], estimate.count, terms=estimate.terms)
    mean = GroupMean(label, own, own.region(_LEVEL).radius, _LEVEL)
    return line | {"norm": mean.norm, "error": mean.error, "radius": mean.radius, "mark": mean.mark}
