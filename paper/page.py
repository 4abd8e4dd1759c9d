"""The tables and pictures of docs/paper.md, from the record in `experiments/`; a test compares them with the page."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paper.errors import RECORD, draw_errors
from paper.glance import draw_glance
from paper.reproduction.figures import draw_mse, draw_networks, draw_regressions
from paper.reproduction.lines import read_record
from paper.reproduction.methods import METHODS
from paper.reproduction.printed import paper_number
from sstq.plots.canvas import save

EXPERIMENTS = Path(__file__).parents[1] / "experiments"

Row = dict[str, str]


def _results(name: str) -> list[Row]:
    with (EXPERIMENTS / name / "results.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def draw_gallery(folder: Path) -> list[Path]:
    """Draw all pictures to a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    curves = {
        path.parent.name: read_record(path) for path in EXPERIMENTS.glob("*/curves.csv")
    }
    pictures = {
        "figure-1.png": draw_networks(
            {name: curves[name] for name in ("fashion-mnist", "cifar-10")}
        ),
        "figure-2.png": draw_mse(curves["mse"]),
        "figure-3.png": draw_regressions("regression", curves["regression"]),
        "figure-4.png": draw_regressions("bitwidth", curves["bitwidth"]),
    }
    for name, figure in pictures.items():
        save(figure, folder / name)
    draw_errors(read_record(RECORD), folder / "errors.png")
    draw_glance(folder / "glance.png")
    return [folder / name for name in ("errors.png", "glance.png", *pictures)]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(
        [
            f"| {' | '.join(columns)} |",
            "|" + "---|" * len(columns),
            *(f"| {' | '.join(row)} |" for row in rows),
        ]
    )


def _gap_to_clean(row: Row) -> str:
    """The gap to Clean of the same seeds with the half-width of its 95 % interval, which the remark begins with."""
    found = re.match(r"Gap to Clean (\S+ ± \S+) points", row["remark"])
    return found[1] if found else ""


def _printed(experiment: str, setting: str, method: str) -> str:
    number = paper_number(experiment, setting, method)
    return (
        ""
        if number is None
        else f"{number.value:,g}"
        if number.value < 1e6
        else f"{number.value:.2g}"
    )


def network_table(experiment: str) -> str:
    """Accuracies of Figure 1: the paper's, of one seed, of five, and how far they are below Clean of the same seeds."""
    rows: dict[str, dict[str, Row]] = {}
    for row in _results(experiment):
        rows.setdefault(row["setting"].partition(" at a total")[0], {})[
            row["method"]
        ] = row
    table = []
    for method, accuracy in rows["accuracy"].items():
        alone = rows["seed 0: accuracy"].get(method)
        seed_0 = "" if alone is None else f"{float(alone['ours']):.1f}"
        printed = _printed(experiment, "accuracy", method)
        label = METHODS[method].label
        mean = f"{float(accuracy['ours']):.1f}"
        table.append([label, printed, seed_0, mean, _gap_to_clean(accuracy)])
    columns = ["method", "accuracy, %: paper", "seed 0", "five seeds", "below Clean"]
    return _table(columns, table)


def mse_table() -> str:
    """The errors of Figure 2 at its two dimensions with numbers."""
    rows = {(row["setting"], row["method"]): row for row in _results("mse")}
    table = []
    for method in dict.fromkeys(method for _, method in rows):
        cells = [METHODS[method].label]
        for setting in ("d = 100", "d = 10000"):
            cells += [
                _printed("mse", setting, method),
                f"{float(rows[setting, method]['ours']):,.3g}",
            ]
        table.append(
            [cell if "e+" not in cell else f"{float(cell):,.0f}" for cell in cells]
        )
    return _table(
        ["method", "d = 100: paper", "ours", "d = 10,000: paper", "ours"], table
    )


def regression_table() -> str:
    """Final errors of Figures 3 and 4: the paper's, ours, and how far ours are above Clean of the same seeds.

    FrameUnit is shown as well, which is behind the optimized codebook at d = 200. Gaps to Clean are those of the same
    seeds: the length of θ* moves all errors of a seed alike.
    """
    rows = [
        (f"{row['setting']}, b = 4", row)
        for row in _results("regression")
        if row["setting"] != "d = 100"
    ]
    rows += [
        ("d = 200, b = 8", row)
        for row in _results("bitwidth")
        if row["setting"] == "b = 8"
    ]
    gaps = {
        (experiment, line["setting"], line["method"], line["scaling"]): line
        for experiment in ("regression", "bitwidth")
        for line in read_record(EXPERIMENTS / experiment / "curves.csv")
    }  # of the last round
    table = [
        [
            setting.replace(" ", "\N{NO-BREAK SPACE}"),
            row["label"].replace(": NOT private", " (not private)"),
            row["paper"],
            f"{float(row['ours']):,.0f}",
            _gap(gaps, "bitwidth" if setting.endswith("8") else "regression", row),
        ]
        for setting, row in rows
        if row["paper"] or row["method"] == "frameunit"
    ]
    before = ""
    for line in table:
        setting = line[0]
        if setting == before:
            line[0] = ""
        before = setting
    columns = ["setting", "method", "paper", "ours, five seeds", "ours above Clean"]
    return _table(columns, table)


def _gap(
    gaps: Mapping[tuple[str, str, str, str], Mapping[str, Any]],
    experiment: str,
    row: Row,
) -> str:
    """The final loss above that of Clean with the same seeds, with the half-width of its 95 % interval."""
    if row["method"] == "clean":
        return ""
    scaling = "norm" if "NOT private" in row["label"] else "clip"
    own, clean = (
        gaps[experiment, row["setting"], *which]
        for which in ((row["method"], scaling), ("clean", "clip"))
    )
    return f"{round(own['loss'] - clean['loss']):,} ± {own['gap_half_width']:,.0f}"
