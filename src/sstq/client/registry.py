"""An entry for OpenDP's registry of deployments, of what a campaign states (https://registry.opendp.org).

The fields are those of its published schema (opendp/deployments-registry-data, schemas/deployments-schema.yaml). What
no campaign knows, such as who publishes the result, is marked with “TODO”.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    terms = campaign.shuffling
    local = price(mechanism)
    crowds = (estimate.get("shuffling") or {}).get("crowds", [])
    worst = max(
        crowds,
        key=lambda crowd: float(crowd["epsilon"]),
        default={"epsilon": local, "delta": 0.0},
    )
    shuffled = worst["delta"] > 0
    details = f"{campaign.slots} message(s) per person with ε = {mechanism.epsilon:g} each, {local:g} in total."
    if shuffled:
        details += f" Mixed in crowds of at least {min(c['people'] for c in crowds)} people, ε and δ are as stated."
    actors = "Devices encode; the collector is not trusted."
    if terms is not None:
        actors += (
            f" A shuffler ({terms.url}) mixes; if it cheats, ε = {local:g} remains."
        )
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
        "privacy_loss": {
            "privacy_unit": "user-level: all messages of a person to this campaign",
            "privacy_unit_details": "Any two values of one person are adjacent (replacement).",
            "privacy_parameters": {"epsilon": worst["epsilon"]}
            | ({"delta": worst["delta"]} if shuffled else {}),
            "privacy_parameters_details": details,
        },
        "deployment_model": {
            "model_name": "Local" if terms is None else "Shuffle",
            "actors": actors,
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
