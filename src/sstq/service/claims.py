"""The (ε, δ) that a shuffled campaign can claim: from the batches that arrived, never from those that were planned."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sstq.accounting import shuffled_epsilon
from sstq.accounting.ledger import price
from sstq.mechanisms import Mechanism
from sstq.service.batches import count_batches
from sstq.service.campaigns import Campaign
from sstq.service.store import Store

__all__ = ["shuffled_claim"]


def shuffled_claim(store: Store, campaign: Campaign) -> dict[str, Any] | None:
    """What the batches of a campaign justify, as JSON values; None for one that is not shuffled.

    A person's message hides among the accepted ones of its batch. So the claim of all is that of the smallest batch:
    everybody is in one crowd, with one message in each of its slots. Envelopes that were refused hide nobody, nor do
    accepted ones of people who cheat, which nobody can count. Below the campaign's threshold the claim is the local ε.
    """
    terms = campaign.shuffling
    if terms is None:
        return None
    counts = count_batches(store.database, campaign.name)
    crowd, local = counts["smallest_accepted"], price(campaign.mechanism)
    epsilon, delta = None, None
    if crowd:
        short = counts["smallest_size"] < terms.threshold
        epsilon = local if short else _shuffled(campaign.mechanism, crowd, terms.delta)
        # Without a crowd nothing is left to chance.
        delta = 0.0 if epsilon >= local else terms.delta
    return {
        "batches": counts["batches"],
        "accepted": counts["accepted"],
        "refused": {reason: counts[reason] for reason in ("foreign", "malformed", "repeated")},
        "crowd": crowd,
        "epsilon": epsilon,
        "delta": delta,
        "local_epsilon": local,
    }


@lru_cache(maxsize=1024)
def _shuffled(mechanism: Mechanism, crowd: int, delta: float) -> float:
    """The ε of a person all of whose messages are in crowds of at least that many."""
    return min(price(mechanism), shuffled_epsilon(mechanism, crowd, delta, messages=mechanism.messages))
