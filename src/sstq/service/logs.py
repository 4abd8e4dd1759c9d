"""Logging that identifies nobody: no address, no user agent, no time finer than the hour."""

from __future__ import annotations

import json
import logging
import traceback
from typing import Any

__all__ = ["PrivateFormatter", "log_settings"]


class PrivateFormatter(logging.Formatter):
    """Formats log lines with the hour. Errors are logged by type and position in the code, without their message.

    The message of an error may contain parts of a request, such as a key or the bytes of a message.
    """

    def __init__(self, form: str = "text") -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %Hh")
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Format a line of text, or of JSON."""
        if self._form == "text":
            return super().format(record)
        line = {
            "hour": self.formatTime(record, self.datefmt),
            "level": record.levelname,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)

    def formatException(self, ei: Any) -> str:  # noqa: N802 (the name is logging's)
        """Format an error's type and its positions in the code."""
        kind, _, places = ei
        return "".join([*traceback.format_tb(places), getattr(kind, "__name__", str(kind))])


def log_settings(form: str) -> dict[str, Any]:
    """The logging configuration of a server process; there is no access log."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"private": {"()": PrivateFormatter, "form": form}},
        "handlers": {"private": {"class": "logging.StreamHandler", "formatter": "private"}},
        "loggers": {
            name: {"handlers": ["private"], "level": "WARNING", "propagate": False}
            for name in ("uvicorn", "sstq.service")
        },
    }
