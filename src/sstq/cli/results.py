"""What `sstq aggregate` writes and prints: a mean, one mean per public group, private groups, surveys."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.terminal import note, safe_figure, show_facts, show_table, warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sstq import Estimate, GroupEstimate, Mechanism, SurveyEstimate

_LEVEL = 0.95
# The scatter of fewer messages says little about their error: two equal messages have none.
_FEW = 30
_WITHIN = "within error: the norm is at most the radius, or at most √2 times the error."
# Of a question with many items a terminal shows the first ones.
_SHOWN_ROWS = 12


def result_files(mechanism: Mechanism, by: str | None) -> tuple[str, ...]:
    """Return the names of the files that are written to the folder."""
    if by is not None:
        return ("means.npy", "stderr.npy", "groups.csv", "summary.json")
    more = ("groups.npz", "groups.csv") if mechanism.groups is not None else ()
    return ("mean.npy", "stderr.npy", "summary.json", *more, *(("survey.csv",) if mechanism.name == "survey" else ()))


def report_mean(
    mechanism: Mechanism, estimate: Estimate, simulated: bool | None, folder: Path, names: list[str] | None, all_: bool
) -> None:
    """Write the mean, its standard errors and its summary, and print the summary."""
    import numpy as np

    norms: dict[str, float | None] = {}
    if mechanism.name != "survey":  # which has no one vector, and nan where nobody answered
        measured = float(np.linalg.norm(estimate.stderr))
        norms["mean_norm"] = float(np.linalg.norm(estimate.value))
        # Root mean square error of the mean, in the vectors' unit.
        norms["measured_error_norm"] = measured if math.isfinite(measured) else None
    summary = {
        "count": estimate.count,
        **norms,
        **_costs(mechanism, estimate.count),
        "estimator": estimate.estimator,
        "note": estimate.note,
        "simulated": simulated,
        "digest": mechanism.digest(),
    }
    _write(folder, summary, **{"mean.npy": estimate.value, "stderr.npy": estimate.stderr})
    for name in ("epsilon", "privacy_loss"):
        summary[name] = None if summary[name] is None else safe_figure(summary[name])
    show_facts(str(folder), [(name.replace("_", " "), value) for name, value in summary.items()], verbose=all_)
    results: Any = estimate
    if mechanism.groups is not None:
        _report_private(results, folder, names)
    if mechanism.name == "survey":
        _report_survey(results, folder / "survey.csv")
    _remark(mechanism, estimate.note, round(estimate.people), estimate.simulated)


def _costs(mechanism: Mechanism, count: int) -> dict[str, Any]:
    """The part of a summary about the mechanism and the cost of this many messages."""
    private = math.isfinite(mechanism.epsilon)
    return {
        "epsilon": mechanism.epsilon if private else None,
        "message_bits": mechanism.message_bits,
        "bits_received": count * mechanism.message_bits,
        "delta": mechanism.delta,
        "privacy_loss": mechanism.privacy_loss() if private else None,
        "trust": mechanism.trust,
        "unbiased": mechanism.unbiased,
    }


def _write(folder: Path, summary: dict[str, Any], **arrays: Any) -> None:
    """Write arrays by the names of their files, and summary.json."""
    import numpy as np

    from sstq.files.atomic import atomic_file

    document = json.dumps(summary, indent=2, allow_nan=False).encode() + b"\n"
    for name, values in arrays.items():
        with atomic_file(folder / name) as file:
            np.save(file, values)
    with atomic_file(folder / "summary.json") as file:
        file.write(document)


def _remark(mechanism: Mechanism, text: str, clients: int, simulated: bool) -> None:
    """Print an estimate's note, with the command that writes the same mechanism with frames for this many clients."""
    if text:
        warn(text)
    if text and mechanism.name != "survey":
        same = (
            f"--name {mechanism.name} --dim {mechanism.dim} --epsilon {mechanism.epsilon!r} --clip {mechanism.clip!r}"
        )
        more = f" --set messages={mechanism.messages}" if mechanism.messages > 1 else ""
        more += " --bounds FILE" if mechanism.bounds is not None else ""
        note(f"for the next round: sstq spec {same} --clients {clients}{more} --output next.json")
    if simulated:
        warn("NOT PRIVATE: some of these messages were simulated with a seed")


def report_groups(
    mechanism: Mechanism, means: Mapping[str, Estimate], simulated: bool | None, by: str, folder: Path
) -> None:
    """Write the means of public groups, their errors and marks, and print them as a table."""
    import numpy as np

    from sstq.files.atomic import write_csv

    # Numbers by value, then text.
    labels = sorted(means, key=lambda text: (not text.isdecimal(), int(text) if text.isdecimal() else 0, text))
    found = [means[label] for label in labels]
    rows: list[dict[str, Any]] = [
        {"label": label, "clients": round(mean.people), **_numbers(mean, mean.count < _FEW)}
        for label, mean in zip(labels, found, strict=True)
    ]
    marked, noted = sum(bool(row["mark"]) for row in rows), [label for label in labels if means[label].note]
    count = sum(mean.count for mean in found)
    summary = {
        "count": count,
        "column": by,
        "groups": len(rows),
        "marked": marked,
        "level": _LEVEL,
        **_costs(mechanism, count),
        "groups_with_note": len(noted),
        "note": means[noted[0]].note if noted else "",
        "simulated": simulated,
        "digest": mechanism.digest(),
    }
    arrays = {"means.npy": [mean.value for mean in found], "stderr.npy": [mean.stderr for mean in found]}
    _write(folder, summary, **{name: np.array(values) for name, values in arrays.items()})
    write_csv(folder / "groups.csv", list(rows[0]), rows)
    _show(f"{folder}: one mean per {by}", [by, "clients"], rows, f"{_WITHIN} too few: fewer than {_FEW} clients.")
    loss = summary["privacy_loss"]
    spent = "no privacy" if loss is None else f"ε = {safe_figure(loss)} per message, the {by} public"
    note(f"{count:,} messages, {len(rows):,} groups, {marked:,} marked; {spent}")
    remark = f"{len(noted):,} of {len(rows):,} groups; {_printable(noted[0])}: {summary['note']}" if noted else ""
    _remark(mechanism, remark, max(mean.count for mean in found), any(mean.simulated for mean in found))


def _report_private(estimate: GroupEstimate, folder: Path, names: list[str] | None) -> None:
    """Write shares, sums and means of private groups with their standard errors, and print them as a table."""
    import numpy as np

    from sstq import Estimate
    from sstq.files.atomic import atomic_file, write_csv

    names_of = ("shares", "shares_stderr", "sums", "sums_stderr", "means", "means_stderr")
    with atomic_file(folder / "groups.npz") as file:
        np.savez(file, **{name: getattr(estimate, name) for name in names_of})
    rows: list[dict[str, Any]] = []
    for group, (share, stderr) in enumerate(zip(estimate.shares, estimate.shares_stderr, strict=True)):
        label = str(group) if names is None else names[group]
        numbers: dict[str, Any] = {"norm": None, "error": None, "radius": None, "mark": "too few"}
        if not estimate.too_few[group]:
            own = Estimate(estimate.means[group], estimate.means_stderr[group], estimate.count, terms=estimate.terms)
            numbers = _numbers(own, few=False)
        rows.append({"group": label, "share": float(share), "share_stderr": float(stderr), **numbers})
    write_csv(folder / "groups.csv", list(rows[0]), rows)
    few = "too few: the share is within two standard errors of zero; the sum is in groups.npz."
    _show(f"{folder}: private groups", ["group", "share", "± share"], rows, f"{_WITHIN} {few}")


def _report_survey(estimate: SurveyEstimate, path: Path) -> None:
    """Write the tidy table of a survey's results, and show the first rows of every question."""
    from sstq.files.atomic import write_csv
    from sstq.mechanisms.survey.estimates import NumberEstimate

    columns = ["question", "item", "estimate", "stderr", "low", "high"]
    rows, shown = [], []
    for name, found in estimate.results.items():
        own = list(found.rows())
        rows += [dict(zip(columns, (name, *row), strict=True)) for row in own]
        # The mean and the quartiles of a number come before its bins.
        for item, *numbers in own[: 4 if isinstance(found, NumberEstimate) else _SHOWN_ROWS]:
            words = [f"{number:.4g}" if abs(number) < 10_000 else f"{number:.0f}" for number in numbers]
            shown.append([name, item, *("" if word == "nan" else word for word in words)])
    write_csv(path, columns, rows)
    caption = f"95 % intervals, which hold for all items of a question at once. All {len(rows)} rows are in {path}."
    show_table("Results", columns, shown, caption=caption)


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
