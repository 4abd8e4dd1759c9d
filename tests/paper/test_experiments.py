"""The record in `experiments/`: the tables of its pages are those of the run's CSV files."""

import csv
from pathlib import Path

import pytest

from paper.reproduction.records import _plain

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
HEADER = "| setting | method | ours | ± | compared | paper | verdict |"


def table(folder):
    """The lines of the page's table, from its results."""
    with (folder / "results.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            ours, half = float(row["ours"]), float(row["half_width"] or 0)
            cells = [row["setting"], row["label"], _plain(ours), _plain(half) if half > 1e-6 * abs(ours) else ""]
            cells += [_plain(float(row["compared"])), _plain(float(row["paper"]))] if row["paper"] else ["", ""]
            yield f"| {' | '.join([*cells, row['verdict']])} |"


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in EXPERIMENTS.glob("*/results.csv")), ids=lambda p: p.name
)
def test_the_page_has_the_numbers_of_the_run(folder):
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    start = lines.index(HEADER) + 2
    expected = list(table(folder))
    assert lines[start : start + len(expected)] == expected


def test_every_verdict_that_differs_has_its_reason():
    for path in EXPERIMENTS.glob("*/results.csv"):
        with path.open(encoding="utf-8") as file:
            assert all(row["remark"] for row in csv.DictReader(file) if row["verdict"] == "differs"), path
