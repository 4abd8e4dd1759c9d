"""docs/paper.md: its tables are the record's, and every row of its errata names a test that exists."""

import re
from pathlib import Path

import pytest

from paper.orders import measured_orders
from paper.page import mse_table, network_table, regression_table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "table",
    [
        network_table("fashion-mnist"),
        network_table("cifar-10"),
        mse_table(),
        regression_table(),
    ],
)
def test_tables_are_those_of_the_record(table):
    assert table in PAGE


def test_every_row_of_the_errata_names_a_test():
    tests = re.findall(
        r"^def (test_\w+)",
        (ROOT / "tests" / "paper" / "test_theory.py").read_text(),
        re.MULTILINE,
    )
    errata = PAGE.partition("## Errata")[2].partition("## Why K")[0]
    rows = [
        line
        for line in errata.splitlines()
        if line.startswith("| ") and not line.startswith("| statement")
    ]
    assert len(rows) == 20
    for row in rows:
        names = re.findall(r"`(\w+)`", row.rsplit("|", 2)[1])
        assert names, row
        for name in names:
            assert any(name in test for test in tests), name


@pytest.mark.slow
def test_orders_of_the_page_are_measured():
    for row in measured_orders():
        cells = f"{row['dim']:.2f} | {row['epsilon']:.2f} | ".replace(
            "-0.00", "0.00"
        ).replace("-", "−")
        line = next(
            line
            for line in PAGE.splitlines()
            if line.startswith(f"| {row['label']} | ")
        )
        assert cells in line
        assert (
            line.endswith(" | |")
            if row["bit"] != row["bit"]
            else line.endswith(f"| {row['bit']:.2f} |")
        )
