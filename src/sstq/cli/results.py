"""What `sstq aggregate` writes and prints: a mean, one mean per public group, private groups, surveys."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.terminal import note, safe_figure, show_facts, show_table, warn

if TYPE_CHECKING:
    from sstq import Estimate, Mechanism

RESULTS = ("mean.npy", "mean.csv", "stderr.npy", "summary.json", "groups.csv", "groups.npz", "survey.csv")
"""The names of all files that may be written to the folder."""

# The scatter of fewer messages says little about their error: two equal messages have none.
_FEW = 30
_ERROR = "norm: of the mean. error: norm of the standard errors."
# Of a question with many items a terminal shows the first ones.
_SHOWN_ROWS = 12


def report_mean(
    mechanism: "Mechanism", estimate: "Estimate", simulated: bool | None, folder: Path, verbose: bool
) -> None:
    """Write the mean, its standard errors and its summary, and print the summary."""
    import numpy as np

    from sstq.mechanisms.groupunit.estimates import GroupEstimate
    from sstq.mechanisms.survey.estimates import SurveyEstimate

    norms: dict[str, float | None] = {}
    if not isinstance(estimate, SurveyEstimate):  # which have no one vector, and nan where nobody answered
        measured = float(np.linalg.norm(estimate.stderr))
        norms["mean_norm"] = float(np.linalg.norm(estimate.value))
        # Root mean square error of the mean, in the vectors' unit.
        norms["measured_error_norm"] = measured if math.isfinite(measured) else None
    summary = {"count": estimate.count, **norms, **_costs(mechanism)}
    summary |= {"note": estimate.note, "simulated": simulated}
    _write(folder, summary, estimate.value, estimate.stderr)
    for name in ("epsilon", "privacy_loss"):
        summary[name] = None if summary[name] is None else safe_figure(summary[name])
    show_facts(str(folder), [*summary.items()], verbose=verbose)
    if isinstance(estimate, SurveyEstimate):
        _report_survey(estimate, folder / "survey.csv")
    else:
        _write_table(folder / "mean.csv", estimate.table())
    if isinstance(estimate, GroupEstimate):
        _report_private(estimate, folder)
    if estimate.note:
        _advise(mechanism, estimate.note, round(estimate.people))
    _doubt(simulated)


def _costs(mechanism: "Mechanism") -> dict[str, Any]:
    """The part of a summary about the mechanism."""
    private = math.isfinite(mechanism.epsilon)
    return {
        "epsilon": mechanism.epsilon if private else None,
        "message_bits": mechanism.message_bits,
        "privacy_loss": mechanism.privacy_loss() if private else None,
        "delta": mechanism.delta,
        "digest": mechanism.digest(),
    }


def _write(folder: Path, summary: dict[str, Any], mean: Any, stderr: Any) -> None:
    import numpy as np

    from sstq.files.atomic import atomic_file

    document = json.dumps(summary, indent=2, allow_nan=False).encode() + b"\n"
    for name, values in (("mean.npy", mean), ("stderr.npy", stderr)):
        with atomic_file(folder / name) as file:
            np.save(file, values)
    with atomic_file(folder / "summary.json") as file:
        file.write(document)


def _advise(mechanism: "Mechanism", text: str, clients: int) -> None:
    """Print an estimate's note, with the command that writes the same mechanism with frames for this many clients."""
    warn(text)
    if mechanism.input.has_clip:
        same = (
            f"--name {mechanism.name} --dim {mechanism.dim} --epsilon {mechanism.epsilon!r} --clip {mechanism.clip!r}"
        )
        more = f" --set messages={mechanism.messages}" if mechanism.messages > 1 else ""
        more += " --bounds FILE" if mechanism.bounds is not None else ""
        note(f"for the next round: sstq spec {same} --clients {clients}{more} --output next.json")


def _doubt(simulated: bool | None) -> None:
    """Say that messages are, or may be, simulated."""
    if simulated:
        warn("NOT PRIVATE: some of these messages were simulated with a seed")
    elif simulated is None:
        note("tables of counts do not say whether messages were simulated with a seed: only their source can tell")


def report_groups(
    mechanism: "Mechanism", means: "Mapping[str, Estimate]", simulated: bool | None, by: str, folder: Path
) -> None:
    """Write the means of public groups, one row each, their errors and marks, and print them as a table."""
    import numpy as np

    # Numbers by value, then text.
    labels = sorted(means, key=lambda text: (not text.isdecimal(), int(text) if text.isdecimal() else 0, text))
    ordered = [means[label] for label in labels]
    rows = [
        {"label": label, "clients": round(mean.people), **_numbers(mean.value, mean.stderr, mean.count < _FEW)}
        for label, mean in zip(labels, ordered, strict=True)
    ]
    count = sum(mean.count for mean in ordered)
    noted = [label for label in labels if means[label].note]
    summary: dict[str, Any] = {
        "count": count,
        "column": by,
        "groups": len(rows),
        "marked": sum(bool(row["mark"]) for row in rows),
    }
    summary |= _costs(mechanism) | {"note": means[noted[0]].note if noted else "", "simulated": simulated}
    _write(folder, summary, np.array([mean.value for mean in ordered]), np.array([mean.stderr for mean in ordered]))
    caption = f"{_ERROR} too few: fewer than {_FEW} clients."
    _show_rows(f"one mean per {by}", folder / "groups.csv", rows, rows, caption)
    loss = summary["privacy_loss"]
    spent = "no privacy" if loss is None else f"ε = {safe_figure(loss)} per message, the {by} public"
    note(f"{count:,} messages, {len(rows):,} groups, {summary['marked']:,} marked; {spent}")
    if noted:
        text = f"{len(noted):,} of {len(rows):,} groups; {_printable(noted[0])}: {summary['note']}"
        _advise(mechanism, text, max(mean.count for mean in ordered))
    _doubt(simulated)


def _report_private(estimate: Any, folder: Path) -> None:
    """Write shares, sums and means of private groups with their standard errors, and print them as a table."""
    import numpy as np

    from sstq.files.atomic import atomic_file

    names = ("shares", "shares_stderr", "sums", "sums_stderr", "means", "means_stderr")
    with atomic_file(folder / "groups.npz") as file:
        np.savez(file, **{name: getattr(estimate, name) for name in names})
    rows = []
    for group, (share, stderr) in enumerate(zip(estimate.shares, estimate.shares_stderr, strict=True)):
        numbers = _numbers(estimate.means[group], estimate.means_stderr[group], bool(estimate.too_few[group]))
        rows.append({"group": str(group), "share": float(share), "share_stderr": float(stderr), **numbers})
    few = "too few: the share is not clearly above zero; the sum is in groups.npz."
    _show_rows("private groups", folder / "groups.csv", rows, rows, f"{_ERROR} {few}")


def _numbers(value: Any, stderr: Any, few: bool) -> dict[str, Any]:
    """The norms of a line of groups.csv, and its mark; a single message has no error."""
    import numpy as np

    norms = {"norm": float(np.linalg.norm(value)), "error": float(np.linalg.norm(stderr))}
    return {name: None if math.isnan(norm) else norm for name, norm in norms.items()} | {"mark": "too few" * few}


def _report_survey(estimate: Any, path: Path) -> None:
    """Write the tidy table of a survey's results, and show the first rows of every question."""
    from sstq.mechanisms.survey.estimates import NumberEstimate

    rows = estimate.table()
    shown = []
    for name, result in estimate.results.items():
        lines = [row for row in rows if row["question"] == name]
        # The mean and the quartiles of a number come before its bins.
        shown += lines[: 4 if isinstance(result, NumberEstimate) else _SHOWN_ROWS]
    caption = f"95 % intervals, which hold for all items of a question at once. All {len(rows)} rows are in {path}."
    _show_rows("results", path, rows, shown, caption)


def _write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    from sstq.files.atomic import write_csv

    write_csv(path, list(rows[0]), rows)


def _show_rows(title: str, path: Path, rows: list[dict[str, Any]], shown: list[dict[str, Any]], caption: str) -> None:
    """Write rows as CSV, and print some of them as a table."""
    _write_table(path, rows)
    cells = [[_printable(cell) if isinstance(cell, str) else cell for cell in row.values()] for row in shown]
    show_table(f"{path}: {title}", list(rows[0]), cells, caption=caption)


def _printable(label: str) -> str:
    """Return a label for a line of a table, with unprintable characters such as tabs escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in label)
