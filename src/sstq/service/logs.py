"""Logging that identifies nobody: no address, no user agent, no time finer than the hour."""

from __future__ import annotations

import logging
import traceback
from typing import Any

__all__ = ["LOGS", "PrivateFormatter"]


class PrivateFormatter(logging.Formatter):
    """Formats log lines with the hour. Errors are logged by type and position in the code, without their message.

    The message of an error may contain parts of a request, such as a key or the bytes of a message.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %Hh")

    def formatException(self, ei: Any) -> str:  # noqa: N802 (the name is logging's)
        """Format an error's type and its positions in the code."""
        kind, _, places = ei
        return "".join([*traceback.format_tb(places), getattr(kind, "__name__", str(kind))])


LOGS: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"private": {"()": PrivateFormatter}},
    "handlers": {"private": {"class": "logging.StreamHandler", "formatter": "private"}},
    "loggers": {
        name: {"handlers": ["private"], "level": "WARNING", "propagate": False} for name in ("uvicorn", "sstq.service")
    },
}
"""The logging configuration of a server process; there is no access log."""
