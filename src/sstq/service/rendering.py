"""Estimates as JSON values and as CSV."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sstq.aggregation.estimates import Estimate
from sstq.client.campaigns import Campaign

LEVEL = 0.95
"""The probability that a region contains all coordinates of the mean at once."""


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
    """Convert arrays, and the values of dicts and lists, with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        unknown = np.array(None, dtype=object)
        return np.where(np.isfinite(value), value, unknown).tolist()
    if isinstance(value, np.ndarray | np.generic):
        return as_json(value.tolist())
    if isinstance(value, list | tuple):
        return [as_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def as_csv(campaign: Campaign, described: dict[str, Any]) -> str:
    """Return an estimate as CSV, one row per coordinate, coordinate of each group, or item of each question.

    Unknown cells are empty. Sums over people are `count` times the value.
    """
    mechanism = campaign.mechanism
    kind = mechanism.estimator.estimate_class
    rows: Iterable[Sequence[Any]] = ()
    if described["count"]:
        columns = tuple(name for name, _, _ in mechanism.bounds or ())
        labels = campaign.labels or columns or [""] * mechanism.coordinates
        rows = kind.rows_of(described, labels, campaign.group_labels)
    return write_csv(kind.columns, rows)


def write_csv(columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        # one by one: other threads have their turns
        writer.writerow([_as_cell(cell) for cell in row])
    return text.getvalue()


def _as_cell(value: Any) -> Any:
    """A value as a cell that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value[:1] in {*"=+-@"}:
        return f"'{value}"
    return value
