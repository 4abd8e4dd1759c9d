"""An entry for the deployments registry has the fields of the published schema, and states the campaign's ε."""

import json
import re
from datetime import UTC, date, datetime

import pytest

import sstq

pytest.importorskip("cryptography")

from sstq.client import Campaign, Shuffling
from sstq.client.registry import registry_entry

# opendp/deployments-registry-data, schemas/deployments-schema.yaml at 3e9c812 (July 2026). * is required.
SCHEMA = {
    "basic*": "name* data_curators* description* intended_use* data_product_type* data_product_region* "
    "publication_date* data_product_sector",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details privacy_parameters privacy_parameters_details",
    "deployment_model": "model_name model_name_details actors release_type release_type_details data_source_type "
    "data_source_type_details access_type access_type_details",
    "accounting": "post_processing composition",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms justification",
    "administrative": "sources notes registry_authors*",
}
CHOICES = {
    "data_product_type": {
        "Summary statistics",
        "Machine learning model",
        "Dataset",
        "Synthetic data",
    },
    "variant_name": {
        "Pure DP",
        "Approximate DP",
        "Zero-concentrated DP",
        "Renyi DP",
        "Custom",
    },
    "model_name": {"Local", "Central", "Shuffle", "Federated", "Varies"},
    "release_type": {"One release", "Many releases"},
    "data_source_type": {"Static", "Dynamic"},
    "access_type": {"Interactive", "Non-interactive"},
}
MECHANISM = sstq.FrameUnit(dim=6, epsilon=2.0, messages=2)
TERMS = Shuffling("https://shuffle.example", "ab" * 32, "cd" * 32, threshold=20)
MIXED = Campaign(
    "mixed",
    MECHANISM,
    closes=datetime(2100, 1, 1, tzinfo=UTC),
    senders="single-use",
    shuffling=TERMS,
)
CROWDS = [
    {"people": 3000, "epsilon": 0.9, "delta": 1e-6},
    {"people": 900, "epsilon": 1.5, "delta": 1e-6},
]


def check(entry):
    """As the registry checks it; returns the deployment."""
    assert set(entry) == {"url_slug", "status", "tier", "deployment"}
    assert re.fullmatch("[a-z0-9-]+", entry["url_slug"])
    assert (entry["status"], entry["tier"]) == ("Draft", 2)
    found = entry["deployment"]
    assert set(found) <= {section.rstrip("*") for section in SCHEMA}
    for section, names in SCHEMA.items():
        own = found.get(section.rstrip("*"), {})
        assert set(own) <= {name.rstrip("*") for name in names.split()}
        if own or section.endswith("*"):
            assert {name[:-1] for name in names.split() if name.endswith("*")} <= set(
                own
            )
        for name, value in own.items():
            assert name not in CHOICES or value in CHOICES[name]
            kind = {
                "data_curators": list,
                "registry_authors": list,
                "privacy_parameters": dict,
            }.get(name, str)
            assert isinstance(value, kind)
            assert value
    date.fromisoformat(found["basic"]["publication_date"])
    assert json.loads(json.dumps(entry)) == entry
    return found


def test_a_campaign_without_a_shuffler_is_pure_dp_of_all_messages():
    campaign = Campaign("-steps", MECHANISM, readers="public")
    found = check(
        registry_entry(campaign, {"count": 200, "shuffling": None}, date(2027, 3, 4))
    )
    assert found["privacy_loss"]["privacy_parameters"] == {"epsilon": 4.0}
    assert (
        found["dp_variant"]["variant_name"],
        found["deployment_model"]["model_name"],
    ) == ("Pure DP", "Local")
    assert found["deployment_model"]["release_type"] == "Many releases"
    assert campaign.digest in found["implementation"]["mechanisms"]


def test_a_shuffled_campaign_states_its_worst_crowd_and_the_local_epsilon():
    found = check(
        registry_entry(
            MIXED, {"count": 3900, "shuffling": {"crowds": CROWDS}}, date(2027, 3, 4)
        )
    )
    assert found["privacy_loss"]["privacy_parameters"] == {
        "epsilon": 1.5,
        "delta": 1e-6,
    }
    assert found["dp_variant"]["variant_name"] == "Approximate DP"
    assert "900 people" in found["privacy_loss"]["privacy_parameters_details"]
    assert "ε = 4 remains" in found["deployment_model"]["actors"]
    empty = check(
        registry_entry(
            MIXED, {"count": 0, "shuffling": {"crowds": []}}, date(2027, 3, 4)
        )
    )
    assert empty["privacy_loss"]["privacy_parameters"] == {"epsilon": 4.0}
