"""Estimates, made in the background and stored with the number of messages that they cover.

A page then reads what is there, whatever the size of the state. The stored result is the JSON of the estimate route.
"""

from __future__ import annotations

import csv
import io
import json
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from sstq.aggregation import Aggregator
from sstq.mechanisms.frameunit.bias import FrameBiasWarning
from sstq.mechanisms.groupunit.estimates import GroupEstimate
from sstq.service.campaigns import Campaign
from sstq.service.database import estimates
from sstq.service.store import Store

__all__ = ["LEVEL", "Result", "as_csv", "describe", "latest", "refresh"]

LEVEL = 0.95
"""The probability with which a region holds all coordinates of the mean at once."""


@dataclass(frozen=True)
class Result:
    """A stored estimate: how many messages it covers, and its JSON."""

    messages: int
    json: bytes


def describe(campaign: Campaign, aggregator: Aggregator[Any]) -> dict[str, Any]:
    """The estimate of a campaign as JSON values; what is not known (yet) is null."""
    known: dict[str, Any] = {"campaign": campaign.name, "digest": campaign.digest, "count": aggregator.count}
    if not aggregator.count:
        return known | {"value": None, "stderr": None, "region": None, "groups": None, "note": ""}
    with warnings.catch_warnings():
        # Its text is in the note.
        warnings.simplefilter("ignore", FrameBiasWarning)
        estimate = aggregator.mean()
    region = estimate.region(LEVEL)
    return known | {
        "value": _numbers(estimate.value),
        "stderr": _numbers(estimate.stderr),
        "region": {
            "level": LEVEL,
            "radius": _numbers(np.array([region.radius]))[0],
            "half_width": _numbers(region.half_width),
        },
        "groups": _groups(estimate) if isinstance(estimate, GroupEstimate) else None,
        "note": estimate.note,
    }


def _groups(estimate: GroupEstimate) -> dict[str, Any]:
    names = ("shares", "shares_stderr", "sums", "sums_stderr", "means", "means_stderr")
    return {name: _numbers(getattr(estimate, name)) for name in names}


def _numbers(values: NDArray[np.float64]) -> list[Any]:
    """As lists, with None for what JSON has no number for."""
    found: list[Any] = np.where(np.isfinite(values), values, np.array(None, dtype=object)).tolist()
    return found


def refresh(store: Store, campaign: Campaign) -> bool:
    """Make and store the estimate of what is folded, unless the stored one covers that; returns whether it did."""
    covered = latest(store, campaign.name)
    folded = store.counts(campaign.name).folded
    if covered is not None and covered.messages >= folded:
        return False
    aggregator = store.state(campaign.name)
    _keep(store, campaign.name, Result(aggregator.count, json.dumps(describe(campaign, aggregator)).encode()))
    return True


def latest(store: Store, name: str) -> Result | None:
    """The newest estimate of a campaign, if there is one."""
    query = sa.select(estimates.c.messages, estimates.c.result).where(estimates.c.campaign == name)
    row = store.database.read(lambda connection: connection.execute(query).one_or_none())
    return None if row is None else Result(row.messages, bytes(row.result))


def _keep(store: Store, name: str, result: Result) -> None:
    """Store an estimate, unless another process has stored one that covers more."""
    mine = estimates.c.campaign == name

    def work(connection: sa.Connection) -> None:
        stored = connection.execute(sa.select(estimates.c.messages).where(mine).with_for_update()).scalar()
        if stored is None:
            row = {"campaign": name, "messages": result.messages, "result": result.json}
            connection.execute(estimates.insert(), row)
        elif stored < result.messages:
            connection.execute(estimates.update().where(mine).values(messages=result.messages, result=result.json))

    store.database.write(work)


def as_csv(campaign: Campaign, described: dict[str, Any]) -> str:
    """The estimate as a table, one row per coordinate, or per coordinate of each group; empty where nothing is known.

    Sums over people are `count` times the value.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    dim, groups = campaign.mechanism.dim, described["groups"]
    names = campaign.labels or ("",) * dim
    if campaign.mechanism.groups is None:
        writer.writerow(["coordinate", "label", "value", "stderr", "half_width"])
        if described["count"]:
            columns = (described["value"], described["stderr"], described["region"]["half_width"])
            writer.writerows(zip(range(dim), names, *columns, strict=True))
        return text.getvalue()
    per_group, per_coordinate = ("shares", "shares_stderr"), ("sums", "sums_stderr", "means", "means_stderr")
    heads = ("share", "share_stderr", "sum", "sum_stderr", "mean", "mean_stderr")
    writer.writerow(["group", "group_label", "coordinate", "label", *heads])
    for group in range(campaign.mechanism.groups if groups else 0):
        named = campaign.group_labels[group] if campaign.group_labels else ""
        shares = [groups[name][group] for name in per_group]
        rows = zip(names, *(groups[name][group] for name in per_coordinate), strict=True)
        for coordinate, (label, *numbers) in enumerate(rows):
            writer.writerow([group, named, coordinate, label, *shares, *numbers])
    return text.getvalue()
