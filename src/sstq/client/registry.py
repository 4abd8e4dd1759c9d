"""An entry for OpenDP's registry of deployments, of what a campaign states (https://registry.opendp.org).

The fields are those of its published schema (opendp/deployments-registry-data, schemas/deployments-schema.yaml). What
no campaign knows, such as who publishes the result, is marked with “TODO”.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from sstq.accounting.ledger import price
from sstq.client.campaigns import Campaign

__all__ = ["registry_entry"]


def registry_entry(
    campaign: Campaign, estimate: Mapping[str, Any], published: date
) -> dict[str, Any]:
    """Return a draft of an entry, as JSON values; JSON is YAML, which the registry keeps.

    Args:
        campaign: the campaign.
        estimate: its newest estimate, as the collector returns it: the count, and what its crowds justify if shuffled.
        published: when the result was published first.
    """
    mechanism = campaign.mechanism
    loss = _privacy_loss(campaign, (estimate.get("shuffling") or {}).get("crowds", []))
    shuffled = "delta" in loss["privacy_parameters"]
    arithmetic = (
        "integers, checked exactly" if mechanism.exact else "floating-point numbers"
    )
    deployment = {
        "basic": {
            "name": campaign.name,
            "data_curators": ["TODO: who publishes the result"],
            "intended_use": "TODO",
            "data_product_type": "Summary statistics",
            "data_product_region": "TODO",
            "description": f"TODO. Estimated from {estimate['count']:,} messages in {mechanism.dim:,} dimensions.",
            "publication_date": published.isoformat(),
        },
        "dp_variant": {
            "variant_name": "Approximate DP" if shuffled else "Pure DP",
            "unprotected_quantities": "Who sends, and how many messages arrive.",
        },
        "privacy_loss": loss,
        "deployment_model": {
            "model_name": "Local" if campaign.shuffling is None else "Shuffle",
            "actors": _actors(campaign),
            "release_type": "One release"
            if campaign.readers == "administrator"
            else "Many releases",
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
        "implementation": {
            "mechanisms": f"{mechanism!r}, digest {campaign.digest}, of the library sstq; probabilities: {arithmetic}.",
        },
        "administrative": {"registry_authors": ["TODO"]},
    }
    slug = re.sub("-+", "-", f"{campaign.name}-{published.year}").strip("-")
    return {"url_slug": slug, "status": "Draft", "tier": 2, "deployment": deployment}


def _privacy_loss(
    campaign: Campaign, crowds: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What a person loses: the worst that the crowds justify, or the price without any."""
    local = price(campaign.mechanism)
    worst = max(
        crowds,
        key=lambda crowd: float(crowd["epsilon"]),
        default={"epsilon": local, "delta": 0.0},
    )
    parameters = {"epsilon": worst["epsilon"]}
    each = campaign.mechanism.epsilon
    details = f"{campaign.slots} message(s) per person with ε = {each:g} each, {local:g} in total."
    if worst["delta"] > 0:
        parameters["delta"] = worst["delta"]
        details += f" Mixed in crowds of at least {min(c['people'] for c in crowds)} people, ε and δ are as stated."
    return {
        "privacy_unit": "user-level: all messages of a person to this campaign",
        "privacy_unit_details": "Any two values of one person are adjacent (replacement).",
        "privacy_parameters": parameters,
        "privacy_parameters_details": details,
    }


def _actors(campaign: Campaign) -> str:
    """Who sees what."""
    actors = "Devices encode; the collector is not trusted."
    if campaign.shuffling is None:
        return actors
    remains = f"if it cheats, ε = {price(campaign.mechanism):g} remains"
    return f"{actors} A shuffler ({campaign.shuffling.url}) mixes; {remains}."
