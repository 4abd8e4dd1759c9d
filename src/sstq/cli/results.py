"""What `sstq aggregate` writes and prints: a mean, or one per public group."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.terminal import note, safe_figure, show_facts, show_rows, warn

if TYPE_CHECKING:
    from sstq import Estimate, Mechanism

RESULTS = (
    "mean.npy",
    "mean.csv",
    "stderr.npy",
    "summary.json",
    "groups.csv",
    "groups.npz",
    "survey.csv",
)
"""The names of all files that may be written to the folder."""

_BUDGETS = ("epsilon", "privacy_loss", "total_epsilon")

# The scatter of fewer messages says little about their error: two equal messages have none.
_FEW = 30
_CAPTIONS = {
    "survey.csv": "95 % intervals, which hold for all items of a question at once.",
    "groups.csv": "norm: of the mean. error: norm of the standard errors. too few: people for a mean or its error.",
}


def report(
    mechanism: "Mechanism",
    means: "Mapping[str, Estimate]",
    by: str | None,
    sources: set[str],
    folder: Path,
    verbose: bool,
) -> None:
    """Write and print the results: one mean, of the label "", or one per label of the column `by`."""
    from sstq.aggregation.counts import known_simulated
    from sstq.files.atomic import write_files

    noted = [label for label in sorted(means) if means[label].note]
    count = sum(mean.count for mean in means.values())
    simulated = known_simulated(any(mean.simulated for mean in means.values()), sources)
    if by is None:
        files = means[""].files()
        described = means[""].summary()
    else:
        files = _files_by_label(means)
        described = {
            "column": by,
            "groups": len(means),
            "marked": sum(bool(row["mark"]) for row in files["groups.csv"]),
        }
    summary = {
        "count": count,
        **described,
        "epsilon": mechanism.epsilon,
        "message_bits": mechanism.message_bits,
        "privacy_loss": mechanism.privacy_loss(),
        "total_epsilon": mechanism.bundle_epsilon,
        "delta": mechanism.delta,
        "digest": mechanism.digest(),
        "note": means[noted[0]].note if noted else "",
        "simulated": simulated,
    }
    write_files(folder, files | {"summary.json": summary})
    _show(folder, summary, files, verbose)
    if noted:
        which = "" if by is None else f"{len(noted):,} of {len(means):,} groups: "
        _advise(
            mechanism,
            which + str(summary["note"]),
            round(max(mean.people for mean in means.values())),
        )
    if simulated:
        warn("NOT PRIVATE: some of these messages were simulated with a seed")
    elif simulated is None:
        note(
            "tables of counts do not say whether messages were simulated with a seed: only their source can tell"
        )


def _show(
    folder: Path, summary: Mapping[str, Any], files: Mapping[str, Any], verbose: bool
) -> None:
    """Print the summary, with every ε rounded up, and the first rows of the last file."""
    facts = {
        name: value for name, value in summary.items() if not isinstance(value, dict)
    }
    facts |= {name: safe_figure(facts[name]) for name in _BUDGETS}
    show_facts(str(folder), facts, verbose=verbose)
    *_, table = files
    rows = files[table]
    show_rows(
        str(folder / table),
        list(rows[0]),
        rows,
        f"all are in {folder / table}",
        _CAPTIONS.get(table, ""),
    )


def _files_by_label(means: "Mapping[str, Estimate]") -> dict[str, Any]:
    """The means of public groups, one row each, with their norms and marks."""
    import numpy as np

    from sstq.aggregation.estimates import norms_of

    # Numbers by value, then text.
    numbers = sorted(filter(str.isdecimal, means), key=int)
    labels = numbers + sorted(means.keys() - set(numbers))
    rows = [
        {"label": label, "clients": round(means[label].people)}
        | norms_of(means[label].value, means[label].stderr)
        | {"mark": "too few" * (means[label].count < _FEW)}
        for label in labels
    ]
    values = np.array([means[label].value for label in labels])
    errors = np.array([means[label].stderr for label in labels])
    return {"mean.npy": values, "stderr.npy": errors, "groups.csv": rows}


def _advise(mechanism: "Mechanism", text: str, clients: int) -> None:
    """Print an estimate's note, with the command that writes the same mechanism with frames for this many clients."""
    warn(text)
    if mechanism.input.has_clip:
        same = (
            f"--name {mechanism.name} --dim {mechanism.dim} "
            f"--epsilon {mechanism.epsilon!r} --clip {mechanism.clip!r}"
        )
        more = f" --set messages={mechanism.messages}" * (mechanism.messages > 1)
        more += " --bounds FILE" * (mechanism.bounds is not None)
        note(
            f"for the next round: sstq spec {same} --clients {clients}{more} --output next.json"
        )
