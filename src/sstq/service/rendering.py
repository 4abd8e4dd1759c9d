"""Estimates as JSON values and as CSV: vectors, private groups, and surveys question by question."""

import csv
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sstq.aggregation.estimates import Estimate
from sstq.client.campaigns import Campaign
from sstq.mechanisms.groupunit.group_estimates import GroupEstimate
from sstq.mechanisms.survey.question_estimates import (
    Interval,
    NumberEstimate,
    QuestionEstimate,
    SurveyEstimate,
)
from sstq.mechanisms.survey.survey import Survey

LEVEL = 0.95
"""The probability that a region contains all coordinates of the mean at once."""

_GROUPED = {  # what is known of groups, and the columns of CSV
    "shares": "share",
    "shares_stderr": "share_stderr",
    "sums": "sum",
    "sums_stderr": "sum_stderr",
    "means": "mean",
    "means_stderr": "mean_stderr",
}
_QUARTILES = (0.25, 0.5, 0.75)


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
    }
    if estimate is None:
        unknown = dict.fromkeys(
            ("value", "stderr", "region", "groups", "questions", "checks")
        )
        return known | unknown | {"note": ""}
    region = estimate.region(LEVEL)
    grouped = isinstance(estimate, GroupEstimate)
    questions = None
    if isinstance(campaign.mechanism, Survey) and isinstance(estimate, SurveyEstimate):
        asked = campaign.mechanism.questions
        questions = [
            _question(asked[name].type, found)
            for name, found in estimate.results.items()
        ]
    return known | {
        "count": estimate.count,
        "value": as_numbers(estimate.value),
        "stderr": as_numbers(estimate.stderr),
        "region": {
            "level": LEVEL,
            "radius": as_numbers([region.radius])[0],
            "half_width": as_numbers(region.half_width),
        },
        "groups": {field: as_numbers(getattr(estimate, field)) for field in _GROUPED}
        if grouped
        else None,
        "questions": questions,
        "note": estimate.note,
        "checks": checks,
    }


def as_numbers(values: ArrayLike) -> list[Any]:
    """Convert to lists, with None for numbers that JSON does not have."""
    found: list[Any] = np.where(
        np.isfinite(values), values, np.array(None, dtype=object)
    ).tolist()
    return found


def _question(kind: str, found: QuestionEstimate) -> dict[str, Any]:
    """One question; its intervals hold for all items at once with the probability `LEVEL`."""
    low, high = found.interval(LEVEL)
    numbers: dict[str, ArrayLike] = {
        "limits": found.limits,
        "estimate": found.estimate,
        "stderr": found.stderr,
        "low": low,
        "high": high,
    }
    known: dict[str, Any] = {
        "name": found.name,
        "type": kind,
        "count": found.count,
        "over": found.over,
        "answered": as_numbers(found.answered)[0],
        "items": list(found.items),
    } | {name: as_numbers(values) for name, values in numbers.items()}
    if not isinstance(found, NumberEstimate):
        return known
    return known | {
        "edges": as_numbers(found.edges),
        "mean": _interval(found.mean(LEVEL))
        | {"stderr": as_numbers([found.mean_stderr])[0]},
        "quantiles": [
            {"share": share, **_interval(found.quantile(share, LEVEL))}
            for share in _QUARTILES
        ],
    }


def _interval(found: Interval) -> dict[str, float | None]:
    return dict(zip(Interval._fields, as_numbers(found), strict=True))


def as_csv(campaign: Campaign, described: dict[str, Any]) -> str:
    """Return an estimate as CSV, one row per coordinate, coordinate of each group, or item of each question.

    Unknown cells are empty. Sums over people are `count` times the value.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if isinstance(campaign.mechanism, Survey):
        writer.writerow(["question", "item", "estimate", "stderr", "low", "high"])
        for row in _survey_rows(described["questions"] or []):
            writer.writerow(
                [as_cell(cell) if isinstance(cell, str) else cell for cell in row]
            )
        return text.getvalue()
    dim = getattr(campaign.mechanism, "categories", campaign.mechanism.dim)
    groups = described["groups"]
    names = [as_cell(label) for label in campaign.labels] or [""] * dim
    if campaign.mechanism.groups is None:
        writer.writerow(["coordinate", "label", "value", "stderr", "half_width"])
        if described["count"]:
            columns = (
                described["value"],
                described["stderr"],
                described["region"]["half_width"],
            )
            # one by one: other threads have their turns
            for cells in zip(range(dim), names, *columns, strict=True):
                writer.writerow(cells)
    else:
        writer.writerow(
            ["group", "group_label", "coordinate", "label", *_GROUPED.values()]
        )
        for group in range(campaign.mechanism.groups if groups else 0):
            named = (
                as_cell(campaign.group_labels[group]) if campaign.group_labels else ""
            )
            share, error, *own = (groups[field][group] for field in _GROUPED)
            for coordinate, (label, *numbers) in enumerate(
                zip(names, *own, strict=True)
            ):
                writer.writerow(
                    [group, named, coordinate, label, share, error, *numbers]
                )
    return text.getvalue()


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
