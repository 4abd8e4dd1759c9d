"""The (ε, δ) that a shuffled campaign can claim, computed from the batches that arrived, not those planned."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sstq.accounting import shuffled_epsilon
from sstq.accounting.ledger import price
from sstq.client.campaigns import Campaign
from sstq.mechanisms import Mechanism
from sstq.service.batches import count_batches
from sstq.service.store import Store

__all__ = ["shuffled_claim"]


def shuffled_claim(store: Store, campaign: Campaign) -> dict[str, Any] | None:
    """Return the privacy that a campaign's batches justify, as JSON values; None for a campaign without a shuffler.

    A person's message hides among the accepted messages of its batch. So the smallest batch decides the claim:
    everybody is in one crowd, with one message in each of its slots. Refused envelopes hide nobody, nor do accepted
    envelopes of cheating clients, which cannot be counted. Below the campaign's threshold the claim is the local ε.
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
        # Pure ε: without a crowd there is no δ.
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
    """The ε of a person whose messages are all in crowds of at least this size."""
    return min(price(mechanism), shuffled_epsilon(mechanism, crowd, delta, messages=mechanism.messages))
