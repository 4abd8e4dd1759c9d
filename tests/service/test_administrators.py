"""Administrators at once: every change that was acknowledged is there."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

import sstq

pytest.importorskip("fastapi")

from sstq.client import Campaign
from sstq.service import Settings
from sstq.service.administration import change_terms
from sstq.service.collector import Collector
from sstq.service.terms import OwnTerms
from tests.patience import PATIENCE
from tests.service import both
from tests.service.serving import ADMINISTRATOR

CHANGES = (
    {"labels": ["a", "b", "c"]},
    {"release_every": 77, "closed": True},
)


@both
def test_two_administrators_lose_nothing(database_url, monkeypatch):
    """Both read the terms before one of them writes; each changes others."""
    collector = Collector(Settings(database_url, ADMINISTRATOR))
    save = Collector.save
    monkeypatch.setattr(
        Collector,
        "save",
        lambda *given, **options: arrive(given) or save(*given, **options),
    )
    both_have_read = Barrier(2)

    def arrive(given):
        if len(given) > 3 and given[3] is entry:  # what both read first
            both_have_read.wait(PATIENCE)

    for number in range(4):
        entry = None
        collector.create(
            Campaign(f"steps-{number}", sstq.FrameUnit(dim=3, epsilon=2.0)), OwnTerms()
        )
        entry = collector.entries[f"steps-{number}"]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(change_terms, [collector] * 2, [entry] * 2, CHANGES))
        found = collector.entries[f"steps-{number}"]
        assert (
            found.campaign.labels,
            found.own.release_every,
            found.stored.closed,
        ) == (("a", "b", "c"), 77, True)
    collector.store.close()
