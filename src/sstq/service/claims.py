"""The (ε, δ) that a shuffled campaign can claim, computed from the batches that arrived, not those planned."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sstq.accounting import shuffled_epsilon
from sstq.accounting.ledger import price
from sstq.client.campaigns import Campaign
from sstq.mechanisms import Mechanism
from sstq.service.batches import count_batches, crowds_of
from sstq.service.store import Store

__all__ = ["shuffled_claim"]


def shuffled_claim(store: Store, campaign: Campaign) -> dict[str, Any] | None:
    """Return the privacy that a campaign's batches justify, as JSON values; None for a campaign without a shuffler.

    A person's message hides among the accepted messages of its own crowd, so each crowd has a claim of its own.
    Refused envelopes hide nobody, nor do accepted envelopes of cheating clients, which cannot be counted: hence the
    second ε, for a crowd of which half is fake. The claim is the local ε for a crowd below the threshold, and for all
    crowds unless every person needs a single-use token: one sender could otherwise be a whole crowd.
    """
    terms = campaign.shuffling
    if terms is None:
        return None
    counts, local = count_batches(store.database, campaign.name), price(campaign.mechanism)
    crowds = []
    for size, people in sorted(crowds_of(store.database, campaign.name), reverse=True):
        hidden = campaign.senders == "single-use" and size >= terms.threshold
        epsilon, half = (
            _shuffled(campaign.mechanism, honest, terms.delta) if hidden and honest else local
            for honest in (people, people // 2)
        )
        # Pure ε: without a crowd there is no δ.
        delta = 0.0 if epsilon >= local else terms.delta
        crowds.append({"people": people, "epsilon": epsilon, "delta": delta, "epsilon_if_half_fake": half})
    return {
        "batches": counts["batches"],
        "accepted": counts["accepted"],
        "refused": {reason: counts[reason] for reason in ("foreign", "malformed", "repeated")},
        "crowds": crowds,
        "local_epsilon": local,
    }


@lru_cache(maxsize=1024)
def _shuffled(mechanism: Mechanism, crowd: int, delta: float) -> float:
    """The ε of a person whose messages are all in crowds of at least this size."""
    return min(price(mechanism), shuffled_epsilon(mechanism, crowd, delta, messages=mechanism.messages))
