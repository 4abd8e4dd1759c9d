"""The first screen: what README prints is what the record has, and the record is what mechanisms do."""

import math
from pathlib import Path

import pytest

import sstq
from paper.errors import (
    DIM,
    EPSILON,
    FAMILIES,
    PEOPLE,
    RECORD,
    RUNS,
    headline,
    measure_errors,
)
from paper.orders import bit_widths
from paper.reproduction.lines import read_record

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# The squared error of a mean is a sum of d nearly Gaussian squares, so its root, over the runs, varies by this share.
SPREAD = 1 / math.sqrt(2 * DIM * RUNS)


def plain(value):
    return f"{value:.2f}" if value > 1 else f"{value:.3f}"


def test_readme_has_the_numbers_of_the_record():
    for row in headline(read_record(RECORD)):
        bias = f" (bias {row['bias']:.3f})" if row["bias"] > 0.1 else ""
        line = f"| {row['bits']:,} | {plain(row['measured'])} | {plain(row['predicted'])}{bias} |"
        assert line in README, f"{row['label']}: {line}"


def test_the_record_agrees_with_its_predictions():
    # The people are at a cosine of 0.98 to each other, which lowers the bias by as much. Beyond that, five standard
    # deviations: a false-failure rate below 1e-6 per row, for a record that is fixed.
    rows = read_record(RECORD)
    assert {row["family"] for row in rows} == set(FAMILIES)
    for row in rows:
        assert row["measured"] == pytest.approx(
            row["predicted"], rel=5 * SPREAD + 0.02
        ), row["label"]


def test_predictions_of_the_record_are_those_of_the_mechanisms():
    for row in read_record(RECORD):
        label, name, points, _, _ = FAMILIES[row["family"]]
        if row["family"] in ("uniform", "metric", "frameunit", "privunit"):
            built = [
                sstq.mechanism(name, dim=DIM, epsilon=EPSILON, **options)
                for options in points
            ]
            errors = [
                math.sqrt(mechanism.typical_error(PEOPLE).total) for mechanism in built
            ]
            assert any(
                row["predicted"] == pytest.approx(error, rel=1e-3) for error in errors
            ), label


def test_real_messages_have_the_predicted_error():
    (row,) = measure_errors(["frameunit"], runs=1)
    assert row["measured"] == pytest.approx(
        row["predicted"], rel=5 / math.sqrt(2 * DIM)
    )


def test_a_bit_quadruples_doubles_or_costs_nothing():
    """The abstract's claim, at ε = 1 where ten bits are far beyond the best."""
    rows = bit_widths([1.0], [1, 9, 10])
    growth = {row["label"]: row["growth"] for row in rows if row["bits"] == 10}
    assert growth["flat, uniform"] == pytest.approx(4, rel=0.01)
    assert growth["flat, optimized"] == pytest.approx(2, rel=0.01)
    assert growth["metric-aware (shrinks)"] == pytest.approx(1, rel=0.01)
    assert growth["optimal channel"] <= 1


def test_the_page_of_sstq_has_the_errors_of_its_variants():
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    errors = {
        (row["label"], row["epsilon"], row["bits"]): row["error"]
        for row in bit_widths(widths=(1, 2, 3, 4))
    }
    lines = {
        "flat, uniform": "flat, uniform, $b$ = 4",
        "flat, optimized": "flat, optimized, $b$ = 4",
    }
    lines |= {
        "metric-aware (shrinks)": "metric-aware, $b$ = 4",
        "optimal channel": "optimal channel, $b$ = 4",
    }
    for label, start in lines.items():
        cells = " | ".join(
            f"{errors[label, epsilon, 4]:.3g}" for epsilon in (1.0, 3.0, 6.0)
        )
        (line,) = [
            line for line in page.splitlines() if line.startswith(f"| {start} |")
        ]
        assert cells in line, cells
    best = [
        min(errors["flat, optimized", epsilon, bits] for bits in (1, 2, 3, 4))
        for epsilon in (1.0, 3.0, 6.0)
    ]
    assert " | ".join(f"{error:.3g}" for error in best) in page
