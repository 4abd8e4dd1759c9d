"""The records in `experiments/`: the tables of their pages are those of the CSV files."""

import csv
from pathlib import Path

import pytest

from paper.reproduction.experiments import EXPERIMENTS
from paper.reproduction.lines import markdown_table
from paper.reproduction.printed import PAPER

RECORDS = Path(__file__).parents[2] / "experiments"


def results(folder):
    with (folder / "results.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_page_has_the_numbers_of_the_run(name):
    assert f"\n{markdown_table(results(RECORDS / name))}\n" in (
        RECORDS / name / "README.md"
    ).read_text("utf-8")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_verdict_that_differs_has_its_reason(name):
    assert all(
        row["remark"] for row in results(RECORDS / name) if row["verdict"] == "differs"
    )


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_record_has_the_paper_s_numbers_as_printed(name):
    printed = {
        str(number.value) if isinstance(number.value, int) else f"{number.value:.6g}"
        for number in PAPER
    }
    rows = [
        row
        for row in results(RECORDS / name)
        if row["paper"] and row["setting"] != "exponent of d"
    ]
    assert {row["paper"] for row in rows} <= printed
