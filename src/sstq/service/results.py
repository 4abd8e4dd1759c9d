"""Estimates, computed in the background and stored with the number of messages they cover.

A page reads the stored result, however large the state is. It is the JSON of the estimate route.
The history of the error is stored too: one point whenever the number of messages has grown by an eighth.
"""

from __future__ import annotations

import csv
import io
import json
import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from sstq.aggregation import Aggregator
from sstq.client.campaigns import Campaign
from sstq.mechanisms import Mechanism
from sstq.mechanisms.base import ExpectedError
from sstq.mechanisms.frameunit.bias import FrameBiasWarning
from sstq.mechanisms.groupunit.estimates import GroupEstimate
from sstq.service.claims import shuffled_claim
from sstq.service.database import arrivals, campaigns, estimates, history, pieces
from sstq.service.store import Store

__all__ = ["LEVEL", "Result", "as_csv", "covered", "describe", "latest", "progress", "refresh"]

LEVEL = 0.95
"""The probability that a region contains all coordinates of the mean at once."""

_HISTORY_STEP = 1.125  # 10^9 messages have 176 points
_LATER = 10  # the prediction extends to this many times the messages
_SECONDS_AN_HOUR = 3600


@dataclass(frozen=True)
class Result:
    """A stored estimate: the number of messages it covers, and its JSON."""

    messages: int
    json: bytes


def describe(campaign: Campaign, aggregator: Aggregator[Any], claim: dict[str, Any] | None) -> dict[str, Any]:
    """Return a campaign's estimate as JSON values, with the privacy claim if shuffled; unknown values are null."""
    known: dict[str, Any] = {"campaign": campaign.name, "digest": campaign.digest, "count": aggregator.count}
    known["shuffling"] = claim
    if not aggregator.count:
        return known | {"value": None, "stderr": None, "region": None, "groups": None, "note": ""}
    with warnings.catch_warnings():
        # The warning's text is in the note.
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
    """Convert to lists, with None for numbers that JSON does not have."""
    found: list[Any] = np.where(np.isfinite(values), values, np.array(None, dtype=object)).tolist()
    return found


def refresh(store: Store, campaign: Campaign) -> bool:
    """Compute and store the estimate of the folded messages, unless it is up to date; returns whether it did."""
    _typical_error(campaign.mechanism)  # cached from here on: it may take a second, and no page should wait
    known = covered(store, campaign.name)
    if known is not None and known >= store.counts(campaign.name).folded:
        return False
    aggregator = store.state(campaign.name)
    # Read after the state, so it covers at least as much.
    described = describe(campaign, aggregator, shuffled_claim(store, campaign))
    result = Result(aggregator.count, json.dumps(described).encode())
    _keep(store, campaign.name, result, _standard_error(described))
    return True


def _standard_error(described: dict[str, Any]) -> float | None:
    """The standard error of the whole vector, √Σ stderr²; None if any coordinate's is unknown."""
    errors = described["stderr"]
    if errors is None or any(error is None for error in errors):
        return None
    return float(np.linalg.norm(errors))


def covered(store: Store, name: str) -> int | None:
    """The number of messages that a campaign's newest estimate covers, if any, without loading the estimate."""
    query = sa.select(estimates.c.messages).where(estimates.c.campaign == name)
    found: int | None = store.database.read(lambda connection: connection.execute(query).scalar())
    return found


def latest(store: Store, name: str) -> Result | None:
    """Return a campaign's newest estimate, if any."""
    query = sa.select(estimates.c.messages, estimates.c.result).where(estimates.c.campaign == name)
    row = store.database.read(lambda connection: connection.execute(query).one_or_none())
    return None if row is None else Result(row.messages, bytes(row.result))


def _keep(store: Store, name: str, result: Result, error: float | None) -> None:
    """Store an estimate, unless another process has stored one that covers more, or the campaign was deleted."""
    mine = estimates.c.campaign == name
    held = sa.select(campaigns.c.name).where(campaigns.c.name == name).with_for_update(read=True, key_share=True)
    folded = sa.select(sa.func.coalesce(sa.func.sum(pieces.c.messages), 0)).where(pieces.c.campaign == name)

    def work(connection: sa.Connection) -> None:
        connection.execute(held)  # makes deletion wait
        if connection.execute(folded).scalar_one() < result.messages:
            return  # deleted, or deleted and created again: an estimate of the old one must not stay behind
        stored = connection.execute(sa.select(estimates.c.messages).where(mine).with_for_update()).scalar()
        if stored is None:
            row = {"campaign": name, "messages": result.messages, "result": result.json}
            connection.execute(estimates.insert(), row)
        elif stored < result.messages:
            connection.execute(estimates.update().where(mine).values(messages=result.messages, result=result.json))
        else:
            return
        if error is not None and result.messages >= _HISTORY_STEP * _last_point(connection, name):
            connection.execute(history.insert(), {"campaign": name, "messages": result.messages, "error": error})

    store.database.write(work)


def _last_point(connection: sa.Connection, name: str) -> int:
    query = sa.select(sa.func.coalesce(sa.func.max(history.c.messages), 0)).where(history.c.campaign == name)
    return int(connection.execute(query).scalar_one())


def progress(store: Store, campaign: Campaign) -> dict[str, Any]:
    """Return the standard error so far, its prediction, and the arrivals per hour, as JSON values.

    Errors are of the whole vector, √Σ stderr². The prediction is the mechanism's
    `typical_error`, for people whose vectors have the largest norm. No number of messages removes its bias.
    """
    points = sa.select(history.c.messages, history.c.error).where(history.c.campaign == campaign.name)
    hours = sa.select(arrivals.c.hour, arrivals.c.messages).where(arrivals.c.campaign == campaign.name)

    def work(connection: sa.Connection) -> tuple[list[list[float]], list[list[int]]]:
        found = connection.execute(points.order_by(history.c.messages)).all()
        counted = connection.execute(hours.order_by(arrivals.c.hour)).all()
        return [list(row) for row in found], [[row.hour * _SECONDS_AN_HOUR, row.messages] for row in counted]

    measured, arrived = store.database.read(work)
    expected = _typical_error(campaign.mechanism)
    known = [int(messages) for messages, _ in measured] or [100]
    more = np.geomspace(known[0], _LATER * known[-1], 41).round().astype(int).tolist()
    predicted = [
        [messages, math.sqrt(expected.bias2 + expected.variance * campaign.slots / messages)]
        for messages in sorted({*known, *more})
    ]
    return {
        "measured": measured,
        "predicted": predicted,
        "bias": math.sqrt(expected.bias2),
        "arrivals": arrived,
        "epsilon": campaign.mechanism.epsilon,
        "privacy_loss": campaign.mechanism.privacy_loss(),
    }


@lru_cache(maxsize=256)
def _typical_error(mechanism: Mechanism) -> ExpectedError:
    return mechanism.typical_error()


def as_csv(campaign: Campaign, described: dict[str, Any]) -> str:
    """Return the estimate as CSV, one row per coordinate, or per coordinate of each group; unknown cells are empty.

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
