"""The tables of docs/paper.md, from the record in `experiments/`; a test compares them with the page."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence

from paper.gallery import EXPERIMENTS
from paper.reproduction.methods import METHODS
from paper.reproduction.printed import paper_number

__all__ = ["mse_table", "network_table", "regression_table"]

Row = Mapping[str, str]


def _results(name: str, file: str = "results.csv") -> list[dict[str, str]]:
    path = EXPERIMENTS / name / file
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *(f"| {' | '.join(row)} |" for row in rows)]
    )


def _spread(row: Row, digits: int) -> str:
    return f"{float(row['ours']):.{digits}f} ± {float(row['half_width']):.{digits}f}"


def _printed(experiment: str, setting: str, method: str) -> str:
    number = paper_number(experiment, setting, method)
    return "" if number is None else f"{number.value:,g}" if number.value < 1e6 else f"{number.value:.2g}"


def network_table(experiment: str) -> str:
    """Accuracies and losses of Figure 1: the paper's, of one seed, and of five."""
    rows = _results(experiment)
    accuracies = [row for row in rows if row["setting"].startswith("accuracy") and "seed" not in row["setting"]]
    nearest = {row["method"]: row for row in rows if "; seed" in row["setting"]}
    losses = {row["method"]: row for row in rows if row["setting"] == "loss"}
    alone = {row["method"]: row for row in _results(experiment, "seed-0.csv") if row["setting"] == "loss"}
    seed = next(iter(nearest.values()))["setting"].partition("; seed ")[2][0]
    table = []
    for row in accuracies:
        method = row["method"]
        table.append(
            [
                METHODS[method].label,
                _printed(experiment, "accuracy", method),
                f"{float(nearest[method]['ours']):.1f}",
                _spread(row, 1),
                _printed(experiment, "loss", method),
                f"{float(alone[method]['ours']):.2f}" if method in alone else "",
                _spread(losses[method], 2),
            ]
        )
    columns = [
        "method",
        "accuracy, %: paper",
        f"seed {seed}",
        "five seeds",
        "loss: paper",
        f"seed {seed}",
        "five seeds",
    ]
    return _without_empty(columns, table)


def _without_empty(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    kept = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    return _table([columns[place] for place in kept], [[row[place] for place in kept] for row in rows])


def mse_table() -> str:
    """The errors of Figure 2 at its two dimensions with numbers."""
    rows = {(row["setting"], row["method"]): row for row in _results("mse")}
    table = []
    for method in dict.fromkeys(method for _, method in rows):
        cells = [METHODS[method].label]
        for setting in ("d = 100", "d = 10000"):
            cells += [_printed("mse", setting, method), f"{float(rows[setting, method]['ours']):,.3g}"]
        table.append([cell if "e+" not in cell else f"{float(cell):,.0f}" for cell in cells])
    return _table(["method", "d = 100: paper", "ours", "d = 10,000: paper", "ours"], table)


def regression_table() -> str:
    """Final errors of Figures 3 and 4 that the paper prints: its own, ours, and ours relative to its Clean."""
    rows = [(f"{row['setting']}, b = 4", row) for row in _results("regression")]
    rows += [("d = 200, b = 8", row) for row in _results("bitwidth") if row["setting"] == "b = 8"]
    table = [
        [
            setting.replace(" ", "\N{NO-BREAK SPACE}"),
            row["label"].replace(": NOT private", " (not private)"),
            row["paper"],
            _spread(row, 0),
            f"{float(row['compared']):,.0f}",
        ]
        for setting, row in rows
        if row["paper"]
    ]
    return _table(["setting", "method", "paper", "ours, five seeds", "ours, at the paper's Clean"], table)
