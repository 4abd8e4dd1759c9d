"""Estimates, computed in the background and stored with the number of messages they cover.

A page reads the stored result, however large the state is. It is the JSON of the estimate route.
Whenever the number of messages has grown by an eighth, `sstq.service.alarms` looks at the sums.

The owner sees the newest estimate. Readers see one that is *released*: as soon as it has max(k, 2 % of the count) more
messages than the one before, or after the end k more, so that nobody reads a single message from the difference of two.
Fewer than k that remain at the end stay with the owner. This is no privacy guarantee (all but one of the k messages may
be the reader's own); ε is. The history of the error has points of released estimates only.
"""

import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import sqlalchemy as sa

from sstq.aggregation.estimates import Estimate
from sstq.client.campaigns import Campaign
from sstq.inputs.bounds import Bounds
from sstq.mechanisms import Mechanism
from sstq.mechanisms.base import ExpectedError
from sstq.service import alarms
from sstq.service.batches import shuffled_claim
from sstq.service.database import (
    arrivals,
    campaigns,
    estimates,
    history,
    pieces,
    put,
    releases,
    total,
    verdicts,
)
from sstq.service.rendering import describe
from sstq.service.store import Store

Audience = Literal["owner", "public"]

_SEEN = {"owner": estimates, "public": releases}
# of the messages so far: at least this share is new in a released estimate
_NEW_SHARE = 0.02
# the history has a point whenever the messages have grown by this factor
_POINTS = 1.125
_LATER = 10  # the prediction extends to this many times the messages


class Renewed(NamedTuple):
    """An estimate as it is stored, its error if that is known, and what the tests say if they looked."""

    row: dict[str, Any]
    error: float | None
    found: dict[str, str]


def renewed(store: Store, campaign: Campaign) -> Renewed | None:
    """Compute the estimate of the folded messages; None if there are none."""
    # cached from here on: it may take a second, and no page should wait
    _typical_error(campaign.mechanism)
    name = campaign.name
    aggregator = store.state(campaign.name)
    if not aggregator.count:
        return None
    estimate = aggregator.mean()
    said = store.rows(sa.select(verdicts).where(verdicts.c.campaign == name))
    checks: dict[str, str] = {row.kind: row.detail for row in said}
    due = aggregator.count >= alarms.GROWTH * max(
        (row.messages for row in said), default=0
    )
    found = alarms.look(campaign.mechanism, aggregator, estimate) if due else {}
    found = {
        kind: said
        for kind, said in found.items()
        if not checks.get(kind, "").startswith(alarms.ALARM)
    }
    # Read after the state, so it covers at least as much.
    claim = shuffled_claim(store, campaign)
    checks = checks | found
    if campaign.stage is None:
        described = describe(campaign, estimate, claim, checks or None)
    else:
        # Its study learns from the sums, and nobody reads half a million noisy values.
        described = describe(campaign, None, claim, checks or None)
        described["count"] = aggregator.count
    row = {
        "campaign": name,
        "messages": aggregator.count,
        "result": json.dumps(described).encode(),
    }
    return Renewed(row, _error(campaign.mechanism, estimate), found)


def _error(mechanism: Mechanism, estimate: Estimate) -> float | None:
    """The error of the whole vector in the units of clip, as predictions have it; None if it is not known."""
    stderr = estimate.stderr
    if mechanism.bounds is not None:
        stderr = stderr / Bounds(mechanism.bounds, mechanism.clip).scale
    return float(np.linalg.norm(stderr)) if np.isfinite(stderr).all() else None


def refresh(
    store: Store,
    campaign: Campaign,
    release_every: int = 1,
    run: Callable[..., Any] | None = None,
) -> None:
    """Compute and store the estimate of the folded messages; `run` as in `Store.fold`."""
    made = (run or store.run)(renewed, campaign)
    if made is not None:
        store.write(lambda connection: _keep(connection, made, release_every))


def _keep(connection: sa.Connection, made: Renewed, release_every: int) -> None:
    """Store an estimate, unless its campaign was deleted."""
    row, error, found = made
    name = row["campaign"]
    messages = row["messages"]
    folded = sa.select(total(pieces)).where(campaigns.c.name == name)
    if (connection.execute(folded).scalar() or 0) < messages:
        # deleted, or deleted and created again: an estimate of the old one must not stay behind
        return
    for kind, detail in found.items():
        put(
            connection,
            verdicts,
            {"campaign": name, "kind": kind, "messages": messages, "detail": detail},
        )
    if not keep_estimate(connection, row, release_every):
        return
    last = connection.execute(
        sa.select(sa.func.max(history.c.messages)).where(history.c.campaign == name)
    ).scalar()
    if error is not None and messages >= _POINTS * (last or 0):
        put(
            connection,
            history,
            {"campaign": name, "messages": messages, "error": error},
        )


def keep_estimate(
    connection: sa.Connection, row: Mapping[str, Any], release_every: int
) -> bool:
    """Store an estimate, and let readers see it if so many messages are new; returns whether they do."""
    put(connection, estimates, row)
    query = sa.select(releases.c.messages).where(releases.c.campaign == row["campaign"])
    released = connection.execute(query).scalar() or 0
    seen: bool = row["messages"] - released >= max(
        release_every, _NEW_SHARE * row["messages"]
    )
    if seen:
        put(connection, releases, row)
    return seen


def covered(store: Store, audience: Audience = "owner") -> dict[str, int]:
    """The number of messages that each campaign's newest estimate covers, for those that have one."""
    table = _SEEN[audience]
    return dict(
        tuple(row) for row in store.rows(sa.select(table.c.campaign, table.c.messages))
    )


def latest(store: Store, name: str, audience: Audience = "owner") -> bytes | None:
    """Return the JSON of a campaign's newest estimate, if any."""
    table = _SEEN[audience]
    found = store.scalar(sa.select(table.c.result).where(table.c.campaign == name))
    return None if found is None else bytes(found)


def raised(store: Store) -> dict[tuple[str, ...], float]:
    """The alarms of all campaigns, by campaign and test."""
    query = sa.select(verdicts.c.campaign, verdicts.c.kind).where(
        verdicts.c.detail.startswith(alarms.ALARM)
    )
    return dict.fromkeys(map(tuple, store.rows(query)), 1.0)


def release_last(store: Store, closed: Mapping[str, int]) -> None:
    """Let readers see the last estimates of campaigns that have closed, if these have so many messages more."""
    newest, seen = (covered(store, audience) for audience in ("owner", "public"))
    ended = {
        name
        for name, every in closed.items()
        if newest.get(name, 0) - seen.get(name, 0) >= every
    }
    if ended:
        ended -= store.waiting().keys() | store.outdated()
    for name in ended:
        gone = releases.delete().where(releases.c.campaign == name)
        last = sa.select(estimates).where(estimates.c.campaign == name)
        store.execute(
            gone, releases.insert().from_select(list(estimates.c.keys()), last)
        )


def progress(
    store: Store, campaign: Campaign, audience: Audience = "owner", hour: int = 0
) -> dict[str, Any]:
    """Return the standard error so far, its prediction, and the arrivals per hour, as JSON values.

    Readers see the hours that are over at this `hour`.

    Errors are of the whole vector, √Σ stderr², with bounds after scaling into the ball of norm clip. The prediction is
    the mechanism's `typical_error`, for people whose vectors have the largest norm. No number of messages removes its
    bias.
    """
    points = sa.select(history.c.messages, history.c.error).where(
        history.c.campaign == campaign.name
    )
    hours = sa.select(arrivals.c.hour, arrivals.c.messages).where(
        arrivals.c.campaign == campaign.name
    )
    if audience == "public":
        hours = hours.where(arrivals.c.hour < hour)
    measured = [list(row) for row in store.rows(points.order_by(history.c.messages))]
    arrived = [
        [hour * 3600, messages]
        for hour, messages in store.rows(hours.order_by(arrivals.c.hour))
    ]
    expected = _typical_error(campaign.mechanism)
    known = [int(messages) for messages, _ in measured] or [100]
    more = np.geomspace(known[0], _LATER * known[-1], 41).round().astype(int).tolist()
    predicted = [
        [
            messages,
            math.sqrt(expected.bias2 + expected.variance * campaign.slots / messages),
        ]
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
