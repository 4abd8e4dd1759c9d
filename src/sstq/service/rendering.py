"""Estimates as JSON values and as CSV: vectors, private groups, and surveys question by question."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sstq.aggregation.estimates import Estimate
from sstq.client.campaigns import Campaign

LEVEL = 0.95
"""The probability that a region contains all coordinates of the mean at once."""

# What is known of groups, in the order of CSV.
_GROUPED = (
    "shares",
    "shares_stderr",
    "sums",
    "sums_stderr",
    "means",
    "means_stderr",
)


def describe(
    campaign: Campaign,
    estimate: Estimate | None,
    claim: dict[str, Any] | None,
    checks: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return a campaign's estimate as JSON values, with the privacy claim if shuffled; unknown values are null."""
    known: dict[str, Any] = {
        "campaign": campaign.name,
        "digest": campaign.digest,
        "count": 0,
        "shuffling": claim,
        "value": None,
        "stderr": None,
        "region": None,
        "groups": None,
        "questions": None,
        "checks": checks,
        "note": "",
    }
    if estimate is None:
        return known
    region = estimate.region(LEVEL)
    found = {
        "count": estimate.count,
        "value": estimate.value,
        "stderr": estimate.stderr,
        "region": {
            "level": LEVEL,
            "radius": region.radius,
            "half_width": region.half_width,
        },
        "note": estimate.note,
    }
    plain: dict[str, Any] = as_json(found | estimate.details(LEVEL))
    return known | plain


def as_json(value: Any) -> Any:
    """Convert arrays and the values of dicts and lists, with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return [as_json(part) for part in value]
    if isinstance(value, np.ndarray):
        return as_numbers(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def as_numbers(values: ArrayLike) -> list[Any]:
    """Convert to lists, with None for numbers that JSON does not have."""
    found: list[Any] = np.where(
        np.isfinite(values), values, np.array(None, dtype=object)
    ).tolist()
    return found


def as_csv(campaign: Campaign, described: dict[str, Any]) -> str:
    """Return an estimate as CSV, one row per coordinate, coordinate of each group, or item of each question.

    Unknown cells are empty. Sums over people are `count` times the value.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(campaign.mechanism.estimator.estimate_class.columns)
    for row in _rows(campaign, described):
        # one by one: other threads have their turns
        writer.writerow(
            [as_cell(cell) if isinstance(cell, str) else cell for cell in row]
        )
    return text.getvalue()


def _rows(campaign: Campaign, described: dict[str, Any]) -> Iterator[Sequence[Any]]:
    """Yield the rows of an estimate, of whichever kind it is."""
    if not described["count"]:
        return
    if described["questions"] is not None:
        yield from _survey_rows(described["questions"])
        return
    columns = tuple(name for name, _, _ in campaign.mechanism.bounds or ())
    names = campaign.labels or columns or [""] * campaign.mechanism.coordinates
    groups = described["groups"]
    if groups is None:
        half_width = described["region"]["half_width"]
        numbers = (described["value"], described["stderr"], half_width)
        yield from zip(range(len(names)), names, *numbers, strict=True)
        return
    known = (groups[name] for name in _GROUPED)
    for group, (share, error, *of_group) in enumerate(zip(*known, strict=True)):
        named = campaign.group_labels[group] if campaign.group_labels else ""
        for coordinate, cells in enumerate(zip(names, *of_group, strict=True)):
            label, *means = cells
            yield [group, named, coordinate, label, share, error, *means]


def as_cell(label: str) -> str:
    """A label as a cell that no spreadsheet takes for a formula."""
    return f"'{label}" if label[:1] in {*"=+-@"} else label


def _survey_rows(questions: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """Yield the rows of all questions: of a number its mean and quartiles first."""
    for found in questions:
        name = found["name"]
        if "mean" in found:
            mean = found["mean"]
            yield [
                name,
                "mean",
                mean["value"],
                mean["stderr"],
                mean["low"],
                mean["high"],
            ]
            for each in found["quantiles"]:
                yield [
                    name,
                    f"quantile {each['share']:g}",
                    each["value"],
                    None,
                    each["low"],
                    each["high"],
                ]
        columns = (
            found[column] for column in ("items", "estimate", "stderr", "low", "high")
        )
        yield from ([name, *row] for row in zip(*columns, strict=True))
