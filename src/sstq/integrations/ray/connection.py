"""Connecting to Ray: a new, quiet one on this machine's cores, stopped at the end, or a running one."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

__all__ = ["connected", "import_ray"]

# No telemetry in the instance that we start.
_START_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0"}
# In this process: no reports about tasks that nobody waits for any more, because an earlier one was refused.
_DRIVER_ENVIRONMENT = {"RAY_IGNORE_UNHANDLED_ERRORS": "1"}
_TRIES = 3
_KNOCK_SECONDS = 10.0
_QUIET = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}


def import_ray() -> Any:
    """Import Ray; ImportError names the extra if it is missing."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("this needs Ray: pip install 'sstq[ray]'") from error
    return ray


@contextmanager
def connected(address: str | None = None, *, cpus: int | None = None) -> Iterator[None]:
    """Connect to Ray within the block, unless this process is already connected.

    Args:
        address: None to start a new Ray, without dashboard, log and usage statistics, which stops at the end of the
            block; "auto", "host:port" or "ray://host:port" to join a running one, which keeps running.
        cpus: the number of cores of a new Ray, by default all.

    Raises:
        ConnectionError: there is no Ray at this address, or a new one does not start.

    """
    ray = import_ray()
    if ray.is_initialized():
        if address is not None or cpus is not None:
            raise ValueError("address and cpus must be left out: this process is already connected to Ray")
        yield
        return
    if address is not None and cpus is not None:
        raise ValueError(f"cpus must be left out with address={address!r}: it is for a new Ray")
    with _environment(_DRIVER_ENVIRONMENT):
        _connect(ray, address, cpus)
        try:
            yield
        finally:
            with _without_warnings():
                ray.shutdown()


def _connect(ray: Any, address: str | None, cpus: int | None) -> None:
    with _without_warnings():
        if address is None:
            with _environment(_START_ENVIRONMENT):
                _start(ray, cpus)
            return
        try:
            _knock(address)
            ray.init(address=address, **_QUIET)
        except (OSError, RuntimeError, ValueError) as error:
            raise ConnectionError(f"no Ray is running at {address!r}: {_first_line(error)}") from error


def _knock(address: str) -> None:
    """Raise an OSError if nothing listens at HOST:PORT. Ray itself would retry for twelve minutes."""
    place = urlsplit(address if "://" in address else f"//{address}")
    if place.hostname is not None and place.port is not None:
        socket.create_connection((place.hostname, place.port), timeout=_KNOCK_SECONDS).close()


def _start(ray: Any, cpus: int | None) -> None:
    """Start a new Ray. Its time limit of 30 seconds may be too short on a very busy machine, so retry."""
    for tries_left in reversed(range(_TRIES)):
        try:
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **_QUIET)
            return
        except Exception as error:
            # It is a plain Exception, recognisable only by its text.
            if not tries_left or "timed out during startup" not in str(error):
                raise ConnectionError(f"Ray did not start: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for processes started in the block, unless the user has set them."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Ray leaves files to the garbage collector, tells of versions to come, and warns of what it raises as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
