"""Metrics for Prometheus: counts of this process, and of the database when they are read. They hold no addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

__all__ = ["Metrics", "gauge"]

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """The metrics of one process.

    Attributes:
        uploads: uploads by campaign and HTTP status; the campaign is empty if no campaign has that name.
        seconds: how long uploads took, from their headers to their answer.
        rounds: rounds of background work, by success or failure.
        people: at a shuffler, the people whose envelopes were mixed, dropped or refused, by campaign.
        gauges: returns further metrics when they are read; it may block.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        made: dict[str, Any] = {"registry": self._registry}
        self.uploads = Counter("sstq_uploads", "Uploads answered by this process.", ["campaign", "status"], **made)
        self.seconds = Histogram(
            "sstq_upload_seconds", "Seconds until an upload is answered.", buckets=_SECONDS, **made
        )
        self.rounds = Counter("sstq_rounds", "Rounds of background work.", ["result"], **made)
        self.people = Counter("sstq_people", "People mixed, dropped or refused.", ["campaign", "result"], **made)
        self.gauges: Callable[[], Iterable[Metric]] = tuple
        self._registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing yet: the gauges are made when they are read."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The gauges."""
        return self.gauges()

    def render(self) -> bytes:
        """Return all metrics as text, without the times at which this process began to count."""
        lines = generate_latest(self._registry).splitlines(keepends=True)
        return b"".join(line for line in lines if b"_created" not in line)


def gauge(name: str, meaning: str, labels: Iterable[str], values: Mapping[Any, float]) -> Metric:
    """A gauge with the values of its labels."""
    made = GaugeMetricFamily(name, meaning, labels=list(labels))
    for own, value in values.items():
        made.add_metric(own, value)
    return made
