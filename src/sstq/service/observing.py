"""What an operator sees: whether the service can store, metrics for Prometheus, and logs. They identify nobody."""

import json
import logging
import shutil
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, Metric

from sstq.service.database import DatabaseUnavailable
from sstq.service.security import Problem
from sstq.service.store import Store

_IDLE_SECONDS = 10.0
_STALE_SECONDS = 30.0
_LEAST_FREE_BYTES = 1 << 24
_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

disable_created_metrics()  # type: ignore[no-untyped-call]  # they are times, finer than the hour


def check_health(store: Store) -> None:
    """Raise a Problem unless the service could store last and has space; this waits for nothing."""
    if store.failing or time.monotonic() - store.stored > _STALE_SECONDS:
        raise Problem(503, "The database is not available.", {"Retry-After": "5"})
    file = store.url.database
    if (
        store.sqlite
        and file
        and shutil.disk_usage(Path(file).parent).free < _LEAST_FREE_BYTES
    ):
        raise Problem(
            503, "The disk of the database is almost full.", {"Retry-After": "5"}
        )


def try_to_store(store: Store) -> None:
    """Store something, unless something was stored recently: `check_health` remembers whether it worked."""
    if store.failing or time.monotonic() - store.stored > _IDLE_SECONDS:
        with suppress(DatabaseUnavailable):
            store.ping()


class Metrics:
    """The counts of this process."""

    def __init__(self) -> None:
        made = self.registry = CollectorRegistry()
        self.uploads = Counter(
            "sstq_uploads",
            "Uploads by their answer.",
            ["campaign", "status"],
            registry=made,
        )
        self.seconds = Histogram(
            "sstq_upload_seconds",
            "Seconds until an upload is acknowledged.",
            buckets=_BUCKETS,
            registry=made,
        )
        self.rounds = Counter(
            "sstq_rounds", "Rounds of background work.", ["result"], registry=made
        )
        self.people = Counter(
            "sstq_people",
            "People mixed, dropped or refused.",
            ["campaign", "result"],
            registry=made,
        )


def gauge(name: str, meaning: str, values: Mapping[Any, float], *labels: str) -> Metric:
    """A gauge of each campaign, by its name and the values of further labels."""
    made = GaugeMetricFamily(name, meaning, labels=["campaign", *labels])
    for own, value in values.items():
        made.add_metric(own, value)
    return made


class PrivateFormatter(logging.Formatter):
    """Formats log lines with the hour, as text or JSON. Of errors they have the type and the position in the code.

    The message of an error may contain parts of a request, such as a key or the bytes of a message.
    """

    def __init__(self, form: str = "text") -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %Hh")
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Format a line of text, or of JSON."""
        if self._form == "text":
            return super().format(record)
        hour = self.formatTime(record, self.datefmt)
        level = record.levelname
        error = (
            {"error": self.formatException(record.exc_info)} if record.exc_info else {}
        )
        return json.dumps(
            {"hour": hour, "level": level, "message": record.getMessage()} | error,
            ensure_ascii=False,
        )

    def formatException(self, ei: Any) -> str:  # noqa: N802 (the name is logging's)
        """Format an error's type and its positions in the code."""
        kind, _, places = ei
        return "".join(
            [*traceback.format_tb(places), getattr(kind, "__name__", str(kind))]
        )


def log_settings(form: str) -> dict[str, Any]:
    """The logging configuration of a server process; there is no access log."""
    logger = {"handlers": ["private"], "level": "WARNING", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"private": {"()": PrivateFormatter, "form": form}},
        "handlers": {
            "private": {"class": "logging.StreamHandler", "formatter": "private"}
        },
        "loggers": {"uvicorn": logger, "sstq.service": logger},
    }
