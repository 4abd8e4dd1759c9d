"""Estimates, made in the background and stored with the number of messages that they cover.

A page then reads what is there, whatever the size of the state. The stored result is the JSON of the estimate route.
How the error shrank is kept beside it: a point whenever the messages are an eighth more than at the last one.
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
from sstq.mechanisms import Mechanism
from sstq.mechanisms.base import ExpectedError
from sstq.mechanisms.frameunit.bias import FrameBiasWarning
from sstq.mechanisms.groupunit.estimates import GroupEstimate
from sstq.service.campaigns import Campaign
from sstq.service.claims import shuffled_claim
from sstq.service.database import arrivals, campaigns, estimates, history, pieces
from sstq.service.store import Store

__all__ = ["LEVEL", "Result", "as_csv", "covered", "describe", "latest", "progress", "refresh"]

LEVEL = 0.95
"""The probability with which a region holds all coordinates of the mean at once."""

_HISTORY_STEP = 1.125  # 10^9 messages have 176 points
_LATER = 10  # the prediction goes on to so many times the messages
_SECONDS_AN_HOUR = 3600


@dataclass(frozen=True)
class Result:
    """A stored estimate: how many messages it covers, and its JSON."""

    messages: int
    json: bytes


def describe(campaign: Campaign, aggregator: Aggregator[Any], claim: dict[str, Any] | None) -> dict[str, Any]:
    """The estimate of a campaign as JSON values, with the claim of a shuffled one; what is not known (yet) is null."""
    known: dict[str, Any] = {"campaign": campaign.name, "digest": campaign.digest, "count": aggregator.count}
    known["shuffling"] = claim
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
    _typical_error(campaign.mechanism)  # remembered from here on: the first may take a second, and a page must not wait
    known = covered(store, campaign.name)
    if known is not None and known >= store.counts(campaign.name).folded:
        return False
    aggregator = store.state(campaign.name)
    # After the state: it covers at least what that does.
    described = describe(campaign, aggregator, shuffled_claim(store, campaign))
    result = Result(aggregator.count, json.dumps(described).encode())
    _keep(store, campaign.name, result, _standard_error(described))
    return True


def _standard_error(described: dict[str, Any]) -> float | None:
    """The standard error of the whole vector: the root of the summed squares; None where one is not known."""
    errors = described["stderr"]
    if errors is None or any(error is None for error in errors):
        return None
    return float(np.linalg.norm(errors))


def covered(store: Store, name: str) -> int | None:
    """How many messages the newest estimate of a campaign covers, if there is one; the estimate may have megabytes."""
    query = sa.select(estimates.c.messages).where(estimates.c.campaign == name)
    found: int | None = store.database.read(lambda connection: connection.execute(query).scalar())
    return found


def latest(store: Store, name: str) -> Result | None:
    """The newest estimate of a campaign, if there is one."""
    query = sa.select(estimates.c.messages, estimates.c.result).where(estimates.c.campaign == name)
    row = store.database.read(lambda connection: connection.execute(query).one_or_none())
    return None if row is None else Result(row.messages, bytes(row.result))


def _keep(store: Store, name: str, result: Result, error: float | None) -> None:
    """Store an estimate, unless another process has stored one that covers more, or the campaign was deleted."""
    mine = estimates.c.campaign == name
    held = sa.select(campaigns.c.name).where(campaigns.c.name == name).with_for_update(read=True, key_share=True)
    folded = sa.select(sa.func.coalesce(sa.func.sum(pieces.c.messages), 0)).where(pieces.c.campaign == name)

    def work(connection: sa.Connection) -> None:
        connection.execute(held)  # its deletion waits
        if connection.execute(folded).scalar_one() < result.messages:
            return  # deleted, or deleted and made anew: an estimate of the old one must not stay behind
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
    """How the standard error shrank, what is predicted, and when messages arrived, as JSON values.

    Errors are those of the whole vector: the root of the summed squares. The prediction is the mechanism's
    `typical_error`, for people whose vectors have the largest norm. Its bias remains with any number of messages.
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
